"""How long readers can use files that they have opened, and how far back they can query."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.lake import table_services
from cdc.lake.pointer import Published
from cdc.lake.publish import attempt_path, write_pointer
from cdc.lake.space import measure
from cdc.lake.write import LakeTable
from cdc.run.context import RunContext
from cdc.run.former_generations import remove_former
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from tests.records import table_record
from tests.spark.lake import ORDERS, TABLE, change, insert
from tests.spark.local import local_config

ROWS = 40


@pytest.mark.parametrize(
    ("keep", "commits"),
    [
        ("1h", 6),
        pytest.param("1h", 300, marks=[pytest.mark.breadth, pytest.mark.timeout(1800)]),
        pytest.param("1s", 6, marks=pytest.mark.breadth, id="too short"),
    ],
)
def test_readers_keep_their_files_as_long_as_the_settings_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, commits: int
) -> None:
    """A scan that began before many commits and a new generation ends after them."""
    if commits < 10:
        monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 2)
    settings = TableSettings(readers_keep=keep, retain_generations=0, index="bucket", buckets=4)
    with followed(spark, tmp_path, settings) as context:
        (record,) = context.store.tables()
        table = copied(spark, record, settings)
        first = table.timeline().newest_instant()
        assert first is not None
        scan = table.read().select("id", "name").toLocalIterator()
        seen, changed = [tuple(next(scan))], dict[int, str]()

        for end in range(1, commits + 1):
            key = end % ROWS
            changed[key] = f"new {end}"
            change(spark, table, end, ("u", end, (key, changed[key])))
            table.keep_up(lambda: None)
            if keep == "1s":
                time.sleep(0.3)
        files = len(list((tmp_path / "t" / f"attempt={uuid.UUID(int=1)}").glob("*.parquet")))
        assert (files < 4 + commits) == (keep == "1s"), "of each commit all files stay, or not"
        assert_measured(spark, table, record.base_path)
        publish_another(spark, context, settings)

    if keep == "1s":
        with pytest.raises(Exception, match=r"FileNotFound|does not exist"):
            list(scan)
        return
    seen += [tuple(row) for row in scan]
    assert sorted(seen) == [(key, "old") for key in range(ROWS)]
    reader = spark.read.format("hudi")
    then = reader.option("as.of.instant", first).load(table.path)
    assert {row.name for row in then.collect()} == {"old"}
    since = (
        reader.option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.read.begin.instanttime", first)
        .load(table.path)
    )
    assert {row.id: row.name for row in since.collect()} == changed


@contextmanager
def followed(spark: SparkSession, folder: Path, settings: TableSettings) -> Iterator[RunContext]:
    """The run context of a followed table, without a real source or topic."""
    store = Store(f"sqlite:///{folder / 'state.db'}")
    store.put(generation(f"file://{folder}/t", 1))
    yield RunContext(
        config=local_config(folder).model_copy(update={"defaults": settings}),
        session=spark,
        store=store,
        kafka=cast("Any", None),
        registry=cast("Any", None),
        sources={},
        leases=Leases(store),
        progress=NullProgress(),
        run_id="run",
    )
    store.close()


def generation(base: str, number: int) -> TableRecord:
    """The table record of a generation; its attempt's UUID has the generation's number."""
    attempt, now = uuid.UUID(int=number), datetime.now(timezone.utc)
    return table_record(
        table=TABLE,
        base_path=base,
        updated_at=now,
        generation=number,
        attempt=Attempt(attempt, now, attempt_path(base, attempt)),
    )


def copied(spark: SparkSession, record: TableRecord, settings: TableSettings) -> LakeTable:
    """Write a copy for the attempt of a record, and publish it to readers."""
    assert record.attempt is not None
    table = LakeTable(spark, record.attempt.path, ORDERS, settings)
    insert(spark, table, *[(key, "old") for key in range(ROWS)])
    write_pointer(
        spark,
        record.base_path,
        Published(table.path, record.generation, str(record.attempt.id)),
    )
    return table


def publish_another(spark: SparkSession, context: RunContext, settings: TableSettings) -> None:
    """Publish a second generation, and a moment later, let a run look at the table."""
    (former,) = context.store.tables()
    record = replace(generation(former.base_path, 2), version=former.version)
    copied(spark, context.store.put(record), settings)
    time.sleep(1.1)
    (record,) = context.store.tables()
    assert context.served.differing_from_lake(context, [record]) == set()
    remove_former(context, [record])


def assert_measured(spark: SparkSession, table: LakeTable, base: str) -> None:
    """Assert that the sizes for `status` equal the sizes of the files on disk."""
    folder = Path(table.path.removeprefix("file://"))
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    sizes = {path: size for path, size in sizes.items() if path.suffix != ".crc"}
    versions = sorted(folder.glob("*.parquet"), key=lambda path: path.name.split("_")[-1])
    newest = {path.name.split("_")[0]: sizes[path] for path in versions}
    assert len(newest) == 4
    measured = measure(spark, base, folder.name.removeprefix("attempt="))
    assert measured.image_bytes == sum(newest.values())
    assert measured.kept_bytes == sum(sizes.values()) - sum(newest.values()) > 0
    assert measured.other_generations_bytes == 0
