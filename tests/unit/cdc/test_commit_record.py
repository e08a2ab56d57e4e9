from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import LakeError
from cdc.lake.commit import CommitRecord
from schemas.table import TableId

TABLE = TableId("shop", "My Schema", 'or"ders.1')

offsets = st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1), max_size=3)
records = st.builds(
    CommitRecord,
    kind=st.sampled_from(["chunk", "handoff", "run"]),
    table=st.builds(TableId, st.text(min_size=1), st.text(min_size=1), st.text(min_size=1)),
    attempt=st.uuids().map(str),
    generation=st.integers(1, 1000),
    start_offsets=offsets,
    offsets=offsets,
    topic=st.none() | st.text(),
    position=st.none() | st.text(),
    watermark=st.none() | st.datetimes(timezones=st.just(timezone.utc)),
    counts=st.dictionaries(st.sampled_from("cudrt"), st.integers(0)),
    schema_ids=st.lists(st.integers(0)).map(tuple),
    last_event=st.none() | st.text(),
    chunk_ids=st.lists(st.integers(0)).map(tuple),
    handoff=st.none() | st.dictionaries(st.text(), st.text() | st.integers() | st.none()),
)


@given(records)
def test_a_record_survives_its_json(record: CommitRecord) -> None:
    assert CommitRecord.from_json(record.to_json()) == record


def test_json_is_one_line_and_keeps_an_offset_beyond_a_float() -> None:
    at = 2**53 + 1
    text = CommitRecord(kind="run", table=TABLE, attempt="a", offsets={0: at}).to_json()
    assert "\n" not in text
    assert CommitRecord.from_json(text).offsets == {0: at}


def test_the_watermark_keeps_its_instant_whatever_its_zone() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    record = CommitRecord(
        kind="run", table=TABLE, attempt="a", watermark=datetime(2026, 1, 1, 1, 30, tzinfo=zone)
    )
    again = CommitRecord.from_json(record.to_json())
    assert again.watermark == datetime(2025, 12, 31, 20, 0, tzinfo=timezone.utc)


def test_it_says_where_it_was_written() -> None:
    record = CommitRecord(kind="run", table=TABLE, attempt="a")
    assert record.host
    assert record.user
    assert record.tool_version


def test_keys_of_a_later_version_are_ignored() -> None:
    values = json.loads(CommitRecord(kind="run", table=TABLE, attempt="a").to_json())
    text = json.dumps({**values, "invented_later": [1, 2]})
    assert CommitRecord.from_json(text).attempt == "a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "null",
        "{}",
        '{"format": 2, "kind": "run"}',
        '{"format": 1}',
        '{"format": 1, "kind": "run", "table": ["a"], "attempt": "a"}',
        '{"format": 1, "kind": "odd", "table": ["a", "b", "c"], "attempt": "a"}',
        '{"format": 1, "kind": "run", "table": ["a", "b", "c"], "attempt": "a", "offsets": 7}',
    ],
)
def test_what_is_no_record_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(LakeError) as caught:
        CommitRecord.from_json(text)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "other"}, {"kind": "run", "watermark": datetime(2026, 1, 1)}],  # noqa: DTZ001 - that is the case
)
def test_wrong_values_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="commit"):
        CommitRecord(table=TABLE, attempt="a", **wrong)
