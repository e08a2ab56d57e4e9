"""Runs one command, and ends it when the guard's parent process asks for that or has ended.

Airflow kills the process of a task five seconds after SIGTERM. `tributary` needs longer: it
finishes what is under way, and ends Spark. So Airflow starts this process, the guard, and the guard
starts the command. The guard forwards SIGTERM, waits for a limited time, and then kills the command
and the command's children. The guard does the same when its standard input ends: the kernel closes
this input when the task's process ends, in whatever way.

The guard is started as a file, ``python -I guard.py BOUND COMMAND...``, so it uses the standard
library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType

NOT_EXECUTABLE = 126
NOT_FOUND = 127
POLL_S = 0.2
CHUNK = 65536


def main(arguments: list[str]) -> int:
    """Run a command; return its exit code, or 128 plus the number of the signal that ended it.

    Args:
        arguments: First the seconds that the command has between SIGTERM and SIGKILL, then the
            command's words.
    """
    bound_s, command = float(arguments[0]), arguments[1:]
    stop = threading.Event()

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)
    try:
        child = subprocess.Popen(  # noqa: S603 - a vector, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return NOT_FOUND
    except OSError:
        return NOT_EXECUTABLE
    threading.Thread(target=_await_parent, args=(stop,), daemon=True).start()
    pumps = [
        threading.Thread(target=_pump, args=(stream.fileno(), target), daemon=True)
        for stream, target in ((child.stdout, 1), (child.stderr, 2))
        if stream is not None
    ]
    for pump in pumps:
        pump.start()
    code = _wait(child, stop, bound_s)
    for pump in pumps:
        pump.join(bound_s)
    return code if code >= 0 else 128 - code


def _await_parent(stop: threading.Event) -> None:
    """Set the event once the process at the other end of standard input is gone."""
    with contextlib.suppress(OSError):
        while os.read(0, CHUNK):
            continue
    stop.set()


def _pump(source: int, target: int) -> None:
    """Copy a stream. If the target is closed, go on reading, so that the command does not block."""
    open_end = True
    while chunk := os.read(source, CHUNK):
        while open_end and chunk:
            try:
                chunk = chunk[os.write(target, chunk) :]
            except OSError:
                open_end = False


def _wait(child: subprocess.Popen[bytes], stop: threading.Event, bound_s: float) -> int:
    """Wait for the command's end; once ``stop`` is set, end it, by SIGKILL after the bound."""
    while not stop.wait(POLL_S):
        if (code := child.poll()) is not None:
            return code
    child.terminate()
    try:
        return child.wait(bound_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
