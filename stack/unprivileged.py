"""Finds the user that runs the databases, since databases refuse to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from stack.errors import StackError

_CANDIDATES = ("postgres", "nobody")
# Linux capabilities with which a process can pass folders closed to its user, weakest first.
_PASS_FOLDERS = (("dac_read_search", 2), ("dac_override", 1))


@dataclass(frozen=True)
class Unprivileged:
    """The user that runs the stack's databases.

    Args:
        name: Login name.
        prefix: The beginning of a command line that runs a command as this user; empty for the
            current user.
    """

    name: str
    prefix: tuple[str, ...] = ()

    def own(self, path: Path) -> None:
        """Make the stack's database user the owner of a file or an empty folder."""
        if self.prefix:
            user = pwd.getpwnam(self.name)
            os.chown(path, user.pw_uid, user.pw_gid)


def database_user(*needs: Path) -> Unprivileged:
    """Return the user that runs the stack's databases: the current user, or for root another user.

    Args:
        needs: Folders that the user must be able to reach.

    Raises:
        StackError: The current user is root, and no other user can run programs or reach the
            folders.
    """
    if os.geteuid() != 0:
        return Unprivileged(pwd.getpwuid(os.geteuid()).pw_name)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise StackError(
            "Databases do not run as root, and setpriv (util-linux) is not installed",
            remedy="Run as another user, or install util-linux.",
        )
    user = next(u for u in map(_existing_account, _CANDIDATES) if u is not None)
    prefix = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    closed = [
        folder for path in needs for folder in path.resolve().parents if not _open_to_all(folder)
    ]
    if closed:
        # An example is a checkout in root's home. The user gets the right to pass through, and no
        # other right.
        capability = _capability_to_enter(closed[0], user.pw_name)
        prefix += [
            *(f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"),
            # Without this bit, access(2) ignores the capability. So MariaDB took its log's control
            # file for missing, recreated it at every start, and corrupted its tables.
            "--securebits=+no_setuid_fixup",
        ]
    return Unprivileged(user.pw_name, (*prefix, "--"))


def _existing_account(name: str) -> pwd.struct_passwd | None:
    """Return the account that could run the stack's databases; None if this machine lacks it."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _open_to_all(folder: Path) -> bool:
    """Whether every user, and so the stack's database user, can enter the folder."""
    return bool(folder.stat().st_mode & 0o001)


def _capability_to_enter(folder: Path, user: str) -> str:
    """Return the weakest available Linux capability with which the stack's user enters a folder."""
    status = Path("/proc/self/status")
    if status.exists():
        bounding = next(
            int(line.split()[1], 16)
            for line in status.read_text("ascii", "replace").splitlines()
            if line.startswith("CapBnd:")
        )
        for name, bit in _PASS_FOLDERS:
            if bounding >> bit & 1:
                return name
    raise StackError(
        f"Databases run as user {user}, who cannot enter {folder}",
        remedy="Give --dir a folder that every user can enter, or run as another user than root.",
    )
