"""Who holds a lease, told so that others on the same machine can see whether it still lives."""

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
    """One process of one machine.

    Args:
        host: Name of the machine, for people.
        pid: The process.
        place: Stands for the boot of the machine and the namespace in which ``pid`` counts:
            containers can share a host name, and a reboot starts the numbers anew.
        started: When the process began, as ``started`` tells it.
    """

    host: str
    pid: int
    place: str
    started: float

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}@{self.place}/{self.started:.2f}"

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _place(), started(pid))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Read what ``str`` gave, or None when the text is something else."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        return cls(match["host"], int(match["pid"]), match["place"], float(match["started"]))

    @property
    def shown(self) -> str:
        """Host and process, for people."""
        return f"process {self.pid} on {self.host}"

    def has_died(self) -> bool:
        """Whether the process is known to be gone; False when it cannot be seen from here."""
        if self.place != _place():
            return False
        try:
            if started(self.pid) != self.started:
                return True  # the number was given to another process
            return psutil.Process(self.pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return not _exists(self.pid)
        except psutil.AccessDenied:
            return False


def started(pid: int) -> float:
    """When a process began, by a clock that nobody sets.

    On Linux these are ticks since the boot. psutil adds the time of the boot, which the system
    computes from the machine's clock: a step of that clock would make another process of each.
    Elsewhere the system keeps the time itself, in seconds.

    Raises:
        psutil.NoSuchProcess: There is none, as far as this user sees.
    """
    if not sys.platform.startswith("linux"):
        return round(psutil.Process(pid).create_time(), 2)
    try:
        # The second field, a name in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return float(fields[19])


def _exists(pid: int) -> bool:
    """Whether there is such a process, perhaps of a user whose processes are hidden from us."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@lru_cache(maxsize=1)
def _place() -> str:
    """A short digest of this boot and this process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        spaces = (Path(f"/proc/self/ns/{kind}") for kind in ("pid", "time"))
        namespace = " ".join(str(space.readlink()) for space in spaces if space.is_symlink())
    except OSError:  # no Linux: no containers, and the time of the boot tells boots apart
        boot, namespace = f"{psutil.boot_time():.0f}", ""
    text = f"{socket.gethostname()} {boot} {namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
