"""A reader of changes without Spark keeps its copy equal to the table across generations."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.lake import table_services
from cdc.lake.handoff import Handoff, LakeColumn
from cdc.lake.instants import time_of
from cdc.lake.pointer import Published
from cdc.lake.publish import attempt_path, delete_path, write_pointer
from cdc.lake.write import LakeTable
from cdc.store.reader_state import ReaderState
from operate.lake_storage import SparkStorage
from schemas.fingerprint import Fingerprint
from tests.handoffs import handed
from tests.spark.lake import (
    CLUSTERED,
    ONE_COMMIT,
    ORDERS,
    SEVERAL_COMMITS,
    Event,
    accept,
    clean_before_listing,
    content,
    record,
    rows,
    schema,
)
from tributary_reader import (
    Changes,
    ReadError,
    WholeTableError,
    changes,
    open_table,
    record_reader,
)
from tributary_reader.registered import look, record_instant
from tributary_reader.storage import LocalStorage

WIDER = schema("id", id="bigint", name="string", more="int")
HANDED = handed(
    [LakeColumn("id", "bigint", "bigint"), LakeColumn("name", "text", "string")],
    handoff_offsets={0: 10},  # O: what is published has all events up to H
)


@pytest.fixture(autouse=True)
def _upkeep_after_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 2)


class Shop:
    """A table with its generations, as copies and runs write them.

    Args:
        spark: The session.
        folder: The table's folder.
        settings: The table's settings.
    """

    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.spark = spark
        self.folder = folder
        self.settings = TableSettings(**settings)
        self.generation = 0
        self.handoff: Handoff = HANDED
        self.table: LakeTable

    def copy(self, handoff: Handoff, *values: tuple[Any, ...], size: Any = ONE_COMMIT) -> LakeTable:
        """Write a generation that readers do not see yet."""
        attempt = uuid.UUID(int=self.generation + 1)
        path = attempt_path(self.folder.as_uri(), attempt)
        table = LakeTable(self.spark, path, ORDERS, self.settings)
        copied = rows(self.spark, table, [("r", -1, row) for row in values])
        chunk = record("chunk", chunk_ids=(0,))
        table.bulk_insert(copied, chunk, accept, size)
        start = handoff.start_offsets
        done = record("handoff", offsets=start, topic_id=handoff.topic_id, handoff=handoff)
        table.empty_commit(done, accept)
        return table

    def publish(self, table: LakeTable, handoff: Handoff) -> None:
        self.generation += 1
        self.table, self.handoff = table, handoff
        write_pointer(
            self.spark,
            self.folder.as_uri(),
            Published(table.path, self.generation, str(uuid.UUID(int=self.generation))),
        )

    def change(
        self, end: int, *events: Event, table: LakeTable | None = None, **facts: Any
    ) -> None:
        """Write one batch of changes whose next offset is ``end``."""
        into = table or self.table
        done = record(offsets={0: end}, topic_id="topic-uuid", handoff=self.handoff, **facts)
        into.upsert(rows(self.spark, into, events), done, accept)

    def wider(self) -> None:
        self.table = LakeTable(self.spark, self.table.path, WIDER, self.settings)


class Follower:
    """A reader's own copy of a table, made only from the results of `changes`."""

    def __init__(self, shop: Shop, **options: Any) -> None:
        self._shop = shop
        self._options = {"over_resync": True, **options}
        self.position: str | None = None
        self.rows: dict[int, dict[str, Any]] = {}

    def follow(self) -> Iterator[Changes]:
        """Apply all changes to the copy; yields the result of each call of `changes`."""
        more = True
        while more:
            found = changes(str(self._shop.folder), self.position, **self._options)
            self._apply(found)
            self.position, more = found.position, found.more
            yield found

    def _apply(self, found: Changes) -> None:
        if found.whole:
            self.rows = {}
        for row in found.deleted.to_pylist():
            assert self.rows.pop(row["id"])["name"] == row["name"], "as it was"
        for row in found.rows.to_pylist():
            if row.get("_cdc_deleted"):
                self.rows.pop(row["id"], None)
            else:
                self.rows[row["id"]] = row

    def assert_equal(self) -> list[Changes]:
        """Follow the table; asserts that the copy equals Spark's rows, and returns the results."""
        found = list(self.follow())
        names = [column.name for column in self._shop.table.layout.schema.columns]
        read = self._shop.table.read()
        if "_cdc_deleted" in read.columns:
            read = read.where("not _cdc_deleted")
        wanted = sorted((tuple(row) for row in read.select(*names).collect()), key=repr)
        mine = (tuple(row.get(name) for name in names) for row in self.rows.values())
        assert sorted(mine, key=repr) == wanted
        return found


