"""Calls in threads that do not keep the process alive."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from cdc.runtime.daemon_threads import map_in_daemon_threads

_HANGS = """
import threading
from cdc.runtime.daemon_threads import map_in_daemon_threads
began = threading.Event()
def hang(number):
    began.set()
    threading.Event().wait(60)
look = lambda: map_in_daemon_threads(hang, range(9), at_once=2, name="look")
threading.Thread(target=look, daemon=True).start()
assert began.wait(20)
print("ends")
"""


def test_the_results_are_in_the_order_of_the_items() -> None:
    together = threading.Barrier(3)

    def work(number: int) -> int:
        together.wait(20.0)
        return number * 10

    assert map_in_daemon_threads(work, range(6), at_once=3, name="look") == [0, 10, 20, 30, 40, 50]
    assert map_in_daemon_threads(work, (), at_once=3, name="look") == []


def test_the_first_error_is_raised() -> None:
    def work(number: int) -> int:
        raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item 1"):
        map_in_daemon_threads(work, (1, 2), at_once=2, name="look")


def test_a_process_ends_while_its_calls_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
