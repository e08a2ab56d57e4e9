"""The position of a reader of changes, and the facts that it takes from a commit's record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc.lake import commit
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import LakeColumn
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.handoffs import handed
from tributary_reader import ReadError
from tributary_reader.commit_record import COMMIT_KEY, FORMAT, CommitFacts, HandoffFacts
from tributary_reader.position import Position

HANDOFF = handed([LakeColumn("id", "integer", "int"), LakeColumn("v", "text", "string")])
RECORD = CommitRecord(
    kind="run",
    table=TableId("shop", "public", "orders"),
    attempt="a",
    offsets={0: 50},
    topic_id="t",
    lacks=3,
    handoff=HANDOFF,
)


def read(text: str) -> CommitFacts:
    return CommitFacts.read(text, "20260101000000000", "/lake/orders")


def handoff_in(record: CommitRecord) -> HandoffFacts:
    found = read(record.to_json()).handoff
    assert found is not None
    return found


def test_the_facts_of_a_commit_are_those_of_its_record() -> None:
    found, handoff = read(RECORD.to_json()), handoff_in(RECORD)
    assert (commit.COMMIT_KEY, RECORD.format) == (COMMIT_KEY, FORMAT)
    assert (found.kind, found.offsets, found.topic_id, found.lacks) == ("run", {0: 50}, "t", 3)
    assert (handoff.start_offsets, handoff.handoff_offsets) == ({0: 10}, {0: 42})
    assert not handoff.is_log
    assert handoff_in(replace(RECORD, handoff=replace(HANDOFF, key=()))).is_log
    assert read(CommitRecord("chunk", RECORD.table, "a").to_json()).handoff is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"format": 2, "lacks": None}, "has format 2; this version reads format 1 only"),
        ({"handoff": {"columns": []}}, "lacks the key 'key'"),
        ({"offsets": {"a": 1}}, "is not valid: invalid literal"),
        ({"handoff": 5}, "is not valid: 'int' object is not subscriptable"),
    ],
)
def test_a_record_that_this_version_cannot_read_is_an_error(
    changed: dict[str, Any], reason: str
) -> None:
    document = json.loads(RECORD.to_json()) | changed
    with pytest.raises(ReadError, match=f"commit 20260101000000000 of /lake/orders {reason}"):
        read(json.dumps(document))


def test_a_record_without_a_format_or_without_json_is_an_error() -> None:
    for text, reason in (("{}", "lacks the key 'format'"), ("x", "is not valid")):
        with pytest.raises(ReadError, match=reason):
            read(text)


@pytest.mark.parametrize(
    ("facts", "same"),
    [
        ({"start_offsets": {0: 11}, "x0": "78"}, True),
        ({"columns": (HANDOFF.columns[1], HANDOFF.columns[0])}, True),
        ({"columns": (*HANDOFF.columns, LakeColumn("w", "int", "int"))}, False),
        ({"columns": (HANDOFF.columns[0], LakeColumn("v", "varchar(9)", "string"))}, False),
        ({"columns": (HANDOFF.columns[0], LakeColumn("v", "text", "string", hide="mask"))}, False),
        (
            {"columns": (HANDOFF.columns[0], LakeColumn("v", "text", "string", read_by_key=True))},
            False,
        ),
        ({"key": ("id", "v")}, False),
        ({"key_text": 2}, False),
        ({"partition_by": ("v",)}, False),
        ({"hash_key": "another"}, False),
        ({"fingerprint": Fingerprint({"source_kind": "postgres", "file": 2})}, False),
    ],
)
def test_generations_of_one_shape_have_the_same_columns_key_and_catalog(
    facts: dict[str, Any], same: bool
) -> None:
    other = handoff_in(replace(RECORD, handoff=replace(HANDOFF, **facts)))
    assert (other.shape == handoff_in(RECORD).shape) is same


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position("a", "20260101000000000", {0: 5}, None, 0, "shape")
    assert Position.from_text(position.to_text()) == position


@pytest.mark.parametrize("text", ["", "no position", "e30=", "ü"])
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(ReadError, match="the position"):
        Position.from_text(text)
