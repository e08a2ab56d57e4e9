"""Pauses a replica's replay for a moment, and resumes it even if this process dies.

Replay resumes in one of three ways:

- This process resumes it at the end of the pause.
- If this process has died, the server itself resumes it after a time limit.
- If the server was restarted during the pause, the next command that opens the state store resumes
  replay, since the store has a record of the pause.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdc.errors import LeaseHeldError, ReplicaError
from cdc.runtime.failpoints import crash
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.sources.base import Replay
    from cdc.store.lease import Leases
    from cdc.store.state_store import Store

WAIT_S = 120.0
"""Bound of the wait for another process that pauses the same replica, in seconds."""

_log = logging.getLogger(__name__)


@contextmanager
def resuming(source: Replay, store: Store, leases: Leases) -> Iterator[None]:
    """Allow the ``with`` block to pause a replica's replay; resume replay after the block.

    Raises:
        ReplicaError: Another process or an operator has paused replay, or replay cannot be resumed.
        LeaseHeldError: After a wait of `WAIT_S` seconds, another process still holds the replica's
            lease.
    """
    with leases.hold(_replay_pause_lease(source.name), wait_s=WAIT_S):
        if source.name in store.paused_replays():
            _resume_replica(source, store)
        if source.replay_paused():
            raise ReplicaError(
                f"replay of the replica of source {source.name} is paused, and not by Tributary",
                remedy="Resume it on the replica (PostgreSQL: SELECT pg_wal_replay_resume();"
                " MySQL and MariaDB: START REPLICA SQL_THREAD), then run the command again.",
                source=source.name,
            )
        store.note_paused_replay(source.name)
        try:
            yield
            crash("replay.paused")
        finally:
            _resume_replica(source, store)


def resume_left_paused(store: Store, leases: Leases, open_source: Callable[[str], Replay]) -> None:
    """Resume replay on each replica where a killed process has left replay paused.

    If replay of a replica cannot be resumed now, the next command tries again.

    Args:
        store: The state store. Before a process pauses replay of a source's replica, the process
            records the source in the store. After the pause, the process deletes this record.
        leases: To pause replay of a source's replica, a process holds the replica's lease.
        open_source: Opens a source by its name.
    """
    for name in store.paused_replays():
        try:
            with leases.hold(_replay_pause_lease(name)):
                if name in store.paused_replays():
                    _resume_replica(open_source(name), store)
                    _log.warning(
                        "resumed replay of the replica of %s, which a process that ended"
                        " had left paused",
                        name,
                    )
        except LeaseHeldError:
            continue  # a process that is alive has paused it for a moment
        except TributaryError as error:
            _log.warning(
                "cannot resume replay of the replica of %s, which Tributary may have paused: %s",
                name,
                error,
            )


def _resume_replica(source: Replay, store: Store) -> None:
    """Resume replay of a source's replica, then delete the stored record of the pause."""
    source.resume_replay()
    store.forget_paused_replay(source.name)


def _replay_pause_lease(source: str) -> str:
    """Return the name of the lease that allows a process to pause replay of a source's replica."""
    return f"replay of the replica of {source}"
