"""The announcements in the state store: each period once, in order, with each late row once."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cdc.store.announcements import Announcement, Announcements, Proof
from cdc.store.attempt import Attempt
from cdc.store.completeness import Calendar, CompletenessRules, slot_of
from cdc.store.state_store import Store
from cdc.store.table_state import Cause, CommitSummary, State, TableRecord, transition
from schemas.table import TableId
from tests.records import table_record

UTC = timezone.utc
NOON, HOUR = datetime(2026, 11, 23, 12, tzinfo=UTC), timedelta(hours=1)
ORDERS, PARTS = TableId("shop", "public", "orders"), TableId("shop", "public", "parts")
HOURS = Calendar("hour")
RULES = CompletenessRules(HOURS)
AGAIN = replace(RULES, reannounces=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'state.db'}")


def commit(instant: str) -> CommitSummary:
    return CommitSummary({0: 7}, "0/9", NOON, instant, NOON)


def record(store: Store, table: TableId = ORDERS, number: int = 1) -> TableRecord:
    """A table that runs follow, whose newest commit has the instant ``c5``."""
    attempt = Attempt(UUID(int=number), NOON, "/lake/orders/attempt=1")
    return store.put(table_record(table, attempt=attempt, last_commit=commit("c5")))


def copied_record(store: Store, number: int, **facts: Any) -> TableRecord:
    """The record of ORDERS after another copy."""
    known = store.get(ORDERS)
    assert known is not None
    attempt = Attempt(UUID(int=number), NOON, "/lake/orders/attempt=2")
    return store.put(replace(known, attempt=attempt, **facts))


def proof(known: TableRecord, until: datetime, rules: CompletenessRules = RULES) -> Proof:
    newest = until - HOUR
    return Proof(known, rules, until, list(rules.due(until, newest)))


def names(found: list[Announcement]) -> list[str]:
    return [one.name for one in found]


def test_an_announcement_is_made_once_whoever_makes_it(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    made = kept.announce([proof(known, NOON)], NOON)
    assert names(made) == ["2026-11-23T11"]
    (one,) = kept.of(ORDERS, HOURS)
    assert one == made[0]
    assert (one.starts_at, one.ends_at, one.proven) == (NOON - HOUR, NOON, NOON)
    assert (one.instant, one.revision, one.late_rows) == ("c5", 1, 0)
    assert kept.announce([proof(known, NOON)], NOON) == [], "another process was faster"
    assert names(kept.announce([proof(known, NOON + HOUR)], NOON)) == ["2026-11-23T12"]
    found = kept.newest({ORDERS: HOURS, PARTS: HOURS})
    assert found[ORDERS].newest_end == NOON + HOUR
    assert PARTS not in found
    assert kept.newest({ORDERS: Calendar("hour", "Europe/Berlin")}) == {}, "another calendar"
    assert kept.newest({ORDERS: Calendar("day")}) == {}


def test_tables_are_announced_together_and_one_that_left_its_state_is_left_out(
    store: Store,
) -> None:
    kept, first, second = Announcements(store), record(store), record(store, PARTS, 2)
    lost = transition(
        second, State.NEEDS_BOOTSTRAP, at=NOON, cause=Cause(reason="its slot is gone")
    )
    store.put(lost)
    made = kept.announce([proof(first, NOON), proof(second, NOON)], NOON)
    assert [one.table for one in made] == [ORDERS]
    copied_record(store, 9)
    assert kept.announce([proof(first, NOON + HOUR)], NOON) == [], "copied since the look"


def test_an_announcement_covers_the_newest_commit_of_its_moment(store: Store) -> None:
    """The look has read the table's record before another commit changed it."""
    kept, known = Announcements(store), record(store)
    store.put(replace(known, last_commit=commit("c6")))
    (one,) = kept.announce([proof(known, NOON)], NOON)
    assert one.instant == "c6"


def late(kept: Announcements, known: TableRecord, instant: str, again: bool = False) -> list[int]:
    """Note a commit with three late rows of 11:40 and one of 12:10; return the new counts."""
    slots = {slot_of(NOON - HOUR / 3): 3, slot_of(NOON + HOUR / 6): 1}
    changed = kept.note_late(known, instant, slots, reannounces=again)
    return [one.late_rows for one in changed]


