"""Two writers, killed writers and clocks that go back: who may commit, and what readers see."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.errors import FencedError, LostHistoryError
from cdc.lake import table_services, upkeep
from cdc.lake.guard import CommitGuard, Guard
from cdc.lake.handoff import LakeColumn
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from cdc.runtime.spark import java_class
from tests.handoffs import handed
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    accept,
    change,
    content,
    insert,
    lake,
    offsets,
    record,
    rows,
)


def expect(end: int | None) -> Guard:
    """A guard like a run's: it allows the commit only if the newest offset is still ``end``."""

    def guard(timeline: Timeline) -> None:
        latest = timeline.latest_offsets()
        found = latest.record.offsets.get(0) if latest else None
        if found != end:
            raise FencedError(f"the table is at {found}, not {end}", remedy="Plan anew.")

    return guard


@pytest.fixture(autouse=True)
def _upkeep_after_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> LakeTable:
    table = lake(spark, tmp_path / "t", ORDERS)
    change(spark, table, 2, ("c", 1, (1, "first")))
    return table


def test_a_stale_writer_is_refused_under_the_commit(spark: SparkSession, table: LakeTable) -> None:
    stale = rows(spark, table, [("u", 2, (1, "stale"))])
    change(spark, table, 5, ("u", 4, (1, "second")))

    with pytest.raises(FencedError, match="the table is at 5, not 2"):
        table.upsert(stale, record(offsets={0: 3}), expect(2))

    assert content(table) == [(1, "second")]
    assert offsets(table) == [{0: 2}, {0: 5}]
    change(spark, table, 6, ("u", 5, (1, "third")))
    assert content(table) == [(1, "third")]


def test_of_two_interleaved_writers_only_the_later_starter_commits(
    spark: SparkSession, table: LakeTable
) -> None:
    def meanwhile(_timeline: Timeline) -> None:
        later = rows(spark, table, [("u", 3, (1, "later"))])
        table.upsert(later, record(offsets={0: 4}), expect(2))

    with pytest.raises(FencedError, match="undone by another writer"):
        table.upsert(
            rows(spark, table, [("u", 2, (1, "earlier"))]), record(offsets={0: 3}), meanwhile
        )

    assert content(table) == [(1, "later")]
    assert offsets(table) == [{0: 2}, {0: 4}]


@pytest.mark.parametrize("left", ["complete", "inflight", "requested"])
def test_a_commit_that_completes_while_it_is_rolled_back_does_not_count(
    spark: SparkSession, table: LakeTable, left: str
) -> None:
    """No check before the commit can exclude this, so such a commit must stop the table.

    The writer that rolls the commit back can die before the rollback is complete.
    """
    timeline_folder = Path(table.path.removeprefix("file://")) / ".hoodie"

    def suspended(timeline: Timeline) -> None:
        (instant,) = timeline.pending_instants()
        ours = [path for path in timeline_folder.iterdir() if path.name.startswith(instant)]
        kept = [(path, path.read_bytes()) for path in ours]

        def refuse(_timeline: Timeline) -> None:
            raise FencedError("the next writer dies", remedy="")

        with pytest.raises(FencedError):
            table.upsert(rows(spark, table, []), record(offsets={0: 9}), refuse)
        for path, data in kept:
            path.write_bytes(data)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    table.upsert(rows(spark, table, [("u", 2, (1, "lost"))]), record(offsets={0: 3}), suspended)
    later = {
        "complete": [],
        "inflight": ["rollback"],
        "requested": ["rollback", "rollback.inflight"],
    }
    for name in later[left]:
        (done,) = timeline_folder.glob(f"*.{name}")
        done.unlink()

    with pytest.raises(
        LostHistoryError, match="was rolled back by another writer while it completed"
    ):
        table.timeline().latest_offsets()
    with pytest.raises(LostHistoryError, match="was rolled back"):
        change(spark, table, 4, ("u", 3, (1, "next")))


