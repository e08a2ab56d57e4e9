"""Opens sessions on the primary and the replica, and converts the driver's errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from cdc.config import Credential, Endpoint, PostgresSourceConfig
from cdc.errors import PermanentError, SnapshotLostError, SourceError
from cdc.sources.idle_sessions import IdleSessions
from cdc.sources.postgres.own_session import OwnSession
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
from schemas.type_rule import remedy_for_unfit_value
from schemas.types_postgres import PRINTED, ZONED

Session = psycopg.Connection[tuple[Any, ...]]

# A server that is gone does not send anything. TCP by default waits a quarter of an hour until sent
# data are acknowledged, and takes hours to find that an idle peer is gone. statement_timeout does
# not help, since the server enforces it. These settings end a wait for a dead peer after a minute
# and a half. A live server answers TCP's probes, however long its statement takes.
_DEAD_AFTER: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 6,
    "tcp_user_timeout": 90_000,  # milliseconds
}

# A row security policy must make a query fail, and not hide rows from it.
_HAS_TRANSACTION_TIMEOUT = 170_000
_READ_BY = {**PRINTED, **ZONED, "row_security": "off"}

# The errors of a statement if a managed server lacks or withholds a function.
NOT_OFFERED = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedFunction,
)


def connection_parameters(endpoint: Endpoint, credential: Credential) -> dict[str, Any]:
    """Return libpq's parameters for a login at a server of a PostgreSQL source.

    The endpoint's options can override the time-outs, but not the parameters that are set by other
    fields of the endpoint or by the login.

    Raises:
        SecretError: The password's reference does not resolve.
    """
    parameters = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        **_DEAD_AFTER,
        **endpoint.options,
        "host": endpoint.host,
        "port": endpoint.port,
        "dbname": endpoint.database,
        "sslmode": endpoint.sslmode,
        "sslrootcert": endpoint.sslrootcert,
        "sslcert": endpoint.sslcert,
        "sslkey": endpoint.sslkey,
        "user": credential.user,
        "password": credential.password.resolve() if credential.password else None,
        "application_name": APPLICATION,
    }
    return {key: value for key, value in parameters.items() if value is not None}


class Connections(Servers[PostgresSourceConfig, Endpoint]):
    """Opens sessions on one source's PostgreSQL servers; safe to use from any thread.

    Args:
        source: Key of the source, for messages.
        config: The source's endpoints and logins.
    """

    def __init__(self, source: str, config: PostgresSourceConfig) -> None:
        super().__init__(source, config)
        self._pooled: dict[bool, bool] = {}
        self._idle = IdleSessions[OwnSession](psycopg.Connection.close)
        self._server_since: dict[bool, float | None] = {}

    def is_pooled(self, *, on_replica: bool) -> bool:
        """Whether the newest session on a server went through a pooler.

        If this object has not opened a session on the server yet, the method opens one.
        """
        on_replica = self._has(on_replica)
        if on_replica not in self._pooled:
            with self.open("snapshot", on_replica=on_replica):
                pass
        return self._pooled[on_replica]

    def where(self, *, on_replica: bool) -> str:
        """Return the name of the PostgreSQL server and the database, for messages."""
        database = self.endpoint(on_replica=on_replica).database
        return f"{super().where(on_replica=on_replica)}/{database}"

    @contextmanager
    def open(
        self,
        role: Role,
        *,
        on_replica: bool = False,
        statement_timeout_s: float = 60.0,
        lock_timeout_s: float = 10.0,
        new_login: bool = False,
    ) -> Iterator[OwnSession]:
        """Open a PostgreSQL session in autocommit mode for a block.

        The session can be one that an earlier block used; nothing of that block is left in it. No
        other client of a connection pooler gets the settings of this session.

        Args:
            role: The role whose login is used.
            on_replica: Whether to connect to the replica instead of the primary.
            statement_timeout_s: Limit of each statement, in seconds; 0 for no limit.
            lock_timeout_s: Limit of the wait for each lock, in seconds.
            new_login: Whether to open a new session, because the block must find out which server a
                login reaches now. The new session takes the place of an idle one, since a role can
                have a CONNECTION LIMIT. If the server is another one than before, all idle sessions
                of the endpoint are closed.

        Raises:
            SourceError: The server cannot be reached, or a statement in the block failed.
        """
        on_replica = self._has(on_replica)
        login: Login = (role, on_replica)
        if new_login:
            self._idle.close_oldest(login)
        known = None if new_login else self._used_again(login)
        session, born = known or (self._connect(role, on_replica=on_replica), time.monotonic())
        can_go_on = False
        try:
            session.apply(_settings(session, statement_timeout_s, lock_timeout_s))
            if known is None:
                self._note_server(session, on_replica=on_replica)
            self._pooled[on_replica] = session.is_pooled
            yield session
            same_server = session.server_since == self._server_since.get(on_replica)
            can_go_on = session.is_as_new and same_server
        except psycopg.Error as error:
            raise self.explain(error, role, on_replica=on_replica) from error
        finally:
            if can_go_on:
                self._idle.keep(login, session, born)
            else:
                session.close()

    def _has(self, replica: bool) -> bool:
        """Return whether a session goes to the replica. Without a replica, it reads the primary."""
        return replica and self.config.replica is not None

    def _note_server(self, session: OwnSession, *, on_replica: bool) -> None:
        """Close the idle sessions of an endpoint if a new login has reached another server."""
        if self._server_since.get(on_replica) != session.server_since:
            self._server_since[on_replica] = session.server_since
            self._idle.close(lambda login: login[1] == on_replica)

    def _used_again(self, login: Login) -> tuple[OwnSession, float] | None:
        """Return an idle session of a login, and the time of its login; None if there is none."""
        while found := self._idle.take(login):
            session, _ = found
            if session.server_since != self._server_since.get(login[1]):
                session.close()  # a login has reached another server since this session was kept
                continue
            try:
                session.forget(limit_s=CONNECT_TIMEOUT_S)
            except psycopg.Error:  # the server has ended the session in the meantime
                session.close()
            except BaseException:
                session.close()
                raise
            else:
                return found
        return None

    @contextmanager
    def open_replication(self) -> Iterator[Session]:
        """Open a session of the capture role on the primary, in PostgreSQL's replication protocol.

        Raises:
            SourceError: The server cannot be reached, or a command in the block failed.
        """
        session = self._connect("capture", on_replica=False, replication="database")
        try:
            yield session
        except psycopg.Error as error:
            raise self.explain(error, "capture") from error
        finally:
            session.close()

    def _connect(self, role: Role, *, on_replica: bool, **more: str) -> OwnSession:
        credential = self.credential(role)
        endpoint = self.endpoint(on_replica=on_replica)
        parameters = {**connection_parameters(endpoint, credential), **more}
        try:
            # A pooler would leave prepared statements in a session that another client gets next.
            session = connected(
                lambda: OwnSession.connect(**parameters, autocommit=True, prepare_threshold=None),
                self._can_try_again,
            )
        except psycopg.Error as error:
            away = error.sqlstate is None and any(sign in str(error) for sign in _AWAY)
            raise self.login_error(
                _message_in_one_line(error),
                role,
                on_replica=on_replica,
                is_away=away,
                to_check="host, port, database and the login of this source, pg_hba.conf",
            ) from None
        # In such a database the server converts no text, whatever client_encoding is, so a copy and
        # the connector could read the same bytes as different characters.
        if session.info.parameter_status("server_encoding") == "SQL_ASCII":
            session.close()
            raise PermanentError(
                f"database {self.where(on_replica=on_replica)} has the encoding SQL_ASCII: the"
                " server does not know which characters its text has",
                remedy="Create a database with ENCODING 'UTF8', restore a dump of this one into it,"
                " and name that database in the source's section.",
                source=self.source,
            )
        return session

    def _can_try_again(self, error: Exception) -> bool:
        """Whether another attempt to log in to PostgreSQL makes sense.

        If the server, a pooler or a role with a CONNECTION LIMIT has no room for one more session,
        the idle ones are closed before that attempt.
        """
        if any(sign in str(error) for sign in _NO_ROOM):
            self._idle.close(lambda _: True)
        return _is_passing(error)

    def explain(self, error: psycopg.Error, role: Role, *, on_replica: bool = False) -> SourceError:
        """Convert a statement's error in PostgreSQL to a `SourceError` with a remedy."""
        if unfit := unfit_value(_message_in_one_line(error)):
            return unfit
        kind: type[SourceError] = SourceError
        if is_recovery_conflict(str(error)):
            kind = SnapshotLostError
            remedy = CONFLICT_REMEDY
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            kind = PermanentError
            remedy = (
                f"Grant role {self.credential(role).user} what it lacks; `tributary check` prints"
                " the statements."
            )
        elif isinstance(error, psycopg.errors.LockNotAvailable):
            remedy = LOCKED
        elif isinstance(error, psycopg.errors.QueryCanceled):
            remedy = (
                "The statement reached its time limit, or was cancelled. Run the command again."
            )
        elif isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            remedy = READ_ONLY
        else:
            remedy = OTHERWISE
        return kind(
            self.statement_error(_message_in_one_line(error), role, on_replica=on_replica),
            remedy=remedy,
            source=self.source,
            role=role,
            sqlstate=error.sqlstate,
        )


