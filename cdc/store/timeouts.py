"""Limits how long this process waits for the state store's server, even if the server hangs."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy.engine import URL

from cdc.runtime.waiting import answered_within

CONNECT_LIMIT_S = 10
"""Maximum wait until a server accepts a connection, in seconds."""
ANSWER_LIMIT_S = 60
"""Maximum wait for an answer, in seconds; longer than InnoDB waits for a lock."""
IDLE_LIMIT_S = 30
"""Time after which a server ends a transaction whose client is silent, in seconds.

A machine that lost its power or its network closes no connection. The server can need two hours to
notice this. Until then, the transaction would keep its locks on rows, such as a lease's row.
"""

_READ_ONLY = "25006"
"""PostgreSQL's SQLSTATE of the error for a write in a read-only transaction."""
_READ_ONLY_IN_MYSQL = frozenset({1290, 1792, 1836})
"""Numbers of MySQL's and MariaDB's errors for a refused write: refused because of ``read_only``,
because of a read-only transaction, and because of read-only mode."""

Result = TypeVar("Result")


class _SilentError(psycopg.OperationalError):
    """The state store's server has not answered within the limit."""


class Connection(psycopg.Connection[Any]):
    """A connection to a state store in PostgreSQL, which closes if the server is silent too long.

    The time-outs of libpq and of the server do not help if the server hangs but its machine still
    answers. Nor do they help if a proxy between this process and the server still answers.
    """

    def wait(self, gen: PQGen[Result], *more: Any, **named: Any) -> Result:
        """Wait for the answer of the state store's server.

        The driver calls this method whenever it waits, except during the login.
        """
        try:
            silent = partial(_SilentError, f"the server has not answered for {ANSWER_LIMIT_S} s")
            limited = answered_within(ANSWER_LIMIT_S, gen, silent)
            return super().wait(limited, *more, **named)
        except _SilentError:
            self.close()  # otherwise a rollback would wait as long again
            raise


def connect_args(url: URL) -> dict[str, Any]:
    """Return the arguments of the database's driver for the state store's connections.

    The arguments set the time-outs. For PostgreSQL, they also turn off prepared statements, which
    fail at random behind a pooler that gives each transaction another session of the server. An
    argument that the URL already sets is left out.
    """
    connecting = {"connect_timeout": CONNECT_LIMIT_S}
    answering = {"read_timeout": ANSWER_LIMIT_S, "write_timeout": ANSWER_LIMIT_S}
    known: dict[str, dict[str, Any]] = {
        "psycopg": {**connecting, "prepare_threshold": None},
        "pymysql": {**connecting, **answering},
        "mysqldb": {**connecting, **answering},
    }
    wanted = known.get(url.get_driver_name(), {})
    return {name: limit for name, limit in wanted.items() if name not in url.query}


def idle_limit_of_session(url: URL) -> str | None:
    """Return SQL to make the state store's server end a session with a long idle transaction.

    MariaDB has a setting for this, MySQL has none. The SQL for MySQL makes the server end every
    session that is idle too long, and the connection pool then opens a new session. The result is
    None for databases other than MySQL and MariaDB.
    """
    return {
        "mysql": f"SET SESSION wait_timeout = {IDLE_LIMIT_S}",
        "mariadb": f"SET SESSION idle_transaction_timeout = {IDLE_LIMIT_S}",
    }.get(url.get_backend_name())


def idle_limit_of_transaction(url: URL) -> str | None:
    """Return SQL with which the server ends the current transaction if it is idle too long.

    PostgreSQL can set the limit for one transaction. A limit for the session would remain set when
    a pooler gives the server's session to another client. The result is None for databases other
    than PostgreSQL.
    """
    if url.get_backend_name() != "postgresql":
        return None
    return f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_LIMIT_S}s'"


def takes_no_writes(error: BaseException) -> bool:
    """Whether the state store's server has refused a statement because the server is read-only.

    After a failover, an open connection can still lead to the former primary, which is read-only,
    while the host's name already leads to the new primary.

    Args:
        error: The driver's error.
    """
    number = error.args[0] if error.args else None
    return getattr(error, "sqlstate", None) == _READ_ONLY or number in _READ_ONLY_IN_MYSQL
