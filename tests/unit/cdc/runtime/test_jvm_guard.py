"""The guard kills a child process that does not end by itself, here in place of a hung JVM."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

_PARENT = """
import subprocess, sys, time
from cdc.runtime import jvm_guard
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
jvm_guard.guard(child, after_s=1)
print(child.pid, flush=True)
{rest}
"""
_LIMIT_S = 30.0


def parent(rest: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    started = subprocess.Popen(
        [sys.executable, "-c", _PARENT.format(rest=rest)], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, psutil.Process(int(started.stdout.readline()))


def test_the_child_of_a_process_that_was_killed_ends() -> None:
    started, child = parent("time.sleep(600)")
    with started:
        assert child.is_running()
        started.send_signal(signal.SIGKILL)
        started.wait(_LIMIT_S)
    psutil.wait_procs([child], timeout=_LIMIT_S)
    assert not child.is_running()


def test_who_waits_for_the_child_goes_on_when_the_command_is_to_end() -> None:
    began = time.monotonic()
    started, child = parent("jvm_guard.end_soon(0.1); child.wait(); print(jvm_guard.was_killed())")
    with started:
        assert started.stdout is not None
        assert started.stdout.read().strip() == "True"
        assert started.wait(_LIMIT_S) == 0
    assert not child.is_running()
    assert time.monotonic() - began < _LIMIT_S


def test_a_command_that_ends_in_time_kills_nothing() -> None:
    started, child = parent("jvm_guard.end_soon(0.3).cancel(); time.sleep(0.6); print('there')")
    with started:
        assert started.stdout is not None
        assert started.stdout.readline().strip() == "there"
        assert child.is_running()
    psutil.wait_procs([child], timeout=_LIMIT_S)
    assert not child.is_running()
