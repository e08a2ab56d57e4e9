"""Commits after a clock of another machine was ahead, or after the clock was set back."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import FencedError
from cdc.lake import table_services
from cdc.lake.write import LakeTable
from cdc.runtime.spark import java_class
from tests.spark.lake import (
    ORDERS,
    WIDER,
    accept,
    change,
    content,
    dies,
    lake,
    offsets,
    record,
    rows,
)


@pytest.fixture(autouse=True)
def _upkeep_after_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)


def from_a_clock_ahead(table: LakeTable, ahead: timedelta) -> str:
    """Rename the newest commit as if a machine whose clock was ahead had made it.

    Returns:
        The new instant of the commit.
    """
    timeline_folder = Path(table.path.removeprefix("file://")) / ".hoodie"
    newest = sorted(timeline_folder.glob("*.commit"))[-1].stem
    later = f"{datetime.now(timezone.utc) + ahead:%Y%m%d%H%M%S%f}"[:17]
    for path in Path(table.path.removeprefix("file://")).rglob(f"*{newest}*"):
        path.rename(path.with_name(path.name.replace(newest, later)))
    commit = timeline_folder / f"{later}.commit"
    commit.write_text(commit.read_text().replace(newest, later))
    for path in Path(table.path.removeprefix("file://")).rglob(".*.crc"):
        path.unlink()
    return later


@contextmanager
def clock_was_set_back(spark: SparkSession, back: timedelta) -> Iterator[None]:
    """Set the JVM's last instant, for a block, as if the clock had been set back after it."""
    name = "org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator"
    loaders = java_class(spark, "org.apache.spark.util.Utils")
    variable = loaders.getContextOrSparkClassLoader().loadClass(name)
    variable = variable.getDeclaredField("LAST_INSTANT_TIME")
    variable.setAccessible(True)
    last = variable.get(None)
    last.set(f"{datetime.now(timezone.utc) + back:%Y%m%d%H%M%S%f}"[:17])
    try:
        yield
    finally:
        last.set(f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}"[:17])


def test_commits_go_on_after_the_clock_was_set_back_below_a_running_process(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, other = (lake(spark, tmp_path / name, ORDERS, index="bloom") for name in ("t", "o"))
    for one in (table, other):
        change(spark, one, 2, ("c", 1, (1, "first")))
    later = from_a_clock_ahead(table, timedelta(seconds=20))
    began = time.monotonic()
    with clock_was_set_back(spark, timedelta(seconds=20)):
        change(spark, table, 3, ("u", 2, (1, "second")))
        change(spark, other, 3, ("u", 2, (1, "second")))
    with clock_was_set_back(spark, timedelta(seconds=20)):
        assert other.keep_up(lambda: None)
    assert time.monotonic() - began < 15, "nothing waits for the clock"
    assert "clock was set back by 0:00:20 while this process ran" in caplog.text
    for one in (table, other):
        assert content(one) == [(1, "second")]
        assert offsets(one) == [{0: 2}, {0: 3}]
    assert min(table.timeline().completed_instants()) == later


def test_a_table_whose_newest_commit_lies_ahead_goes_on_in_order(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, other = (lake(spark, tmp_path / name, ORDERS, index="bloom") for name in ("t", "o"))
    change(spark, table, 2, ("c", 1, (1, "first")), ("c", 1, (2, "first")))
    later = from_a_clock_ahead(table, timedelta(hours=2))
    assert content(table) == [(1, "first"), (2, "first")]

    change(spark, table, 3, ("u", 2, (1, "second")))
    assert re.search(r"is (2:00:00|1:59:\d\d) ahead of this machine", caplog.text)
    with pytest.raises(FencedError, match="dies"):
        table.upsert(rows(spark, table, [("u", 3, (1, "lost"))]), record(offsets={0: 9}), dies)
    change(spark, table, 4, ("d", 3, (2, None)), ("c", 3, (3, "third")))
    wider = lake(spark, tmp_path / "t", WIDER, index="bloom")
    change(spark, wider, 5, ("c", 4, (4, "fourth", 4)))
    wider.overwrite(
        rows(spark, wider, [("r", 4, (1, "second", 1)), ("r", 4, (3, "third", 3))]),
        record(offsets={0: 6}),
        accept,
    )
    change(spark, wider, 7, ("u", 6, (3, "fifth", 5)))
    assert not wider.keep_up(lambda: None), "upkeep waits until that time"

    assert content(wider) == [(1, "second", 1), (3, "fifth", 5)]
    assert offsets(wider) == [{0: end} for end in (2, 3, 4, 5, 6, 7)]
    assert min(wider.timeline().completed_instants()) == later
    change(spark, other, 2, ("c", 1, (1, "other")))
    latest = other.timeline().latest()
    assert latest is not None
    assert latest.at < datetime.now(timezone.utc), "the other table has its own clock"
