"""The lines of `status` on a lake table that several source tables feed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from cdc.store.table_state import State
from operate.shards import shared_tables
from operate.status import TableStatus
from schemas.table import Shard, TableId
from tests.records import table_record

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def status(name: str, state: State, age_s: float | None, **changes: object) -> TableStatus:
    record = table_record(
        table=TableId("shop", "public", name),
        state=state,
        base_path=f"file:///lake/orders/_shards/{name}",
        topic=name,
        updated_at=NOW,
        shard=Shard("orders", name, "_shard", "file:///lake/orders"),
    )
    return TableStatus(
        record=replace(record, **changes),  # type: ignore[arg-type]
        events_behind=0,
        watermark=None if age_s is None else NOW - timedelta(seconds=age_s),
        freshness_s=age_s,
        target_s=900,
    )


def test_it_is_no_fresher_than_the_oldest_of_its_shards() -> None:
    (found,) = shared_tables(
        [
            status("eu", State.INCREMENTAL, 10),
            status("us", State.NEEDS_BOOTSTRAP, 1000),
            status("as", State.BOOTSTRAPPING, None),
            status("old", State.RETIRED, 5000),
            status("alone", State.INCREMENTAL, 9000, shard=None),
        ]
    )
    assert (found.name, found.shards, found.joining) == ("orders", 2, ("as",))
    assert found.held_back == {"us": "needs_bootstrap"}
    assert found.watermark == NOW - timedelta(seconds=1000)
    assert (found.freshness_s, found.late) == (1000, True)


def test_a_shard_whose_watermark_is_not_known_leaves_the_whole_without_one() -> None:
    """The shard's rows are in the lake table, but their age is not known."""
    (found,) = shared_tables(
        [
            status("eu", State.INCREMENTAL, 10),
            status("us", State.CATCHING_UP, None, generation=2),
            status("as", State.FAILED, 7, resume_to=State.INCREMENTAL),
        ]
    )
    assert (found.watermark, found.freshness_s, found.late) == (None, None, False)
    assert found.held_back == {"us": "catching_up", "as": "failed"}
    (found,) = shared_tables([status("eu", State.REGISTERED, None)])
    assert (found.shards, found.joining, found.watermark) == (0, ("eu",), None)


def test_a_late_shard_is_not_hidden_by_one_without_a_watermark() -> None:
    """Without Kafka transactions, a shard that never had an event has an age and no watermark."""
    idle = replace(status("eu", State.INCREMENTAL, 5), watermark=None)
    (found,) = shared_tables([idle, status("us", State.INCREMENTAL, 1000)])
    assert (found.watermark, found.freshness_s, found.late) == (None, 1000, True)
    (found,) = shared_tables([idle, status("us", State.INCREMENTAL, 10)])
    assert (found.watermark, found.freshness_s, found.late) == (None, 10, False)
