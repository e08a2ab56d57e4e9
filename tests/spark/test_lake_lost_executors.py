"""Files that an executor adds after the commit, because the driver has taken it for lost."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bootstrap.publish import publish
from cdc.config import TableSettings
from cdc.errors import LakeError
from cdc.lake import data_files, table_services
from cdc.lake.late_files import delete_unnamed
from cdc.lake.publish import current_path
from cdc.lake.timeline import Timeline
from cdc.lake.upkeep import Upkeep
from cdc.lake.write import LakeTable
from cdc.store.attempt import Attempt
from cdc.store.installation import Installation
from cdc.store.table_state import State
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
    schema,
)


@pytest.fixture
def on_cluster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code believe that Spark may repeat tasks, as on a cluster; here it repeats none."""
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")


def add_late(table: LakeTable, key: int, *, same_group: bool = False) -> Path:
    """Add a file like that of a repeated task: a copy of the newest file with a key, changed.

    Args:
        table: The table.
        key: The key by which the file is found.
        same_group: Whether the new file belongs to the same file group.
    """
    folder = Path(table.path.removeprefix("file://"))
    files = sorted(folder.rglob("*.parquet"), key=lambda file: file.stem.rpartition("_")[2])
    (*_, source) = (
        file for file in files if key in pq.read_table(file, columns=["id"])["id"].to_pylist()
    )
    group, _, instant = source.stem.rsplit("_", 2)
    late = source.with_name(
        f"{group if same_group else f'{uuid.uuid4()}-0'}_9-9-999_{instant}.parquet"
    )
    found = pq.read_table(source)
    place = found.schema.get_field_index("name")
    names = pc.binary_join_element_wise(found["name"], "late", " ")
    pq.write_table(found.set_column(place, found.schema.field(place), names), late)
    return late


