"""Enum columns in which events can have a label's former name."""

from __future__ import annotations

from typing import Any

from cdc.lake.handoff import LakeColumn
from cdc.run.former_labels import FormerLabels
from schemas.fingerprint import Fingerprint
from schemas.table import DROPPED
from tests.handoffs import handed
from tests.unit.schemas.catalogs import column, with_columns

OLD, NEW = "76", "77"
"""Transactions before and since x0 of the handoff."""


def enum(name: str, *written: str, **facts: Any) -> dict[str, Any]:
    """An enum column with labels ``l0``, ``l1``, ...; each transaction id wrote one label last."""
    parts = {f"label {number}": f"l{number}" for number in range(len(written))}
    whens = {f"label {number}": xid for number, xid in enumerate(written)}
    return column(name, "mood", parts=parts, parts_written=whens, **facts)


def found(*columns: dict[str, Any], **facts: Any) -> dict[str, frozenset[str]]:
    source = facts.pop("source", "mood")
    numbered = dict(enumerate(columns, 2))
    catalog = with_columns({str(number): one for number, one in numbered.items()}, **facts)
    lake = [
        LakeColumn(one["name"], source, "string", read_by_key=one["name"] == "by_key")
        for one in columns
    ]
    return dict(FormerLabels.of(handed(lake, fingerprint=Fingerprint(catalog))).labels)


def test_a_column_counts_once_one_of_its_labels_was_written_since_the_copy_began() -> None:
    assert found(enum("m", OLD, OLD)) == {}
    assert found(enum("m", OLD, NEW)) == {"m": {"l0", "l1"}}
    assert found(enum("m", OLD), enum("n", NEW)) == {"n": {"l0"}}


def test_transaction_ids_begin_again() -> None:
    assert found(enum("m", str((1 << 31) - 1))) == {"m": {"l0"}}
    assert found(enum("m", str((1 << 32) - 1))) == {}


def test_only_values_that_events_bring_are_compared() -> None:
    assert found(enum("by_key", NEW)) == {}, "runs read its present label"
    assert found(enum("m", NEW), source=DROPPED) == {}
    fields = column("m", "pair", parts={"field 7 1": "int"}, parts_written=None)
    assert found(fields) == {}
    assert found(column("m")) == {}
    of_mysql = handed([], fingerprint=Fingerprint({"source_kind": "mysql"}))
    assert FormerLabels.of(of_mysql) == FormerLabels()
