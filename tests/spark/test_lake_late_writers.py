"""Files and commits of a writer that goes on after another writer has taken its table over."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from bootstrap.copying import Copying
from cdc.config import TableSettings
from cdc.errors import FencedError, LostHistoryError
from cdc.lake import late_files, rollbacks, table_services, write
from cdc.lake.archived_commits import KEPT_DAYS, delete_old_archives
from cdc.lake.data_files import files_of
from cdc.lake.publish import attempt_path
from cdc.lake.table_services import Retention
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from cdc.store.attempt import Attempt
from cdc.store.installation import Installation
from cdc.store.table_state import State, TableRecord
from tests.records import table_record
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    SEVERAL_COMMITS,
    TABLE,
    accept,
    change,
    content,
    insert,
    lake,
    record,
    rows,
)


def test_files_that_come_after_their_commit_was_rolled_back_never_become_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi shows files with instants before the first commit in the timeline to readers."""
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 1)
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    hudi = {**CLUSTERED, "hoodie.clustering.plan.strategy.small.file.limit": "0"}
    table = lake(spark, tmp_path / "t", ORDERS, hudi=hudi, index="bloom", readers_keep="1s")
    table.empty_commit(record(offsets={0: 2}), accept)
    late: dict[Path, bytes] = {}

    def come_late() -> None:
        for path, data in late.items():
            path.write_bytes(data)

    def meanwhile(timeline: Timeline) -> None:
        (instant,) = timeline.pending_instants()
        files = (tmp_path / "t").glob(f"*_{instant}.parquet")
        late.update((path, path.read_bytes()) for path in files)
        change(spark, table, 4, ("c", 3, (3, "later")))
        assert late
        assert not any(path.exists() for path in late), "the next writer deletes what it finds"
        come_late()

    ghost = rows(spark, table, [("c", 2, (2, "ghost"))])
    with pytest.raises(FencedError, match="undone by another writer"):
        table.upsert(ghost, record(offsets={0: 3}), meanwhile)
    assert not any(path.exists() for path in late), "a refused writer deletes its own files"

    come_late()
    for end in range(5, 8):
        change(spark, table, end, ("u", end - 1, (3, f"at {end}")))
    time.sleep(1)  # else a fast machine keeps all of these commits for readers
    table.keep_up(lambda: None)

    dead = {path.stem.split("_")[-1] for path in late}
    assert max(dead) < min(table.timeline().completed_instants()), "not archived: proves nothing"
    assert content(table) == [(3, "at 7")]


def test_old_files_of_the_archive_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 1)
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(Retention, "of", lambda *_: Retention(2))
    table = lake(spark, tmp_path / "t", ORDERS)
    history = tmp_path / "t" / ".hoodie" / "history"
    table.empty_commit(record(offsets={0: 0}), accept)
    commits = iter(range(1, 40))

    def until_archived(known: set[Path]) -> set[Path]:
        for end in commits:
            change(spark, table, end, ("u", end, (1, f"at {end}")))
            table.keep_up(lambda: None)
            if new := {*history.glob(".commits_.archive*")} - known:
                return new
        raise AssertionError("nothing was archived")

    def aged(files: set[Path], days: float) -> None:
        at = time.time() - days * 86_400
        for file in files:
            os.utime(file, (at, at))

    first = until_archived(set())
    aged(first, KEPT_DAYS + 1)
    second = until_archived(first)
    assert not any(file.exists() for file in first), "old, and not the newest"
    aged(second, KEPT_DAYS - 1)
    third = until_archived(second)
    assert all(file.exists() for file in second), "not old yet"
    aged(second | third, KEPT_DAYS + 1)
    delete_old_archives(spark, table.timeline())
    assert {*history.glob(".commits_.archive*")} == third, "Hudi numbers the next file after it"
    until_archived(third)
    assert content(table) == [(1, f"at {next(commits) - 1}")]
    assert len({file.name for file in first | second | third}) == 3


