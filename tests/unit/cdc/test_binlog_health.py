"""What a binlog that is kept says of a capture."""

from __future__ import annotations

import pytest

from cdc.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.sources.mysql.binlog import BinlogHealth
from cdc.sources.postgres.slot import NoSlot

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def mysql(numbers: str) -> GtidSet:
    return MysqlGtidSet.parse(f"{UUID}:{numbers}")


@pytest.mark.parametrize(
    ("stored", "recorded", "problem"),
    [
        (None, None, None),
        ("1-50", None, None),
        ("1-50", "1-40", None),
        ("1-9", None, "no longer has what the connector needs next"),
        ("1-101", None, "lacks transactions that were captured"),
        ("1-50", "1-60", "stored position was lost or set back"),
    ],
)
def test_what_is_purged_executed_and_recorded_is_compared(
    stored: str | None, recorded: str | None, problem: str | None
) -> None:
    health = BinlogHealth("shop", mysql("1-10"), lambda: mysql("1-100"), 7)
    found = health.problem(stored and mysql(stored), recorded and mysql(recorded))
    assert found == problem if problem is None else problem in (found or "")
    assert health.title == "the binlog of source shop"
    assert health.captured(lambda: mysql("1-5"), exactly_once=True) == mysql("1-5")
    assert health.facts() == {"retained_bytes": 7, "purged": f"{UUID}:1-10"}


def test_a_slot_that_is_gone_says_so() -> None:
    slot = NoSlot("s")
    assert (slot.title, slot.problem()) == ("replication slot s", "no longer exists")
    assert slot.captured(lambda: mysql("1"), exactly_once=True) is None
    assert set(slot.facts().values()) == {None}


@pytest.mark.parametrize(
    ("mine", "other", "both"),
    [("1-5", "7-9", "1-5:7-9"), ("1-5", "3-9", "1-9"), ("1-5:7", "6", "1-7")],
)
def test_sets_are_joined(mine: str, other: str, both: str) -> None:
    joined = mysql(mine).joined(mysql(other))
    assert joined == mysql(both)
    assert joined.reaches(mysql(mine))
    assert joined.reaches(mysql(other))


def test_positions_of_mariadb_are_joined_by_domain() -> None:
    parse = MariadbGtidSet.parse
    assert parse("0-1-5,1-1-9").joined(parse("0-2-7,2-1-1")) == parse("0-2-7,1-1-9,2-1-1")
    assert parse("0-1-5").joined(parse("")) == parse("0-1-5")
