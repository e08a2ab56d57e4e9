"""Which topics are checked for settings by which changes could expire unread."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.topic_retention import expiring
from cdc.store.table_state import CaptureRecord, State, TierCapture
from tests.records import table_record

FAST = TierCapture("fast", "shop_fast.public.orders", CaptureRecord("shop_fast", "c2", "p2", "s2"))


@pytest.mark.parametrize(
    ("state", "topics"),
    [(State.INCREMENTAL, ("shop_fast.public.orders", "t")), (State.NEEDS_BOOTSTRAP, ())],
)
def test_both_topics_of_a_table_that_moves_are_checked(
    state: State, topics: tuple[str, ...]
) -> None:
    """The next generation reads the new topic only after its copy, which can take hours."""
    source = SimpleNamespace(kind="postgres")

    def settings(names: Collection[str]) -> Any:
        return {name: {"retention.ms": "1000"} for name in names if name in ("t", FAST.topic)}, {}

    config = SimpleNamespace(
        sources={"shop": source},
        source=lambda _: source,
        kafka=SimpleNamespace(topic=SimpleNamespace(retention_ms=60_000)),
    )
    kafka = SimpleNamespace(topic_configs_each=settings)
    context = SimpleNamespace(config=config, kafka=kafka, topic_settings={})
    record = table_record(state=state, other=FAST, capture=CaptureRecord("shop", "c", "p", "s"))
    found = expiring(cast(Any, context), [record])
    assert [topic for one in found for topic in one.topics] == list(topics)
