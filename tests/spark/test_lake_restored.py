"""A lake that was restored from a copy made during writes, or from an incomplete replica."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from cdc.errors import LakeError
from cdc.lake import table_services
from cdc.lake.commit import COMMIT_KEY
from cdc.lake.restored_files import WholeCommits, any_difference, newest_difference
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from cdc.run.commits import commit_summary
from cdc.run.published_generation import Served, require_files
from cdc.store.attempt import Attempt
from cdc.store.table_state import TableRecord
from tests.records import table_record
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    TABLE,
    accept,
    change,
    content,
    insert,
    lake,
    record,
    rows,
    schema,
)

BY_REGION = schema("id", id="bigint", name="string", region="string")


def differences(spark: SparkSession, table: LakeTable) -> tuple[str | None, str | None]:
    timeline = Timeline(spark, table.path)
    return newest_difference(spark, timeline), any_difference(spark, timeline)


def files(table: LakeTable) -> list[Path]:
    """The data files, oldest first."""
    folder = Path(table.path.removeprefix("file://"))
    return sorted(folder.rglob("*.parquet"), key=lambda file: file.stem.rpartition("_")[2])


def commit_files(table: LakeTable) -> list[Path]:
    """The files of the commits in the timeline, oldest first."""
    folder = Path(table.path.removeprefix("file://")) / ".hoodie"
    return sorted(path for path in folder.rglob("[0-9]*") if path.is_file())


def test_a_commit_without_its_file_is_found(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), (2, "two"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    assert differences(spark, table) == (None, None)

    (*_, newest) = files(table)
    newest.unlink()

    assert content(table) == [(1, "one"), (2, "two")], "Hudi shows the former version"
    found = differences(spark, table)
    assert (
        found
        == (f"commit {newest.stem.rpartition('_')[2]} names {newest.name}, which is not there",) * 2
    )


def test_a_file_of_a_partition_that_an_earlier_commit_names_is_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "a*{t}", BY_REGION, index="bloom", partition_by=("region",))
    insert(spark, table, (1, "one", "eu"), (2, "two", "a b/{c}"))
    change(spark, table, 3, ("u", 2, (1, "1", "eu")))
    assert differences(spark, table) == (None, None)

    (other,) = (file for file in files(table) if "eu" not in str(file.parent.name))
    other.unlink()

    newest, whole = differences(spark, table)
    assert newest is None, "the newest commit has not written it"
    assert whole is not None
    assert other.name in whole


def test_files_of_commits_that_the_timeline_lacks_are_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), (2, "two"))
    folder, early = tmp_path / "t" / ".hoodie", tmp_path / "early"
    shutil.copytree(folder, early)
    change(spark, table, 3, ("c", 2, (3, "three")))
    (*_, orphan) = files(table)

    shutil.rmtree(folder)
    shutil.copytree(early, folder)

    newest, whole = differences(spark, table)
    assert newest is None, "the newest commit that is left has its files"
    assert whole == (
        f"{orphan.name} is of commit {orphan.stem.rpartition('_')[2]}, which the lake does not have"
    )
    orphan.unlink()
    assert differences(spark, table) == (None, None)


def test_a_run_checks_the_files_of_a_commit_that_another_process_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), (2, "two"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    whole = WholeCommits()

    def run(record: TableRecord, whole: WholeCommits) -> None:
        timeline = Timeline(spark, table.path)
        newest = timeline.latest_offsets()
        assert newest is not None
        context = SimpleNamespace(spark=spark, served=Served(), whole=whole)
        require_files(cast("Any", context), record, timeline, newest)

    newest = table.timeline().latest_offsets()
    assert newest is not None
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    record = replace(
        table_record(table=TABLE, attempt=Attempt(UUID(int=1), now, table.path), version=1),
        last_commit=commit_summary(newest),
    )
    run(record, whole)

    (*_, file) = files(table)
    away = file.rename(tmp_path / file.name)
    run(record, whole)  # this process has checked the commit
    with pytest.raises(LakeError, match=f"orders in the lake are not of one moment: .*{file.name}"):
        run(record, WholeCommits())
    away.rename(file)
    run(record, WholeCommits())

    # The store knows a commit that the lake lacks, so all files are checked.
    later = replace(commit_summary(newest), instant=f"9{newest.instant[1:]}")
    other = file.with_name(file.name.replace(newest.instant, later.instant))
    shutil.copy(file, other)
    with pytest.raises(LakeError, match=r"is of commit \d+, which the lake does not have"):
        run(replace(record, last_commit=later), WholeCommits())
    other.unlink()
    run(replace(record, last_commit=later), WholeCommits())


def test_no_writer_commits_to_a_table_whose_newest_commit_lacks_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A replay, a shard's join and all other writers check this before they commit."""
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), (2, "two"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    (*_, file) = files(table)
    other = lake(spark, tmp_path / "t", ORDERS, index="bloom")  # in another process
    away = file.rename(tmp_path / file.name)
    one = rows(spark, other, [("u", 4, (2, "2"))])
    before = commit_files(other)
    for write in (
        partial(other.upsert, one),
        partial(other.insert, one),
        partial(other.overwrite, one),
        other.empty_commit,
    ):
        with pytest.raises(
            LakeError, match=f"orders in the lake are not of one moment: .*{file.name}"
        ):
            write(record(offsets={0: 5}), accept)
    assert commit_files(other) == before

    away.rename(file)
    change(spark, other, 5, ("u", 4, (2, "2")))
    assert (2, "2") in content(other)


@pytest.mark.parametrize("action", ["commit", "replacecommit"])
def test_a_commit_whose_file_a_power_cut_left_empty_is_refused(
    spark: SparkSession, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi takes an empty commit file for a commit without data.

    So rows would be read from the topic again, or be in the table twice.
    """
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom", hudi=CLUSTERED)
    insert(spark, table, (1, "one"), (2, "two"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    if action == "replacecommit":
        assert table.keep_up(lambda: None)
    assert content(table) == [(1, "1"), (2, "two")]
    (*_, file) = (one for one in commit_files(table) if one.suffix == f".{action}")
    whole = file.read_bytes()

    for cut in (b"", b"\0" * len(whole)):
        file.write_bytes(cut)
        checksum = file.with_name(f".{file.name}.crc")
        checksum.unlink(missing_ok=True)
        for look in (Timeline.latest_offsets, Timeline.latest, Timeline.commits):
            with pytest.raises(LakeError, match=file.name if not cut else file.stem):
                look(Timeline(spark, table.path))
        with pytest.raises(LakeError, match=file.stem):
            change(spark, table, 4, ("c", 3, (3, "three")))

    file.write_bytes(whole)
    change(spark, table, 4, ("c", 3, (3, "three")))
    assert content(table) == [(1, "1"), (2, "two"), (3, "three")]


def test_a_commit_of_another_program_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    (*_, file) = (one for one in commit_files(table) if one.suffix == ".commit")
    written = json.loads(file.read_bytes())
    del written["extraMetadata"][COMMIT_KEY]
    file.write_text(json.dumps(written))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    with pytest.raises(LakeError, match=r"is of another program: it is a commit of UPSERT"):
        table.timeline().latest_offsets()


@pytest.mark.breadth
def test_clustering_and_cleaning_leave_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom", hudi=CLUSTERED)
    insert(spark, table, (1, "one"), (2, "two"))
    for end in range(3, 8):
        change(spark, table, end, ("u", end - 1, (1, str(end))))
        table.keep_up(lambda: None)
        assert differences(spark, table) == (None, None)
