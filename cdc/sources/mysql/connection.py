"""Opens sessions on the primary and the replica, and converts the driver's errors."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import pymysql
from pymysql.constants import CLIENT, CR, ER

from cdc.config import MysqlEndpoint, MysqlSourceConfig
from cdc.errors import SourceError
from cdc.sources.idle_sessions import IdleSessions
from cdc.sources.servers import (
    APPLICATION,
    CONNECT_TIMEOUT_S,
    LOCKED,
    OTHERWISE,
    READ_ONLY,
    Login,
    Role,
    Servers,
    connected,
)

Row = tuple[Any, ...]
Kept = TypeVar("Kept")

# The driver's limit for a statement is this much longer than the server's own limit. So the driver
# gives up only if the server is gone.
_GRACE_S = 30.0
_STATEMENT_S, _LOCK_S = 60.0, 10.0
"""Default limits of a session's statements and of its waits for locks, in seconds."""

# The server starts, stops or has no session free. A new attempt can soon succeed.
_PASSING = frozenset({CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_LOST, ER.CON_COUNT_ERROR, 1053})
DENIED = frozenset(
    {
        ER.DBACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
        ER.PROCACCESS_DENIED_ERROR,
    }
)
"""Error codes of a login that lacks a right."""
_READ_ONLY = frozenset({ER.OPTION_PREVENTS_STATEMENT, 1792, 1836})
# MySQL's and MariaDB's codes for a statement that ran out of time.
_TOO_SLOW = frozenset({3024, 1969})
_AWAY = frozenset({CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST})
"""Error codes of a connection attempt that no server answered."""


class Session:
    """One open session of MySQL or MariaDB in autocommit mode.

    Args:
        connection: The driver's connection.
        kind: The configured kind of the server. `Connections.open` compares this kind with the kind
            that the server reports.
    """

    def __init__(
        self, connection: pymysql.connections.Connection[Any], kind: Literal["mysql", "mariadb"]
    ) -> None:
        self._connection = connection
        self.kind = kind
        self._kept: dict[str, Any] = {}

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement in MySQL or MariaDB, and return its rows.

        The values replace the ``%s`` of the statement, in order.
        """
        with self._connection.cursor() as cursor:
            # Without values the driver leaves percent signs alone.
            cursor.execute(statement, tuple(values) or None)
            return list(cursor.fetchall())

    def named(self, statement: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Run a MySQL or MariaDB statement; return each row as a dictionary by column name."""
        with self._connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(statement, tuple(values) or None)
            return list(cursor.fetchall())

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Run a MySQL or MariaDB statement; return its first value, or None if it has no rows."""
        rows = self.rows(statement, values)
        return rows[0][0] if rows else None

    def once(self, what: str, read: Callable[[], Kept]) -> Kept:
        """Return the result of the session's first call for this name; later calls read nothing.

        It is for settings of the session, and for facts of MySQL or MariaDB that only a restart can
        change, which ends the session.
        """
        if what not in self._kept:
            self._kept[what] = read()
        found: Kept = self._kept[what]
        return found

    def read_fresh_statistics(self) -> None:
        """Let the session's queries of MySQL's catalog show times and sizes of now.

        By default, these can be a day old. MariaDB's are never stored.
        """
        if self.kind == "mysql":
            expiry = "SET SESSION information_schema_stats_expiry = 0"
            self.once("fresh statistics", lambda: self.rows(expiry))

    def can_go_on(self) -> bool:
        """Whether the MySQL or MariaDB server still has the session; end an open transaction."""
        try:
            self._connection.rollback()
        except (pymysql.MySQLError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the MySQL or MariaDB session."""
        self._connection.close()