@pytest.mark.usefixtures("on_cluster")
def test_a_late_file_is_never_merged(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), (2, "two"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    late = add_late(table, 2)
    assert (2, "two late") in content(table), "readers see it: there is something to guard"

    with pytest.raises(LakeError, match=f"would merge {late.name}, which an executor"):
        change(spark, table, 4, ("u", 3, (2, "2")))
    assert not late.exists()
    assert content(table) == [(1, "1"), (2, "two")]
    change(spark, table, 4, ("u", 3, (2, "2")))
    assert content(table) == [(1, "1"), (2, "2")]


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
@pytest.mark.parametrize("same_group", [False, True], ids=["other group", "same group"])
def test_late_files_of_each_partition_are_gone_after_the_upkeep(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_group: bool
) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    orders = schema("id", id="bigint", name="string", region="string")
    table = lake(spark, tmp_path / "a*{t}", orders, index="bloom", partition_by=("region",))
    insert(spark, table, (1, "one", "eu"), (2, "two", "a b/{c}"))
    change(spark, table, 3, ("u", 2, (1, "1", "eu")))
    late = [add_late(table, key, same_group=same_group) for key in (1, 2)]

    table.keep_up(lambda: None)

    assert not any(file.exists() for file in late)
    assert content(table) == [(1, "1", "eu"), (2, "two", "a b/{c}")]


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
def test_only_files_of_complete_commits_that_can_be_read_are_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Without small files to fill, no commit of the test merges the late file.
    unfilled = {"hoodie.parquet.small.file.limit": "0"}
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom", hudi=unfilled)
    insert(spark, table, (1, "one"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    (newest,) = {file.stem.rpartition("_")[2] for file in [add_late(table, 1)]}

    def amid(timeline: Timeline) -> None:
        """A guard: at this time, the commit's files are written, but the commit is incomplete."""
        assert timeline.pending_instants()
        delete_unnamed(spark, timeline)

    table.upsert(rows(spark, table, [("c", 3, (5, "five"))]), record(offsets={0: 4}), amid)
    assert content(table) == [(1, "1"), (5, "five")]

    late = add_late(table, 5)
    data_files._cache = data_files._Cache()
    (done,) = (tmp_path / "t/.hoodie").glob(f"{late.stem.rpartition('_')[2]}.commit")
    assert done.stem != newest
    whole = done.read_bytes()
    done.write_bytes(whole[: len(whole) // 2])
    done.with_name(f".{done.name}.crc").unlink()
    with pytest.raises(LakeError, match=r"late files of the lake table at .* cannot be looked for"):
        delete_unnamed(spark, table.timeline())
    assert late.exists()


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
def test_a_late_file_is_not_merged_with_small_files(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The late file comes after the search for late files and before the clustering's plan."""
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    insert(spark, table, (1, "one"))
    change(spark, table, 3, ("u", 2, (1, "1")))
    late: list[Path] = []
    look = Upkeep._delete_late_files

    def come_late(upkeep: Upkeep) -> None:
        look(upkeep)
        late.append(add_late(table, 1))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Upkeep, "_delete_late_files", come_late)
        assert not table.keep_up(lambda: None)
    assert f"would merge {late[0].name}" in caplog.text
    change(spark, table, 4, ("u", 3, (1, "2")))
    assert content(table) == [(1, "2")]
    assert table.keep_up(lambda: None)
    assert content(table) == [(1, "2")]
    assert table.timeline().commits_since_clustering() == 0


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
def test_a_copy_is_published_without_late_files(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "attempt=a", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), size=SEVERAL_COMMITS)
    late = add_late(table, 1)
    insert(spark, table, (2, "two"), size=SEVERAL_COMMITS)
    attempt = Attempt(uuid.uuid4(), datetime.now(timezone.utc), table.path)
    copied = table_record(
        table=TABLE, state=State.CATCHING_UP, base_path=tmp_path.as_uri(), attempt=attempt
    )
    context = SimpleNamespace(
        spark=spark,
        timeline=lambda one: Timeline(spark, one.path),
        store=SimpleNamespace(installation=Installation.new()),
    )
    lease = SimpleNamespace(check=lambda: None)

    publish(cast("Any", context), copied, TableSettings(), cast("Any", lease))

    assert current_path(tmp_path.as_uri()) == table.path
    assert not late.exists()
    assert content(table) == [(1, "one"), (2, "two")]


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
def test_a_bucket_that_got_a_second_file_is_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hudi itself refuses a bucket with two files, before any guard runs."""
    table = lake(spark, tmp_path / "t", ORDERS, index="bucket", buckets=1)
    insert(spark, table, (1, "one"))
    late = add_late(table, 1)
    bucket = late.with_name(f"00000000-{late.name.partition('-')[2]}")
    late.rename(bucket)

    with pytest.raises(LakeError, match=r"the commit to the lake table at .* failed"):
        change(spark, table, 3, ("u", 2, (1, "1")))
    assert not bucket.exists()
    change(spark, table, 3, ("u", 2, (1, "1")))
    assert content(table) == [(1, "1")]


@pytest.mark.breadth
@pytest.mark.usefixtures("on_cluster")
@pytest.mark.parametrize("operation", ["upsert", "insert", "overwrite", "bulk_insert"])
def test_a_change_whose_task_was_repeated_is_not_committed(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    """Hudi's markers name the files of all attempts. Copies and rewrites may still be committed."""
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"), size=SEVERAL_COMMITS)
    hoodie = str(tmp_path / "t/.hoodie")

    def marked(name: str) -> str:
        instant = max(file.name for file in Path(hoodie).glob("*.requested")).partition(".")[0]
        markers = Path(hoodie, ".temp", instant)
        markers.mkdir(parents=True, exist_ok=True)
        (markers / f"{uuid.uuid4()}-0_9-9-999_{instant}.parquet.marker.CREATE").touch()
        return name

    new = rows(spark, table, [("c", 3, (2, "two"))]).withColumn("name", F.udf(marked)("name"))
    if operation == "bulk_insert":
        table.bulk_insert(new, record("chunk", chunk_ids=(1,)), accept, SEVERAL_COMMITS)
        assert content(table) == [(1, "one"), (2, "two")]
        return
    if operation == "overwrite":
        table.overwrite(new, record(offsets={0: 4}), accept)
        assert content(table) == [(2, "two")]
        return
    with pytest.raises(LakeError, match=r"Duplicate data files? detected"):
        getattr(table, operation)(new, record(offsets={0: 4}), accept)
    assert content(table) == [(1, "one")]


@pytest.mark.breadth
def test_without_executors_of_its_own_nothing_is_listed(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    insert(spark, table, (1, "one"))
    late = add_late(table, 1)
    delete_unnamed(spark, table.timeline())
    assert late.exists()
