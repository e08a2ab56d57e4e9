"""Values that a binlog's events leave unclear, and the records that a boundary search reads."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.boundary import _first_event
from bootstrap.capture_proof import Capture
from cdc.kafka import KafkaRecord
from cdc.rows.binlog_values import doubt_test
from schemas.avro import DebeziumField
from schemas.table import Column, TableId, TableSchema

DOC = Column("doc", "json", "string")


@pytest.mark.parametrize(
    ("nullable", "key", "asked"),
    [(False, ("id",), True), (True, ("id",), False), (False, (), False)],
)
def test_an_empty_document_is_in_doubt_where_it_may_stand_for_nothing_stored(
    nullable: bool, key: tuple[str, ...], asked: bool
) -> None:
    field = DebeziumField("doc", "string", nullable=nullable)
    table = TableSchema(TableId("shop", "shop", "t"), (Column("id", "int", "int"), DOC), key)
    test = doubt_test("raw", field, DOC, table)
    assert test is not None
    assert ("raw = '{}'" in test) is asked


def test_a_search_for_a_boundary_passes_over_tombstones() -> None:
    values = {3: None, 4: None, 5: b"event"}

    def read(*_: Any, **__: Any) -> Iterator[Any]:
        return (SimpleNamespace(offset=at, value=value) for at, value in values.items())

    capture = cast("Capture", SimpleNamespace(kafka=SimpleNamespace(read=read), topic="t"))
    found = cast("KafkaRecord", _first_event(capture, 0, 3, 6))
    assert found.offset == 5