COPIED = [(key, "old") for key in range(20)]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"index": "bloom", "hudi": CLUSTERED}, id="clustered"),
        pytest.param({"buckets": 3}, id="buckets", marks=pytest.mark.breadth),
        pytest.param({"delete_mode": "soft", "buckets": 2}, id="soft", marks=pytest.mark.breadth),
    ],
)
def test_a_copy_that_follows_stays_equal_through_all_that_a_table_goes_through(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any]
) -> None:
    shop = Shop(spark, tmp_path / "t", **settings)
    size = SEVERAL_COMMITS if "hudi" in settings else ONE_COMMIT
    shop.publish(shop.copy(HANDED, *COPIED, size=size), HANDED)
    reader = Follower(shop)
    (first,) = reader.assert_equal()
    assert first.whole
    (nothing,) = reader.assert_equal()
    assert (nothing.rows.num_rows, nothing.deleted.num_rows) == (0, 0)

    shop.change(12, ("u", 10, (1, "new")), ("d", 11, (2, None)))
    (one,) = reader.assert_equal()
    if "delete_mode" not in settings:
        assert [row["id"] for row in one.rows.to_pylist()] == [1]
        assert [(row["id"], row["name"]) for row in one.deleted.to_pylist()] == [(2, "old")]

    shop.change(15, ("c", 12, (2, "back")), ("u", 13, (3, "a")), ("d", 14, (4, None)))
    shop.table.keep_up(lambda: None)
    (two,) = reader.assert_equal()
    assert {2, 3} <= {row["id"] for row in two.rows.to_pylist()} < set(range(20))

    shop.wider()
    shop.change(17, ("u", 15, (5, "b", 7)), ("d", 16, (6, None, None)))
    reader.assert_equal()

    after = rows(spark, shop.table, [("c", 18, (50, "after", 1))])
    done = record(offsets={0: 19}, topic_id="topic-uuid", handoff=HANDED)
    shop.table.overwrite(after, done, accept)
    reader.assert_equal()
    assert set(reader.rows) == {50}


