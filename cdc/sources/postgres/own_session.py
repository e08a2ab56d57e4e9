"""Sessions whose settings no other client of a connection pooler gets.

A pooler such as PgBouncer in transaction mode runs each transaction of a client in any session of
the server. What a client sets for the session stays set for the next client, for example for the
application. So through a pooler, all settings are for one transaction only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import sql
from psycopg.generators import execute
from psycopg.pq import ExecStatus, TransactionStatus

from cdc.runtime.waiting import answered_within

# A setting that is for the transaction only ends with this statement, so nothing is left in a
# session that may be another client's next.
_FOR_SESSION = """
SELECT pg_catalog.pg_backend_pid() <> %(known)s::int8,
       extract(epoch FROM pg_catalog.pg_postmaster_start_time())::float8,
       pg_catalog.count(
           pg_catalog.set_config(name, value, pg_catalog.pg_backend_pid() <> %(known)s::int8))
FROM unnest(%(names)s::text[], %(values)s::text[]) AS wanted (name, value)
"""


class OwnSession(psycopg.Connection[tuple[Any, ...]]):
    """A session on a PostgreSQL server, or through a pooler.

    Through a pooler, each transaction first applies the session's settings. A statement outside of
    a transaction gets a transaction of its own.
    """

    _each_time: sql.Composed | None = None
    server_since: float | None = None
    """Time of the start of the session's server, in seconds since 1970; None before `apply`. It
    differs if a login has reached another server, or a server that was restarted."""

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler was found between this process and the server; see `apply`."""
        return self._each_time is not None

    @property
    def is_as_new(self) -> bool:
        """Whether another block can use the session after ``DISCARD ALL``.

        This is so if the session is open, does not go through a pooler, has no open transaction,
        and has the driver's settings of a new session.
        """
        changed = (self.isolation_level, self.read_only, self.deferrable) != (None, None, None)
        idle = self.info.transaction_status == TransactionStatus.IDLE
        return idle and self.autocommit and not changed and not self.is_pooled

    def forget(self, *, limit_s: float) -> None:
        """Run ``DISCARD ALL``, which removes from the session what its user has left there.

        Raises:
            psycopg.Error: The session has ended, or the server does not answer for ``limit_s``
                seconds.
        """
        self.pgconn.send_query(b"DISCARD ALL")
        silent = partial(psycopg.OperationalError, f"no answer within {limit_s} s")
        (result,) = self.wait(answered_within(limit_s, execute(self.pgconn), silent))
        if result.status != ExecStatus.COMMAND_OK:
            raise psycopg.OperationalError(result.error_message.decode(errors="replace"))

    def apply(self, settings: Mapping[str, str]) -> None:
        """Apply settings to everything that the session executes from now on.

        The method also finds out whether there is a pooler. At a login, a server sends the process
        id of its session. A pooler sends another number, whatever its mode is. So the method cannot
        find out the pooler's mode.

        Args:
            settings: A mapping from each setting's name to the value.
        """
        row = self.execute(
            _FOR_SESSION,
            {
                "known": self.info.backend_pid,
                "names": list(settings),
                "values": list(settings.values()),
            },
        ).fetchone()
        self.server_since = None if row is None else row[1]
        if row is None or row[0]:
            # SET LOCAL takes no snapshot, so the transaction can still set its isolation level.
            self._each_time = sql.SQL("; ").join(
                sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value))
                for name, value in settings.items()
            )

    def execute(self, *query: Any, **options: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute a statement as `psycopg.Connection` does, with the settings of the session."""
        if self._begins():
            if self.autocommit:
                with self.transaction():
                    return super().execute(*query, **options)
            self._set_locally()
        return super().execute(*query, **options)

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        """Open a transaction as `psycopg.Connection` does, with the settings of the session."""
        begins = self._begins()
        with super().transaction(savepoint_name, force_rollback) as opened:
            if begins:
                self._set_locally()
            yield opened

    def _begins(self) -> bool:
        """Whether the next statement would begin a transaction that lacks the settings."""
        return self.is_pooled and self.info.transaction_status == TransactionStatus.IDLE

    def _set_locally(self) -> None:
        if self._each_time is not None:
            super().execute(self._each_time)
