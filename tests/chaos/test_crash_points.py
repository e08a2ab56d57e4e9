"""Kill a command at each named crash point; the same command, run again, must finish its work."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.lake.generations import FolderKind
from cdc.run import run_tables
from cdc.runtime.failpoints import FAILPOINTS
from cdc.runtime.progress import NullProgress
from cdc.store.copy_progress import CopyReports
from cdc.store.table_state import State
from operate.context import Services
from operate.generations import look, remove
from operate.move import move
from operate.onboard import onboard
from operate.quarantined import kept, replay
from operate.resync import resync
from operate.tier_capture import members
from schemas.table import TableId
from stack.mysql_software import MARIADB
from stack.postgres import POSTGRES
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.faults import LostSchema, produce
from tests.integration.rigs.kinds import database_of, kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.project import Project, killed_at
from tests.integration.rigs.shop import settle

COLUMNS = ("id", "v", "t")
ONE_OF_EACH_KIND = frozenset(
    {
        "bootstrap.after_chunk_commit",
        "resync.after_swap",
        "run.in_commit",
    }
)
"""The crash points of every test run; `make test-all` adds the others.

One is amid the copy, one between data and state, one inside a commit of a run.
"""


def each(points: list[str]) -> list[Any]:
    """Test parameters for all points; `ONE_OF_EACH_KIND` always runs, the rest in `test-all`."""
    frequent = [point for point in points if point in ONE_OF_EACH_KIND]
    return [*frequent, *rarer([point for point in points if point not in frequent])]


def rarer(points: list[str]) -> list[Any]:
    """Test parameters for these points, which run in `make test-all` only."""
    return [pytest.param(point, marks=pytest.mark.breadth) for point in points]


ONBOARD_POINTS = [name for name in FAILPOINTS if name.startswith("onboard.")]
BOOTSTRAP_POINTS = [name for name in FAILPOINTS if name.startswith("bootstrap.")]
RESYNC_POINTS = [name for name in FAILPOINTS if name.startswith("resync.")]
REMOVAL_POINTS = [name for name in FAILPOINTS if name.startswith("generations.")]
MOVE_POINTS = [name for name in FAILPOINTS if name.startswith("move.")]
RUN_POINTS = [name for name in FAILPOINTS if name.startswith("run.")]


@pytest.fixture(params=kinds(POSTGRES, of=(POSTGRES, MARIADB)))
def database(request: pytest.FixtureRequest) -> Iterator[OwnDatabase]:
    with database_of(request, request.param) as made:
        yield made


@pytest.fixture(scope="module", params=kinds(POSTGRES, of=(POSTGRES, MARIADB)))
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    with database_of(request, request.param) as database:
        # A tier of its own gives each of the onboard points a capture of its own.
        tiers: dict[str, dict[str, Any]] = {
            database.label(table_name(name)): {"tier": f"t{number}"}
            for number, name in enumerate(ONBOARD_POINTS)
        }
        tiers[database.label("crash_runs")] = {"on_bad_message": "quarantine"}
        # Several chunks and commits per table, so that "in the middle" exists.
        yield Project.create(
            tmp_path_factory.mktemp("crash"), database, tables=tiers, defaults=DEFAULTS
        )


DEFAULTS = {"chunk_rows": 500}


def table_name(point: str) -> str:
    return "crash_" + point.replace(".", "_")


def create(project: Project, name: str) -> None:
    project.execute(f"create table {name} (id bigint primary key, v int not null, t text)")
    project.database.load(name, ((n, n % 7, "x" * (n % 50)) for n in range(1, 3001)))


def change(project: Project, name: str) -> None:
    project.execute(
        f"update {name} set v = v + 1 where id % 3 = 0",
        f"delete from {name} where id % 10 = 1",
    )
    project.database.load(name, ((n, 0, None) for n in range(10001, 10051)), ("id", "v", "t"))
    project.execute(f"update {name} set id = id + 50000 where id % 100 = 2")


@contextmanager
def opened(project: Project, spark: SparkSession) -> Iterator[Services]:
    """New services of a command, as in a new process: they share no memory with the killed one."""
    config = load(project.folder / "tributary.yaml")
    services = Services(config, NullProgress(), spark=spark)
    try:
        yield services
    finally:
        services.close()


def run(services: Services, table: TableId) -> None:
    record = services.store.get(table)
    assert record is not None
    results = run_tables(services.run_context, [record])
    assert not [result.error for result in results if result.error or result.skipped]


@pytest.mark.parametrize("point", each(ONBOARD_POINTS + BOOTSTRAP_POINTS))
def test_onboard_killed_at_each_point_and_repeated(
    point: str, project: Project, spark: SparkSession
) -> None:
    name = table_name(point)
    create(project, name)
    killed_at(project, point, "onboard", project.label(name))
    change(project, name)
    with opened(project, spark) as services:
        table = project.table(name)
        if point == "bootstrap.after_chunk_commit":
            says_how_far_it_is(services, table)
        (outcome,) = onboard(services, [table])
        assert outcome.error is None, outcome.error
        assert CopyReports(services.store).all() == [], "a copy that has ended is in no report"
        settle(services, table)
        run(services, table)
    project.assert_equal(spark, project.label(name), COLUMNS)


def says_how_far_it_is(services: Services, table: TableId) -> None:
    """Assert that the killed copy's last report names its chunks.

    The number of rows may be too low, because it is reported only every few seconds.
    """
    (report,) = CopyReports(services.store).all()
    record = services.store.get(table)
    assert record is not None
    assert record.attempt is not None
    chunks = [chunk.id for chunk in record.attempt.chunks]
    assert (report.table, report.attempt) == (table, str(record.attempt.id))
    assert report.planned == len(chunks) > 1
    assert list(report.writing) == chunks, "they are one commit, which nobody has confirmed"
    assert report.rows <= report.rows_expected


@pytest.mark.breadth
def test_a_copy_that_was_cut_short_is_kept_and_completed_as_it_says(
    project: Project, spark: SparkSession
) -> None:
    name = "crash_kept"
    label, table = project.label(name), project.table(name)
    create(project, name)
    killed_at(project, "bootstrap.before_handoff_commit", "onboard", label)
    refused = project.run("generations", "remove", label, "1").expect(1)
    said = " ".join((refused.stdout + refused.stderr).split())
    assert f"Run `tributary bootstrap {table}`, which completes it." in said
    done = project.run("bootstrap", label).expect(0)
    assert "continued its copy in " in " ".join(done.stdout.split())
    for text in (said, done.stdout, done.stderr):
        assert "copied 0 rows" not in text
        assert f"table {table}: table" not in text
    change(project, name)
    with opened(project, spark) as services:
        settle(services, table)
        run(services, table)
    project.assert_equal(spark, label, COLUMNS)


@pytest.fixture(scope="module")
def running(project: Project, spark: SparkSession) -> str:
    name = "crash_runs"
    create(project, name)
    with opened(project, spark) as services:
        (outcome,) = onboard(services, [project.table(name)])
        assert outcome.error is None, outcome.error
    return name


@pytest.mark.parametrize("point", each(RUN_POINTS))
def test_run_killed_at_each_point_and_repeated(
    point: str, project: Project, running: str, spark: SparkSession
) -> None:
    table = project.table(running)
    columns = list(COLUMNS)
    if point.endswith("_follow"):
        columns.append(point.replace(".", "_"))
        project.execute(f"alter table {running} add column {columns[-1]} int default 5")
    change(project, running)
    with opened(project, spark) as services:
        settle(services, table)
        killed_at(project, point, "run", project.label(running))
        run(services, table)
        if point.endswith("_follow"):
            kept = [
                str(change.facts["name"])
                for one in services.store.schema_history(table)
                for change in one.changes
            ]
            assert kept.count(columns[-1]) == 1
    project.assert_equal(spark, project.label(running), columns)
    project.execute(f"delete from {running} where id >= 10001")  # so the next can insert


@pytest.mark.parametrize("point", each(RESYNC_POINTS))
def test_resync_killed_at_each_point_and_repeated(
    point: str, project: Project, running: str, spark: SparkSession
) -> None:
    table = project.table(running)
    with opened(project, spark) as services:
        before = services.store.get(table)
        assert before is not None
        run(services, table)
        seen = project.lake_rows(spark, project.label(running), COLUMNS)
        killed_at(project, point, "resync", project.label(running))
        assert project.lake_rows(spark, project.label(running), COLUMNS) == seen
        change(project, running)
        (outcome,) = resync(services, [table])
        assert outcome.error is None, outcome.error
        assert outcome.details["generation"] == before.generation + 1
        settle(services, table)
        run(services, table)
        assert services.store.builds() == []
    project.assert_equal(spark, project.label(running), COLUMNS)
    project.execute(f"delete from {running} where id >= 10001")


@pytest.mark.parametrize("point", [*MOVE_POINTS[:1], *rarer([*MOVE_POINTS[1:], *RESYNC_POINTS])])
def test_move_killed_at_each_point_and_repeated(
    point: str, database: OwnDatabase, spark: SparkSession, tmp_path: Path
) -> None:
    """After the kill, runs follow the old generation; at the end, one capture has the table."""
    name, beside = "crash_moves", "crash_stays"
    project = Project.create(tmp_path, database, defaults=DEFAULTS)
    label, table = project.label(name), project.table(name)
    for one in (name, beside):
        create(project, one)
    with opened(project, spark) as services:
        outcomes = onboard(services, [table, project.table(beside)])
        assert [one.error for one in outcomes] == [None, None]
    change(project, name)
    project.configure({label: {"tier": "fast"}}, DEFAULTS)

    killed_at(project, point, "move", label)

    project.execute(f"update {name} set v = v + 1 where id % 5 = 0")
    with opened(project, spark) as services:
        record = services.store.get(table)
        assert record is not None
        if record.state is State.INCREMENTAL:
            settle(services, table)
            run(services, table)
            project.assert_equal(spark, label, COLUMNS)
        project.execute(f"update {name} set v = v + 1 where id % 7 = 0")
        (outcome,) = move(services, [table])
        assert outcome.error is None, outcome.error
        settle(services, table)
        run(services, table)
        record = services.store.get(table)
        assert record is not None
        assert (record.tier, record.other, record.generation) == ("fast", None, 2)
        assert services.store.builds() == []
        for other in (name, beside):
            captured = members(services, services.capture(project.table(other)))
            assert captured == {project.table(other)}
    project.assert_equal(spark, label, COLUMNS)


@pytest.mark.parametrize("point", each(REMOVAL_POINTS))
def test_a_removal_killed_at_each_point_and_repeated(
    point: str, project: Project, running: str, spark: SparkSession
) -> None:
    table = project.table(running)
    with opened(project, spark) as services:
        (outcome,) = resync(services, [table])
        assert outcome.error is None, outcome.error
        before = look(services, table)  # tests of before have left others, which readers may use
        former = next(one for one in before if one.kind is FolderKind.FORMER)
        killed_at(project, point, "generations", "remove", project.label(running), former.attempt)
        listed = project.run("generations", "list", project.label(running), "--output", "json")
        left = {one["attempt"] for one in listed.expect(0).json["generations"]}
        if former.attempt in left:
            remove(services, table, [former.attempt])
        assert look(services, table) == [one for one in before if one != former]
    assert project.lake_rows(spark, project.label(running), COLUMNS)


@pytest.mark.breadth
def test_quarantine_killed_at_each_point_and_repeated(
    project: Project, running: str, spark: SparkSession
) -> None:
    name, table = project.label(running), project.table(running)
    with opened(project, spark) as services:
        change(project, running)
        settle(services, table)
        lost = LostSchema(services.config.kafka.registry.url, ahead=300)
        written, offset = lose_a_record(services, table, lost)
        project.execute(f"update {name} set v = v + 1")
        settle(services, table)

        killed_at(project, "quarantine.after_keep", "run", name)
        assert [one.offset for one in kept(services, [table])] == [offset], "kept, not yet passed"
        run(services, table)
        project.assert_equal(spark, name, COLUMNS)  # an update of the same row came later
        listed = project.run("quarantine", "list", "--output", "json").expect(0).json
        (record,) = listed["records"]
        assert (record["offset"], record["schema_id"]) == (offset, lost.id)
        shown = project.run("quarantine", "show", name, str(offset), "--output", "json")
        assert base64.b64decode(shown.expect(0).json["value"]) == written
        assert "1 records are in quarantine" in project.run("status", name).stdout
        refused = project.run("quarantine", "replay", name, "--output", "json").expect(3)
        assert f"schema id {lost.id}" in refused.stdout

        schema, connector = schema_of_events(services, table), services.capture(table).connector
        lost.restore(schema, services.connect, connector)
        killed_at(project, "quarantine.after_replay", "quarantine", "replay", name)
        assert len(kept(services, [table])) == 1, "the lake has it, and nobody has said so yet"
        project.assert_equal(spark, name, COLUMNS)
        outcome = replay(services, table)
        assert (outcome.details["replayed"], kept(services, [table])) == (1, [])
        project.assert_equal(spark, name, COLUMNS)


def lose_a_record(services: Services, table: TableId, lost: LostSchema) -> tuple[bytes, int]:
    """Write the newest change again, with the lost schema; returns the message and its offset."""
    kafka, topic = services.kafka, topic_of(services, table)
    message = lost.write(newest_change(services, table))
    produce(services.config, topic, message, key=None)
    return message, kafka.stable_offsets(topic)[0] - 1


def schema_of_events(services: Services, table: TableId) -> str:
    return services.registry.schema(int.from_bytes(newest_change(services, table)[1:5], "big"))


def newest_change(services: Services, table: TableId) -> bytes:
    """The newest event of the table, as raw bytes.

    It has the table's present schema. Older events may not, since other tests add columns.
    """
    kafka, topic = services.kafka, topic_of(services, table)
    found = kafka.read(topic, 0, kafka.start_offsets(topic)[0], kafka.stable_offsets(topic)[0])
    return [one.value for one in found if one.value is not None][-1]


def topic_of(services: Services, table: TableId) -> str:
    record = services.store.get(table)
    assert record is not None
    return record.topic
