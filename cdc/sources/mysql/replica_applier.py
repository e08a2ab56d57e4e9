"""Stops and starts a replica's applier, the thread that executes the primary's transactions.

A replica of MySQL can have several channels, each with an applier of its own. Only appliers that
run are stopped, and only these are started again: an operator can have stopped the others. In this
module, the name of a channel is the clause that selects the channel in a statement. MariaDB needs
no clause: on MariaDB, only the applier of the default connection is stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cdc.errors import ReplicaError, SourceError
from cdc.runtime.waiting import wait_while
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.replica_faults import by_current_names

PAUSE_LIMIT_S = 20.0
"""Longest stop of the applier, in seconds; the server then starts the applier by itself."""

_STATE_S = 10.0
_POLL_S = 0.01
_log = logging.getLogger(__name__)


class Applier:
    """Stops and starts the appliers of one replica, which execute the primary's transactions.

    Args:
        connections: The source's servers.
    """

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        # The channels whose appliers this object has stopped; None before it has looked.
        self._stopped: tuple[str, ...] | None = None

    def paused(self) -> bool:
        """Whether the replica's applier is stopped."""
        with self.connections.open("snapshot", on_replica=True) as session:
            return not self._first_runs(session)

    def running(self, session: Session) -> tuple[str, ...]:
        """Return the channels of the session's server whose appliers run.

        Raises:
            ReplicaError: The server does not replicate, or the first channel's applier is stopped.
        """
        states = self._states(session)
        if not next(iter(states.values())):
            self._stopped = ()  # whoever has stopped it starts it again
            raise ReplicaError(
                f"the applier of the {self._where} is stopped, and not by Tributary",
                remedy="Resume it on the replica (START REPLICA SQL_THREAD), then run the command"
                " again.",
            )
        return tuple(name for name, runs in states.items() if runs)

    def stop(self, session: Session) -> None:
        """Stop the running appliers of the session's server; wait until they have stopped.

        Raises:
            ReplicaError: The server does not replicate, its applier was already stopped, or an
                applier still runs when the wait has reached its bound.
        """
        names = self.running(session)
        self._stopped = names
        for name in names:
            session.rows(f"STOP REPLICA SQL_THREAD{name}")
        if wait_while(lambda: self.any_runs(session, names), timeout_s=_STATE_S, poll_s=_POLL_S):
            raise ReplicaError(
                f"the applier of the {self._where} did not stop within {_STATE_S:.0f} s",
                remedy="It may be executing a long transaction: run the command again later.",
            )

    def any_runs(self, session: Session, names: tuple[str, ...] | None = None) -> bool:
        """Whether the applier of any of these channels runs.

        Args:
            session: A session on the replica.
            names: The channels; None for the channels whose appliers `stop` has stopped.
        """
        of = self._stopped if names is None else names
        return any(runs for name, runs in self._states(session).items() if name in (of or ()))

    def resume(self) -> None:
        """Start the appliers that `stop` has stopped, and wait until they run.

        If `stop` has found that another client had stopped the applier, nothing is started. If
        `stop` was not called before, the applier of the first channel is started: a process that
        died can have stopped it.

        Raises:
            ReplicaError: An applier still does not run.
        """
        with self.connections.open("snapshot", on_replica=True) as session:
            first = tuple(self._states(session))[:1]
            names = first if self._stopped is None else self._stopped
            for name in names:
                session.rows(_start_statement(name))
            if wait_while(
                lambda: not self._all_run(session, names), timeout_s=_STATE_S, poll_s=_POLL_S
            ):
                errors = [one.get("last_sql_error") for one in _channels(session)]
                reason = "; ".join(str(one) for one in errors if one)
                raise ReplicaError(
                    f"the applier of the {self._where} was started, but does not run:"
                    f" {reason or 'the server reports no error'}",
                    remedy="Correct the applier's error, then run START REPLICA SQL_THREAD on the"
                    " replica.",
                )
        self._stopped = None

    def all_go_on(self) -> bool:
        """Whether all stopped appliers run again; False also if the replica cannot be queried."""
        try:
            with self.connections.open("snapshot", on_replica=True) as session:
                return self._all_run(session, self._stopped or ())
        except SourceError:
            return False

    def _all_run(self, session: Session, names: tuple[str, ...]) -> bool:
        states = self._states(session)
        return all(states.get(name) for name in names)

    def _first_runs(self, session: Session) -> bool:
        return next(iter(self._states(session).values()))

    def _states(self, session: Session) -> dict[str, bool]:
        """Return, for each channel, whether the channel's applier runs.

        Raises:
            ReplicaError: The server does not replicate.
        """
        states = {
            _channel_clause(one): str(one.get("replica_sql_running")).lower() == "yes"
            for one in _channels(session)
        }
        if not states:
            raise ReplicaError(
                f"{self._where} does not replicate from any server",
                remedy="Start replication by GTID there.",
            )
        return states

    @property
    def _where(self) -> str:
        return self.connections.where(on_replica=True)


