"""The contents of a bootstrap's commits, and the copies that the handoff refuses."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from bootstrap import snapshot
from bootstrap.commit import chunk_commit, handoff_commit, require_planned
from bootstrap.errors import AttemptSpoiledError
from bootstrap.snapshot import FETCH_ROWS, fetch_rows, wait_to_retry
from bootstrap.spoiling_checks import require_same_server
from cdc.config.partitions import PartitionField
from cdc.errors import StateError, StoppedError
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import LakeColumn
from cdc.lake.key_text import FORM
from cdc.lake.layout import LakeLayout
from cdc.log.position import Lsn
from cdc.runtime.progress import Interruptible, NullProgress
from cdc.sources.source_facts import Marker
from cdc.store.attempt import Attempt, Chunk, CopiedServer
from cdc.store.table_state import State
from schemas.fingerprint import Fingerprint
from schemas.table import Column, Shard, TableId, TableSchema
from tests.handoffs import VIEW
from tests.records import table_record

TABLE = TableId("shop", "public", "orders")
ATTEMPT = Attempt(
    id=uuid.UUID(int=7),
    started_at=datetime(2026, 1, 2, tzinfo=timezone.utc),
    path="/lake/orders/attempt=7",
    topic_id="topic-uuid",
    start_offsets={0: 10},
    marker_id=uuid.UUID(int=9),
    x0="77",
    chunks=tuple(Chunk(number, None, None, 1, 1) for number in range(3)),
    view=replace(VIEW, system_identifier="123", timeline=4),
    fingerprint=Fingerprint({"oid": 5}),
    reads_upto="0/99",
    handoff_offsets={0: 42},
)
RECORD = table_record(
    table=TABLE,
    state=State.BOOTSTRAPPING,
    topic="topic",
    updated_at=ATTEMPT.started_at,
    attempt=ATTEMPT,
    generation=3,
)
SCHEMA = TableSchema(TABLE, (Column("id", "integer", "int", False),), ("id",))
LAYOUT = LakeLayout(SCHEMA, partition_by=(PartitionField(column="id"),))


def chunk(number: int) -> Chunk:
    return Chunk(number, None, None, 1, 1)


def wave(*numbers: int) -> CommitRecord:
    return chunk_commit(RECORD, ATTEMPT, [chunk(number) for number in numbers], "run")


def test_a_chunk_commit_carries_attempt_start_and_chunks_but_no_offsets() -> None:
    commit = wave(1, 2)
    assert (commit.attempt, commit.chunk_ids) == (str(ATTEMPT.id), (1, 2))
    assert commit.start_offsets == {0: 10}
    assert commit.offsets == {}, "a run must not start from a table that is half copied"
    assert CommitRecord.from_json(commit.to_json()) == commit


def test_the_handoff_hands_over_at_the_start_not_at_the_handoff() -> None:
    context = SimpleNamespace(run_id="run", config=SimpleNamespace(lake=None))
    commit = handoff_commit(RECORD, ATTEMPT, LAYOUT, context)  # type: ignore[arg-type]
    assert commit.offsets == {0: 10}, "changes between O and H have to be replayed"
    handoff = commit.require_handoff()
    assert handoff.handoff_offsets == {0: 42}
    assert (handoff.topic_id, handoff.x0, handoff.reads_upto) == ("topic-uuid", "77", "0/99")
    assert handoff.view == ATTEMPT.view
    assert (handoff.fingerprint, handoff.key) == (Fingerprint({"oid": 5}), ("id",))
    assert handoff.columns == (LakeColumn("id", "integer", "int"),)
    assert handoff.partition_by == ("id",)
    assert handoff.key_text is None, "Hudi renders integers by itself"
    assert CommitRecord.from_json(commit.to_json()) == commit


@pytest.mark.parametrize(
    ("kind", "shard"), [("string", None), ("int", Shard("o", "eu", "_s", "/"))]
)
def test_the_handoff_names_the_form_of_keys_that_are_texts(kind: str, shard: Shard | None) -> None:
    context = SimpleNamespace(run_id="run", config=SimpleNamespace(lake=None))
    schema = TableSchema(TABLE, (Column("id", kind, kind, False),), ("id",))
    layout = LakeLayout(schema)
    commit = handoff_commit(replace(RECORD, shard=shard), ATTEMPT, layout, context)  # type: ignore[arg-type]
    assert commit.require_handoff().key_text == FORM


@pytest.mark.parametrize(
    "place", ["start_offsets", "handoff_offsets", "reads_upto", "x0", "marker_id", "view"]
)
def test_an_attempt_that_lacks_a_place_hands_nothing_off(place: str) -> None:
    context = SimpleNamespace(run_id="run", config=SimpleNamespace(lake=None))
    with pytest.raises(StateError, match="has not recorded") as caught:
        handoff_commit(RECORD, replace(ATTEMPT, **{place: None}), LAYOUT, context)  # type: ignore[arg-type]
    assert "tributary bootstrap" in caught.value.remedy


def test_a_whole_copy_is_accepted() -> None:
    require_planned(RECORD, ATTEMPT, [wave(0, 1), wave(2)])


@pytest.mark.parametrize(
    "waves", [[(0, 1)], [(0, 1), (1, 2)], [(0, 1), (2,), (2,)], [(0, 1, 2, 3)], []]
)
def test_a_copy_with_chunks_missing_or_doubled_is_refused(waves: list[tuple[int, ...]]) -> None:
    with pytest.raises(AttemptSpoiledError, match="two processes"):
        require_planned(RECORD, ATTEMPT, [wave(*numbers) for numbers in waves])


def marker(system_identifier: str | None, timeline: int | None) -> Marker:
    return Marker(uuid.UUID(int=1), system_identifier, timeline, Lsn(1))


def test_the_same_server_is_accepted_also_where_it_does_not_tell() -> None:
    require_same_server(RECORD, marker("123", 4))
    require_same_server(RECORD, marker(None, None))


@pytest.mark.parametrize("other", [marker("124", 4), marker("123", 5)])
def test_a_failover_during_the_copy_spoils_the_attempt(other: Marker) -> None:
    with pytest.raises(AttemptSpoiledError, match="another server"):
        require_same_server(RECORD, other)


@pytest.mark.parametrize("other", [marker("124", 4), marker("123", 5)])
def test_a_failover_between_the_start_and_the_view_spoils_the_attempt(other: Marker) -> None:
    """From O on, the topic may have changes that only the former primary has committed."""
    started = replace(ATTEMPT, view=None, server=CopiedServer("123", 4))
    record = replace(RECORD, attempt=started)
    require_same_server(record, marker("123", 4))
    with pytest.raises(AttemptSpoiledError, match="another server"):
        require_same_server(record, other)


def test_narrow_rows_are_fetched_many_at_a_time_and_wide_ones_few() -> None:
    assert fetch_rows(2_000_000, 400_000_000) == FETCH_ROWS
    assert fetch_rows(1000, 1_000_000_000) == 4
    assert fetch_rows(1, 10**12) == 1
    assert fetch_rows(0, 0) == FETCH_ROWS


def test_each_failure_makes_a_fetch_smaller_but_never_nothing() -> None:
    sizes = [fetch_rows(1000, 1000, failures=failures) for failures in range(6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == FETCH_ROWS
    assert sizes[1] <= FETCH_ROWS // 8
    assert sizes[-1] == 1


def test_the_wait_before_a_copys_next_try_grows_up_to_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = list[float]()
    monkeypatch.setattr(snapshot, "pause", lambda _name, seconds, _progress: waited.append(seconds))
    for failures in (1, 2, 3, 6, 90):
        wait_to_retry(TABLE, failures, NullProgress())
    assert waited == [1, 2, 4, 30, 30]


def test_a_command_that_is_stopped_does_not_wait_for_a_copys_next_try() -> None:
    progress = Interruptible(NullProgress())
    threading.Timer(0.1, progress.interrupt).start()
    began = time.monotonic()
    with pytest.raises(StoppedError, match=r"wait to copy shop:public\.orders again"):
        wait_to_retry(TABLE, 9, progress)
    assert time.monotonic() - began < 15
