"""Opens views of many sessions at one known position, while the replica's applier is stopped.

A session of MySQL or MariaDB cannot import the view of another session. So all sessions that read a
table open their views at the same time:

1. Each session logs in, signals its arrival, and waits at a gate.
2. When all sessions have arrived, the replica's applier is stopped. S is the set of transactions
   that the replica has executed by this time.
3. The gate opens, and each session opens its view.
4. The applier is started again.

The applier is not yet stopped while the sessions arrive. So a slow session does not lengthen the
stop.

The gate and the signals are named locks of the server (``GET_LOCK``). A login needs no right for
named locks. This process holds a further named lock, the lock of the pause, while the sessions may
open their views. The server releases a lock when the session that holds the lock ends. So if this
process dies, the gate opens, and the lock of the pause is released. A session that then passes the
gate finds the lock of the pause released, and fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from uuid import uuid4

from cdc.errors import PositionError, ReplicaError
from cdc.log.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.runtime.progress import Progress, Task
from cdc.runtime.waiting import wait_while
from cdc.sources.mysql import replica_applier
from cdc.sources.mysql.accounts import account_sql, current_account
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.lock_gate import Gate
from cdc.sources.mysql.lock_watch import LockWatch
from cdc.sources.mysql.primary import applied, executed_position, has_gtids
from cdc.sources.mysql.replica_applier import Applier
from cdc.sources.source_facts import Marker, ServerIdentity
from cdc.sources.views import View
from schemas.errors import TributaryError
from schemas.table import TableId

ARRIVALS_S = 300.0
"""Bound of the wait for all sessions to arrive at the gate, in seconds.

It must be shorter than `WAIT_S`, the bound of each session's wait at the gate.
"""

_POLL_S = 0.01
_ARRIVALS_POLL_S = 0.1
_RIGHT = {"mysql": "REPLICATION_SLAVE_ADMIN", "mariadb": "REPLICATION SLAVE ADMIN"}

_log = logging.getLogger(__name__)

# If two copies wait for their sessions at once, each can hold task slots that the other needs, and
# both wait for ever. So the copies of this process open their sessions one after another.
_TURN = threading.Lock()


def obstacle(connections: Connections, *, on_replica: bool) -> tuple[str, str] | None:
    """Return why MySQL or MariaDB cannot open a view at a known position, and the remedy.

    The result is None if the server can open such a view.
    """
    kind = connections.config.kind
    if not on_replica:
        return (
            f"{connections.where(on_replica=False)} cannot open a view at a known position"
            " without a lock; only a replica with a stopped applier can, and this table is not"
            " read from a replica",
            "Set `replica`, and remove snapshot_from from the table's settings.",
        )
    with connections.look("marker") as session:
        position = executed_position(session, kind) if has_gtids(session, kind) else None
    if position is None:
        return (
            f"{connections.where(on_replica=False)} has no GTIDs, which show what events a copy"
            " already contains",
            "Set gtid_mode = ON; without GTIDs only tables with a key can be replicated.",
        )
    if isinstance(position, MariadbGtidSet) and len(position.last) > 1:
        return (
            f"the primary has logged in {len(position.last)} GTID domains, and a replica may"
            " execute these in any order",
            "Give the table a primary key: only tables with a key can be replicated from such a"
            " server.",
        )
    with connections.look("snapshot", on_replica=True) as session:
        if _has_right(session, _RIGHT[kind]):
            return None
        account = current_account(session)
    where = connections.where(on_replica=True)
    return (
        f"{account_sql(account)} may not stop the applier of the {where}, so it is unknown which"
        " events a copy already contains",
        f"On the primary: GRANT {_RIGHT[kind]} ON *.* TO {account_sql(account)}; (the applier stops"
        " for a moment when a copy or a verification starts).",
    )


@dataclass(frozen=True)
class Fenced:
    """A MySQL or MariaDB replica that has already replicated a marker.

    Args:
        marker: The marker, a row that was written on the primary.
        identity: The replica's identity.
    """

    marker: Marker
    identity: ServerIdentity


@contextmanager
def replica_view(
    applier: Applier,
    fenced: Fenced,
    *,
    sessions: int,
    resuming: Callable[[], AbstractContextManager[None]],
    timeout_s: float,
    progress: Progress,
) -> Iterator[View]:
    """Open a view of a MySQL or MariaDB replica at one position.

    The view's `split` returns the position once all sessions have opened their views.

    Args:
        applier: The replica's applier.
        fenced: The replica and the marker that it has replicated.
        sessions: Number of sessions that share the view. These sessions must connect while the
            block of `replica_view` runs.
        resuming: Returns a context manager in whose block the applier is stopped. At the end of
            this block, the context manager starts the applier again. If this process dies in the
            block, the server starts the applier (`replica_applier.server_resumes`).
        timeout_s: Bound of the wait for the sessions to arrive, in seconds.
        progress: Shows the waits.

    Raises:
        ReplicaError: Another copy in this process takes too long to open the views of its sessions.
        SourceError: The replica cannot be reached.
    """
    with ExitStack() as stack:
        task = progress.start(f"open {sessions} sessions at once", sessions, "sessions")
        stack.callback(task.done)
        opening = Opening(applier, sessions, resuming, timeout_s, task)
        opening.start()
        stack.callback(opening.end)
        if (error := opening.failure()) is not None:
            raise error
        yield View(
            snapshot_id=opening.gate.name,
            upper_bound=fenced.marker.position,
            opened_at=datetime.now(timezone.utc),
            on_replica=True,
            marker=fenced.marker,
            identity=fenced.identity,
            split=opening,
        )


@contextmanager
def _turn_to_open_sessions(timeout_s: float) -> Iterator[None]:
    """While the block runs, nothing else in this process opens a replica's exact view."""
    if not _TURN.acquire(timeout=timeout_s):
        raise ReplicaError(
            f"another copy in this process has waited for {timeout_s:.0f} s for its sessions on a"
            " replica to open",
            remedy="Run the command again; if this repeats, copy fewer tables at once.",
        )
    try:
        yield
    finally:
        _TURN.release()


