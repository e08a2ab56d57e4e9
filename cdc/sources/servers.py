"""The servers of a source of any kind: endpoints, logins, and retries.

Each kind of source has a class `Connections`, which opens sessions and translates the errors of the
driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import stamina

from cdc.config import (
    Credential,
    Endpoint,
    MysqlEndpoint,
    MysqlSourceConfig,
    PostgresSourceConfig,
)
from cdc.errors import SourceError, UnreachableError
from cdc.sources.source_facts import Check

Role = Literal["admin", "capture", "snapshot", "marker"]
Login = tuple[Role, bool]
"""A role, and whether the role logs in to the replica."""
C = TypeVar("C", PostgresSourceConfig, MysqlSourceConfig)
E = TypeVar("E", Endpoint, MysqlEndpoint)
T = TypeVar("T")

APPLICATION = "tributary"
CONNECT_TIMEOUT_S = 10
LOCKED = "Another session holds a lock. Run the command again when that session has ended."
READ_ONLY = "Point `primary` at the server that takes writes: this one is read-only."
OTHERWISE = "Look at the server's log at this time; then run the command again."
"""The remedy for a failed statement if no other remedy fits, for all kinds of servers."""
_ATTEMPTS = 3
_LOGINS: tuple[Login, ...] = (
    ("admin", False),
    ("capture", False),
    ("snapshot", False),
    ("snapshot", True),
    ("marker", False),
)


class Servers(Generic[C, E]):
    """The primary and the replica of one source.

    Args:
        source: Key of the source, for messages.
        config: The source's endpoints and logins.
    """

    def __init__(self, source: str, config: C) -> None:
        self.source = source
        self.config: C = config

    def endpoint(self, *, on_replica: bool) -> E:
        """Return the endpoint of the primary or, with ``on_replica``, of the replica.

        If the source has no replica, the result is always the endpoint of the primary.
        """
        # A configuration has endpoints of its own kind. The type variables cannot express this.
        config: Any = self.config
        endpoint: E = (config.replica if on_replica else None) or config.primary
        return endpoint

    def credential(self, role: Role) -> Credential:
        """Return the configured user and password for a role, for example ``capture``."""
        credential: Credential = getattr(self.config.credentials, role)
        return credential

    def where(self, *, on_replica: bool) -> str:
        """Return the name of a server for messages, for example ``replica db2:5432``."""
        endpoint = self.endpoint(on_replica=on_replica)
        kind = "replica" if on_replica and self.config.replica else "primary"
        return f"{kind} {endpoint.host}:{endpoint.port}"

    def login_error(
        self, text: str, role: Role, *, on_replica: bool, is_away: bool, to_check: str
    ) -> SourceError:
        """Return the error for a session of the source that could not be opened.

        Args:
            text: The driver's message, in one line.
            role: The login.
            on_replica: Whether the session was for the replica.
            is_away: Whether no server answered; False if a server answered and refused the login.
            to_check: The settings that the remedy asks the operator to check.
        """
        return (UnreachableError if is_away else SourceError)(
            f"cannot connect to the {self.where(on_replica=on_replica)} of source {self.source}"
            f" as {self.credential(role).user}: {text}",
            remedy=f"Check {to_check}, and that the server is up.",
            source=self.source,
            role=role,
        )

    def statement_error(self, text: str, role: Role, *, on_replica: bool) -> str:
        """Return the message for a statement that failed at the source.

        Args:
            text: The driver's message, in one line.
            role: The login.
            on_replica: Whether the statement ran on the replica.
        """
        where, user = self.where(on_replica=on_replica), self.credential(role).user
        return f"{where} of source {self.source}, as {user}: {text}"


def connected(connect: Callable[[], T], is_passing: Callable[[Exception], bool]) -> T:
    """Return a connection to a source's server; try again after temporary errors.

    Args:
        connect: Connects once.
        is_passing: Returns whether an error is temporary. Any other error is raised at once.
    """
    for attempt in stamina.retry_context(
        on=is_passing, attempts=_ATTEMPTS, timeout=CONNECT_TIMEOUT_S * _ATTEMPTS
    ):
        with attempt:
            return connect()
    raise AssertionError("unreachable: the loop returns or raises")


def check_logins(
    config: PostgresSourceConfig | MysqlSourceConfig, login: Callable[[Role, bool], Check]
) -> tuple[list[Check], set[Login]]:
    """Try each role's login at a source's primary, and the snapshot login also at the replica.

    Args:
        config: The source.
        login: Logs in with a role and returns the line that ``check`` prints about this login. The
            second argument is true for a login at the replica.

    Returns:
        The lines that the command ``check`` prints, and the successful logins.
    """
    lines: list[Check] = []
    works: set[Login] = set()
    for role, on_replica in _LOGINS:
        if on_replica and config.replica is None:
            continue
        try:
            line = login(role, on_replica)
        except SourceError as error:
            line = Check(f"login {role}", "error", error.message, error.remedy)
        lines.append(line)
        if line.status == "ok":
            works.add((role, on_replica))
    return lines, works
