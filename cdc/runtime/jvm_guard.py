"""No JVM outlives the command that started it, and none keeps a command from ending.

A thread of a task cannot be ended from outside of it: one that never comes to its end keeps its JVM
alive, and whoever waits for it. So the process is.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading

_log = logging.getLogger(__name__)

GRACE_S = 20.0
"""How long what is under way may take to end once a command is told to, in seconds."""
AFTER_S = 15
"""How long a JVM may take to end by itself when its command has ended, in seconds."""

_WATCH = (
    "read -r _; n=0;"
    ' while kill -0 "$1" 2>/dev/null && [ "$n" -lt "$2" ]; do sleep 1; n=$((n+1)); done;'
    ' kill -9 "$1" 2>/dev/null'
)
"""Waits for the end of its input, which comes however its parent ends; then for that of the JVM."""

_killed = threading.Event()
_guarded: list[tuple[subprocess.Popen[bytes], int]] = []
"""Each JVM, with the pipe that is open as long as this process is there."""


def guard(jvm: subprocess.Popen[bytes], *, after_s: int = AFTER_S) -> None:
    """Let a JVM end when this process has ended, also if that is killed.

    Args:
        jvm: A child of this process.
        after_s: How long it may take to end by itself, in seconds.
    """
    ours, theirs = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _WATCH, "sh", str(jvm.pid), str(after_s)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), *nowhere],
        setsid=True,  # what ends a group of processes leaves it to its work
    )
    os.close(ours)
    _guarded.append((jvm, theirs))


def end_soon(grace_s: float = GRACE_S) -> threading.Timer:
    """Kill the JVM after a grace, so that whoever waits for it goes on; a commit is whole or not.

    Args:
        grace_s: How long what is under way may take to end, in seconds.

    Returns:
        What to cancel when it has ended in time.
    """
    timer = threading.Timer(grace_s, _kill, (grace_s,))
    timer.daemon = True
    timer.start()
    return timer


def was_killed() -> bool:
    """Whether errors of Spark are of no interest: its JVM was killed, since the command ends."""
    return _killed.is_set()


def _kill(grace_s: float) -> None:
    for jvm, _ in _guarded:
        if jvm.poll() is None:
            _log.warning("Spark did not end within %g s, and is killed", grace_s)
            _killed.set()
            jvm.kill()
