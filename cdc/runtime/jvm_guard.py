"""Kills Spark's JVM if a hanging task keeps the JVM from ending by itself.

A task is a thread of the JVM, and a thread cannot be ended from outside. So the whole JVM is
killed. :func:`end_soon` kills the JVM so that this process does not wait for a hanging task.
:func:`guard` kills a JVM that outlives this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading

_log = logging.getLogger(__name__)

GRACE_S = 20.0
"""Bound, in seconds, of the time that running work may take to end after a request to stop."""
AFTER_S = 15
"""Bound, in seconds, of the time that a JVM may take to end after its command has ended."""

_WATCH = (
    "read -r _; n=0;"
    ' while kill -0 "$1" 2>/dev/null && [ "$n" -lt "$2" ]; do sleep 1; n=$((n+1)); done;'
    ' kill -9 "$1" 2>/dev/null'
)
"""A shell script that kills a JVM which outlives this process.

The script waits for the end of its input, which comes when this process ends in any way. Then the
script waits for the JVM's end, and kills the JVM after a time limit.
"""

_killed = threading.Event()
_guarded: list[tuple[subprocess.Popen[bytes], int]] = []
"""Each guarded JVM, and the write end of the script's input, open until this process ends."""


def guard(jvm: subprocess.Popen[bytes], *, after_s: int = AFTER_S) -> None:
    """Start a watcher that kills Spark's JVM if it has not ended soon after this process's end.

    The watcher also works if this process is killed.

    Args:
        jvm: The JVM's process, a child of this process.
        after_s: How long the JVM may run on after this process has ended, in seconds.
    """
    ours, theirs = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _WATCH, "sh", str(jvm.pid), str(after_s)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), *nowhere],
        setsid=True,  # a signal to our process group does not end it
    )
    os.close(ours)
    _guarded.append((jvm, theirs))


def end_soon(grace_s: float = GRACE_S) -> threading.Timer:
    """Start a timer that kills Spark's JVM after ``grace_s`` seconds.

    Calls that still wait for the JVM then fail.

    Killing the JVM is safe, since a commit is complete or has no effect.

    Args:
        grace_s: Time for the work in progress to end, in seconds.

    Returns:
        The timer, for the caller to cancel if the work has ended in time.
    """
    timer = threading.Timer(grace_s, _kill_guarded_jvms, (grace_s,))
    timer.daemon = True
    timer.start()
    return timer


def was_killed() -> bool:
    """Return whether this process has killed its JVM, which makes all calls of Spark fail."""
    return _killed.is_set()


def _kill_guarded_jvms(grace_s: float) -> None:
    """Kill Spark's JVMs that are still running, and record this for `was_killed`."""
    for jvm, _ in _guarded:
        if jvm.poll() is None:
            _log.warning("Spark did not end within %g s, and is killed", grace_s)
            _killed.set()
            jvm.kill()
