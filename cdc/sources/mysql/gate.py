"""A gate on a server that sessions wait at until one of them opens it, made of named locks."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.sources.mysql.connection import Session

WAIT_S = 600
"""How long a session waits at the gate, in seconds; it gives up then."""

BEGIN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; "
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
)
"""Takes a session's view."""


@dataclass(frozen=True)
class Gate:
    """The locks of one view.

    Args:
        name: What the names of all of them begin with, of nobody else.
    """

    name: str

    def close(self, session: Session) -> None:
        """From now on nobody passes, for as long as the session lives."""
        session.rows(f"DO GET_LOCK('{self._gate}', 0), GET_LOCK('{self._exit}', 0)")

    def open(self, session: Session) -> None:
        """Let the sessions pass, for as long as the pause is on."""
        session.rows(f"DO GET_LOCK('{self._pause}', 0), RELEASE_LOCK('{self._gate}')")

    def end_pause(self, session: Session) -> None:
        """Who takes a view from now on finds that it is too late; who has one may read."""
        session.rows(f"DO RELEASE_LOCK('{self._pause}'), RELEASE_LOCK('{self._exit}')")

    def waiting(self, session: Session) -> int:
        """How many sessions have come."""
        return self._count(session, "come")

    def passed(self, session: Session) -> int:
        """How many have taken their views."""
        return self._count(session, "open")

    def _count(self, session: Session, sign: str) -> int:
        """A login sees its own sessions without any right."""
        held = f"IS_USED_LOCK(CONCAT('{self.name}.{sign}.', ID)) = ID"
        query = f"SELECT count(*) FROM information_schema.PROCESSLIST WHERE {held}"  # noqa: S608 - ours
        return int(session.value(query))

    @property
    def take_view(self) -> str:
        """Statements by which a session comes, waits, takes its view and says so.

        The pause is looked at before and after: whoever finds it both times took the view in it. It
        waits again until that was seen: with little to read it would be gone before.
        The servers have no statement that fails with words of ours; a subquery with two rows
        stands for it.
        """
        late = (
            "SELECT (SELECT 1 UNION ALL SELECT 2 FROM DUAL"  # noqa: S608 - names are ours
            f" WHERE IS_USED_LOCK('{self._pause}') IS NULL) AS here"
        )
        return "; ".join(
            (
                f"DO GET_LOCK(CONCAT('{self.name}.come.', CONNECTION_ID()), 0)",
                f"DO GET_LOCK('{self._gate}', {WAIT_S}), RELEASE_LOCK('{self._gate}')",
                late,
                BEGIN,
                late,
                f"DO GET_LOCK(CONCAT('{self.name}.open.', CONNECTION_ID()), 0)",
                f"DO GET_LOCK('{self._exit}', {WAIT_S}), RELEASE_LOCK('{self._exit}')",
            )
        )

    @property
    def _gate(self) -> str:
        return f"{self.name}.gate"

    @property
    def _exit(self) -> str:
        return f"{self.name}.exit"

    @property
    def _pause(self) -> str:
        return f"{self.name}.pause"
