"""The passwords of the stack: generated once, in files that no other user can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

PGPASS = "pgpass"
"""Name of the password file for libpq, in the folder of the passwords."""


class Passwords:
    """The passwords of the stack's logins, each in a file of its own.

    Args:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, role: str) -> Path:
        """Return the path of the file that contains a stack role's password and nothing else."""
        return self.folder / f"{role}.password"

    def get(self, role: str) -> str:
        """Return a stack role's password, which the first call generates."""
        path = self.file(role)
        if not path.exists():
            write_private(path, secrets.token_urlsafe(24))
        return path.read_text("utf-8")

    def write_pgpass(self, path: Path, roles: Iterable[str], *, host: str) -> None:
        """Write a libpq password file with the stack's roles, for all ports and databases."""
        write_private(path, "".join(f"{host}:*:*:{role}:{self.get(role)}\n" for role in roles))


def private_folder(path: Path) -> None:
    """Create a folder of the stack if it is missing, and close the folder to other users."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file of the stack that no other user can read, not even while it is written."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
