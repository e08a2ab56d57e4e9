"""A Hudi table that several shards share: rows and records of shards, and errors of one shard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.errors import FencedError, LakeError, StateError
from cdc.lake import shards, timeline
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import LakeColumn
from cdc.lake.shard_write import ShardWrite
from cdc.lake.shards import ShardTable, SharedTable
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from cdc.runtime.spark import in_this_thread
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from cdc.store.tables import leases
from schemas.errors import SchemaError, TributaryError
from schemas.table import Shard, TableSchema
from tests.handoffs import handed
from tests.spark.lake import ONE_COMMIT, SEVERAL_COMMITS, Event, accept, record, rows, schema

ORDERS = schema("id", id="int", name="string")
BY = ("name", "hash(id, 2)")
Open = Callable[..., ShardTable]


@pytest.fixture
def shared(spark: SparkSession, tmp_path: Path) -> Iterator[SharedTable]:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    leases = Leases(store)
    yield SharedTable(lambda: in_this_thread(spark), leases, (tmp_path / "t").as_uri())
    store.close()


def shard(name: str) -> Shard:
    return Shard("sales.orders", name, "_shard", "file:///lake/sales/orders")


def part(
    spark: SparkSession,
    shared: SharedTable,
    name: str,
    columns: TableSchema = ORDERS,
    **settings: Any,
) -> ShardTable:
    """One shard's part of the shared table."""
    given = TableSettings(**settings)
    return ShardTable(spark, shared.path, columns, given, shard=shard(name), write=shared.write)


def joined(
    spark: SparkSession,
    shared: SharedTable,
    table: ShardTable,
    values: Sequence[tuple[Any, ...]],
    *,
    attempt: str = "a",
    end: int = 1,
    size: Any = ONE_COMMIT,
    known: str | None = None,
) -> None:
    """Add the copied rows of a shard to the shared table, as the publication of a copy does."""
    copied = rows(spark, table, [("r", -1, row) for row in values])
    commit = replace(told(table, end), attempt=attempt)
    shared.write(
        ShardWrite(
            table._shard, table.layout.schema, table._settings, copied, commit, accept,
            replaces=True, size=size, known=known,
        )
    )  # fmt: skip


def told(table: ShardTable, end: int) -> CommitRecord:
    columns = table.layout.schema
    return record(
        offsets={0: end}, handoff=handed(map(LakeColumn.of, columns.columns), key=columns.key)
    )


def changed(spark: SparkSession, table: ShardTable, end: int, *events: Event) -> str:
    return table.upsert(rows(spark, table, events), told(table, end), accept)


def content(table: ShardTable) -> list[tuple[Any, ...]]:
    names = [column.name for column in table.layout.schema.columns]
    return sorted((tuple(row) for row in table.read().select(*names).collect()), key=repr)


def at(table: ShardTable) -> tuple[dict[int, int], str]:
    latest = table.timeline().latest_offsets()
    assert latest is not None
    return dict(latest.record.offsets), latest.instant


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        pytest.param(ONE_COMMIT, {}, marks=pytest.mark.breadth),
        (SEVERAL_COMMITS, {}),
        pytest.param(ONE_COMMIT, {"partition_by": BY}, marks=pytest.mark.breadth),
    ],
    ids=["bucket", "bloom", "partitioned"],
)
def test_shards_keep_their_rows_and_offsets_apart(
    spark: SparkSession, shared: SharedTable, size: Any, settings: dict[str, Any]
) -> None:
    eu, us = (part(spark, shared, name, **settings) for name in ("eu", "us"))
    joined(spark, shared, eu, [(1, "a"), (2, "b")], size=size)
    joined(spark, shared, us, [(1, "x"), (3, "y")], end=5, size=size)
    first = changed(spark, eu, 9, ("u", 7, (1, "aa")), ("d", 8, (2, None)), ("c", 8, (4, "d")))

    assert content(eu) == [(1, "aa"), (4, "d")]
    assert content(us) == [(1, "x"), (3, "y")]
    assert at(eu) == ({0: 9}, first)
    # What another shard commits moves neither its offsets nor the instant that its guard compares.
    changed(spark, us, 6, ("d", 5, (1, None)))
    assert at(eu) == ({0: 9}, first)
    assert at(us)[0] == {0: 6}
    eu.empty_commit(told(eu, 12), accept)
    assert at(eu)[0] == {0: 12}
    assert content(us) == [(3, "y")]
    whole = spark.read.format("hudi").load(shared.path)
    keys = sorted(row[0] for row in whole.select("_cdc_key").collect())
    assert keys == ["=eu|1", "=eu|4", "=us|3"]


