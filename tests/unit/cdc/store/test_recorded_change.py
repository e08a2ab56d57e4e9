"""A recorded schema change is printed like the change itself, before and after it was stored."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from cdc.store.recorded_change import RecordedChange
from schemas import changes
from schemas.changes import Change, Verdict

WHY = {"verdict": Verdict.EVOLVE, "why": "it is so"}
CHANGES: list[Change] = [
    changes.AddColumn(**WHY, name="a", type="text", stored="{1}", frozen=True),
    changes.DropColumn(**WHY, name="a"),
    changes.RenameColumn(**WHY, name="a", to="b", former=("c", "d")),
    changes.WidenType(**WHY, name="a", old="int", new="bigint", in_lake=True),
    changes.ChangeNullability(**WHY, name="a", nullable=True),
    changes.ChangeDefault(**WHY, name="a", old=None, new="1"),
    changes.NewFile(**WHY),
]
STORED = TypeAdapter(RecordedChange)


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: type(one).__name__)
def test_a_recorded_change_is_printed_as_the_change(change: Change) -> None:
    recorded = RecordedChange.of(change)
    again = STORED.validate_json(STORED.dump_json(recorded))
    assert again == recorded
    assert json.loads(json.dumps(again.to_json())) == json.loads(json.dumps(change.to_json()))