_UNFIT = re.compile(r"\"(column ([^\n]+) of [^\n]+? holds [^\n]+?)\"(?:\s|$)")


def unfit_value(text: str, **context: Any) -> PermanentError | None:
    """Return the error for a PostgreSQL query that read a value which the lake cannot hold.

    Args:
        text: The error message of psycopg or pgjdbc.
        context: The context of the typed error.

    Returns:
        The error, or None if the query failed for another reason.
    """
    found = _UNFIT.search(text)
    if found is None:
        return None
    return PermanentError(found[1], remedy=remedy_for_unfit_value(found[2]), **context)


CONFLICT_REMEDY = (
    "Raise max_standby_streaming_delay on the replica above the time a copy takes, or set "
    "hot_standby_feedback = on there; then run the command again."
)


def is_recovery_conflict(text: str) -> bool:
    """Whether an error means that a PostgreSQL standby ended the session to continue replay."""
    return "conflict with recovery" in text


def optional_row(session: Session, query: str) -> tuple[Any, ...] | None:
    """Return a query's first row; None if PostgreSQL does not support or allow the query.

    An open transaction stays usable if the query fails.
    """
    try:
        with session.transaction():
            return session.execute(sql.SQL(query)).fetchone()
    except NOT_OFFERED:
        return None


