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
from tributary_reader.position import Position, Progress
from tributary_reader.timeline import COMMIT_KEY

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


def progress(record: CommitRecord) -> Progress:
    found = Progress.of(json.loads(record.to_json()))
    assert found is not None
    return found


def test_the_progress_of_a_commit_is_what_its_record_says() -> None:
    found = progress(RECORD)
    assert COMMIT_KEY == commit.COMMIT_KEY
    assert (found.offsets, found.topic_id, found.lacks) == ({0: 50}, "t", 3)
    assert (found.start_offsets, found.handoff_offsets) == ({0: 10}, {0: 42})
    assert not found.is_log
    assert progress(replace(RECORD, handoff=replace(HANDOFF, key=()))).is_log
    assert Progress.of(json.loads(CommitRecord("chunk", RECORD.table, "a").to_json())) is None


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
    other = progress(replace(RECORD, handoff=replace(HANDOFF, **facts)))
    assert (other.shape == progress(RECORD).shape) is same


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position("a", "20260101000000000", {0: 5}, None, 0, "shape")
    assert Position.from_text(position.to_text()) == position


@pytest.mark.parametrize("text", ["", "no position", "e30=", "ü"])
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(ReadError, match="the position"):
        Position.from_text(text)
