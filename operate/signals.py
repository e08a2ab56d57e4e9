"""The signals that ask a command to end."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], None]


def handle_ends(handler: Handler) -> dict[signal.Signals, Any]:
    """Set a handler for the signals that ask a command to end; return each signal's former handler.

    The signals are SIGINT, SIGTERM, and SIGHUP, which comes when the terminal's connection is lost.
    Under ``nohup``, SIGHUP is ignored from the start, and stays ignored.

    Args:
        handler: The handler. Its first step must be a call of `leave_terminal`.
    """
    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        kinds.append(signal.SIGHUP)
    return {kind: signal.signal(kind, handler) for kind in kinds}


def leave_terminal(number: int) -> None:
    """Prepare the rest of the command for the loss of its terminal, if the signal is SIGHUP.

    Both the shell and the kernel can send SIGHUP. A second SIGHUP would interrupt what the command
    does at its end, so every further SIGHUP is ignored. If standard output or standard error is the
    terminal, the command's output to the terminal is dropped from now on: each write would fail.

    Args:
        number: The signal.
    """
    if number != signal.SIGHUP:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        try:
            # `isatty` says no after the loss.
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
        except OSError:  # it is closed
            continue
    os.close(nowhere)
