"""Bounds of what the state store's server may take to answer, whatever keeps it from it."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy.engine import URL

CONNECT_LIMIT_S = 10
"""How long a server may take to accept a connection."""
ANSWER_LIMIT_S = 60
"""How long it may take to answer; above what InnoDB waits for a lock."""

Result = TypeVar("Result")


class _SilentError(psycopg.OperationalError):
    pass


class Connection(psycopg.Connection[Any]):
    """A connection to PostgreSQL that is given up once the server says nothing for too long.

    The limits of libpq and of the server are no help where the machine lives, or a proxy, and the
    server behind it stands still.
    """

    def wait(self, gen: PQGen[Result], *more: Any, **named: Any) -> Result:
        """Wait for the server's answer; the driver calls it for all but the login."""
        try:
            return super().wait(_within(ANSWER_LIMIT_S, gen), *more, **named)
        except _SilentError:
            self.close()  # else a rollback would wait as long again
            raise


def _within(limit_s: float, waiting: PQGen[Result]) -> PQGen[Result]:
    """The same steps, of which the driver asks several times a second, until nothing moves."""
    moved = time.monotonic()
    try:
        ready = yield next(waiting)
        while True:
            if ready:
                moved = time.monotonic()
            elif time.monotonic() - moved > limit_s:
                raise _SilentError(f"the server has not answered for {limit_s} s")
            ready = yield waiting.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result


def connect_args(url: URL) -> dict[str, Any]:
    """What the URL's driver is told of the limits; what the URL says itself goes before."""
    connecting = {"connect_timeout": CONNECT_LIMIT_S}
    answering = {"read_timeout": ANSWER_LIMIT_S, "write_timeout": ANSWER_LIMIT_S}
    known: dict[str, dict[str, Any]] = {
        "psycopg": connecting,
        "pymysql": {**connecting, **answering},
        "mysqldb": {**connecting, **answering},
    }
    wanted = known.get(url.get_driver_name(), {})
    return {name: limit for name, limit in wanted.items() if name not in url.query}
