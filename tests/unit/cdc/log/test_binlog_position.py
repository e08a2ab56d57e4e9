"""Positions in one binlog are ordered; they cannot be compared with any other positions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import PositionError, StateError
from cdc.log.binlog_position import BinlogPosition, StoredPosition, read_position
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

places = st.tuples(st.integers(0, 3_000_000), st.integers(0, 1 << 40))


def place(number: int, offset: int, base: str = "binlog") -> BinlogPosition:
    """A binlog position; the file's name has a number of six or more digits, as on a server."""
    return BinlogPosition(f"{base}.{number:06}", offset)


def gtids(numbers: str) -> MysqlGtidSet:
    return MysqlGtidSet.parse(f"{UUID}:{numbers}")


@given(places, places)
def test_places_are_ordered_as_the_binlog_is(mine: tuple[int, int], other: tuple[int, int]) -> None:
    left, right = place(*mine), place(*other)
    assert left.reaches(right) == (mine >= other)
    assert left.joined(right) == place(*max(mine, other))
    assert left.joined(right).reaches(left)
    assert left.joined(right).reaches(right)
    assert read_position(str(left)) == left
    assert (left == right) == (mine == other)


@given(places, st.integers(1, 1 << 20))
def test_what_begins_at_a_place_is_not_before_it(at: tuple[int, int], size: int) -> None:
    here = place(*at)
    assert not here.reaches(here.moved(1))
    assert here.reaches(here.moved(-1))
    assert here.moved(size).moved(-size) == here
    assert here.moved(-(1 << 50)).offset == 0


@pytest.mark.parametrize("base", ["binlog", "db1-bin", "a.b", "wei rd", "größe"])
def test_each_name_of_a_binlog_is_read(base: str) -> None:
    found = read_position(f"{base}.000012:4567")
    assert isinstance(found, BinlogPosition)
    assert (found.base, found.number, found.offset) == (base, 12, 4567)


@pytest.mark.parametrize(
    "text", ["", "binlog:4", "binlog.000012", "binlog.12:x", ".12:4", "x.1:-4"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="not a position in a binlog"):
        BinlogPosition.parse(text)


@pytest.mark.parametrize(("file", "offset"), [("binlog", 4), ("", 4), ("binlog.000001", -1)])
def test_no_place_is_made_of_another_file(file: str, offset: int) -> None:
    with pytest.raises(StateError):
        BinlogPosition(file, offset)


@given(st.text())
def test_a_position_is_of_one_kind_or_refused(text: str) -> None:
    try:
        found = read_position(text)
    except StateError:
        return
    again = read_position(str(found))
    assert (type(again), again) == (type(found), found)


def test_sets_are_still_read_as_sets() -> None:
    assert read_position(f"{UUID}:1-5:7") == gtids("1-5:7")
    assert read_position("") == MysqlGtidSet({})
    with pytest.raises(StateError):
        read_position("0-1-5")


OTHERS = [gtids("1-5"), MysqlGtidSet({}), MariadbGtidSet.parse("0-1-5"), place(1, 4, "other"), None]


@pytest.mark.parametrize("other", OTHERS)
def test_another_binlog_and_another_kind_are_no_answer(other: Any) -> None:
    here = place(9, 100)
    for question in (here.reaches, here.joined):
        with pytest.raises(PositionError) as raised:
            question(other)
        assert str(here) in raised.value.message
        assert "tributary" in raised.value.remedy
    if other is not None:
        with pytest.raises(PositionError):
            other.reaches(here)
        with pytest.raises(PositionError):
            other.joined(here)


def test_what_is_stored_answers_in_the_terms_it_is_asked_in() -> None:
    both = StoredPosition(gtids("1-5"), place(3, 99))
    assert both.reaches(gtids("2-4"))
    assert not both.reaches(gtids("6"))
    assert both.reaches(place(3, 99))
    assert not both.reaches(place(3, 100))
    assert str(both) == f"{UUID}:1-5 at binlog.000003:99"
    assert both.joined(StoredPosition(gtids("7"), place(2, 4))) == StoredPosition(
        gtids("1-5:7"), place(3, 99)
    )
    assert both.joined(StoredPosition(None, None)) == StoredPosition(None, None)
    for lacking, asked in (
        (StoredPosition(None, place(3, 99)), gtids("1")),
        (StoredPosition(gtids("1-5"), None), place(3, 4)),
        (both, MariadbGtidSet.parse("0-1-5")),
    ):
        with pytest.raises(PositionError):
            lacking.reaches(asked)
