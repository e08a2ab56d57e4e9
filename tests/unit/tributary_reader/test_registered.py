"""The progress of registered readers, computed from files in the form in which Hudi writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from fastavro import writer as avro_writer
from pyarrow.fs import LocalFileSystem

from cdc.lake.pointer import POINTER, Pointer, Published
from cdc.store.reader_state import ReadersLook, ReaderState
from tests.unit.tributary_reader.hudi_folder import table
from tributary_reader import ReadError, open_table, record_reader
from tributary_reader.position import Position
from tributary_reader.reader_files import MOST_READERS, remove_file
from tributary_reader.registered import look, record_instant
from tributary_reader.storage import LocalStorage

A, B, C, D = (f"2026010112000{number}000" for number in range(4))
FIRST = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
FORMER, CURRENT = "11111111-aaaa", "22222222-bbbb"
CLEANING = {
    "type": "record",
    "name": "HoodieCleanerPlan",
    "fields": [
        {
            "name": "earliestInstantToRetain",
            "type": {
                "type": "record",
                "name": "HoodieActionInstant",
                "fields": [{"name": "timestamp", "type": "string"}],
            },
        }
    ],
}


class Shop:
    """A published table with commits A, B and C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = table(folder / f"attempt={CURRENT}", {A: {}, B: {}, C: {}})
        self.publish()

    def publish(self, former: tuple[Published, ...] = (), continues: str | None = None) -> None:
        at = FIRST + timedelta(hours=1)
        shown = Published(str(self.path), 1 + len(former), CURRENT, at, continues)
        (self.folder / POINTER).write_text(Pointer.of(shown, former).to_json())

    def pointer(self) -> Pointer:
        return Pointer.from_json((self.folder / POINTER).read_text(), folder=str(self.folder))

    def file(self, name: str, text: str | None = None, **said: Any) -> None:
        path = self.folder / "_readers" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(said) if text is None else text)

    def clean(self, at: str, retained: str) -> None:
        with (self.path / ".hoodie" / f"{at}.clean.requested").open("wb") as file:
            avro_writer(file, CLEANING, [{"earliestInstantToRetain": {"timestamp": retained}}])

    def look(self, *expected: str) -> ReadersLook:
        return look(LocalStorage(), str(self.folder), expected=expected, at=NOW)

    def one(self) -> ReaderState:
        (found,) = self.look().readers
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_table_without_readers_has_none_and_is_not_opened(tmp_path: Path) -> None:
    """The table has no pointer here, so a look that opened the table would fail."""
    assert look(LocalStorage(), str(tmp_path), at=NOW).readers == ()


def test_a_reader_is_at_the_newest_commit_or_behind(shop: Shop) -> None:
    shop.file("billing", instant=C, attempt=CURRENT)
    newest = shop.one()
    assert newest == ReaderState("billing", C, CURRENT, None, FIRST + timedelta(seconds=2))
    shop.file("billing", instant=A, attempt=CURRENT, recorded_at="2026-01-01T13:00:00+01:00")
    behind = shop.one()
    assert (behind.read_at, behind.unread_at) == (FIRST, FIRST + timedelta(seconds=1))
    assert behind.recorded_at == FIRST
    assert not behind.lost


def test_files_that_a_cleaning_after_the_commit_may_have_deleted_are_lost(shop: Shop) -> None:
    shop.file("billing", instant=B, attempt=CURRENT)
    shop.clean(C, retained=B)
    assert not shop.one().lost
    shop.clean(D, retained=C)
    assert shop.one().lost
    shop.file("billing", instant=C, attempt=CURRENT)
    assert not shop.one().lost


def test_a_commit_that_is_archived_or_was_never_there_is_lost(shop: Shop) -> None:
    shop.file("billing", instant=A, attempt=CURRENT)
    (shop.path / ".hoodie" / f"{A}.commit").unlink()
    assert shop.one().lost
    between = f"{B[:-3]}500"
    shop.file("billing", instant=between, attempt=CURRENT)
    assert shop.one().lost, "the lake was restored from a backup"
    shop.file("billing", instant=between)
    assert not shop.one().lost, "a reader by time names no generation"


