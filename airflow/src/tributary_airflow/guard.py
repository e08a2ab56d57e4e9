"""Runs one command, and ends it when the process that started it asks for that or is gone.

Airflow kills the process of a task five seconds after SIGTERM. `tributary` needs longer: it
finishes what is under way, and ends Spark. So this process stands between the two. It forwards
SIGTERM, waits with a bound, and kills the command and its children after that. It does the same
once its standard input ends, which the kernel closes with the process of the task, however that
ended.

It is started as a file, ``python -I guard.py BOUND COMMAND...``, so it uses the standard library
only.
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
    """Run a command, and return its exit code; 128 and the number of a signal that ended it.

    Args:
        arguments: The seconds that the command has between SIGTERM and SIGKILL, then the command.
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
    """Copy a stream; read on when nobody takes it any more, so that the command ends in peace."""
    open_end = True
    while chunk := os.read(source, CHUNK):
        while open_end and chunk:
            try:
                chunk = chunk[os.write(target, chunk) :]
            except OSError:
                open_end = False


def _wait(child: subprocess.Popen[bytes], stop: threading.Event, bound_s: float) -> int:
    """Wait for the command; when asked to stop, end it, and kill its group after the bound."""
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