def _channels(session: Session) -> list[dict[str, object]]:
    """Return the state of each channel of MySQL, or of MariaDB's default connection."""
    return [by_current_names(row) for row in session.named("SHOW REPLICA STATUS")]


def _channel_clause(channel: Mapping[str, object]) -> str:
    """Return the clause that names a channel; empty for MariaDB, whose statements need none.

    Without the clause, MySQL starts and stops the appliers of all channels.
    """
    if "channel_name" not in channel:
        return ""
    name = str(channel["channel_name"]).replace("\\", "\\\\").replace("'", "''")
    return f" FOR CHANNEL '{name}'"


def _start_statement(clause: str) -> str:
    """Return the statement that starts the applier of a MySQL or MariaDB replica."""
    return f"START REPLICA SQL_THREAD{clause}"


@contextmanager
def server_resumes(applier: Applier) -> Iterator[Callable[[tuple[str, ...]], None]]:
    """Make a MySQL or MariaDB replica start its appliers itself if this process dies in the block.

    A session of the server runs a countdown: a statement that waits `PAUSE_LIMIT_S`, and then the
    statements that start the appliers. The server runs these statements even if the client is gone.
    When the block ends, the session is killed, which ends the countdown. But if the block fails,
    and it is not certain that all stopped appliers run again, the session continues. So the server
    then starts the appliers.

    Yields:
        A function that begins the countdown. It takes the channels whose appliers run.
    """
    connections = applier.connections
    opened = connections.open(
        "snapshot", on_replica=True, statement_timeout_s=2 * PAUSE_LIMIT_S, several=True
    )
    with opened as session:
        number = int(session.value("SELECT connection_id()"))
        waiting: list[threading.Thread] = []

        def begin(channels: tuple[str, ...]) -> None:
            statements = "; ".join((f"DO SLEEP({PAUSE_LIMIT_S})", *map(_start_statement, channels)))
            thread = threading.Thread(
                target=_run_quietly,
                args=(session, statements),
                name="tributary-resume",
                daemon=True,
            )
            waiting.append(thread)
            thread.start()
            _wait_for_countdown(connections, number)

        try:
            yield begin
        except BaseException:
            if applier.all_go_on():
                _end_countdown(connections, number)
            raise
        _end_countdown(connections, number)
        for thread in waiting:
            thread.join(_STATE_S)


def _wait_for_countdown(connections: Connections, number: int) -> None:
    """Wait until the MySQL or MariaDB replica has begun the countdown of `server_resumes`.

    Before the countdown has begun, no applier may be stopped.

    Raises:
        ReplicaError: The countdown has not begun in time.
    """
    query = "SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = %s AND INFO LIKE 'DO SLEEP%%'"
    with connections.open("snapshot", on_replica=True) as control:
        if wait_while(
            lambda: not control.rows(query, (number,)), timeout_s=_STATE_S, poll_s=_POLL_S
        ):
            raise ReplicaError(
                f"the {connections.where(on_replica=True)} did not start the countdown after"
                " which it starts its applier by itself",
                remedy="Look at the replica's log and load, then run the command again.",
            )


def _end_countdown(connections: Connections, number: int) -> None:
    """Kill the MySQL or MariaDB session that runs a countdown."""
    try:
        with connections.open("snapshot", on_replica=True) as control:
            control.rows(f"KILL {number}")
    except SourceError as error:
        # The applier already runs, so its start at the end of the countdown has no effect.
        _log.warning("cannot end the countdown's session on the replica: %s", error)


def _run_quietly(session: Session, statements: str) -> None:
    """Run statements in a MySQL or MariaDB session, which may be killed; ignore all errors."""
    try:
        session.rows(statements)
    except Exception:  # noqa: BLE001 - the session was ended on purpose
        return
