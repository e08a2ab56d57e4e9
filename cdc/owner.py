"""Who holds a lease, told so that others on the same machine can see whether it still lives."""

from __future__ import annotations

import hashlib
import os
import re
import socket
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
        started: When the process began, as the system tells it, in seconds.
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
        return cls(socket.gethostname(), pid, _place(), psutil.Process(pid).create_time())

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
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > 1:
                return True  # the number was given to another process
            return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


@lru_cache(maxsize=1)
def _place() -> str:
    """A short digest of this boot and this process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # no Linux: no containers, and the time of the boot tells boots apart
        boot, namespace = f"{psutil.boot_time():.0f}", ""
    text = f"{socket.gethostname()} {boot} {namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