@pytest.mark.parametrize("continues", [FORMER, None], ids=["continues", "copied again"])
def test_a_reader_of_a_former_generation_goes_on_only_where_the_next_one_continues(
    shop: Shop, continues: str | None
) -> None:
    path = table(shop.folder / f"attempt={FORMER}", {A: {}, B: {}})
    former = Published(str(path), 1, FORMER, FIRST)
    shop.publish((former,), continues)
    shop.file("billing", instant=A, attempt=FORMER)
    assert shop.one().unread_at == FIRST + timedelta(seconds=1)
    shop.file("billing", instant=B, attempt=FORMER)
    found = shop.one()
    assert found.unread_at == FIRST + timedelta(hours=1), "the publication of the next one"
    assert found.lost is (continues is None)
    for file in path.rglob("*"):
        if file.is_file():
            file.unlink()
    assert shop.one().lost, "what was read is removed"


def test_a_reader_that_names_no_generation_is_of_the_one_that_has_its_commit(shop: Shop) -> None:
    """A commit of the former generation shows that the reader has not read the newer copy."""
    after = f"{(FIRST + timedelta(hours=1, minutes=1)):%Y%m%d%H%M%S}000"
    shop.path = table(shop.folder / "attempt=again", {B: {}, C: {}, after: {}})
    path = table(shop.folder / f"attempt={FORMER}", {A: {}, D: {}})
    former = Published(str(path), 1, FORMER, FIRST)
    shop.publish((former,))
    for instant in (A, D):
        shop.file("billing", instant=instant)
        found = shop.one()
        assert (found.lost, found.attempt) == (True, None), instant
        assert found.unread_at is not None
    shop.publish((former,), FORMER)
    assert not shop.one().lost, "it can go on with the changes of the next generation"
    assert shop.one().unread_at == FIRST + timedelta(hours=1), "and has not done so"
    for instant in (B, C, after):
        shop.file("billing", instant=instant)
        assert not shop.one().lost, "it has read the published one"
    assert shop.one().unread_at is None


@pytest.mark.parametrize("removed", [False, True])
def test_a_reader_by_time_from_before_the_table_was_copied_again_is_lost(
    shop: Shop, removed: bool
) -> None:
    """The reader recorded a time, not a commit, so nothing shows which generation it has read."""
    later = f"{(FIRST + timedelta(hours=1, seconds=-1)):%Y%m%d%H%M%S}000"
    path = table(shop.folder / f"attempt={FORMER}", {A: {}, D: {}})
    shop.publish(() if removed else (Published(str(path), 1, FORMER, FIRST),))
    pointer = replace(shop.pointer(), generation=2)
    (shop.folder / POINTER).write_text(pointer.to_json())
    shop.file("billing", instant=later)
    assert (shop.one().lost, shop.one().unread_at) == (True, FIRST + timedelta(hours=1))
    since = f"{(FIRST + timedelta(hours=1, seconds=1)):%Y%m%d%H%M%S}000"
    shop.file("billing", instant=since)
    assert (shop.one().lost, shop.one().unread_at) == (False, None)


def test_a_reader_that_the_settings_name_and_that_records_nothing_is_shown(shop: Shop) -> None:
    shop.file("other", instant=C)
    silent, other = shop.look("billing", "other").readers
    assert (silent.name, silent.instant, silent.lost) == ("billing", None, False)
    assert silent.read_at == silent.unread_at == FIRST + timedelta(hours=1)
    assert other.unread_at is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not the file of a reader: Invalid JSON"),
        ("[]", "is not the file of a reader"),
        ("{}", "instant: Field required"),
        ('{"instant": "2026"}', "instant: String should match"),
        ('{"instant": "99999999999999999"}', "instant: Value error"),
        (f'{{"instant": "{A}", "format": 2}}', "format: Input should be 1"),
        (f'{{"instant": "{A}", "recorded_at": "2026-01-01T00:00:00"}}', "recorded_at: "),
    ],
)
def test_a_file_that_is_not_one_is_named_and_hides_no_other(
    shop: Shop, text: str, reason: str
) -> None:
    shop.file("wrong", text)
    shop.file("billing", instant=C, more="ignored")
    billing, wrong = shop.look().readers
    assert billing.problem is None
    assert wrong.problem is not None
    assert "_readers/wrong.json" in wrong.problem
    assert reason in wrong.problem