def test_a_clustering_that_completes_while_it_is_dropped_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Readers lose the files that the clustering replaced, and its own files are deleted."""
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))
    timeline_folder = tmp_path / "t" / ".hoodie"
    asked = 0

    def suspended() -> None:
        nonlocal asked
        asked += 1
        if asked == 5:
            kept = [(path, path.read_bytes()) for path in timeline_folder.glob("*.replacecommit.*")]
            change(spark, table, 3, ("u", 2, (1, "second")))
            for path, data in kept:
                path.write_bytes(data)

    table.keep_up(suspended)

    assert replaced(table), "it did not complete, so this proves nothing"
    with pytest.raises(
        LostHistoryError, match="was rolled back by another writer while it completed"
    ):
        table.timeline().latest_offsets()


KILLED = """
import sys
import time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.spark.lake import CLUSTERED, ORDERS, change, lake
from tests.spark.local import local_config
from cdc.lake import table_services
from cdc.runtime.spark import session
folder = Path(sys.argv[2])
spark = session(local_config(folder / "killed"))
events = [("u", 2, (1, "killed")), ("c", 2, (2, "killed"))]
table_services.UPKEEP_EVERY_COMMITS = 1
table = lake(spark, folder / "t", ORDERS, hudi=CLUSTERED, index="bloom")
change(spark, table, 3, *events)
table.keep_up(lambda: None)
"""


def killed(point: str, folder: Path) -> None:
    """Run a process that changes the table in the folder and dies at the crash point."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(Path(__file__).parents[2]), str(folder)],
        env={**os.environ, "TRIBUTARY_CRASH_AT": point},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


def test_a_writer_killed_in_mid_commit_leaves_the_last_commit_to_readers(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    killed("run.in_commit", tmp_path)

    (abandoned,) = table.timeline().pending_instants()
    assert content(table) == [(1, "first")]
    assert offsets(table) == [{0: 2}]

    change(spark, table, 3, ("u", 2, (1, "again")), ("c", 2, (2, "again")))

    assert content(table) == [(1, "again"), (2, "again")]
    assert offsets(table) == [{0: 2}, {0: 3}]
    assert table.timeline().pending_instants() == []
    assert not list((tmp_path / "t").glob(f"*{abandoned}*.parquet"))


@pytest.mark.breadth
def test_a_clustering_killed_in_mid_commit_leaves_the_last_commit_to_readers(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))
    killed("upkeep.in_clustering", tmp_path)
    assert table.timeline().pending_clusterings()
    assert content(table) == [(1, "killed"), (2, "killed")]

    change(spark, table, 4, ("u", 3, (1, "again")))

    assert content(table) == [(1, "again"), (2, "killed")]
    assert table.timeline().pending_instants() == []


def replaced(table: LakeTable) -> list[str]:
    folder = Path(table.path.removeprefix("file://")) / ".hoodie"
    return sorted(path.name.split(".")[0] for path in folder.glob("*.replacecommit"))


def test_a_clustering_hides_nothing_of_a_writer_that_took_the_table_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first writer is suspended before its clustering commits; the second writer truncates."""
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))
    asked = 0

    def suspended() -> None:
        nonlocal asked
        asked += 1
        if table.timeline().pending_clusterings():
            table.overwrite(
                rows(spark, table, [("c", 2, (2, "B"))]), record(offsets={0: 3}), accept
            )
            raise FencedError("the lease was lost", remedy="")

    with pytest.raises(FencedError, match="the lease was lost"):
        table.keep_up(suspended)

    assert asked == 5, "before each step, and under the commit of the clustering"
    assert content(table) == [(2, "B")]
    assert len(replaced(table)) == 1, "that of the overwrite"
    table.keep_up(lambda: None)
    assert content(table) == [(2, "B")]
    assert len(replaced(table)) == 2, "the next clustering is made"


class Unwritten:
    """Hudi's write client; its clustering reports a row that could not be written."""

    def __init__(self, spark: SparkSession, client: Any) -> None:
        self._spark = spark
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def cluster(self, instant: str, complete: bool) -> Any:
        written = self._client.cluster(instant, complete)
        statuses = written.getWriteStatuses().collect()
        for status in statuses:
            status.markFailure("7", "", None)
            status.getStat().setTotalWriteErrors(status.getTotalErrorRecords())
        written.setWriteStatuses(self._spark.sparkContext._jsc.parallelize(statuses))
        return written


def test_a_clustering_that_could_not_write_a_row_replaces_nothing(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))
    real = upkeep._write_client

    @contextmanager
    def failing(*args: Any) -> Iterator[Unwritten]:
        with real(*args) as client:
            yield Unwritten(spark, client)

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "_write_client", failing)
        table.keep_up(lambda: None)

    assert replaced(table) == []
    assert re.search(
        r"upkeep of \S+ failed: 1 rows of commit \d{17} .* not be written", caplog.text
    )
    change(spark, table, 3, ("c", 2, (2, "second")))
    assert content(table) == [(1, "first"), (2, "second")]
    table.keep_up(lambda: None)
    assert len(replaced(table)) == 1, "the next clustering is made"


