from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.lake.generations import FolderKind, Generation, generations, named, superfluous
from cdc.lake.pointer import Pointer, Published, moved
from cdc.store.attempt import Attempt
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")


def attempt(number: int) -> str:
    return str(UUID(int=number << 96))


def pointer(*numbers: int) -> Pointer | None:
    shown: Pointer | None = None
    for number in numbers:
        at = NOW + timedelta(days=number)
        shown = moved(shown, Published("p", number, attempt(number), at))
    return shown


def record(number: int, state: State = State.INCREMENTAL, *, beside: bool = False) -> TableRecord:
    return table_record(
        table=TABLE,
        state=state,
        base_path="/lake",
        updated_at=NOW,
        generation=number,
        attempt=Attempt(UUID(attempt(number)), NOW, "p"),
        beside=beside,
    )


def folders(*numbers: int) -> dict[str, int]:
    return {attempt(number): number * 10 for number in numbers}


def kinds(found: list[Generation]) -> dict[int, FolderKind]:
    return {one.size_bytes // 10: one.kind for one in found}


def test_each_folder_is_told_by_pointer_and_records() -> None:
    build = record(4, State.BOOTSTRAPPING, beside=True)
    found = generations(folders(1, 2, 3, 4, 9), pointer(1, 2, 3), [record(3), build])
    assert kinds(found) == {
        3: FolderKind.SERVING,
        2: FolderKind.FORMER,
        1: FolderKind.FORMER,
        4: FolderKind.BUILDING,
        9: FolderKind.ABANDONED,
    }
    assert [one.number for one in found] == [3, 2, 1, 4, None]
    assert [one.beside for one in found] == [False, False, False, True, False]


def test_what_was_published_and_removed_is_no_generation() -> None:
    assert kinds(generations(folders(2), pointer(1, 2), [record(2)])) == {2: FolderKind.SERVING}


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.BOOTSTRAPPING, FolderKind.BUILDING),
        (State.CATCHING_UP, FolderKind.BUILDING),
        (State.FAILED, FolderKind.BUILDING),
        (State.PAUSED, FolderKind.BUILDING),
        (State.NEEDS_BOOTSTRAP, FolderKind.ABANDONED),
        (State.RETIRED, FolderKind.ABANDONED),
    ],
)
def test_an_attempt_that_was_not_published(state: State, kind: FolderKind) -> None:
    found = generations(folders(1, 2), pointer(1), [record(2, state)])
    assert kinds(found) == {1: FolderKind.SERVING, 2: kind}


@pytest.mark.parametrize(("retain", "gone"), [(0, {1, 2, 9}), (1, {1, 9}), (2, {9}), (7, {9})])
def test_the_newest_former_generations_stay(retain: int, gone: set[int]) -> None:
    found = generations(folders(1, 2, 3, 9), pointer(1, 2, 3), [record(3)])
    late = NOW + timedelta(days=9)
    superseded = superfluous(found, retain, keep=timedelta(hours=1), now=late)
    assert {one.size_bytes // 10 for one in superseded} == gone


def test_a_former_generation_stays_for_readers_whatever_is_retained() -> None:
    found = generations(folders(1, 2, 3, 9), pointer(1, 2, 3), [record(3)])
    for hours, gone in ((0.5, {1, 9}), (1.5, {1, 2, 9})):
        now = NOW + timedelta(days=3, hours=hours)
        superseded = superfluous(found, 0, keep=timedelta(hours=1), now=now)
        assert {one.size_bytes // 10 for one in superseded} == gone


@given(
    st.sets(st.integers(1, 9)),
    st.lists(st.integers(1, 9), unique=True),
    st.sets(st.integers(1, 9), max_size=2),
    st.integers(0, 3),
)
def test_what_serves_or_is_on_record_is_never_superfluous(
    there: set[int], shown: list[int], recorded: set[int], retain: int
) -> None:
    records = [record(number, State.BOOTSTRAPPING) for number in recorded]
    found = generations(folders(*there), pointer(*shown), records)
    assert {one.attempt for one in found} == set(folders(*there)), "nothing is overlooked"
    late = NOW + timedelta(days=99)
    superseded = superfluous(found, retain, keep=timedelta(hours=1), now=late)
    gone = {one.size_bytes // 10 for one in superseded}
    published = set(shown)
    assert not gone & ({*shown[-1:]} | (recorded - published))
    assert len(there & published - gone) >= min(retain, len(there & published))


@given(
    st.sets(st.integers(1, 9)), st.lists(st.integers(1, 9), unique=True), st.sets(st.integers(1, 9))
)
def test_what_another_installation_made_is_never_superfluous(
    there: set[int], shown: list[int], others: set[int]
) -> None:
    theirs = {attempt(number) for number in others}
    found = generations(folders(*there), pointer(*shown), (), theirs.__contains__)
    late = NOW + timedelta(days=99)
    gone = superfluous(found, 0, keep=timedelta(hours=1), now=late)
    own = there - others - {*shown[-1:]}
    assert set(folders(*own - {*shown})) <= {one.attempt for one in gone} <= set(folders(*own))
    kept = {one.attempt for one in found if one.kind is FolderKind.OTHER}
    assert kept == set(folders(*(there & others) - {*shown[-1:]}))
    assert not any(one.removable for one in found if one.attempt in theirs)


def test_names() -> None:
    found = generations(folders(1, 2, 3), pointer(1, 2), [record(2)])
    short = attempt(3)[:8]
    meant = named(found, ["1", short, "7", "00"])
    assert [one.number for one in meant["1"]] == [1]
    assert [one.attempt for one in meant[short]] == [attempt(3)]
    assert (meant["7"], meant["00"]) == ([], [])