def test_a_file_that_this_user_cannot_read_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("billing", "secret"):
        shop.file(name, instant=C)
    text = LocalStorage.text

    def refused(self: LocalStorage, path: str) -> bytes | None:
        if path.endswith("secret.json"):
            raise PermissionError(13, "Permission denied", path)
        return text(self, path)

    monkeypatch.setattr(LocalStorage, "text", refused)
    billing, secret = shop.look().readers
    assert billing.problem is None
    assert str(secret.problem).endswith("_readers/secret.json cannot be read: Permission denied")


def test_names_that_are_none_are_named_and_other_files_are_ignored(shop: Shop) -> None:
    for name in (".billing", "a b"):
        shop.file(name, instant=C)
    (shop.folder / "_readers" / "notes.txt").touch()
    assert shop.one().problem == "'a b' is no name of a reader"
    for number in range(MOST_READERS + 9):
        shop.file(f"r{number}", instant=C)
    assert len(shop.look().readers) == MOST_READERS


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", ".a", "a b", "x" * 65, "é"])
def test_a_name_is_no_path(shop: Shop, name: str) -> None:
    before = sorted(shop.folder.rglob("*"))
    with pytest.raises(ReadError, match="is no name of a reader"):
        record_instant(LocalStorage(), str(shop.folder), name, C)
    with pytest.raises(ReadError, match="is no name of a reader"):
        remove_file(LocalStorage(), str(shop.folder), name)
    assert sorted(shop.folder.rglob("*")) == before


def test_a_table_that_is_not_published_says_so(shop: Shop) -> None:
    (shop.folder / POINTER).unlink()
    shop.file("billing", instant=C)
    assert shop.one().problem == "the table has no published generation"


@pytest.mark.parametrize("arrow", [False, True], ids=["plain", "arrow"])
def test_a_reader_records_the_position_or_the_table_that_it_has_read(
    shop: Shop, arrow: bool
) -> None:
    files: Any = {"filesystem": LocalFileSystem()} if arrow else {}
    position = Position(CURRENT, B, {0: 7}, "topic", 0, "shape")
    record_reader(str(shop.folder), "billing", position.to_text(), **files)
    found = shop.one()
    assert (found.instant, found.attempt, found.lost) == (B, CURRENT, False)
    assert found.recorded_at is not None
    assert found.unread_at == FIRST + timedelta(seconds=2)
    record_reader(str(shop.path), "billing", open_table(str(shop.folder), **files), **files)
    assert (shop.one().instant, shop.one().attempt) == (C, CURRENT)
    assert [one.name for one in (shop.folder / "_readers").iterdir()] == ["billing.json"]


def test_another_program_records_a_commit_that_is_there(shop: Shop) -> None:
    path = table(shop.folder / f"attempt={FORMER}", {A: {}, D: {}})
    shop.publish((Published(str(path), 1, FORMER, FIRST),), FORMER)
    storage, folder = LocalStorage(), str(shop.folder)
    assert record_instant(storage, folder, "billing", B).attempt == CURRENT
    assert record_instant(storage, folder, "billing", D).attempt == FORMER
    for unknown in ("20260101120009000", "../../x", ""):
        with pytest.raises(ReadError, match=r"has no commit .* that is still known"):
            record_instant(storage, folder, "billing", unknown)
    assert shop.one().instant == D
    assert remove_file(storage, folder, "billing")
    assert not remove_file(storage, folder, "billing")
    assert shop.look().readers == ()


def test_only_plans_of_cleanings_after_the_commit_are_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, retained in ((B, A), (D, B)):
        shop.clean(at, retained)
    shop.file("billing", instant=C, attempt=CURRENT)
    read: list[str] = []
    text = LocalStorage.text

    def counted(self: LocalStorage, path: str) -> bytes | None:
        read.append(path.rpartition("/")[2])
        return text(self, path)

    monkeypatch.setattr(LocalStorage, "text", counted)
    assert not shop.one().lost
    assert read == [POINTER, "billing.json", "hoodie.properties", f"{D}.clean.requested"]