def test_late_rows_are_counted_once_for_each_commit_after_the_announcement(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    assert late(kept, known, "c4") == [], "nothing is announced"
    kept.announce([proof(known, NOON)], NOON)
    assert late(kept, known, "c5") == [], "the announcement covers this commit"
    assert late(kept, known, "c6") == [3]
    assert late(kept, known, "c6") == [], "a run saw the commit again after a crash"
    assert late(kept, known, "c7") == [6]
    (one,) = kept.of(ORDERS, HOURS)
    assert (one.late_rows, one.late_instant, one.revision) == (6, "c7", 1)
    assert one.late_at is not None
    assert kept.newest({ORDERS: HOURS})[ORDERS].late_rows == 6


def test_late_rows_announce_their_period_again_if_the_settings_say_so(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    kept.announce([proof(known, NOON), proof(known, NOON + HOUR)], NOON)
    assert late(kept, known, "c6", again=True) == [3, 1]
    assert [one.revision for one in kept.of(ORDERS, HOURS)] == [2, 2]


def test_a_new_copy_takes_the_announcements_over_as_far_as_it_proves_them(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    kept.announce([proof(known, NOON), proof(known, NOON + HOUR)], NOON)
    late(kept, known, "c6")
    copied = copied_record(store, 2, generation=2, last_commit=commit("c8"))
    until_noon = Proof(copied, AGAIN, NOON, [])
    assert names(kept.announce([until_noon], NOON)) == ["2026-11-23T11"]
    first, second = kept.of(ORDERS, HOURS)
    assert (first.attempt, first.generation, first.instant) == (str(UUID(int=2)), 2, "c8")
    assert (first.revision, first.late_rows) == (2, 3)
    assert (second.generation, second.revision) == (1, 1), "its time is not proven yet"
    assert kept.newest({ORDERS: HOURS})[ORDERS].attempt == str(UUID(int=1))
    assert late(kept, copied, "c8") == [2], "the second one is still that of the former copy"
    quiet = Proof(copied, RULES, NOON + HOUR, [])
    assert kept.announce([quiet], NOON) == []
    assert {one.generation for one in kept.of(ORDERS, HOURS)} == {2}
    found = kept.newest({ORDERS: HOURS})[ORDERS]
    assert (found.attempt, found.newest_end) == (str(UUID(int=2)), NOON + HOUR)
    assert found.late_rows == 3 + 1 + 1


def test_marker_files_are_asked_for_until_they_are_written(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    (one,) = kept.announce([proof(known, NOON)], NOON)
    assert kept.unmarked([ORDERS]) == [one]
    assert kept.unmarked([PARTS]) == []
    kept.mark([one])
    assert kept.unmarked([ORDERS]) == []
    late(kept, known, "c6")
    assert kept.unmarked([ORDERS]) == [], "a count changes no marker"
    late(kept, known, "c7", again=True)
    assert [found.revision for found in kept.unmarked([ORDERS])] == [2]


def test_old_announcements_are_forgotten_but_the_newest_of_a_table_is_not(store: Store) -> None:
    kept, known, other = Announcements(store), record(store), record(store, PARTS, 2)
    until = [proof(known, NOON + n * HOUR) for n in range(3)]
    kept.announce([*until, proof(other, NOON)], NOON)
    assert kept.forget(3600.0) == 0
    assert kept.first_start(ORDERS) == NOON - HOUR
    assert kept.forget(-1.0) == 2
    assert names(kept.of(ORDERS, HOURS)) == ["2026-11-23T13"]
    assert names(kept.of(PARTS, HOURS)) == ["2026-11-23T11"]
    kept.drop(ORDERS)
    assert kept.of(ORDERS, HOURS) == []
    assert kept.first_start(ORDERS) is None
    assert [*kept.newest({ORDERS: HOURS, PARTS: HOURS})] == [PARTS]


def test_processes_that_announce_and_count_at_the_same_time_lose_nothing(store: Store) -> None:
    kept, known = Announcements(store), record(store)
    kept.announce([proof(known, NOON)], NOON)
    slots = {slot_of(NOON - HOUR / 3): 1}

    def count(first: int) -> None:
        for number in range(first, 40, 2):
            kept.note_late(known, f"d{number}", slots, reannounces=False)

    threads = [threading.Thread(target=count, args=(first,)) for first in (10, 11)]
    for thread in threads:
        thread.start()
    for number in range(1, 5):
        kept.announce([proof(known, NOON + number * HOUR)], NOON)
    for thread in threads:
        thread.join()
    found = kept.of(ORDERS, HOURS)
    assert len(found) == 5
    assert 15 <= found[0].late_rows <= 30, "an earlier commit after a later one counts as seen"
