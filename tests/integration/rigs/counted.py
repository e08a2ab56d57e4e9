"""Count what a block of code asks of state store, Spark, lake, Kafka, Connect and sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient

from cdc.lake import timeline
from tests.integration.rigs.replication import Replication

_KAFKA = ("list_offsets", "describe_topics", "describe_configs", "list_topics")
_COLLECTED = "m\n"
"""The first bytes of py4j's message that Python has dropped an object.

Such messages are not counted, because they come at unpredictable times.
"""


@contextmanager
def counted(shared: Replication) -> Iterator[Counter[str]]:
    """Count the calls of all threads until the end of the block.

    The counts are: ``transactions`` and ``statements`` of the state store, ``py4j`` calls, Spark
    ``jobs``, ``opens`` of a lake table's metadata by the product, ``kafka`` requests about topics,
    ``rest`` requests, and ``source`` statements. A count of 0 may be missing.
    """
    counts: Counter[str] = Counter()
    engine = shared.store._engine
    scheduler = shared.spark.sparkContext._jsc.sc().dagScheduler()

    def began(_connection: Any) -> None:
        counts["transactions"] += 1

    def executes(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        counts["statements"] += not statement.startswith("BEGIN")

    with pytest.MonkeyPatch.context() as patch:
        _count_calls(patch, counts, "opens", timeline, "_open_meta_client")
        _count_calls(patch, counts, "rest", httpx.Client, "send")
        _count_calls(patch, counts, "source", psycopg.Cursor, "execute")
        for name in _KAFKA:
            _count_calls(patch, counts, "kafka", AdminClient, name)
        client = shared.spark.sparkContext._gateway._gateway_client
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
