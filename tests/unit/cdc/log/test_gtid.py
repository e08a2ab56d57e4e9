"""Sets of GTIDs behave as sets of transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import PositionError, StateError
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4f22fb58-82db-22f2-af44-d91bba530673"
OWNERS = (A, B, f"{A}:tagged")

members = st.frozensets(st.tuples(st.sampled_from(OWNERS), st.integers(1, 12)))


def mysql(numbers: frozenset[tuple[str, int]]) -> MysqlGtidSet:
    """The MySQL GTID set with these members, parsed from a text that lists them one by one."""
    return MysqlGtidSet.parse(",".join(f"{owner}:{number}" for owner, number in sorted(numbers)))


def spelled(gtids: MysqlGtidSet) -> frozenset[tuple[str, int]]:
    return frozenset(
        (owner, number)
        for owner, ranges in gtids.intervals.items()
        for first, last in ranges
        for number in range(first, last + 1)
    )


@given(members, members)
def test_mysqls_are_sets(mine: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]):
    left, right = mysql(mine), mysql(other)
    assert spelled(left) == mine
    assert spelled(left.without(right)) == mine - other
    assert left.reaches(right) == (mine >= other)
    assert bool(left) == bool(mine)
    assert (left == right) == (mine == other)
    again = MysqlGtidSet.parse(str(left))
    assert (again, hash(again)) == (left, hash(left))


positions = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 3), st.integers(1, 9)))


@given(positions, positions)
def test_mariadbs_are_compared_per_domain_whichever_server_wrote(
    mine: dict[int, tuple[int, int]], other: dict[int, tuple[int, int]]
) -> None:
    left, right = MariadbGtidSet(mine), MariadbGtidSet(other)
    assert left.reaches(right) == all(
        domain in mine and mine[domain][1] >= number for domain, (_, number) in other.items()
    )
    assert left.reaches(right) != bool(right.without(left))
    assert MariadbGtidSet.parse(str(left)).last == mine


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (f"{A.upper()}:1-5:7", f"{A}:1-5:7"),
        (f"{A}:1-3:4-5:5-9", f"{A}:1-9"),
        (f"{B}:1,\n{A}:2", f"{A}:2,{B}:1"),
        (f"{A}:1:Tag:1-2:3:other:1", f"{A}:1,{A}:other:1,{A}:tag:1-3"),
    ],
)
def test_what_mysql_prints_is_read(text: str, canonical: str) -> None:
    assert str(MysqlGtidSet.parse(text)) == canonical


def test_of_mariadbs_state_the_highest_number_of_a_domain_counts() -> None:
    assert str(MariadbGtidSet.parse("0-1-5,0-2-9,0-1-7,3-1-1")) == "0-2-9,3-1-1"


@pytest.mark.parametrize("text", ["x", A, f"{A}:", f"{A}:0", f"{A}:5-1", f"{A}:1-2-3", "0-1-2"])
def test_what_is_no_set_of_mysqls_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="not a set of GTIDs"):
        MysqlGtidSet.parse(text)


@pytest.mark.parametrize("text", ["x", "0-1", "0-1-2-3", f"{A}:1"])
def test_what_is_no_position_of_mariadbs_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="not a set of GTIDs"):
        MariadbGtidSet.parse(text)


def test_sets_of_different_servers_do_not_compare() -> None:
    with pytest.raises(PositionError):
        MysqlGtidSet.parse(f"{A}:1").reaches(MariadbGtidSet.parse("0-1-1"))  # type: ignore[arg-type]
    with pytest.raises(PositionError):
        MariadbGtidSet.parse("0-1-1").without(MysqlGtidSet.parse(f"{A}:1"))  # type: ignore[arg-type]
