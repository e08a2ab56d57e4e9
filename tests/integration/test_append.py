"""Tables without a key on the real stack: copied and followed so that each row is there once."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from cdc.config import Config, load
from cdc.errors import CaptureError, ConfigError, ReplicaError
from cdc.lake.pointer import read_local
from cdc.lake.timeline import Timeline
from cdc.position import Lsn
from cdc.progress import NullProgress
from cdc.replay_pause import resuming
from cdc.sources.postgres.exact_view import PAUSE_LIMIT_S
from cdc.state import State
from operate.context import Services
from operate.outcome import Outcome
from operate.preflight import check
from operate.verify.table import verify_table
from stack.local import LocalStack
from tests.integration.bootstrapping import (
    Watch,
    end_replica_sessions,
    open_transaction,
    paused_replay,
)
from tests.integration.conftest import Database
from tests.integration.logs import COLUMNS, bag, create_log, inserters, may_pause
from tests.integration.project import Project
from tests.integration.shop import Shop, succeeded

ROWS = 5_000


@pytest.fixture(scope="module")
def spark(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    document = yaml.safe_load(stack.config_text())
    scratch = str(tmp_path_factory.mktemp("spark"))
    document["spark"] = {"master": "local[2]", "conf": {"spark.local.dir": scratch}}
    yield spark_module.session(Config.model_validate(document), "tributary-tests")
    spark_module.stop()


@dataclass
class Log:
    """One table without a key, and the shop that it is in."""

    shop: Shop
    name: str = "events"

    def insert(self, *values: int) -> None:
        for value in values:
            self.shop.database.execute(f"INSERT INTO {self.name} VALUES ('one', {value}, NULL)")

    def onboard(self, watch: Watch | None = None) -> list[Outcome]:
        if watch is not None:
            self.shop.services.progress = watch
        return self.shop.onboard(self.name)

    def settle(self) -> None:
        """Wait until everything that is committed can be read from Kafka."""
        services, record = self.shop.services, self.shop.record(self.name)
        source, slot = services.source(record.table.source), services.capture_of(record).slot
        upto, deadline = source.write_marker().position, time.monotonic() + 60
        while (health := source.slot_health(slot)) is None or (
            health.confirmed_flush_lsn or Lsn(0)
        ) < upto:
            assert time.monotonic() < deadline, f"captured up to {health}, not {upto}"
            time.sleep(0.05)

    def run(self) -> None:
        self.settle()
        errors = [result.error for result in self.shop.run() if result.error]
        assert errors == []

    @property
    def attempt(self) -> Any:
        attempt = self.shop.record(self.name).attempt
        assert attempt is not None
        return attempt

    def in_lake(self, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        assert self.shop.spark is not None
        record = self.shop.record(self.name)
        path = read_local(Path(record.base_path.removeprefix("file://"))).path
        frame = self.shop.spark.read.format("hudi").load(path).where(where)
        return [tuple(row) for row in frame.select(*(columns or COLUMNS)).collect()]

    def at_source(self) -> Counter[tuple[Any, ...]]:
        with self.shop.database.connect() as connection:
            query = f"SELECT {', '.join(COLUMNS)} FROM {self.name}"
            return bag(connection.execute(query.encode()).fetchall())

    def assert_equal(self) -> None:
        source, lake = self.at_source(), bag(self.in_lake())
        assert lake == source, f"missing {source - lake}, extra {lake - source}"
        keys = self.in_lake("_hoodie_record_key")
        assert len(set(keys)) == len(keys)


@pytest.fixture
def log(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Log]:
    shop = Shop(database, spark, tmp_path, tables={"public.events": {"mode": "append"}})
    create_log(database, "events", ROWS)
    may_pause(database)
    yield Log(shop)
    shop.services.close()
    assert database.stack.psql("SELECT pg_get_wal_replay_pause_state()", replica=True) == (
        "not paused"
    )


def test_each_row_arrives_once_while_transactions_straddle_the_view(log: Log) -> None:
    with inserters(log.shop.database, "events") as done:
        succeeded(log.onboard())
        log.run()
    assert sum(done) > 100
    log.run()
    log.assert_equal()
    new = log.in_lake("_cdc_op", where="kind = 'new'")
    assert len(set(new)) == 2, "rows were written before the view and after it"
    assert max(log.at_source().values()) > 50, "rows are equal"
    view = log.attempt.view
    assert view["on_replica"] is True
    latest = Timeline(log.shop.services.spark, log.attempt.path).latest_offsets()
    assert latest is not None
    assert latest.record.handoff is not None
    assert latest.record.handoff["split"] == view["split"]


def test_a_transaction_that_is_open_at_the_view_comes_from_the_stream(log: Log) -> None:
    straddling = open_transaction(
        log.shop.database, "INSERT INTO events SELECT 'open', g, NULL FROM generate_series(1, 20) g"
    )

    def open_it() -> None:
        straddling.__enter__()
        log.insert(1)

    # Begun before the fence, committed once rows of the view have been read: its rows lie before
    # the view's position, its end after it.
    watch = Watch(
        on_start={"wait for the replica": open_it},
        on_advance={"copy": lambda: straddling.__exit__(None, None, None)},
    )
    succeeded(log.onboard(watch))
    log.run()
    assert log.in_lake("_cdc_op", where="kind = 'open'") == [("c",)] * 20
    assert log.in_lake("_cdc_op", where="kind = 'one'") == [("r",)]
    log.assert_equal()


@pytest.mark.breadth
def test_without_the_right_to_pause_the_choices_are_named_and_nothing_is_captured(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(database, spark, tmp_path, tables={"public.events": {"mode": "append"}})
    create_log(database, "events", 100)
    (refused,) = shop.onboard("events")
    assert isinstance(refused.error, CaptureError)
    for choice in ("GRANT EXECUTE ON FUNCTION pg_catalog.pg_wal_replay_pause()", "snapshot_from"):
        assert choice in refused.error.remedy
    assert shop.scalar("SELECT count(*) FROM pg_publication") == 0
    shop.tables["public.events"]["snapshot_from"] = "primary"
    shop.reconfigure()
    log = Log(shop)
    with inserters(database, "events") as done:
        succeeded(log.onboard())
    assert sum(done) > 0
    log.run()
    log.assert_equal()
    assert log.attempt.view["on_replica"] is False
    assert shop.verify("events").equal
    assert shop.scalar("SELECT count(*) FROM pg_replication_slots WHERE temporary") == 0
    shop.services.close()


@pytest.mark.breadth
def test_the_application_goes_on_to_update_and_delete(log: Log) -> None:
    log.shop.database.execute("ALTER TABLE events REPLICA IDENTITY NOTHING")
    succeeded(log.onboard())
    log.shop.database.execute(
        "UPDATE events SET n = -1 WHERE n = 5", "DELETE FROM events WHERE n = 6"
    )
    log.insert(1, 1)
    log.run()
    assert len(log.in_lake()) == ROWS + 2
    assert log.in_lake(where="n = -1") == []
    source = log.shop.services.source(log.shop.database.name)
    deadline = time.monotonic() + 20
    while not source.table(log.shop.table("events")).deleted:  # statistics come a moment later
        assert time.monotonic() < deadline
        time.sleep(0.2)
    name = f"table {log.shop.table('events')}"
    (line,) = [line for line in check(log.shop.services) if line.name == name]
    assert line.status == "warning"
    assert "50 rows updated and 50 deleted" in line.detail
    found = log.shop.verify("events")
    assert not found.equal
    assert found.difference_count == 50 + 50 + 50, "old images, new images, and deleted rows"


@pytest.mark.parametrize("policy", ["apply", "ignore", "pause"])
@pytest.mark.breadth
def test_a_truncate_does_what_its_policy_says(log: Log, policy: str) -> None:
    log.shop.tables["public.events"]["on_truncate"] = policy
    log.shop.reconfigure()
    succeeded(log.onboard())
    log.insert(1, 1)
    log.shop.database.execute("TRUNCATE events")
    log.insert(2, 2, 2)
    if policy != "pause":
        log.run()
        ones = log.in_lake("n", where="kind = 'one'")
        assert Counter(ones) == ({(2,): 3} if policy == "apply" else {(1,): 2, (2,): 3})
        assert len(log.in_lake()) == (3 if policy == "apply" else ROWS + 5)
        return
    log.settle()
    log.shop.run()
    assert log.shop.record("events").state is State.PAUSED
    assert len(log.in_lake()) == ROWS + 2, "what came before it is applied"


@pytest.mark.breadth
@pytest.mark.breadth
def test_verify_counts_how_often_a_row_occurs(log: Log) -> None:
    with inserters(log.shop.database, "events"):
        succeeded(log.onboard())
        found = log.shop.verify("events")
    assert found.equal, found.differences
    assert found.source_rows == found.lake_rows > ROWS
    publication = log.shop.record("events").publication
    with log.shop.database.connect() as connection, connection.transaction():
        # One transaction, which no run can look into; the entry in the publication is another.
        connection.execute(f"ALTER PUBLICATION {publication} SET (publish = 'truncate')".encode())
        connection.execute(b"INSERT INTO events VALUES ('old', 1, repeat('x', 100))")
        connection.execute(
            f"ALTER PUBLICATION {publication} SET (publish = 'insert, truncate')".encode()
        )
    log.shop.database.execute("DELETE FROM events WHERE ctid = '(0,2)'")
    found = log.shop.verify("events")
    assert not found.equal
    assert {(one.kind, one.key["n"]) for one in found.differences} == {("missing", 1), ("extra", 2)}
    assert found.difference_count == 2


@pytest.mark.breadth
def test_a_view_that_is_lost_takes_the_attempt_with_it(log: Log) -> None:
    log.shop.tables["public.events"].update(chunk_rows=500, parallel_chunks=1)
    log.shop.reconfigure()
    ended: list[int] = []
    watch = Watch(
        on_advance={"copy": lambda: ended.append(end_replica_sessions(log.shop.database))}
    )
    with inserters(log.shop.database, "events"):
        (outcome,) = log.onboard(watch)
    assert outcome.error is None, outcome.error
    assert ended
    log.run()
    log.assert_equal()


@pytest.mark.breadth
def test_a_partitioned_table_is_read_by_the_places_of_all_its_partitions(log: Log) -> None:
    log.shop.database.execute(
        "DROP TABLE events",
        "CREATE TABLE events (kind text, n int, t text) PARTITION BY LIST (n)",
        "CREATE TABLE events_one PARTITION OF events FOR VALUES IN (1)",
        "CREATE TABLE events_rest PARTITION OF events DEFAULT",
        "INSERT INTO events SELECT 'old', g % 5, repeat('y', 500) FROM generate_series(1, 3000) g",
    )
    log.shop.tables["public.events"]["chunk_rows"] = 500
    log.shop.reconfigure()
    with inserters(log.shop.database, "events"):
        succeeded(log.onboard())
    assert len(log.attempt.chunks) > 3
    log.run()
    log.assert_equal()
    assert log.shop.verify("events").equal


@pytest.mark.breadth
def test_a_new_column_and_another_replica_identity_are_followed(log: Log) -> None:
    succeeded(log.onboard())
    log.shop.database.execute(
        "ALTER TABLE events ADD COLUMN more int DEFAULT 7 NOT NULL",
        "ALTER TABLE events REPLICA IDENTITY NOTHING",
        "INSERT INTO events VALUES ('one', 1, NULL, 8)",
    )
    log.run()
    assert Counter(log.in_lake("more")) == {(7,): ROWS, (8,): 1}
    log.assert_equal()


@pytest.mark.breadth
def test_a_renamed_column_of_a_log_goes_on_under_its_new_name(log: Log) -> None:
    columns = {"renames": {"number": "n"}}
    log.shop.tables["public.events"] = {"mode": "append", "columns": columns}
    log.shop.reconfigure()
    succeeded(log.onboard())
    log.shop.database.execute(
        "INSERT INTO events VALUES ('one', 1001, NULL)",
        "ALTER TABLE events RENAME COLUMN n TO number",
        "INSERT INTO events VALUES ('one', 1002, NULL)",
    )
    log.run()
    with log.shop.database.connect() as connection:
        truth = bag(connection.execute("SELECT kind, number, t FROM events").fetchall())
    assert bag(log.in_lake("kind", "number", "t")) == truth
    assert log.in_lake("n", where="number > 1000") == [(None,)] * 2
    assert log.shop.verify("events").equal


@pytest.mark.breadth
def test_a_replay_that_someone_else_paused_is_left_alone(log: Log) -> None:
    source = log.shop.services.source(log.shop.database.name)
    services = log.shop.services
    with paused_replay(log.shop.database):
        with (
            pytest.raises(ReplicaError, match="paused by someone else"),
            resuming(source, services.store, services.leases),
        ):
            raise AssertionError("not reached")
        assert source.replay_paused()
    assert services.store.paused_replays() == []


@pytest.mark.breadth
def test_another_mode_is_refused_once_a_table_is_on_the_plan(log: Log) -> None:
    succeeded(log.onboard())
    log.shop.tables["public.events"] = {"mode": "upsert", "key_columns": ["n"]}
    log.shop.reconfigure()
    log.insert(1)
    log.settle()
    (result,) = log.shop.run()
    assert result.error is not None
    assert result.error["error"] == ConfigError.__name__
    assert "mode: append" in result.error["message"]


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    create_log(database, "events", ROWS)
    may_pause(database)
    return Project.create(
        tmp_path,
        database,
        tables={"public.events": {"mode": "append"}},
        defaults={"chunk_rows": 1000},
    )


def state_of_replay(database: Database) -> str:
    return database.stack.psql("SELECT pg_get_wal_replay_pause_state()", replica=True)


def killed_at(project: Project, point: str, *arguments: str) -> None:
    killed = project.run(*arguments, crash_at=point)
    assert killed.code == -signal.SIGKILL, killed.stderr[-3000:]


def wait_for(reached: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline, f"not within {limit_s} s"
        time.sleep(0.1)


@pytest.mark.breadth
def test_a_replay_that_a_killed_process_left_paused_is_resumed(
    project: Project, database: Database
) -> None:
    killed_at(project, "replay.paused", "onboard", "public.events")
    assert state_of_replay(database) == "paused"
    project.run("status").expect(0, 3, 4)
    assert state_of_replay(database) == "not paused", "the next command resumes it"

    killed_at(project, "replay.paused", "onboard", "public.events")
    assert state_of_replay(database) == "paused"
    # Nobody runs a command: the server itself resumes it.
    wait_for(lambda: state_of_replay(database) == "not paused", PAUSE_LIMIT_S + 10)


@pytest.mark.breadth
def test_rows_arrive_once_whatever_is_killed(
    project: Project, database: Database, spark: SparkSession
) -> None:
    with inserters(database, "events"):
        killed_at(project, "bootstrap.after_chunk_commit", "onboard", "public.events")
        project.run("onboard", "public.events").expect(0)
    killed_at(project, "run.in_commit", "run", "public.events")
    with psycopg.connect(database.dsn(), autocommit=True) as connection:
        connection.execute("INSERT INTO events VALUES ('last', 1, NULL)")
    services = Services(load(project.folder / "tributary.yaml"), NullProgress(), spark=spark)
    try:
        table = database.table("events")
        found = verify_table(services, services.run_context, table)
        assert found.equal, found.differences
    finally:
        services.close()
    assert bag(project.lake_rows(spark, "public.events", COLUMNS)) == bag(
        project.source_rows("public.events", COLUMNS)
    )
