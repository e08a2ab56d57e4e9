"""A run of a table with three columns, as the history of runs has it."""

from __future__ import annotations

from dataclasses import replace

from cdc.store.history import RunEntry
from cdc.store.table_state import CommitSummary, LakeField, State
from schemas.table import DROPPED
from tests.records import NOW, ORDERS

ID = LakeField("id", "bigint", "bigint")
EMAIL = LakeField("email", "string", "text", "hash")
GONE = LakeField("note", "string", DROPPED)
COMMIT = CommitSummary({0: 9}, "0/9", NOW, "20260102030409000", NOW, columns=(ID, EMAIL, GONE))


def run(**facts: object) -> RunEntry:
    known = RunEntry("r1", ORDERS, 1, State.INCREMENTAL, NOW, 2.5, 1, 1234, {"c": 1234}, {0: 9})
    return replace(known, **{"instant": COMMIT.instant, **facts})
