"""Complete hours on the real stack: late rows, idle tables, a stopped connector, new copies."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from cdc.debezium import latest_heartbeat
from cdc.lake.pointer import local_folder
from cdc.store.announcements import Announcement, Announcements
from cdc.store.completeness import Calendar, Period
from cdc.store.table_state import Cause, State, transition
from operate.lifecycle import offboard, retry
from operate.periods import Completion, PeriodAnswer, period_answer
from operate.resync import resync
from operate.run import Runs
from operate.status import status
from operate.verify.scope import Scope
from operate.verify.table import verify_table
from stack.postgres import POSTGRES
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.project import Project
from tests.integration.rigs.prometheus import Scraped
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop

UTC = timezone.utc
HOURS = Calendar("hour")
HALF_AN_HOUR = timedelta(minutes=30)
ON_POSTGRES = pytest.mark.parametrize("database", [POSTGRES], indirect=True)


def now() -> datetime:
    return datetime.now(UTC)


class Hours:
    """A table of events and an idle table; the test sets when their last hour is due.

    The test does not wait for an hour to end. Instead, it sets the allowed lateness so that the
    hour that ended last becomes complete at the wanted time.
    """

    def __init__(self, shop: Shop, moment: str = "timestamptz", *by: str) -> None:
        self.shop, self.zoned = shop, moment == "timestamptz"
        self.partitions = {"partition_by": by}
        shop.tables = {shop.database.label("clicks"): self.partitions}
        shop.reconfigure()
        for name in ("clicks", "quiet"):
            shop.database.execute(
                f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, happened_at {moment})"
            )
        succeeded(shop.onboard("clicks", "quiet"))
        self.ended = HOURS.before(HOURS.holding(now()))

    def due(self, after: timedelta, **chosen: Any) -> None:
        """Let the last hour become due after this time, by new settings in new services."""
        late = now() + after - self.ended.end
        seconds = int(late.total_seconds()) + 1
        clicks = {
            "completeness": {"by": "hour", "late": "announce"},
            "event_time": {"column": "happened_at", "lateness": f"{seconds}s"},
        }
        quiet = {"completeness": "hour", "allowed_lateness_s": seconds}
        labels = map(self.shop.database.label, ("clicks", "quiet"))
        self.shop.tables = dict(
            zip(labels, (clicks | chosen | self.partitions, quiet), strict=True)
        )
        self.shop.reconfigure()

    def look(self) -> Runs:
        """Run all tables; at its end, a run looks for complete hours."""
        runs = Runs(self.shop.services, self.shop.services.store.tables)
        assert [one.error for one in runs.once() if one.error] == []
        assert [one.message for one in runs.failed_checks] == []
        return runs

    def announced(self, name: str) -> list[Announcement]:
        return Announcements(self.shop.services.store).of(self.shop.table(name), HOURS)

    def answer(self, name: str, period: Period) -> PeriodAnswer:
        return period_answer(self.shop.services, self.shop.table(name), period)

    def wait_for_beat(self, since: datetime) -> None:
        services = self.shop.services
        capture = services.capture_of(self.shop.record("clicks"))

        def came() -> bool:
            beat = latest_heartbeat(services.kafka, services.schemas, capture)
            return beat is not None and beat.beat_at > since

        wait_until(came, "a heartbeat", 90)

    def insert(self, first: int, *moments: datetime) -> None:
        shown = (one if self.zoned else one.replace(tzinfo=None) for one in moments)
        rows = ((first + n, 0, one) for n, one in enumerate(shown))
        self.shop.database.load("clicks", rows)
        self.shop.settle("clicks")

    def marker(self, name: str, period: Period) -> dict[str, Any]:
        folder = local_folder(self.shop.record(name).base_path)
        assert folder is not None
        found: dict[str, Any] = json.loads(
            (folder / "_complete" / f"{period.name}.json").read_text()
        )
        return found


@for_each_kind(POSTGRES)
def test_hours_are_complete_once_everything_from_before_their_end_is_there(shop: Shop) -> None:
    moment = "timestamptz" if shop.database.kind == POSTGRES else "timestamp(6) NULL"
    hours = Hours(shop, moment, "hour(happened_at)", "hash(id, 2)")
    before = HOURS.before(hours.ended)
    hours.insert(1, before.start, hours.ended.start + HALF_AN_HOUR)
    hours.due(HALF_AN_HOUR)
    hours.look()
    for name in ("clicks", "quiet"):
        assert [one.name for one in hours.announced(name)] == [before.name], name
        assert hours.answer(name, before).completion is Completion.COMPLETE
        assert hours.answer(name, hours.ended).completion is Completion.NOT_YET
        assert hours.marker(name, before)["revision"] == 1

    # A stopped connector: the hour is due, and that nothing arrives proves nothing.
    connector = shop.services.capture_of(shop.record("clicks")).connector
    shop.services.connect.pause(connector)
    hours.due(timedelta(seconds=5))
    due_at = now() + timedelta(seconds=6)
    wait_until(lambda: now() > due_at, "the due time", 30)
    hours.look()
    for name in ("clicks", "quiet"):
        assert hours.answer(name, hours.ended).completion is Completion.NOT_YET
    retry(shop.services, shop.table("clicks"))
    hours.wait_for_beat(due_at)
    hours.look()
    for name in ("clicks", "quiet"):
        assert hours.answer(name, hours.ended).completion is Completion.COMPLETE
    assert_late_rows_are_counted(hours)
    assert_hours_are_partitions(hours)
    assert_a_new_copy_keeps_what_was_announced(hours)


def assert_late_rows_are_counted(hours: Hours) -> None:
    late = hours.ended.start + HALF_AN_HOUR
    hours.insert(11, late, late + timedelta(minutes=1), now())
    hours.look()
    (one,) = [one for one in hours.announced("clicks") if one.starts_at == hours.ended.start]
    assert (one.late_rows, one.revision) == (2, 2)
    committed = hours.shop.record("clicks").last_commit
    assert committed is not None
    assert one.late_instant == committed.instant
    assert hours.marker("clicks", hours.ended)["revision"] == 2
    (table,) = status(hours.shop.services, [hours.shop.table("clicks")]).tables
    assert table.periods is not None
    assert (table.periods.newest, table.periods.late_rows) == (hours.ended.name, 2)
    newest = hours.shop.services.run_context.timeline(
        hours.shop.record("clicks").attempt
    ).latest_offsets()
    assert newest is not None
    assert newest.record.watermark is not None
    assert newest.record.event_time is not None
    assert now() - newest.record.event_time < HALF_AN_HOUR
    assert sum(newest.record.late.values()) == 2
    hours.shop.database.execute("UPDATE clicks SET v = 1 WHERE id = 13")
    hours.shop.settle("clicks")
    hours.look()
    (again,) = [one for one in hours.announced("clicks") if one.starts_at == hours.ended.start]
    assert again.late_rows == 2, "a row of the present hour"


def assert_hours_are_partitions(hours: Hours) -> None:
    """Assert that each row is once in the lake, in the partition of its hour, also after a move."""
    shop, tomorrow = hours.shop, now() + timedelta(days=1)
    assert hours.marker("clicks", hours.ended)["partition"] == {
        "column": "happened_at_hour",
        "value": hours.ended.name,
    }
    assert hours.marker("quiet", hours.ended)["partition"] is None
    moved = tomorrow if hours.zoned else tomorrow.replace(tzinfo=None)
    shop.database.execute(
        f"UPDATE clicks SET happened_at = '{moved.isoformat(sep=' ')}' WHERE id = 13",
        "DELETE FROM clicks WHERE id = 1",
        "INSERT INTO clicks VALUES (14, 0, NULL)",
    )
    shop.assert_equal("clicks")
    shown = shop.lake("clicks").selectExpr("id", "happened_at_hour", "id_hash").collect()
    placed = {row[0]: (row[1], row[2]) for row in shown}
    assert len(shown) == len(placed)
    wanted = dict.fromkeys((2, 11, 12), hours.ended.name)
    wanted |= {13: HOURS.holding(tomorrow).name, 14: None}
    assert placed == {one: (at, crc32(str(one).encode()) % 2) for one, at in wanted.items()}
    scope = Scope(method="partitions")
    found = verify_table(shop.services, shop.services.run_context, shop.table("clicks"), scope)
    assert (found.equal, found.rows_compared) == (True, 5)
    assert found.parts is not None
    assert found.parts[0] == len(set(placed.values())), found


def assert_a_new_copy_keeps_what_was_announced(hours: Hours) -> None:
    shop, table = hours.shop, hours.shop.table("clicks")
    succeeded(resync(shop.services, [table]))
    assert hours.answer("clicks", hours.ended).completion is Completion.COMPLETE
    hours.wait_for_beat(now())
    hours.look()
    newest = hours.announced("clicks")[-1]
    assert (newest.generation, newest.revision) == (2, 3)
    lost = transition(
        shop.record("clicks"), State.NEEDS_BOOTSTRAP, at=now(), cause=Cause(reason="it is lost")
    )
    shop.services.store.put(lost)
    following = HOURS.holding(now())
    assert hours.answer("clicks", following).completion is Completion.CANNOT
    assert hours.answer("clicks", hours.ended).completion is Completion.COMPLETE
    folder = local_folder(shop.record("quiet").base_path)
    assert folder is not None
    offboard(shop.services, shop.table("quiet"), delete_data=True)
    assert not folder.exists()
    assert hours.announced("quiet") == []


@pytest.mark.breadth
@ON_POSTGRES
def test_a_table_that_always_changes_becomes_complete(shop: Shop) -> None:
    hours = Hours(shop)
    hours.due(HALF_AN_HOUR)
    hours.look()
    with shop.writing("INSERT INTO clicks VALUES ({turn} + 100, 0, now())") as done:
        hours.due(timedelta(seconds=2))
        due_at = now() + timedelta(seconds=3)
        hours.wait_for_beat(due_at)
        hours.look()
        assert done[0] > 10
    assert hours.answer("clicks", hours.ended).completion is Completion.COMPLETE


@pytest.mark.breadth
@ON_POSTGRES
def test_a_column_without_times_has_no_complete_hours_and_stops_no_run(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    hours = Hours(shop)
    hours.due(HALF_AN_HOUR, event_time={"column": "v", "lateness": "1s"})
    hours.insert(1, now())
    with caplog.at_level("WARNING"):
        hours.look()
    assert hours.announced("clicks") == []
    assert "event_time names column v, and its lake type is int" in caplog.text
    assert len(hours.announced("quiet")) == 1


@pytest.mark.breadth
@ON_POSTGRES
def test_days_by_a_time_without_a_zone_are_those_of_the_chosen_zone(shop: Shop) -> None:
    hours = Hours(shop, "timestamp")
    zone = "Pacific/Auckland"
    days = Calendar("day", zone)
    hours.due(
        HALF_AN_HOUR,
        completeness={"by": "day", "zone": zone},
        event_time={"column": "happened_at", "lateness": "0s"},
    )
    hours.wait_for_beat(now())
    hours.look()
    kept = Announcements(shop.services.store)
    (one,) = kept.of(shop.table("clicks"), days)
    assert one.name == days.before(days.holding(now())).name
    inside = [moment.astimezone(days.clock) for moment in (one.starts_at, one.ends_at)]
    hours.insert(1, inside[0], inside[1] - timedelta(seconds=1), inside[1])
    hours.look()
    (one,) = kept.of(shop.table("clicks"), days)
    assert one.late_rows == 2


@pytest.fixture
def project(database: OwnDatabase, tmp_path: Path) -> Project:
    """A project with a followed table that has a column for the event time."""
    project = Project.create(tmp_path, database)
    project.execute("create table t (id int primary key, happened_at timestamptz)")
    project.run("onboard", project.label("t")).expect(0)
    return project


@pytest.mark.breadth
@ON_POSTGRES
def test_what_a_killed_process_left_is_done_by_the_next_one(project: Project) -> None:
    ended = HOURS.before(HOURS.holding(now()))
    chosen = {
        "completeness": {"by": "hour", "late": "announce"},
        "event_time": {"column": "happened_at", "lateness": "0s"},
    }
    project.configure({project.label("t"): chosen})
    marker = project.folder / "lake" / project.database.name / "public" / "t" / "_complete"
    killed = project.run("run", crash_at="complete.before_marker")
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert not marker.exists()
    project.run("run").expect(0)
    assert json.loads((marker / f"{ended.name}.json").read_text())["revision"] == 1
    project.run("complete", project.label("t"), ended.name).expect(0)

    late = (ended.start + HALF_AN_HOUR).isoformat()
    project.execute(f"insert into t values (1, '{late}'), (2, '{late}')")
    offsets = project.run("run", crash_at="run.after_commit")
    while offsets.code == 0:  # the connector has not sent them yet
        offsets = project.run("run", crash_at="run.after_commit")
    assert offsets.code == -signal.SIGKILL, offsets.stderr
    for _ in range(2):
        project.run("run").expect(0)
        told = project.run("complete", project.label("t"), "--output", "json").json
        assert next(one["late_rows"] for one in told["periods"]) == 2
    assert json.loads((marker / f"{ended.name}.json").read_text())["revision"] == 2
    project.run("metrics", "--textfile", str(project.folder / "tributary.prom")).expect(0)
    assert Scraped((project.folder / "tributary.prom").read_text()).get("table_late_rows") == 2
    following = HOURS.holding(now())
    assert project.run("complete", project.label("t"), following.name).code == 1