@pytest.mark.parametrize(
    ("mode", "by"),
    [
        ("hard", ()),
        pytest.param("soft", (), marks=pytest.mark.breadth),
        pytest.param("hard", BY, marks=pytest.mark.breadth),
    ],
    ids=["hard", "soft", "parts"],
)
def test_a_new_copy_of_a_shard_takes_the_place_of_the_former(
    spark: SparkSession, shared: SharedTable, mode: str, by: tuple[str, ...]
) -> None:
    """The former rows are removed, although copied rows have lower ordering values than changes."""
    eu, us = (part(spark, shared, name, delete_mode=mode, partition_by=by) for name in ("eu", "us"))
    joined(spark, shared, eu, [(1, "a"), (2, "b")])
    joined(spark, shared, us, [(1, "x")])
    changed(spark, eu, 9, ("u", 8, (1, "late")))
    joined(spark, shared, eu, [(1, "copied"), (3, "c")], attempt="b")
    assert content(eu) == [(1, "copied"), (3, "c")]
    eu.overwrite(rows(spark, eu, []), told(eu, 20), accept)
    assert content(eu) == []
    assert content(us) == [(1, "x")]
    changed(spark, eu, 22, ("c", 21, (1, "again")))
    assert content(eu) == [(1, "again")]
    assert at(us)[0] == {0: 1}


def test_columns_and_wider_types_of_one_shard_leave_the_others_as_they_are(
    spark: SparkSession, shared: SharedTable
) -> None:
    eu, us = part(spark, shared, "eu"), part(spark, shared, "us")
    joined(spark, shared, eu, [(1, "a")])
    joined(spark, shared, us, [(1, "x")])
    wider = part(spark, shared, "eu", schema("id", id="bigint", name="string", price="double"))
    seen = wider.read().selectExpr("*", "CAST(NULL AS double) AS price")
    wider.overwrite(seen, told(wider, 3), accept)
    changed(spark, wider, 5, ("c", 4, (2**40, "big", 1.5)))
    assert content(wider) == [(1, "a", None), (2**40, "big", 1.5)]
    assert content(us) == [(1, "x")]
    assert dict(us.read().select("id").dtypes) == {"id": "int"}
    changed(spark, us, 3, ("u", 2, (1, "xx")))
    assert content(us) == [(1, "xx")]
    whole = spark.read.format("hudi").load(shared.path)
    assert dict(whole.select("id", "price").dtypes) == {"id": "bigint", "price": "double"}
    assert whole.count() == 3


def test_a_shard_that_does_not_fit_is_refused_and_changes_nothing(
    spark: SparkSession, shared: SharedTable
) -> None:
    eu = part(spark, shared, "eu")
    joined(spark, shared, eu, [(1, "a")])
    other = part(spark, shared, "us", schema("id", id="int", name="date"))
    with pytest.raises(
        SchemaError, match=r"is date in shard us and string in shard that came before"
    ):
        joined(spark, shared, other, [])
    other = part(spark, shared, "us", schema("name", id="int", name="string"))
    with pytest.raises(SchemaError, match=r"key of shard us is \(name\).* shard eu is \(id\)"):
        joined(spark, shared, other, [])
    assert content(eu) == [(1, "a")]
    assert len(Timeline(spark, shared.path).commits()) == 1


def test_many_go_into_one_commit_and_one_that_is_refused_stops_alone(
    spark: SparkSession, shared: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{n}" for n in range(6)]
    tables = [part(spark, shared, name) for name in names]
    for table in tables:
        joined(spark, shared, table, [(1, "a")])
    before = len(Timeline(spark, shared.path).commits())

    def refuse(_timeline: Timeline) -> None:
        raise FencedError("shard s3 is someone else's", remedy="Run again.")

    def work(number: int) -> str:
        table = part(in_this_thread(spark), shared, names[number])
        new = rows(spark, table, [("u", 5, (1, f"b{number}"))])
        return table.upsert(new, told(table, 6), refuse if number == 3 else accept)

    shared._turn.acquire()  # all of them wait by now, as behind a commit that takes long
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(work, number) for number in range(6)]
        while len(shared._waiting) < 6:
            pass
        shared._turn.release()
        assert isinstance(waiting[3].exception(), FencedError)
        assert all(one.exception() is None for n, one in enumerate(waiting) if n != 3)
    assert [content(table) for table in tables] == [
        [(1, "a" if n == 3 else f"b{n}")] for n in range(6)
    ]
    assert [at(table)[0][0] for table in tables] == [1 if n == 3 else 6 for n in range(6)]
    # Without the one that is refused, the joint commit holds. It opens the table no more often than
    # the commit of one shard.
    opened = Mock(wraps=timeline._open_meta_client)
    monkeypatch.setattr(timeline, "_open_meta_client", opened)
    changed(spark, tables[0], 8, ("u", 7, (1, "c")))
    of_one = opened.call_count
    opened.reset_mock()
    waiting_tables = [table for n, table in enumerate(tables) if n != 3]
    shared._turn.acquire()
    with ThreadPoolExecutor(6) as pool:
        jobs = [
            pool.submit(changed, spark, table, 9, ("u", 8, (1, "c"))) for table in waiting_tables
        ]
        while len(shared._waiting) < 5:
            pass
        shared._turn.release()
    assert len({job.result() for job in jobs}) == 1
    assert opened.call_count == of_one
    assert len(Timeline(spark, shared.path).commits()) == before + 5 + 1 + 1