def test_upkeep_that_fails_with_any_error_leaves_the_commit_as_it_is(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PySpark has its own classes for errors of some Java types, such as NumberFormatException."""
    hudi = {**CLUSTERED, "hoodie.clustering.plan.strategy.max.num.groups": "many"}
    table = lake(spark, tmp_path / "t", ORDERS, hudi=hudi, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))

    table.keep_up(lambda: None)
    assert re.search(r'upkeep of \S+ failed: .*For input string: "many"', caplog.text)

    broken = table.timeline().newest_instant()
    (tmp_path / "t" / ".hoodie" / f"{broken}.commit").write_text("{")
    caplog.clear()
    table.keep_up(lambda: None)
    assert re.search(r"upkeep of \S+ failed: ", caplog.text)


@pytest.mark.parametrize(
    ("index", "small"), [("bucket", "1000000"), ("bloom", "0")], ids=["bucket index", "none small"]
)
def test_files_of_a_bucket_index_are_never_clustered(
    spark: SparkSession, tmp_path: Path, index: Any, small: str
) -> None:
    """Files of other indexes are not clustered either, if the limit for small files is 0."""
    hudi = {**CLUSTERED, "hoodie.clustering.plan.strategy.small.file.limit": small}
    table = lake(spark, tmp_path / "t", ORDERS, hudi=hudi, index=index, buckets=1)
    change(spark, table, 2, ("c", 1, (1, "first")))

    table.keep_up(lambda: None)

    assert replaced(table) == []
    change(spark, table, 3, ("u", 2, (1, "second")))
    assert content(table) == [(1, "second")]


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "planned"])
def test_a_clustering_that_was_cut_short_keeps_no_rows_from_being_replaced(
    spark: SparkSession, tmp_path: Path, begun: bool
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))

    def cut_short() -> None:
        if table.timeline().pending_clusterings():
            raise FencedError("dies", remedy="")

    with pytest.raises(FencedError, match="dies"):
        table.keep_up(cut_short)
    if not begun:
        for path in (tmp_path / "t" / ".hoodie").glob("*.replacecommit.inflight"):
            path.unlink()
    assert table.timeline().pending_clusterings()

    table.overwrite(rows(spark, table, [("c", 2, (2, "B"))]), record(offsets={0: 3}), accept)

    assert content(table) == [(2, "B")]
    assert table.timeline().pending_clusterings() == []


def test_a_commit_that_does_not_know_of_a_clustering_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The commit has changed files that the clustering replaced, so its rows would be hidden."""
    table = lake(spark, tmp_path / "t", ORDERS, hudi=CLUSTERED, index="bloom")
    change(spark, table, 2, ("c", 1, (1, "first")))
    timeline_folder = Path(table.path.removeprefix("file://")) / ".hoodie"

    def meanwhile(timeline: Timeline) -> None:
        (instant,) = timeline.pending_instants()
        (commit,) = timeline_folder.glob("*.commit")
        earlier = f"{int(instant) - 1}.replacecommit"  # planned before, completed meanwhile
        shutil.copy(commit, timeline_folder / earlier)
        guard = CommitGuard(spark, table.path, accept, began=timeline.completed_instants())
        guard.accept(None, java_class(spark, "org.apache.hudi.common.model.HoodieCommitMetadata")())

    with pytest.raises(FencedError, match="where only this writer's unfinished one was expected"):
        table.upsert(rows(spark, table, [("u", 2, (1, "hid"))]), record(offsets={0: 3}), meanwhile)


@pytest.mark.breadth
def test_the_handoff_and_the_offsets_outlive_archiving_and_services(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 3)
    hudi = {**CLUSTERED, "hoodie.clustering.inline.max.commits": "9"}  # more than KEPT_COMMITS
    table = lake(spark, tmp_path / "t", ORDERS, hudi=hudi, index="bloom", readers_keep="1s")
    insert(spark, table, *[(i, "old") for i in range(20)])
    handoff = record("handoff", offsets={0: 0}, handoff=handed([LakeColumn("id", "int", "int")]))
    table.empty_commit(handoff, accept)

    for at in range(16):
        change(spark, table, at + 1, ("u", at, (at, "new")))
        table.keep_up(lambda: None)

    timeline = table.timeline()
    latest = timeline.latest_offsets()
    assert latest is not None
    assert latest.record.offsets == {0: 16}
    assert len(timeline.commits()) < 16, "nothing was archived, so this proves nothing"
    assert latest.record.handoff == handoff.handoff
    known = timeline.handoff()
    assert known is not None
    assert known.record.handoff == latest.record.handoff
    names = [path.name for path in (tmp_path / "t" / ".hoodie").rglob("*.replacecommit")]
    assert names, "nothing was clustered, so this proves nothing"
    expected = [(i, "new" if i < 16 else "old") for i in range(20)]
    assert content(table) == sorted(expected, key=repr)
    assert len(list((tmp_path / "t").glob("*.parquet"))) < 16, "hardly anything was cleaned"