class Connections(Servers[MysqlSourceConfig, MysqlEndpoint]):
    """Opens sessions on one source's MySQL or MariaDB servers; safe to use from any thread.

    Args:
        source: Key of the source, for messages.
        config: The source's endpoints and logins.
    """

    def __init__(self, source: str, config: MysqlSourceConfig) -> None:
        super().__init__(source, config)
        self._idle = IdleSessions[Session](Session.close)
        self._series = 0
        self._lock = threading.Lock()

    @contextmanager
    def open(
        self,
        role: Role,
        *,
        on_replica: bool = False,
        statement_timeout_s: float = _STATEMENT_S,
        lock_timeout_s: float = _LOCK_S,
        several: bool = False,
    ) -> Iterator[Session]:
        """Open a MySQL or MariaDB session in autocommit mode; close it at the block's end.

        Args:
            role: The role whose login is used.
            on_replica: Whether to connect to the replica instead of the primary.
            statement_timeout_s: Limit of each statement, in seconds.
            lock_timeout_s: Limit of the wait for each lock, in seconds.
            several: Whether one call may send several statements, separated by semicolons.

        Raises:
            SourceError: The server cannot be reached or is of another kind than configured; or a
                statement in the block failed.
        """
        session = self._connect(role, on_replica, statement_timeout_s, several)
        try:
            self._require_kind(session, on_replica)
            _apply_settings(session, statement_timeout_s, lock_timeout_s)
            yield session
        except pymysql.MySQLError as error:
            raise self.explain(error, role, on_replica=on_replica) from error
        finally:
            session.close()

    @contextmanager
    def series(self) -> Iterator[None]:
        """Let each `look` of a block use the MySQL or MariaDB session of an earlier one again.

        A command looks at thousands of tables by several logins, and a login costs more than the
        look. Other sessions are not used again, since a new login shows which server the source has
        now, and which global rights the login has. A session of a series is at most a minute old.
        """
        with self._lock:
            self._series += 1
        try:
            yield
        finally:
            with self._lock:
                self._series -= 1
            if not self._series:
                self._idle.close(lambda _: True)

    @contextmanager
    def look(
        self, role: Role, *, on_replica: bool = False, statement_timeout_s: float = _STATEMENT_S
    ) -> Iterator[Session]:
        """Open a MySQL or MariaDB session, as `open` does, for statements that leave nothing in it.

        Args:
            role: The role whose login is used.
            on_replica: Whether to connect to the replica instead of the primary.
            statement_timeout_s: Limit of each statement, in seconds: at most that of `open`.

        Raises:
            SourceError: See `open`.
        """
        login: Login = (role, on_replica)
        known = self._used_again(login) if self._series else None
        # The driver's limit stays that of the session's first use.
        session, born = known or (
            self._connect(role, on_replica, _STATEMENT_S, several=False),
            time.monotonic(),
        )
        succeeded = False
        try:
            if known is None:
                self._require_kind(session, on_replica)
            _apply_settings(session, statement_timeout_s, _LOCK_S)
            yield session
            succeeded = True
        except pymysql.MySQLError as error:
            raise self.explain(error, role, on_replica=on_replica) from error
        finally:
            if succeeded and self._series:
                self._idle.keep(login, session, born)
            else:
                session.close()

    def _used_again(self, login: Login) -> tuple[Session, float] | None:
        """Return an idle session of a login, and the time of its login; None if there is none."""
        while found := self._idle.take(login):
            if found[0].can_go_on():
                return found
            found[0].close()
        return None

    def _connect(
        self, role: Role, on_replica: bool, statement_timeout_s: float, several: bool
    ) -> Session:
        endpoint, credential = self.endpoint(on_replica=on_replica), self.credential(role)
        password = credential.password.resolve() if credential.password else ""
        try:
            connection = connected(
                lambda: pymysql.connect(
                    host=endpoint.host,
                    port=endpoint.port,
                    user=credential.user,
                    # The driver would encode text as Latin-1.
                    password=password.encode(),
                    charset="utf8mb4",
                    autocommit=True,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=statement_timeout_s + _GRACE_S,
                    write_timeout=statement_timeout_s + _GRACE_S,
                    program_name=APPLICATION,
                    client_flag=CLIENT.MULTI_STATEMENTS if several else 0,
                    **_tls_arguments(endpoint),
                ),
                _is_passing,
            )
        except (pymysql.MySQLError, OSError) as error:
            away = isinstance(error, OSError) or _error_number(error) in _AWAY
            raise self.login_error(
                _error_text(error),
                role,
                on_replica=on_replica,
                is_away=away,
                to_check="host, port, TLS and the login of this source",
            ) from None
        return Session(connection, self.config.kind)

    def _require_kind(self, session: Session, on_replica: bool) -> None:
        """Refuse a server of another kind than configured: MySQL instead of MariaDB, or so."""
        version = str(session.value("SELECT version()"))
        found = "mariadb" if "mariadb" in version.lower() else "mysql"
        if found != session.kind:
            raise SourceError(
                f"the {self.where(on_replica=on_replica)} of source {self.source} is {version},"
                f" but its kind is set to {self.config.kind}",
                remedy=f"Set sources.{self.source}.kind to {found}; the two kinds differ in"
                " GTIDs, types and connector.",
                source=self.source,
            )

    def explain(
        self, error: pymysql.MySQLError, role: Role, *, on_replica: bool = False
    ) -> SourceError:
        """Convert a statement's error in MySQL or MariaDB to a `SourceError` with a remedy."""
        user, code = self.credential(role).user, _error_number(error)
        if code in DENIED:
            remedy = f"Grant {user} what it lacks: docs/mysql.md lists the rights of each login."
        elif code == ER.LOCK_WAIT_TIMEOUT:
            remedy = LOCKED
        elif code in _TOO_SLOW:
            remedy = "The statement reached its time limit. Run the command again."
        elif code in _READ_ONLY:
            remedy = READ_ONLY
        else:
            remedy = OTHERWISE
        return SourceError(
            self.statement_error(_error_text(error), role, on_replica=on_replica),
            remedy=remedy,
            source=self.source,
            role=role,
            code=code,
        )