@pytest.mark.parametrize("lost", [StateError, FencedError], ids=["store away", "lease lost"])
def test_what_fails_after_a_commit_is_no_failure_of_its_shard(
    spark: SparkSession,
    shared: SharedTable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lost: type[TributaryError],
) -> None:
    def fails(_table: LakeTable, _check: Callable[[], None]) -> None:
        raise lost("the lease cannot be renewed", remedy="")

    monkeypatch.setattr(LakeTable, "keep_up", fails)
    eu = part(spark, shared, "eu")
    joined(spark, shared, eu, [(1, "a")])

    instant = changed(spark, eu, 9, ("u", 7, (1, "b")))

    assert at(eu) == ({0: 9}, instant)
    assert (
        f"commit {instant} of {shared.path} is complete; a step after it failed: the lease"
        in caplog.text
    )


def test_no_shard_joins_or_leaves_a_table_that_is_not_of_one_moment(
    spark: SparkSession, shared: SharedTable, tmp_path: Path
) -> None:
    """If one shard committed, the other shards could no longer see that their files are missing."""
    eu, us = part(spark, shared, "eu"), part(spark, shared, "us")
    joined(spark, shared, eu, [(1, "a")])
    joined(spark, shared, us, [(1, "x")])
    timeline = tmp_path / "t" / ".hoodie"
    shutil.copytree(timeline, tmp_path / "early")
    known = changed(spark, us, 9, ("u", 7, (1, "xx")))
    (file,) = (tmp_path / "t").rglob(f"*_{known}.parquet")

    def restarted() -> SharedTable:
        return SharedTable(lambda: in_this_thread(spark), shared._leases, shared.path)

    away = file.rename(tmp_path / file.name)
    before = Timeline(spark, shared.path).completed_instants()
    with pytest.raises(LakeError, match=f"sales.orders in the lake are not of .*{file.name}"):
        joined(spark, restarted(), eu, [(1, "copied")], attempt="b")
    with pytest.raises(LakeError, match=f"sales.orders in the lake are not of .*{file.name}"):
        restarted().remove(shard("eu"), TableSettings(), accept)
    assert Timeline(spark, shared.path).completed_instants() == before
    away.rename(file)

    # The lake has the files of a commit that it lacks.
    shutil.rmtree(timeline)
    shutil.copytree(tmp_path / "early", timeline)
    with pytest.raises(LakeError, match=f"{file.name} is of commit {known}, which the lake does"):
        joined(spark, restarted(), us, [(1, "copied")], attempt="b", known=known)
    with pytest.raises(LakeError, match=f"{file.name} is of commit {known}, which the lake does"):
        restarted().remove(shard("us"), TableSettings(), accept, known=known)
    file.unlink()
    joined(spark, restarted(), us, [(1, "copied")], attempt="b", known=known)
    assert (content(eu), content(us)) == ([(1, "a")], [(1, "copied")])


def test_a_process_that_slept_before_its_first_commit_leaves_the_table_of_another_one(
    spark: SparkSession, shared: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, us = part(spark, shared, "eu"), part(spark, shared, "us")
    store = shared._leases._store
    other = SharedTable(lambda: in_this_thread(spark), Leases(store, owner="other"), shared.path)
    (tmp_path / "t" / ".hoodie").mkdir(parents=True)  # a process that was killed has begun

    def sleeps(*_: object) -> None:
        """The process is suspended until another one has created the table."""
        monkeypatch.undo()
        with store.transaction() as connection:
            connection.execute(sa.update(leases).values(expires_at=0.0))
        joined(spark, other, us, [(1, "x")])

    monkeypatch.setattr(shards, "current_path", sleeps)
    with pytest.raises(FencedError, match="another process has taken it over"):
        joined(spark, shared, eu, [(1, "a")])
    assert content(us) == [(1, "x")]
    joined(spark, shared, eu, [(1, "a")])
    assert (content(eu), content(us)) == ([(1, "a")], [(1, "x")])


@pytest.mark.breadth
def test_a_shard_leaves_with_its_rows(spark: SparkSession, shared: SharedTable) -> None:
    eu, us = part(spark, shared, "eu"), part(spark, shared, "us")
    joined(spark, shared, eu, [(1, "a")])
    joined(spark, shared, us, [(1, "x")])
    shared.remove(shard("eu"), TableSettings(), accept)
    whole = spark.read.format("hudi").load(shared.path)
    assert [row["_shard"] for row in whole.collect()] == ["us"]
    assert eu.timeline().latest_offsets() is None
    assert content(us) == [(1, "x")]
    shared.remove(shard("us"), TableSettings(), accept)
    assert Timeline(spark, shared.path).latest().record.shards == {}
    joined(spark, shared, eu, [(5, "new")], attempt="c")
    assert content(eu) == [(5, "new")]
