"""Named points at which a test can kill this process, to prove that a rerun completes the work.

``TRIBUTARY_CRASH_AT=name`` kills the process when it passes that point for the first time, and
``name:3`` when it passes that point for the third time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from cdc.errors import ConfigError

VARIABLE = "TRIBUTARY_CRASH_AT"

FAILPOINTS: tuple[str, ...] = (
    "onboard.after_topic",
    "onboard.after_publication",
    "onboard.after_connector",
    "onboard.after_register",
    "bootstrap.after_x0",
    "bootstrap.after_o",
    "bootstrap.after_marker",
    "replay.paused",
    "bootstrap.after_view",
    "bootstrap.before_chunk_commit",
    "bootstrap.after_chunk_commit",
    "bootstrap.after_copy",
    "bootstrap.after_second_marker",
    "bootstrap.before_handoff_commit",
    "bootstrap.after_handoff_commit",
    "bootstrap.after_catching_up",
    "bootstrap.before_publish",
    "shards.after_join",
    "bootstrap.after_publish",
    "run.before_follow",
    "run.after_follow",
    "resync.after_begin",
    "resync.after_build",
    "resync.before_swap",
    "resync.after_swap",
    "move.after_note",
    "move.after_join",
    "move.before_leave",
    "move.after_leave",
    "catalog.before_move",
    "catalog.between_renames",
    "generations.before_delete",
    "generations.after_delete",
    "run.after_plan",
    "run.before_commit",
    "run.in_commit",
    "run.after_commit",
    "run.before_state",
    "upkeep.in_clustering",
    "complete.before_marker",
    "quarantine.after_keep",
    "quarantine.after_replay",
    "give_up.after_note",
    "give_up.after_stop",
    "give_up.after_drop",
)


def _noop(name: str, /) -> None:
    """Do nothing. This is ``crash`` in a process whose environment requests no failpoint."""


def _armed(text: str) -> Callable[[str], None]:
    """Return a function `crash` that kills this process when it passes the requested failpoint.

    Args:
        text: Name of the failpoint, or ``name:3`` to kill at the third passage.
    """
    name, _, count = text.partition(":")
    if name not in FAILPOINTS or not (count or "1").isdecimal() or int(count or "1") < 1:
        raise ConfigError(
            f"{VARIABLE}={text} names no crash point",
            remedy=f"Use name or name:count with one of: {', '.join(FAILPOINTS)}.",
            field=VARIABLE,
        )
    remaining = int(count or "1")
    lock = threading.Lock()

    def kill_at(passed: str, /) -> None:
        nonlocal remaining
        if passed != name:
            return
        with lock:
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill_at


def _compiled() -> Callable[[str], None]:
    """Return the function `crash` for the failpoint that this process's environment requests."""
    wanted = os.environ.get(VARIABLE)
    return _armed(wanted) if wanted else _noop


crash: Callable[[str], None] = _compiled()
"""Kill this process by SIGKILL if the point is the requested one; otherwise do nothing."""