def _apply_settings(session: Session, statement_timeout_s: float, lock_timeout_s: float) -> None:
    """Set the limits, the time zone and the SQL mode of a MySQL or MariaDB session."""
    lock_s = max(1, round(lock_timeout_s))
    limit = (
        f"max_statement_time = {statement_timeout_s}"
        if session.kind == "mariadb"
        else f"max_execution_time = {round(statement_timeout_s * 1000)}"
    )
    session.rows(
        f"SET SESSION {limit}, lock_wait_timeout = {lock_s},"
        f" innodb_lock_wait_timeout = {lock_s}, time_zone = '+00:00',"
        # A value that does not fit must fail. Double quotes enclose texts here, not names.
        # Never NO_BACKSLASH_ESCAPES: MySQL parses a table's expressions in the mode of the
        # session that opens it, and other sessions then use what it has parsed.
        " sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
    )


def quoted(name: str) -> str:
    """Return a name in backticks, as MySQL quotes it; the name may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def _tls_arguments(endpoint: MysqlEndpoint) -> dict[str, Any]:
    """Return the arguments of PyMySQL for the endpoint's ``ssl_mode``."""
    if endpoint.ssl_mode == "disabled":
        return {"ssl_disabled": True}
    if endpoint.ssl_mode == "preferred" and not (endpoint.ssl_ca or endpoint.ssl_cert):
        return {}  # the driver's default: TLS if the server offers it
    context = ssl.create_default_context(cafile=endpoint.ssl_ca)
    # MySQL's own certificates are not strictly valid.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = endpoint.ssl_mode == "verify_identity"
    verified = endpoint.ssl_mode in ("verify_ca", "verify_identity")
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    if endpoint.ssl_cert and endpoint.ssl_key:
        context.load_cert_chain(endpoint.ssl_cert, endpoint.ssl_key)
    return {"ssl": context}


def _error_number(error: BaseException) -> int | None:
    """Return the number of a MySQL or MariaDB error; None if PyMySQL's error has no number."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else None


def _is_passing(error: Exception) -> bool:
    """Whether the cause of a failed connection to MySQL or MariaDB is temporary."""
    return isinstance(error, pymysql.OperationalError) and _error_number(error) in _PASSING


def _error_text(error: BaseException) -> str:
    """Return the message of an error of PyMySQL, in one line."""
    text = str(error.args[-1]) if error.args else str(error)
    return " ".join(text.split()) or type(error).__name__
