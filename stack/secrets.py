"""Passwords of the stack: generated once, in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

PGPASS = "pgpass"
"""Name of the password file for libpq, beside the passwords."""


class Passwords:
    """The passwords of database roles, one file each.

    Args:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, role: str) -> Path:
        """The file that holds the role's password and nothing else."""
        return self.folder / f"{role}.password"

    def get(self, role: str) -> str:
        """Return the role's password; generate it on the first call."""
        path = self.file(role)
        if not path.exists():
            write_private(path, secrets.token_urlsafe(24))
        return path.read_text("utf-8")

    def write_pgpass(self, path: Path, roles: Iterable[str], *, host: str) -> None:
        """Write a PostgreSQL password file for these roles, on any port and database."""
        write_private(path, "".join(f"{host}:*:*:{role}:{self.get(role)}\n" for role in roles))


def private_folder(path: Path) -> None:
    """Make a folder for rows or secrets; only its owner can enter it, even if it existed."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the moment of its creation."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
