"""What the retained binlog files show about a capture."""

from __future__ import annotations

import pytest

from cdc.log.binlog_position import BinlogPosition, StoredPosition
from cdc.log.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.log.position import LogPosition
from cdc.sources.mysql.binlog import BinlogHealth, NoBinlog
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
        ("1-9", None, "no longer has the changes that the connector needs next"),
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


def place(number: int, offset: int, base: str = "binlog") -> BinlogPosition:
    return BinlogPosition(f"{base}.{number:06}", offset)


@pytest.mark.parametrize(
    ("stored", "recorded", "problem"),
    [
        (None, None, None),
        (place(3, 3), None, None),  # the connector is at the beginning of the first file
        (place(4, 70), place(4, 60), None),
        (place(2, 9000), None, "no longer has the changes that the connector needs next"),
        # RESET BINARY LOGS begins again with the first file.
        (place(12, 4), None, "lacks transactions that were captured"),
        (place(4, 50), place(4, 60), "stored position was lost or set back"),
        (place(4, 50, "other"), None, "binlogs of two servers"),
        (place(4, 50), place(4, 40, "other"), "binlogs of two servers"),
        (None, place(4, 40, "other"), "binlogs of two servers"),
        (None, mysql("1-5"), "positions of two kinds"),
        (place(4, 50), mysql("1-5"), "positions of two kinds"),
        (mysql("1-5"), None, "positions of two kinds"),
    ],
)
def test_without_gtids_places_are_compared(
    stored: LogPosition | None, recorded: LogPosition | None, problem: str | None
) -> None:
    health = BinlogHealth("shop", place(3, 0), lambda: place(5, 100), 7)
    found = health.problem(stored, recorded)
    assert found == problem if problem is None else problem in (found or "")
    if isinstance(stored, BinlogPosition) and stored.base == "binlog":
        # GTIDs that the connector repeats from before do not matter here.
        for gtids in (None, MysqlGtidSet.parse(f"{UUID}:1-900")):
            assert health.problem(StoredPosition(gtids, stored), recorded) == found


@pytest.mark.parametrize(
    ("stored", "recorded", "problem"),
    [
        (StoredPosition(MysqlGtidSet.parse(f"{UUID}:1-50"), place(4, 50)), None, None),
        (StoredPosition(None, place(4, 50)), None, "positions of two kinds"),
        (None, place(4, 50), "positions of two kinds"),
        (
            StoredPosition(MysqlGtidSet.parse(f"{UUID}:1-50"), place(4, 50)),
            place(4, 40),
            "positions of two kinds",
        ),
    ],
)
def test_a_server_that_has_gtids_now_is_noticed(
    stored: LogPosition | None, recorded: LogPosition | None, problem: str | None
) -> None:
    health = BinlogHealth("shop", mysql("1-10"), lambda: mysql("1-100"), 7)
    found = health.problem(stored, recorded)
    assert found == problem if problem is None else problem in (found or "")


def test_a_mode_that_changes_amid_a_look_is_noticed() -> None:
    health = BinlogHealth("shop", place(3, 0), lambda: mysql("1-100"), 7)
    assert "positions of two kinds" in (health.problem(place(4, 50)) or "")


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


def test_a_server_without_a_binlog_has_lost_what_it_changes() -> None:
    health = NoBinlog("shop")
    assert "log_bin" in (health.problem(mysql("1-5"), mysql("1-5")) or "")
    assert health.captured(lambda: mysql("1-5"), exactly_once=True) is None
    facts = BinlogHealth("shop", mysql("1-10"), lambda: mysql("1-100"), 7).facts()
    assert health.facts().keys() == facts.keys()


def test_the_server_is_asked_again_only_for_what_it_had_not_executed() -> None:
    """Each idle table is compared; with a login for each, a thousand tables took a thousand."""
    asked = list[str]()

    def executed() -> GtidSet:
        asked.append("1-100" if asked else "1-50")
        return mysql(asked[-1])

    health = BinlogHealth("shop", mysql("1-10"), executed, 7)
    for stored in ("1-20", "1-50", "1-30"):
        assert health.problem(mysql(stored), mysql("1-15")) is None
    assert asked == ["1-50"]
    assert health.problem(mysql("1-60"), mysql("1-15")) is None, "it has gone on meanwhile"
    assert asked == ["1-50", "1-100"]
    assert "lacks transactions" in (health.problem(mysql("1-101")) or "")
    assert health.problem(mysql("1-50")) is None
