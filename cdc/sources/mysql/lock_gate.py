"""A gate of named locks on a server, at which sessions wait until another session opens it."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.sources.mysql.connection import Session

WAIT_S = 600
"""Bound of a session's wait at the gate, in seconds."""

BEGIN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; "
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
)
"""Statements with which a session opens its view."""


@dataclass(frozen=True)
class Gate:
    """The named locks by which MySQL or MariaDB sessions open one exact view together.

    A session waits at the gate, opens its view during the pause of replication, and waits at the
    exit until the pause has ended.

    Args:
        name: The prefix of the locks' names; each view has a prefix of its own.
    """

    name: str

    def close(self, session: Session) -> None:
        """Close the gate and the exit: take two named locks in MySQL or MariaDB.

        The gate and the exit open at the latest when the session that took the locks ends.
        """
        session.rows(f"DO GET_LOCK('{self._gate}', 0), GET_LOCK('{self._exit}', 0)")

    def open(self, session: Session) -> None:
        """Begin the pause, in which MySQL or MariaDB sessions may open views; open the gate."""
        session.rows(f"DO GET_LOCK('{self._pause}', 0), RELEASE_LOCK('{self._gate}')")

    def end_pause(self, session: Session) -> None:
        """End the pause: MySQL or MariaDB sessions with a view may read, and all others fail."""
        session.rows(f"DO RELEASE_LOCK('{self._pause}'), RELEASE_LOCK('{self._exit}')")

    def waiting(self, session: Session) -> int:
        """Return the number of MySQL or MariaDB sessions that wait at the gate."""
        return self._count(session, "come")

    def passed(self, session: Session) -> int:
        """Return the number of MySQL or MariaDB sessions that have opened their views."""
        return self._count(session, "open")

    def holders(self, session: Session) -> list[int]:
        """Return the ids of the MySQL or MariaDB sessions that have opened a view at this gate."""
        return self._ids(session, "open")

    def _count(self, session: Session, sign: str) -> int:
        return len(self._ids(session, sign))

    def _ids(self, session: Session, sign: str) -> list[int]:
        """Return the ids of a login's MySQL or MariaDB sessions that hold the lock of a signal.

        A login needs no right to see its own sessions.

        Args:
            session: A session of the login.
            sign: The signal, as in the lock's name: ``come`` after the session has arrived at the
                gate, ``open`` after the session has opened its view.
        """
        held = f"IS_USED_LOCK(CONCAT('{self.name}.{sign}.', ID)) = ID"
        query = f"SELECT ID FROM information_schema.PROCESSLIST WHERE {held}"  # noqa: S608 - ours
        return [int(number) for (number,) in session.rows(query)]

    @property
    def take_view(self) -> str:
        """The statements by which a MySQL or MariaDB session waits at the gate and opens its view.

        Before and after the session opens the view, the session checks that the pause has begun and
        has not ended. So the view is opened during the pause. The session then signals that it has
        its view, and waits at the exit. Without the exit, a session with little to read could
        end before its signal is counted. Outside the pause, the subquery that checks the pause
        returns two rows, and so fails.
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
        """Name of the MySQL or MariaDB lock that is held during the pause of replication.

        A session fails if it opens its view before or after the pause.
        """
        return f"{self.name}.pause"
