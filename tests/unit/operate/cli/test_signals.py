"""Signals that end a command, even if its terminal is gone."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from cdc.store.lease import Lease
from cdc.store.state_store import Store
from schemas.table import TableId

ROOT = Path(__file__).parents[4]

HOLD = """
import time
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from operate.cli import app, main
from schemas.table import TableId

@app.command()
def hold(url: str, seconds: float) -> None:
    with Leases(Store(url)).hold(TableId("a", "b", "c")):
        try:
            print("held", flush=True)
            time.sleep(seconds)
        finally:
            print("given up", flush=True)
            open(url.removeprefix("sqlite:///") + ".told", "w").close()

main()
"""


def hold(tmp_path: Path, seconds: float, **popen: Any) -> subprocess.Popen[str]:
    """Start a command that takes a lease and holds it for this number of seconds."""
    url = f"sqlite:///{tmp_path}/state.db"
    command = [sys.executable, "-c", HOLD, "hold", url, str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, text=True, **popen)


def assert_given_up(tmp_path: Path) -> None:
    assert (tmp_path / "state.db.told").exists()
    store = Store(f"sqlite:///{tmp_path}/state.db")
    assert Lease(store, TableId("a", "b", "c"), "heir").acquire() == 2
    store.close()


def heed_hangups() -> None:
    """Let commands react to SIGHUP, even if the tests run under ``nohup``."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_up_what_is_held(tmp_path: Path, number: signal.Signals) -> None:
    with hold(tmp_path, 60, stdout=subprocess.PIPE, preexec_fn=heed_hangups) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(number)
        assert process.stdout.readline() == "given up\n"
    assert process.returncode == 128 + number
    assert_given_up(tmp_path)


def test_a_lost_terminal_gives_up_what_is_held(tmp_path: Path) -> None:
    """The command cannot write to the lost terminal any more, but it must release its lease."""
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        heed_hangups()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with hold(
        tmp_path,
        60,
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        start_new_session=True,
        preexec_fn=own_terminal,
    ) as process:
        os.close(theirs)
        assert os.read(ours, 4) == b"held"
        os.close(ours)
    assert process.returncode == 128 + signal.SIGHUP
    assert_given_up(tmp_path)


def test_a_command_under_nohup_goes_on_without_its_terminal(tmp_path: Path) -> None:
    def ignored() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with hold(tmp_path, 0.5, stdout=subprocess.PIPE, preexec_fn=ignored) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "given up\n"
    assert process.returncode == 0
