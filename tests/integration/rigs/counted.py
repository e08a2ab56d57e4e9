"""Count what a block of code asks of state store, Spark, lake, Kafka, Connect and sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import httpx
import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient

from cdc.lake import timeline
from cdc.store.state_store import Store
from operate.context import Services

_KAFKA = ("list_offsets", "describe_topics", "describe_configs", "list_topics")
_COLLECTED = "m\n"
"""The first bytes of py4j's message that Python has dropped an object.

Such messages are not counted, because they come at unpredictable times.
"""


@contextmanager
def counted(services: Services) -> Iterator[Counter[str]]:
    """Count the calls of all threads until the end of the block.

    The counts are:

    - of the state store: ``transactions``, ``statements`` without BEGIN and COMMIT, and reads of
      the whole ``plan``;
    - of Spark and the lake: ``py4j`` calls, Spark ``jobs``, and ``opens`` of a lake table's
      metadata by the product;
    - of Kafka: requests about topics (``kafka``), new ``consumers``, and their ``reads`` of topics;
    - of the other services: requests to ``connect`` and to the ``registry``;
    - of the sources: ``source`` statements, and ``logins``.

    A count of 0 may be missing. The state store is SQLite, so no login and no statement of a source
    is its own.
    """
    counts: Counter[str] = Counter()
    engine = services.store._engine
    scheduler = services.spark.sparkContext._jsc.sc().dagScheduler()

    def began(_connection: Any) -> None:
        counts["transactions"] += 1

    def executes(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        counts["statements"] += not statement.startswith("BEGIN")

    with pytest.MonkeyPatch.context() as patch:
        _count_calls(patch, counts, "plan", Store, "tables")
        _count_calls(patch, counts, "opens", timeline, "_open_meta_client")
        _count_calls(patch, counts, "source", psycopg.Cursor, "execute")
        _count_calls(patch, counts, "source", pymysql.cursors.Cursor, "execute")
        _count_calls(patch, counts, "logins", pymysql.connections.Connection, "connect")
        for name in _KAFKA:
            _count_calls(patch, counts, "kafka", AdminClient, name)
        _count_logins(patch, counts)
        _count_consumers(patch, counts)
        _count_requests(patch, counts, services.config.kafka.registry.url)
        client = services.spark.sparkContext._gateway._gateway_client
        asked = int(scheduler.numTotalJobs())
        send = client.send_command

        def sends(command: str, *values: Any, **named: Any) -> Any:
            counts["py4j"] += not command.startswith(_COLLECTED)
            return send(command, *values, **named)

        patch.setattr(client, "send_command", sends)
        sa.event.listen(engine, "begin", began)
        sa.event.listen(engine, "before_cursor_execute", executes)
        try:
            yield counts
        finally:
            sa.event.remove(engine, "begin", began)
            sa.event.remove(engine, "before_cursor_execute", executes)
    counts["jobs"] += int(scheduler.numTotalJobs()) - asked


def _count_calls(
    patch: pytest.MonkeyPatch, counts: Counter[str], what: str, owner: Any, name: str
) -> None:
    """Wrap a function of a module or class so that its calls are counted."""
    original: Callable[..., Any] = getattr(owner, name)

    def called(*values: Any, **named: Any) -> Any:
        counts[what] += 1
        return original(*values, **named)

    patch.setattr(owner, name, called)


def _count_logins(patch: pytest.MonkeyPatch, counts: Counter[str]) -> None:
    """Count the logins of psycopg, whose function is a method of the class."""
    connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]

    def connects(kind: Any, *values: Any, **named: Any) -> Any:
        counts["logins"] += 1
        return connect(kind, *values, **named)

    patch.setattr(psycopg.Connection, "connect", classmethod(connects))


def _count_consumers(patch: pytest.MonkeyPatch, counts: Counter[str]) -> None:
    """Count new consumers of Kafka, and how often each is given topics to read."""

    class Consumer(ck.Consumer):  # type: ignore[misc]
        def __init__(self, *values: Any, **named: Any) -> None:
            counts["consumers"] += 1
            super().__init__(*values, **named)

        def assign(self, *values: Any, **named: Any) -> None:
            counts["reads"] += 1
            super().assign(*values, **named)

    patch.setattr(ck, "Consumer", Consumer)


def _count_requests(patch: pytest.MonkeyPatch, counts: Counter[str], registry: str) -> None:
    """Count the requests to the registry and, apart from these, the requests to Connect."""
    send = httpx.Client.send

    def sends(client: httpx.Client, request: httpx.Request, **named: Any) -> httpx.Response:
        counts["registry" if str(request.url).startswith(registry) else "connect"] += 1
        return send(client, request, **named)

    patch.setattr(httpx.Client, "send", sends)
