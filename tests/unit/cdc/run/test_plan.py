from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.position_check import TopicFacts
from cdc.config import TableSettings
from cdc.errors import KafkaError
from cdc.run.plan import (
    due,
    is_whole,
    ranges,
    retry_at,
    runnable,
    tasks,
    waits_for_later_run,
    watermark,
)
from cdc.store.attempt import Attempt
from cdc.store.table_state import CommitSummary, State, TableRecord
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def record(
    name: str = "orders", *, offsets: dict[int, int] | None = None, state: State = State.INCREMENTAL
) -> TableRecord:
    commit = None
    if offsets is not None:
        commit = CommitSummary(offsets, None, None, "20260101000000000", NOW)
    return table_record(
        table=TableId("shop", "public", name),
        state=state,
        base_path="file:///lake",
        topic=f"shop.public.{name}",
        updated_at=NOW,
        attempt=Attempt(uuid.uuid4(), NOW, "file:///lake/a", topic_id="T1"),
        last_commit=commit,
    )


def found(*records: TableRecord, **topics: dict[int, int]) -> list[str]:
    facts = {
        f"shop.public.{name}": TopicFacts("T1" if offsets else None, {0: 0}, offsets)
        for name, offsets in topics.items()
    }
    return [record.table.name for record in due(records, facts)]


def test_only_tables_with_other_offsets_than_their_last_commit_are_due() -> None:
    idle, behind, fresh = (
        record("idle", offsets={0: 5}),
        record("behind", offsets={0: 5}),
        record("fresh"),
    )
    assert found(idle, behind, fresh, idle={0: 5}, behind={0: 6}, fresh={0: 0}) == [
        "behind",
        "fresh",
    ]


@pytest.mark.parametrize(
    ("high", "whole"), [({0: 5}, True), ({0: 4}, True), ({0: 6}, False), (None, False)]
)
def test_an_idle_table_is_whole_only_without_records_of_an_open_transaction(
    high: dict[int, int] | None, whole: bool
) -> None:
    table, topic = record("t", offsets={0: 5}), TopicFacts("T1", {0: 0}, {0: 5}, high=high)
    assert due([table], {table.topic: topic}) == []
    assert is_whole(table, topic) is whole
    assert not is_whole(record("t"), topic)
    assert not is_whole(table, KafkaError("away", remedy="Wait."))


@pytest.mark.parametrize("now", [{0: 4}, {0: 5, 1: 0}, {}])
def test_any_doubt_about_the_topic_is_work(now: dict[int, int]) -> None:
    assert found(record("t", offsets={0: 5}), t=now) == ["t"]


def test_a_recreated_topic_is_work_even_at_the_same_offset() -> None:
    table = record("t", offsets={0: 5})
    assert due([table], {table.topic: TopicFacts("T2", {0: 0}, {0: 5})}) == [table]


def test_another_leader_alone_is_no_work() -> None:
    """A rolling restart elects new leaders for all topics; the looks at idle tables ask them."""
    known = record("t", offsets={0: 5})
    assert known.last_commit is not None
    table = replace(known, last_commit=replace(known.last_commit, epochs={0: 3}))
    for epoch in (3, 4, 2):
        assert due([table], {table.topic: TopicFacts("T1", {0: 0}, {0: 5}, {0: epoch})}) == []


def test_a_compacted_topic_is_work_even_at_the_same_offset() -> None:
    table = record("t", offsets={0: 5})
    compacted = TopicFacts("T1", {0: 0}, {0: 5}, policy="compact,delete")
    assert due([table], {table.topic: compacted}) == [table]


@pytest.mark.parametrize("state", [s for s in State if s not in (State.INCREMENTAL, State.FAILED)])
def test_tables_in_other_states_are_left_alone(state: State) -> None:
    assert not runnable(record(state=state), NOW)


def test_a_failed_table_is_tried_when_its_time_has_come() -> None:
    failed = replace(record(state=State.FAILED), resume_to=State.INCREMENTAL, retry_at=NOW)
    assert runnable(failed, NOW)
    assert not runnable(failed, NOW - timedelta(seconds=1))
    assert not runnable(replace(failed, retry_at=None), NOW)
    assert not runnable(replace(failed, resume_to=State.BOOTSTRAPPING), NOW)


offsets = st.integers(min_value=0, max_value=500)


@given(
    st.dictionaries(st.integers(0, 4), st.tuples(offsets, offsets), min_size=1),
    st.integers(min_value=1, max_value=200),
)
def test_ranges_cover_everything_once_in_order_within_the_bound(
    wanted: dict[int, tuple[int, int]], limit: int
) -> None:
    start = {partition: pair[0] for partition, pair in wanted.items()}
    until = {partition: pair[0] + pair[1] for partition, pair in wanted.items()}
    at = dict(start)
    for piece in ranges(start, until, limit):
        assert dict(piece.start) == at
        assert set(piece.end) == set(start)
        assert all(at[partition] <= piece.end[partition] <= until[partition] for partition in at)
        assert 0 < piece.offsets <= max(limit, len(start))
        at = dict(piece.end)
    assert at == until


def test_one_partition_is_cut_exactly() -> None:
    pieces = [(p.start[0], p.end[0]) for p in ranges({0: 10}, {0: 35}, 10)]
    assert pieces == [(10, 20), (20, 30), (30, 35)]


def test_tasks_follow_the_events_up_to_the_cores() -> None:
    assert [tasks(events, 4) for events in (0, 1, 50_000, 50_001, 10**7)] == [1, 1, 1, 2, 4]


def test_the_watermark_is_the_slowest_partition_less_the_lateness() -> None:
    times = {0: NOW, 1: NOW - timedelta(minutes=5)}
    assert watermark(None, times, 60, now=NOW) == NOW - timedelta(minutes=6)


def test_the_watermark_never_goes_back() -> None:
    assert watermark(NOW, {0: NOW - timedelta(hours=1)}, 0, now=NOW) == NOW
    assert watermark(NOW, {}, 0, now=NOW) == NOW
    assert watermark(None, {}, 0, now=NOW) is None


def test_what_is_dated_ahead_does_not_hide_that_a_table_is_late() -> None:
    ahead, soon = NOW + timedelta(days=1500), NOW + timedelta(minutes=1)
    assert watermark(None, {0: ahead}, 0, now=NOW) == soon
    assert watermark(NOW, {0: ahead}, 0, now=NOW) == soon
    assert watermark(ahead, {}, 0, now=NOW) == soon
    assert watermark(ahead, {0: NOW}, 0, now=NOW) == NOW, "what an earlier version committed"


def test_retries_back_off_to_an_hour() -> None:
    waits = [(retry_at(failures, NOW) - NOW).total_seconds() for failures in (1, 2, 3, 8, 99)]
    assert waits == [30, 60, 120, 3600, 3600]


@pytest.mark.parametrize(
    ("age_s", "waits"), [(899, True), (901, True), (4400, True), (4600, False)]
)
def test_the_allowed_lateness_does_not_make_a_table_late(age_s: int, waits: bool) -> None:
    """Watermarks are earlier by the allowed lateness, so such a table committed in every round."""
    settings = TableSettings(
        freshness_target_s=900, allowed_lateness_s=3600, min_commit_interval="60s"
    )
    last = CommitSummary({0: 7}, None, NOW - timedelta(seconds=age_s), "1", NOW)
    followed = replace(record(), last_commit=last)
    assert waits_for_later_run(followed, settings, NOW + timedelta(seconds=1)) is waits
