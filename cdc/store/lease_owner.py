"""Identifies the holder of a lease.

Other processes on the same machine can find out whether the holder is alive.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

_FORM = re.compile(r"(?P<host>[^@]+):(?P<pid>\d+)@(?P<place>[0-9a-f]+)/(?P<started>\d+\.\d\d)")


@dataclass(frozen=True)
class Owner:
    """A lease's owner: one process of one machine.

    Args:
        host: Name of the machine, for people.
        pid: The process id.
        place: Digest of the machine's boot id and the process namespace. Host name and process id
            alone would not identify a process: containers can share a host name, and process ids
            start again after a reboot.
        started: When the process began, in the unit of the function ``started``.
    """

    host: str
    pid: int
    place: str
    started: float

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}@{self.place}/{self.started:.2f}"

    @classmethod
    def current(cls) -> Owner:
        """Return this process as an owner of leases."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _boot_digest(), started(pid))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the lease owner whose ``str()`` is ``text``; None if ``text`` has another form."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        return cls(match["host"], int(match["pid"]), match["place"], float(match["started"]))

    @property
    def shown(self) -> str:
        """A lease owner's host and process, for people."""
        return f"process {self.pid} on {self.host}"

    def has_died(self) -> bool:
        """Whether a lease's owner has certainly ended; False if this process cannot find out."""
        if self.place != _boot_digest():
            return False
        try:
            if started(self.pid) != self.started:
                return True  # the number was given to another process
            return psutil.Process(self.pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return not _process_exists(self.pid)
        except psutil.AccessDenied:
            return False


def started(pid: int) -> float:
    """Return when a lease owner's process began, on Linux by a clock that nobody can set.

    On Linux, the value is in ticks since the boot. psutil's value is not used there: psutil adds
    the time of the boot, which the system computes from the machine's clock. If somebody set that
    clock, every process would look like another process. Systems other than Linux store the start
    time itself, so on them the value is in seconds.

    Raises:
        psutil.NoSuchProcess: There is no such process, or this user cannot see it.
    """
    if not sys.platform.startswith("linux"):
        return round(psutil.Process(pid).create_time(), 2)
    try:
        # The second field is a name in parentheses, which can hold any characters.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return float(fields[19])


def _process_exists(pid: int) -> bool:
    """Return whether a lease owner's process exists, also if this user may not see it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@lru_cache(maxsize=1)
def _boot_digest() -> str:
    """Return a digest for lease owners that differs between boots and process namespaces."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        spaces = (Path(f"/proc/self/ns/{kind}") for kind in ("pid", "time"))
        namespace = " ".join(str(space.readlink()) for space in spaces if space.is_symlink())
    except OSError:  # not Linux: no containers, and the time of the boot identifies the boot
        boot, namespace = f"{psutil.boot_time():.0f}", ""
    text = f"{socket.gethostname()} {boot} {namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
