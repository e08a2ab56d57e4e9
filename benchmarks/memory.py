"""The memory that a process of Python and its JVM need.

The resident memory of a JVM grows to its largest heap, whatever it needs. So the JVM's part is the
size of its live objects, which are counted after a full garbage collection.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections import Counter
from dataclasses import dataclass

import psutil

from cdc.runtime.java import find_java

LIMIT_S = 60
_CLASS = re.compile(r"^\s*\d+:\s+\d+\s+(?P<bytes>\d+)\s+(?P<name>\S+)", re.MULTILINE)
_SHOWN_CLASSES = 8


@dataclass(frozen=True)
class Memory:
    """The memory that a process of Python and its JVM need.

    Args:
        python: The resident memory of the process, in bytes.
        java: The size of the live objects of its JVM by class, in bytes.
    """

    python: int
    java: Counter[str]

    @property
    def total(self) -> int:
        """The memory of both, in bytes."""
        return self.python + self.java.total()

    def growth_since(self, earlier: Memory) -> dict[str, float]:
        """Return what has grown most since an earlier measurement, in MiB: Python, and classes."""
        grown = Counter({"Python": self.python - earlier.python})
        grown.update(self.java - earlier.java)
        return {name: round(size / 2**20, 1) for name, size in grown.most_common(_SHOWN_CLASSES)}


def measured(process: psutil.Process) -> Memory:
    """Measure the memory of a process of Python and its JVM."""
    java: Counter[str] = Counter()
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # sessions of the stack's servers end
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                java.update(_live_bytes(child.pid))
    return Memory(int(process.memory_info().rss), java)


def _live_bytes(pid: int) -> Counter[str]:
    """Return the size of the live objects of a JVM by class, in bytes."""
    command = [str(find_java().home / "bin" / "jcmd"), str(pid), "GC.class_histogram"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    sizes: Counter[str] = Counter()
    for one in _CLASS.finditer(found.stdout):
        sizes[one["name"]] += int(one["bytes"])
    assert sizes, found.stdout[-500:]
    return sizes
