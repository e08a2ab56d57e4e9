"""Creates the data directory, options and initial SQL of a MySQL or MariaDB server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.errors import StackError
from stack.mysql_settings import SETTINGS, SETTINGS_BY_KIND, SUPERUSER
from stack.mysql_software import MYSQL, Installation
from stack.ports import HOST
from stack.secrets import Passwords, write_private
from stack.unprivileged import Unprivileged

_LIMIT_S = 300.0


@dataclass(frozen=True)
class Instance:
    """One MySQL or MariaDB server of a stack.

    Args:
        name: The server's name in the stack.
        folder: The server's data directory.
        port: Port that the server listens on.
        server_id: The server's ``server_id``, which is unique among servers that replicate.
    """

    name: str
    folder: Path
    port: int
    server_id: int


class DataDirectory:
    """The data directory of a stack's MySQL or MariaDB server, with the files beside it.

    Args:
        instance: The server.
        installation: The programs.
        user: The user that runs the programs.
        passwords: Passwords of the roles.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        installation: Installation,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.name = instance.name
        self.folder = instance.folder
        self._port = instance.port
        self._server_id = instance.server_id
        self._installation = installation
        self._kind = installation.kind
        self._user = user
        self._passwords = passwords

    def make(self) -> None:
        """Create the data directory of the stack's MySQL, and the SQL file of the first start."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._user.own(self.folder)
        self._run(self._maker())
        write_private(self.first, self._first_statements())
        self._user.own(self.first)

    def _first_statements(self) -> str:
        """Return statements after which the stack's MySQL has one superuser, who logs in over TCP.

        The statements are not replicated.
        """
        superuser, password = f"'{SUPERUSER}'@'{HOST}'", self._passwords.get(SUPERUSER)
        if self._kind == MYSQL:
            only = [f"RENAME USER '{SUPERUSER}'@'localhost' TO {superuser}"]
        else:
            others = f"User = '{SUPERUSER}' AND Host <> '{HOST}'"
            # Fixed names; no SQL from outside.
            only = [f"DELETE FROM mysql.global_priv WHERE {others}", "FLUSH PRIVILEGES"]  # noqa: S608
        lines = ("SET sql_log_bin = 0", *only, f"ALTER USER {superuser} IDENTIFIED BY '{password}'")
        return "".join(f"{line};\n" for line in lines)

    def _maker(self) -> list[str]:
        """Return the command that creates the stack's MySQL data directory."""
        places = [f"--{name}={path}" for name, path in self._installation.places.items()]
        if self._kind == MYSQL:
            return [
                *self._installation.command,
                *("--no-defaults", *places, f"--datadir={self.folder}"),
                *("--secure_file_priv=NULL", "--initialize-insecure"),
            ]
        prefix = self._installation.server.parent.parent
        programs = ("bin/mariadb-install-db", "scripts/mariadb-install-db")
        maker = next((path for name in programs if (path := prefix / name).exists()), None)
        if maker is None:
            raise StackError(
                f"{self._installation.title} in {prefix} lacks mariadb-install-db",
                remedy="Install the rest of MariaDB's server package.",
            )
        return [
            str(maker),
            *("--no-defaults", f"--basedir={prefix}", f"--datadir={self.folder}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
            "--skip-name-resolve",
        ]

    def _run(self, argv: list[str]) -> None:
        try:
            answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
                [*self._user.prefix, *argv],
                cwd=self.folder,
                # Several at once in one folder would use the same names for temporary files.
                env={**os.environ, **self._installation.environment, "TMPDIR": str(self.folder)},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise StackError(
                f"{self.name}: its data directory was not created within {_LIMIT_S:.0f} s",
                remedy="Check the disk that holds the stack's folder.",
            ) from None
        if answer.returncode != 0:
            said = (answer.stderr.strip() or answer.stdout.strip())[-2000:]
            raise StackError(
                f"{self.name}: its data directory cannot be created: {said}",
                remedy="Correct what the message names, or use an empty folder instead of"
                f" {self.folder}.",
            )

    def configure(self, extra: Mapping[str, str]) -> None:
        """Write the option file of the stack's MySQL or MariaDB.

        Args:
            extra: Further settings, besides those that every server has.
        """
        settings = {
            "bind_address": HOST,
            "port": str(self._port),
            # TCP only: a socket's path is limited to 107 bytes, and folders of tests are deep.
            "socket": "",
            "datadir": str(self.folder),
            "pid_file": "server.pid",
            "server_id": str(self._server_id),
            **{name: str(path) for name, path in self._installation.places.items()},
            **({"secure_file_priv": "NULL"} if self._kind == MYSQL else {}),
            **SETTINGS,
            **SETTINGS_BY_KIND[self._kind],
            **extra,
        }
        lines = "".join(f"{name} = {_quoted_option(value)}\n" for name, value in settings.items())
        self.options.write_text(f"[mysqld]\n{lines}", "utf-8")
        self._user.own(self.options)

    @property
    def options(self) -> Path:
        """The option file of the stack's MySQL or MariaDB.

        The file is beside the data directory, which must be empty when the server is created.
        """
        return self.folder.parent / f"{self.folder.name}.cnf"

    @property
    def first(self) -> Path:
        """The file of the statements that the stack's MySQL executes before any login."""
        return self.folder.parent / f"{self.folder.name}.first.sql"

    @property
    def _done(self) -> Path:
        """The file that is written once the stack's MySQL or MariaDB server is complete.

        A server without this file is created again.
        """
        return self.folder.parent / f"{self.folder.name}.initialised"

    @property
    def unfinished(self) -> bool:
        """Whether the stack's MySQL is incomplete, so that the next start creates it again."""
        return not self._done.exists()

    def finish(self) -> None:
        """Record that the stack's MySQL is complete; delete the SQL file of the first start."""
        self._done.touch()
        self.first.unlink(missing_ok=True)


def _quoted_option(value: str) -> str:
    """Return a quoted value for the stack's MySQL option file, where ``#`` begins a comment."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if value else ""