def test_rows_are_only_copied_into_a_table_whose_copy_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "copied"), size=SEVERAL_COMMITS)
    twice = rows(spark, table, [("r", -1, (1, "twice"))])
    chunk = record("chunk", chunk_ids=(1,))

    with pytest.raises(FencedError, match="is a chunk of attempt a, so no rows of attempt b are"):
        table.bulk_insert(twice, replace(chunk, attempt="b"), accept, SEVERAL_COMMITS)
    table.empty_commit(record("handoff", offsets={0: 2}), accept)
    with pytest.raises(FencedError, match=r"is a handoff of attempt a, so .* copy is complete"):
        table.bulk_insert(twice, chunk, accept, SEVERAL_COMMITS)
    assert content(table) == [(1, "copied")]

    # No process gets this far: the guard refuses one that slept after its look.
    monkeypatch.setattr(write, "_require_copying", lambda *_: None)
    table.bulk_insert(twice, chunk, accept, SEVERAL_COMMITS)
    with pytest.raises(LostHistoryError, match=r"after its copy was complete; .* there twice"):
        table.timeline().latest_offsets()


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
def test_copied_rows_are_refused_under_their_commit(
    spark: SparkSession, tmp_path: Path, first: bool
) -> None:
    """The reason is a lost lease, or another process that has completed the copy meanwhile."""
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    copied = [] if first else [(1, "copied")]
    if not first:
        insert(spark, table, *copied, size=SEVERAL_COMMITS)
    twice = rows(spark, table, [("r", -1, (2, "twice"))])
    chunk = record("chunk", chunk_ids=(1,))

    def lost(_timeline: Timeline) -> None:
        raise FencedError("the lease was lost", remedy="")

    with pytest.raises(FencedError, match="the lease was lost"):
        table.bulk_insert(twice, chunk, lost, SEVERAL_COMMITS)
    assert table.timeline().chunks("a") == set(range(len(copied)))

    def completed(_timeline: Timeline) -> None:
        insert(spark, table, (2, "again"), size=SEVERAL_COMMITS)
        table.empty_commit(record("handoff", offsets={0: 2}), accept)

    with pytest.raises(FencedError, match="undone by another writer"):
        table.bulk_insert(twice, chunk, completed, SEVERAL_COMMITS)
    assert content(table) == [*copied, (2, "again")]
    latest = table.timeline().latest_offsets()
    assert latest is not None
    assert latest.record.kind == "handoff"


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "refused"])
def test_chunks_whose_commit_was_rolled_back_while_it_completed_are_copied_again(
    spark: SparkSession, tmp_path: Path, committed: bool
) -> None:
    """The process that rolls the commit back commits another chunk, or its guard refuses it."""
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "copied"), size=SEVERAL_COMMITS)

    def suspended(timeline: Timeline) -> None:
        (instant,) = timeline.pending_instants()
        kept = {path: path.read_bytes() for path in (tmp_path / "t/.hoodie").glob(f"{instant}*")}
        two = rows(spark, table, [("r", -1, (2, "other chunk"))])
        with nullcontext() if committed else pytest.raises(FencedError):
            guard = accept if committed else fenced
            table.bulk_insert(two, record("chunk", chunk_ids=(2,)), guard, SEVERAL_COMMITS)
        for path, data in kept.items():
            path.write_bytes(data)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    one = rows(spark, table, [("r", -1, (3, "lost"))])
    table.bulk_insert(one, record("chunk", chunk_ids=(1,)), suspended, SEVERAL_COMMITS)

    others = [(2, "other chunk")] if committed else []
    assert content(table) == [(1, "copied"), *others]
    assert table.timeline().chunks("a") == {0, *(key for key, _ in others)}

    table.bulk_insert(one, record("chunk", chunk_ids=(1,)), accept, SEVERAL_COMMITS)
    assert content(table) == [(1, "copied"), *others, (3, "lost")]
    timeline = table.timeline()
    undone = timeline.undone()
    whole = [one.record.chunk_ids for one in timeline.commits() if one.instant not in undone]
    assert whole == [(0,), *((key,) for key, _ in others), (1,)], "what the handoff counts"


def fenced(_timeline: Timeline) -> None:
    raise FencedError("the lease was lost", remedy="")


def test_a_copy_whose_first_commit_was_cut_short_goes_on_in_another_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A late file of a table's first commit would be shown to readers at once."""
    at = datetime.now(timezone.utc)
    first = Attempt(uuid.uuid4(), at, attempt_path(tmp_path.as_uri(), "first"))
    made: list[Attempt] = [first]
    known = table_record(
        table=TABLE,
        state=State.BOOTSTRAPPING,
        base_path=tmp_path.as_uri(),
        updated_at=at,
        attempt=first,
    )

    def save(attempt: Attempt) -> TableRecord:
        made.append(attempt)
        return replace(known, attempt=attempt)

    context = SimpleNamespace(
        spark=spark,
        timeline=lambda one: Timeline(spark, one.path),
        store=SimpleNamespace(installation=Installation.new()),
    )
    copying = Copying(
        context=cast("Any", context),
        source=cast("Any", None),
        settings=TableSettings(),
        record=known,
        save=save,
        lease=cast("Any", None),
        replica_s=1.0,
        failures=1,
    )
    copying._leave_cut_short()
    assert made == [first], "nothing was begun"
    table = LakeTable(spark, first.path, ORDERS, TableSettings())
    insert(spark, table, (1, "copied"))
    copying._leave_cut_short()
    assert made == [first], "its first commit is complete"

    timeline = tmp_path / "attempt=first" / ".hoodie"
    (done,) = (path for path in timeline.iterdir() if path.suffix in (".commit", ".replacecommit"))
    done.unlink()
    assert table.timeline().pending_instants()
    copying._leave_cut_short()

    (_, other) = made
    assert other == replace(first, id=other.id, path=attempt_path(tmp_path.as_uri(), other.id))
    assert not (tmp_path / "attempt=first").exists()


def test_commits_read_each_rollback_once_and_list_no_folders_for_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi keeps a rollback for years if few others follow; each commit looks several times."""
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    read = rollbacks._read_rollback
    reads: list[str] = []
    lists: list[str] = []

    def counted_read(timeline: Any, rollback: Any) -> frozenset[str]:
        reads.append(str(rollback.requestedTime()))
        return read(timeline, rollback)

    def counted_list(spark: SparkSession, files: Any, folders: str, instants: Any) -> list[Any]:
        lists.append(folders)
        return files_of(spark, files, folders, instants)

    monkeypatch.setattr(rollbacks, "_read_rollback", counted_read)
    monkeypatch.setattr(late_files, "files_of", counted_list)
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    table.empty_commit(record(offsets={0: 1}), accept)
    for end in (2, 3):
        with pytest.raises(FencedError, match="the lease was lost"):
            table.upsert(rows(spark, table, [("c", 1, (1, "x"))]), record(offsets={0: end}), fenced)
    for end in range(4, 9):
        change(spark, table, end, ("u", end - 1, (1, f"at {end}")))
        assert table.keep_up(lambda: None)

    assert len(table.timeline().undone()) == 2
    assert sorted(reads) == sorted(set(reads))
    assert len(reads) == 2
    assert lists == [], "nothing is archived yet, so nobody could see a late file"
