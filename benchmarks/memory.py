"""The memory that a process of Python and its JVM need.

The resident memory of a JVM grows to its largest heap, whatever it needs. So the JVM's part is the
size of its live objects, which are counted after a full garbage collection.
"""

from __future__ import annotations

import contextlib
import re
import subprocess

import psutil

from cdc.runtime.java import find_java

LIMIT_S = 60


def needed(process: psutil.Process) -> int:
    """Return the resident memory of a process and the live objects of its JVM, in bytes."""
    total = int(process.memory_info().rss)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # sessions of the stack's servers end
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                total += _live_bytes(child.pid)
    return total


def _live_bytes(pid: int) -> int:
    """Return the size of the live objects of a JVM, in bytes."""
    command = [str(find_java().home / "bin" / "jcmd"), str(pid), "GC.class_histogram"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    last = re.search(r"^Total\s+\d+\s+(\d+)", found.stdout, re.MULTILINE)
    assert last is not None, found.stdout[-500:]
    return int(last[1])
