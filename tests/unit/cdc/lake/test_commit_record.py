from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticSerializationError

from cdc.errors import LakeError
from cdc.lake.commit import CommitRecord, ShardAccount, SharedState
from cdc.lake.handoff import FollowedSchema, Handoff, LakeColumn
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.handoffs import handed
from tests.unit.cdc.strategies import facts, offsets, recorded_changes, texts, times, views

TABLE = TableId("shop", "My Schema", 'or"ders.1')

columns = st.builds(
    LakeColumn,
    texts,
    texts,
    texts,
    read_by_key=st.booleans(),
    hide=st.sampled_from(["", "hash", "mask"]),
    plain=texts,
    late=st.booleans(),
    added=st.booleans(),
    fill=st.none() | texts,
    renamed=st.booleans(),
    former=st.lists(texts, max_size=2).map(tuple),
)
followed = st.builds(
    FollowedSchema,
    st.integers(2),
    times,
    st.lists(st.integers(0), max_size=2).map(tuple),
    st.lists(recorded_changes, max_size=2).map(tuple),
)
handoffs = st.builds(
    Handoff,
    offsets,
    offsets,
    texts,
    texts,
    st.uuids(),
    st.none() | texts,
    st.none() | st.integers(0),
    st.none() | texts,
    views,
    st.builds(Fingerprint, st.dictionaries(texts, facts, max_size=3)),
    st.lists(columns, max_size=3).map(tuple),
    st.lists(texts, max_size=2).map(tuple),
    key_text=st.none() | st.integers(1, 9),
    partition_by=st.lists(texts, max_size=2).map(tuple),
    hash_key=st.none() | texts,
    schema=st.none() | followed,
)
an_account = st.builds(ShardAccount, texts, st.integers(0, 10**9), st.none() | texts)
accounts = st.dictionaries(texts, an_account, max_size=3)
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
    watermark=st.none() | times,
    counts=st.dictionaries(st.sampled_from("cudrt"), st.integers(0)),
    schema_ids=st.lists(st.integers(0)).map(tuple),
    last_event=st.none() | st.text(),
    chunk_ids=st.lists(st.integers(0)).map(tuple),
    handoff=st.none() | handoffs,
    shared=st.none() | st.builds(SharedState, st.dictionaries(texts, texts), accounts),
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


def test_a_user_whose_name_is_no_text_can_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ren\udce9")
    text = CommitRecord(kind="run", table=TABLE, attempt="a").to_json()
    assert CommitRecord.from_json(text).user == r"ren\udce9"


RECORD = CommitRecord(
    kind="run",
    table=TABLE,
    attempt="a",
    handoff=handed([LakeColumn("id", "integer", "int")]),
    shared=SharedState({}, {}),
)
PLAIN = json.loads(RECORD.to_json())
LATE = "handoff.columns[0].late"


def changed(path: str, *values: Any) -> str:
    """The record with another value at a path, or without the entry at this path."""
    plain = json.loads(RECORD.to_json())
    *parents, last = path.replace("[0]", ".0").split(".")
    holder = plain
    for name in parents:
        holder = holder[int(name) if name.isdigit() else name]
    if values:
        holder[last] = values[0]
    else:
        del holder[last]
    return json.dumps(plain)


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize("path", [*PLAIN, "table.source", LATE, "handoff.view.split"])
def test_a_record_that_lacks_a_key_is_refused_by_the_name_of_the_key(path: str) -> None:
    with pytest.raises(LakeError, match=f"^commit 7 of /t lacks the key {re.escape(path)}$"):
        CommitRecord.from_json(changed(path), "commit 7 of /t")


@pytest.mark.parametrize("path", ["new", "table.new", "handoff.new", "handoff.columns[0].new"])
def test_a_record_with_an_unknown_key_is_refused_by_its_name(path: str) -> None:
    with pytest.raises(LakeError, match=f"has the key {re.escape(path)}, which this version") as e:
        CommitRecord.from_json(changed(path, 1))
    assert "copy the table again" in e.value.remedy


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("kind", "odd", "kind: Input should be 'chunk', 'handoff' or 'run'"),
        ("offsets", 7, "offsets: Input should be"),
        ("offsets", {"0": "1"}, "offsets.0: Input should be a valid integer"),
        ("offsets", {"0": 1.5}, "offsets.0: Input should be a valid integer"),
        ("generation", None, "generation: Input should be a valid integer"),
        ("watermark", "yesterday", "watermark: Input should be a valid datetime"),
        ("watermark", "2026-01-01T00:00:00", "the watermark of a commit must be an aware datetime"),
        ("schema_ids", ["1"], r"schema_ids[0]: Input should be a valid integer"),
        (LATE, 1, f"{LATE}: Input should be a valid boolean"),
        ("handoff.marker_id", "x", "handoff.marker_id: Input should be a valid UUID"),
        ("shared.accounts", "x", "shared.accounts: no packed accounts of shards"),
        ("shared.accounts", 7, "shared.accounts: no packed accounts of shards"),
        ("shared.accounts", packed(b"{}x"), "shared.accounts: no packed accounts of shards"),
        ("shared.accounts", packed(b'{"a": {"text": 1}}'), "shared.accounts: no packed accounts"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_place(
    path: str, value: object, reason: str
) -> None:
    with pytest.raises(LakeError, match=f"is not valid: {re.escape(reason)}"):
        CommitRecord.from_json(changed(path, value))


@pytest.mark.parametrize("wrong", [{}, {"invented_later": 1}, {"kind": 7}])
def test_a_record_of_another_version_is_refused_by_its_version(wrong: dict[str, Any]) -> None:
    text = json.dumps({**PLAIN, **wrong, "format": 2})
    with pytest.raises(LakeError, match="has format 2; this version reads format 1 only") as caught:
        CommitRecord.from_json(text)
    assert "the version of this tool that wrote the table" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON: "),
        ("not json", "is not JSON: "),
        ("[]", "is not valid: Input should be an object"),
        ("null", "is not valid: Input should be an object"),
        ("{}", "lacks the key kind"),
    ],
)
def test_what_is_no_record_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LakeError, match=f"^a lake commit's record {reason}"):
        CommitRecord.from_json(text)


@pytest.mark.parametrize(
    "values", [{"offsets": {0: "1"}}, {"schema_ids": [1]}, {"handoff": {"columns": ()}}]
)
def test_a_value_of_another_type_is_not_written(values: dict[str, Any]) -> None:
    record = replace(RECORD, **values)
    with pytest.raises(PydanticSerializationError):
        record.to_json()


def test_the_account_of_a_shard_is_read_by_who_looks_for_it() -> None:
    damaged = ShardAccount('{"format": 1}', 60)
    shared = SharedState(
        {"id": "int"}, {"a": ShardAccount(RECORD.to_json(), 3600, "5"), "b": damaged}
    )
    again = CommitRecord.from_json(replace(RECORD, shared=shared).to_json()).shards
    assert again["a"].record == RECORD
    assert again["a"].instant == "5"
    with pytest.raises(LakeError, match="the account of a shard in a lake commit lacks the key"):
        _ = again["b"].record


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "other"}, {"kind": "run", "watermark": datetime(2026, 1, 1)}],  # noqa: DTZ001 - that is the case
)
def test_wrong_values_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="commit"):
        CommitRecord(table=TABLE, attempt="a", **wrong)