@contextmanager
def reading(session: Session) -> Iterator[None]:
    """Open a PostgreSQL transaction with the session settings for reading values.

    The settings are set again in each transaction: a pooler between this process and the server can
    run each transaction in another session of the server, which can have other settings.
    """
    with session.transaction():
        read_by(session)
        yield


def read_by(session: Session, **settings: str) -> None:
    """For the rest of the open transaction, apply PostgreSQL's settings for reading values.

    Args:
        session: A session with an open transaction.
        settings: Values of further settings, by the setting's name.
    """
    wanted = _READ_BY | settings
    session.execute(
        "SELECT set_config(name, value, true)"
        " FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)",
        (list(wanted), list(wanted.values())),
    )


def _settings(
    session: OwnSession, statement_timeout_s: float, lock_timeout_s: float
) -> dict[str, str]:
    """Return settings that make a session independent of the server, the database and the role."""
    limits = {
        "statement_timeout": str(round(statement_timeout_s * 1000)),
        "lock_timeout": str(round(lock_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
        # PostgreSQL overestimates our long queries of the catalog so far that it compiles them,
        # which takes two seconds of a primary's CPU time; the queries themselves take milliseconds.
        "jit": "off",
    }
    if session.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
        limits["transaction_timeout"] = "0"
    return limits | _READ_BY


_NO_ROOM = ("too many", "remaining connection slots", "no more connections")
"""Parts of the messages of PostgreSQL and of poolers that have no room for another session."""
_AWAY = (
    "refused",
    "timeout expired",
    "timed out",
    "unreachable",
    "No route to host",
    "could not translate host name",
    "failed to resolve host",
    "Name or service not known",
    "closed the connection unexpectedly",
    "reset by peer",
)
"""Parts of the messages of libpq and psycopg if no server answers a connection attempt."""


def _is_passing(error: Exception) -> bool:
    """Whether the cause of a failed connection to a PostgreSQL source is temporary."""
    text = str(error)
    return isinstance(error, psycopg.OperationalError) and any(
        sign in text
        for sign in ("refused", "starting up", "shutting down", "timeout expired", *_NO_ROOM)
    )


def _message_in_one_line(error: psycopg.Error) -> str:
    """Return the message of an error of a PostgreSQL source as one line."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split()) or type(error).__name__
