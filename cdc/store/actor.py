"""Who changes the state store: a command that a user runs on a machine."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc.store.documents import Part

_MOST = 64
"""Maximum number of characters of each name in an `Actor`; longer names are cut."""

_command: str | None = None


@dataclass(frozen=True)
class Actor(Part):
    """The command that has made an entry of a history.

    Args:
        user: Name of the process's user.
        host: Name of the machine.
        command: The command without its arguments, for example ``quarantine replay``; the program's
            name if the program is not the command line of this project.
    """

    user: str
    host: str
    command: str

    @classmethod
    def current(cls) -> Actor:
        """Return the command of this process."""
        command = _command or Path(sys.argv[0]).name or "python"
        return cls(*(text[:_MOST] for text in (_actor_user(), socket.gethostname(), command)))

    def __str__(self) -> str:
        return f"{self.user}@{self.host}: {self.command}"

    def to_json(self) -> dict[str, Any]:
        """Return the user, the machine and the command as plain values."""
        return {"user": self.user, "host": self.host, "command": self.command}


def name_command(name: str) -> None:
    """Set the name of the command that `Actor.current` returns for this process."""
    global _command
    _command = name


def _actor_user() -> str:
    """Return the name of this process's user for an `Actor`, or the number of a nameless user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that its system does not know
        return f"uid {os.getuid()}"