def test_a_registered_reader_is_current_behind_or_lost_by_what_hudi_did(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each look is done with and without Spark, with equal results; remote lakes need Spark."""
    shop = Shop(spark, tmp_path / "t", readers_keep="1s", buckets=2)
    folder = str(shop.folder)

    def one(name: str) -> ReaderState:
        at = datetime.now(timezone.utc)
        here = look(LocalStorage(), shop.folder.as_uri(), at=at)
        assert look(SparkStorage(spark), shop.folder.as_uri(), at=at) == here
        return next(it for it in here.readers if it.name == name)

    shop.publish(shop.copy(HANDED, *COPIED), HANDED)
    reader = Follower(shop)
    reader.assert_equal()
    record_reader(folder, "copy", str(reader.position))
    record_reader(folder, "whole", open_table(folder))
    assert one("copy").unread_at is one("whole").unread_at is None
    shop.change(12, ("u", 11, (1, "new")))
    first = shop.table.timeline().newest_instant()
    assert first is not None
    assert one("copy").unread_at == one("whole").unread_at == time_of(first)
    assert not one("copy").lost
    record_instant(SparkStorage(spark), shop.folder.as_uri(), "other", first)
    assert one("other").unread_at is None

    for end in range(13, 18):
        shop.change(end, ("d", end - 1, (end, None)))
    time.sleep(1)  # else a fast machine keeps all of these commits for readers
    shop.table.keep_up(lambda: None)
    assert one("copy").lost
    with pytest.raises(WholeTableError):
        reader.assert_equal()
    reader.position = None
    reader.assert_equal()
    record_reader(folder, "copy", str(reader.position))
    assert (one("copy").lost, one("copy").unread_at) == (False, None)
    assert SparkStorage(spark).remove(f"{shop.folder.as_uri()}/_readers/other.json")
    assert [it.name for it in look(LocalStorage(), folder).readers] == ["copy", "whole"]


@pytest.mark.breadth
def test_a_position_whose_files_were_cleaned_is_refused_only_if_rows_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path / "t", readers_keep="1s", buckets=2)
    shop.publish(shop.copy(HANDED, *COPIED), HANDED)
    reader = Follower(shop)
    reader.assert_equal()
    for end in range(12, 18):
        shop.change(end, ("u", end - 1, (end, f"new {end}")))
    shop.table.keep_up(lambda: None)
    late = Follower(shop, deletes=False)
    late.position = reader.position
    late.rows = dict(reader.rows)
    late.assert_equal()

    shop.change(20, ("d", 18, (1, None)))
    with pytest.raises(WholeTableError, match="may be cleaned, so deleted rows are not known"):
        list(reader.follow())
    reader.position = None
    reader.assert_equal()


@pytest.mark.breadth
def test_a_position_whose_files_are_cleaned_while_changes_are_read_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(spark, tmp_path / "t", readers_keep="1s", buckets=2)
    shop.publish(shop.copy(HANDED, *COPIED), HANDED)
    reader = Follower(shop)
    reader.assert_equal()
    for end in range(12, 18):
        shop.change(end, ("d", end - 1, (end, None)))
    # The files of the newest commit are listed, then those of the position.
    clean_before_listing(monkeypatch, shop.table, listing=2)
    with pytest.raises(WholeTableError, match="may be cleaned, so deleted rows are not known"):
        list(reader.follow())
    reader.position = None
    reader.assert_equal()


@pytest.mark.parametrize("mode", ["hard", pytest.param("soft", marks=pytest.mark.breadth)])
def test_a_copy_goes_on_in_the_next_generation_from_its_handoff(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """A run follows the table while the next generation is copied and catches up."""
    shop = Shop(spark, tmp_path / "t", buckets=2, delete_mode=mode)
    shop.publish(shop.copy(HANDED, *COPIED), HANDED)
    reader = Follower(shop)
    reader.assert_equal()
    shop.change(30, ("u", 28, (1, "before O")), ("d", 29, (2, None)))
    state = [row for row in content(shop.table) if row[0] != 2]
    handoff = replace(HANDED, start_offsets={0: 30}, handoff_offsets={0: 33})
    following = shop.copy(handoff, *state)
    meanwhile: list[Event] = [
        ("u", 30, (3, "meanwhile")),
        ("d", 31, (4, None)),
        ("c", 32, (40, "meanwhile")),
    ]
    shop.change(33, *meanwhile)
    shop.change(33, *meanwhile, table=following)
    later: list[Event] = [("u", 33, (5, "later")), ("d", 34, (6, None)), ("d", 35, (40, None))]
    shop.change(36, *later, table=following)
    shop.publish(following, handoff)

    rest, new = reader.assert_equal()
    assert (rest.more, new.more, new.whole) == (True, False, False)
    assert {1, 3, 40} <= {row["id"] for row in rest.rows.to_pylist()} <= {1, 2, 3, 4, 40}
    assert {5} <= {row["id"] for row in new.rows.to_pylist()} <= {5, 6, 40}
    gone = {row["id"] for row in new.deleted.to_pylist()}
    assert gone == ({6, 40} if mode == "hard" else set())
    shop.change(37, ("u", 36, (7, "last")))
    reader.assert_equal()
    truncated = rows(spark, shop.table, [("c", 38, (50, "after"))])
    done = record(offsets={0: 39}, topic_id="topic-uuid", handoff=handoff)
    shop.table.overwrite(truncated, done, accept)
    reader.assert_equal()
    assert set(reader.rows) == {50}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a gap": ({"start_offsets": {0: 40}}, {}, "from offset 30 to 40 are only in the copy"),
    "a new topic": ({"topic_id": "other"}, {}, "from a new topic"),
    "another column": (
        {"columns": (*HANDED.columns, LakeColumn("more", "int", "int"))},
        {},
        "after a change of its columns",
    ),
    "a rewrite": (
        {"fingerprint": Fingerprint({"source_kind": "postgres", "file": 2})},
        {},
        "after a change of its columns, its key or its files",
    ),
    "a lack": ({}, {"lacks": 2}, "2 records that the former generation lacked"),
}


@pytest.mark.breadth
def test_a_copy_whose_rows_may_differ_in_more_than_events_must_be_read_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    for case, (facts, last, message) in REFUSED.items():
        shop = Shop(spark, tmp_path / case.replace(" ", "_") / "t")
        shop.publish(shop.copy(HANDED, *COPIED[:3]), HANDED)
        reader = Follower(shop)
        shop.change(30, ("u", 28, (1, "before")), **last)
        reader.assert_equal()
        handoff = replace(HANDED, **{"start_offsets": {0: 30}, **facts})
        shop.publish(shop.copy(handoff, *content(shop.table)), handoff)
        with pytest.raises(WholeTableError, match=message):
            list(reader.follow())
        reader.position = None
        (whole,) = reader.assert_equal()
        assert whole.whole


@pytest.mark.breadth
@pytest.mark.parametrize("deletes", [True, False])
def test_a_record_that_the_next_generation_left_out_may_be_in_its_copy(
    spark: SparkSession, tmp_path: Path, deletes: bool
) -> None:
    """The copy may have the left-out record's row, but without an offset to show it to readers."""
    shop = Shop(spark, tmp_path / "t")
    shop.publish(shop.copy(HANDED, *COPIED[:3]), HANDED)
    reader = Follower(shop, deletes=deletes)
    shop.change(30, ("u", 28, (1, "before")))
    reader.assert_equal()
    handoff = replace(HANDED, start_offsets={0: 30}, handoff_offsets={0: 33})
    copied = {**dict(content(shop.table)), 0: "left out"}
    former, following = shop.table, shop.copy(handoff, *copied.items())
    shop.change(33, ("u", 32, (2, "new")), table=following, lacks=1)
    shop.publish(following, handoff)
    if not deletes:
        delete_path(spark, former.path)
    with pytest.raises(WholeTableError, match="the new generation has left out 1 records, whose"):
        list(reader.follow())
    shop.change(33, ("u", 31, (0, "left out")))  # a replay
    reader.assert_equal()


@pytest.mark.breadth
def test_deletes_are_not_known_when_the_generation_that_was_read_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path / "t")
    shop.publish(shop.copy(HANDED, *COPIED), HANDED)
    shop.change(30, ("u", 28, (1, "before")))
    reader, careless = Follower(shop), Follower(shop, deletes=False)
    reader.assert_equal()
    careless.assert_equal()
    handoff = replace(HANDED, start_offsets={0: 30})
    former = shop.table.path
    shop.publish(shop.copy(handoff, *content(shop.table)), handoff)
    delete_path(spark, former)
    shop.change(31, ("u", 30, (2, "new")))
    with pytest.raises(WholeTableError, match="is removed, so deleted rows are not known"):
        list(reader.follow())
    (found,) = careless.assert_equal()
    assert [row["id"] for row in found.rows.to_pylist()] == [2]


@pytest.mark.breadth
def test_a_position_that_is_none_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path / "t")
    shop.publish(shop.copy(HANDED, *COPIED[:3]), HANDED)
    with pytest.raises(ReadError, match="the position is not JSON"):
        changes(str(shop.folder), "abc=")
    with pytest.raises(ReadError, match="has no pointer"):
        changes(str(tmp_path / "nothing"))