class Opening(threading.Thread):
    """A thread that opens the views of all MySQL or MariaDB sessions at one position, S.

    The object is also the `Split` of these views: `known` returns S.
    """

    def __init__(
        self,
        applier: Applier,
        sessions: int,
        resuming: Callable[[], AbstractContextManager[None]],
        timeout_s: float,
        task: Task,
    ) -> None:
        super().__init__(name="tributary-open-view", daemon=True)
        self.gate = Gate(f"tributary.{uuid4().hex[:12]}")
        self._applier = applier
        self._connections = applier.connections
        self._sessions = sessions
        self._resuming = resuming
        self._turn_timeout_s = timeout_s
        self._timeout_s = min(timeout_s, ARRIVALS_S)
        self._task = task
        self._closed, self._given_up = threading.Event(), threading.Event()
        self._split: GtidSet | None = None
        self._error: BaseException | None = None
        self._watch: LockWatch | None = None

    def start(self) -> None:
        """Start the thread that opens MySQL or MariaDB views.

        The method returns once the gate is closed or the thread has failed.
        """
        super().start()
        self._closed.wait()

    def known(self) -> GtidSet:
        """Wait until all MySQL or MariaDB sessions have opened their views, and return S.

        S is the position of all these views: the GTIDs that the replica had executed.

        Raises:
            TributaryError: The sessions could not be opened, or not all of them arrived.
        """
        self.join(self._timeout_s + 2 * replica_applier.PAUSE_LIMIT_S)
        if self._split is not None:
            return self._split
        raise self.failure() or self._sessions_missing(0)

    def failure(self) -> TributaryError | None:
        """Return why MySQL or MariaDB views could not be opened; None if no error has occurred."""
        if isinstance(self._error, TributaryError):
            return self._error
        if self._error is not None:
            return ReplicaError(
                f"sessions on the {self._where} could not be opened together: {self._error!r}",
                remedy="This is a defect of this version; report it with the log.",
            )
        return None

    def watch(self, table: TableId) -> None:
        """Start a thread that ends the sessions of this view if replication waits for them.

        Args:
            table: The table that the sessions of MySQL or MariaDB read.
        """
        if self._watch is None:
            self._watch = LockWatch(self._connections, self.gate, table, self._spoil)
            self._watch.start()

    def _spoil(self, error: TributaryError) -> None:
        self._error = error

    def end(self) -> None:
        """Stop waiting for MySQL or MariaDB sessions that have not arrived, and end the threads."""
        self._given_up.set()
        if self._watch is not None:
            self._watch.end()
        self.join(2 * replica_applier.PAUSE_LIMIT_S)

    def run(self) -> None:
        """Run the thread that opens MySQL or MariaDB views.

        The thread stores the views' position S, or stores an error, which `known` then raises.
        """
        try:
            with _turn_to_open_sessions(self._turn_timeout_s):
                self._split = self._open_all_views()
        except BaseException as error:  # noqa: BLE001 - `known` raises it
            self._error = error
        finally:
            self._closed.set()

    def _open_all_views(self) -> GtidSet:
        """Open all sessions' views while the applier is stopped; return the views' position S."""
        control = self._connections.open("snapshot", on_replica=True)
        with control as session:
            self.gate.close(session)
            self._closed.set()
            self._wait_for_sessions(session)
            applier = self._applier
            with replica_applier.server_resumes(applier) as watchdog, self._resuming():
                watchdog(applier.running(session))
                began = time.monotonic()
                split = self._stopped(session)
                self.gate.open(session)
                self._wait_until_all_have_views(session)
                # If S has changed, the applier ran after it was stopped.
                if applier.any_runs(session) or not self._has_applied(session, split):
                    raise ReplicaError(
                        f"the applier of the {self._where} ran while the sessions took their views",
                        remedy="Find out what else starts the applier, then run the command again.",
                    )
                self.gate.end_pause(session)
            took = time.monotonic() - began
            _log.info("the applier of the %s was stopped for %.3f s", self._where, took)
            return split

    def _wait_for_sessions(self, session: Session) -> None:
        come = 0

        def absent() -> bool:
            nonlocal come
            shown, come = come, self.gate.waiting(session)
            self._task.advance(come - shown)
            return come < self._sessions

        if wait_while(
            absent, timeout_s=self._timeout_s, poll_s=_ARRIVALS_POLL_S, stop=self._given_up
        ):
            raise self._sessions_missing(come)

    def _stopped(self, session: Session) -> GtidSet:
        """Stop the applier; return the transactions that the replica has executed."""
        self._applier.stop(session)
        split = applied(session, self._connections.config.kind)
        self._require_whole(split)
        return split

    def _require_whole(self, split: GtidSet) -> None:
        """Check that the MySQL or MariaDB replica has executed transactions without a gap.

        Raises:
            ReplicaError: There is a gap in the GTIDs of one server. For example, the replica has
                executed transactions 1 to 3 and 5 of the server, and lacks transaction 4.
        """
        if not isinstance(split, MysqlGtidSet):
            return  # a MariaDB position in one GTID domain has no gaps
        with self._connections.open("marker") as session:
            everything = executed_position(session, self._connections.config.kind)
        if not isinstance(everything, MysqlGtidSet):
            raise PositionError.of_kinds(everything, split)
        lacking = everything.without(split)
        for owner, gaps in lacking.intervals.items():
            has = split.intervals.get(owner, ())
            if has and gaps[0][0] < has[-1][1]:
                raise ReplicaError(
                    f"the {self._where} executes transactions in another order than the primary:"
                    f" it has {split}, and lacks {lacking}",
                    remedy="Set replica_preserve_commit_order = ON there, and on each server"
                    " between it and the primary.",
                )

    def _has_applied(self, session: Session, split: GtidSet) -> bool:
        """Whether the MySQL or MariaDB replica has executed only transactions of ``split``."""
        return split.reaches(applied(session, self._connections.config.kind))

    def _wait_until_all_have_views(self, session: Session) -> None:
        limit_s = replica_applier.PAUSE_LIMIT_S / 2
        if absent := wait_while(
            lambda: max(self._sessions - self.gate.passed(session), 0),
            timeout_s=limit_s,
            poll_s=_POLL_S,
        ):
            raise ReplicaError(
                f"only {self._sessions - absent} of {self._sessions} sessions on the"
                f" {self._where} had their views after {limit_s:.0f} s",
                remedy="Run the command again when the replica has less load.",
            )

    def _sessions_missing(self, come: int) -> ReplicaError:
        return ReplicaError(
            f"only {come} of the {self._sessions} sessions that read at the same time have"
            f" connected to the {self._where}",
            remedy="Lower parallel_chunks of the table, or give Spark more cores: it needs that"
            " many free slots at once. The replica must also allow that many sessions of one"
            " login (max_user_connections).",
        )

    @property
    def _where(self) -> str:
        return self._connections.where(on_replica=True)


def _has_right(session: Session, right: str) -> bool:
    """Whether a MySQL or MariaDB account has a right, or SUPER, without the help of a role."""
    name, host = current_account(session)
    held = session.rows(
        "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = %s"
        " AND PRIVILEGE_TYPE IN (%s, 'SUPER')",
        (f"'{name}'@'{host}'", right),
    )
    return bool(held)
