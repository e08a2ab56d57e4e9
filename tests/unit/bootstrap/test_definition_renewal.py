from __future__ import annotations

import pytest

from bootstrap.definition_renewal import Definition, is_former
from schemas.avro import DebeziumField, DebeziumSchema


def row(**nullable: bool) -> DebeziumSchema:
    """An event schema with these columns; each value says whether the column allows NULL."""
    fields = tuple(DebeziumField(name, "int", nullable=null) for name, null in nullable.items())
    return DebeziumSchema("{}", "Envelope", after=fields, envelope=("after", "source", "op"))


def key(*names: str) -> DebeziumSchema:
    return DebeziumSchema("{}", "Key", key=tuple(DebeziumField(name, "int") for name in names))


@pytest.mark.parametrize(
    ("written", "nullable", "former"),
    [
        (row(id=False, n=False), ("n",), True),
        (row(id=False, n=True), ("n",), False),
        (row(id=False, n=False), (), False),
        (row(id=False), ("n",), False),  # the column was added since
        (None, ("n",), True),  # only tombstones are left of the topic
        (None, (), False),
    ],
)
def test_an_event_that_requires_what_may_be_null_is_of_a_former_definition(
    written: DebeziumSchema | None, nullable: tuple[str, ...], former: bool
) -> None:
    assert is_former(key("id"), written, Definition(nullable, ("id",))) is former
    assert is_former(None, written, Definition(nullable)) is former, "an append table has no key"


@pytest.mark.parametrize(
    ("written", "former"),
    [
        (key("b", "a"), False),
        (key("a"), True),
        (key("a", "b", "c"), True),
        (key("a", "c"), True),
        (None, True),
    ],
)
def test_an_event_with_another_key_is_of_a_former_definition(
    written: DebeziumSchema | None, former: bool
) -> None:
    assert is_former(written, row(a=False), Definition(key=("a", "b"))) is former


@pytest.mark.parametrize(
    ("written", "former"),
    [
        (row(id=False, g=True, n=True), True),
        (row(id=False, n=True, g=True), False),  # nothing is behind it
        (row(id=False, n=True), False),
        (None, True),
    ],
)
def test_an_event_with_a_withheld_column_is_of_a_definition_from_the_catalog(
    written: DebeziumSchema | None, former: bool
) -> None:
    assert is_former(key("id"), written, Definition(key=("id",), withheld={"g"})) is former
