"""Tables without a key on the real stack: the lake has each row once after copy and stream."""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.errors import ConfigError, ReplicaError
from cdc.lake.timeline import Timeline
from cdc.run import replay_table
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql import lock_watch, reader
from cdc.sources.replay_pause import resuming
from cdc.sources.views import View
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import State
from operate.context import Services
from operate.verify.table import verify_table
from stack.mysql_software import MARIADB, MYSQL
from stack.postgres import POSTGRES
from tests.integration.rigs.bootstrapping import Watch
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.faults import LostSchema, produce
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind, kinds
from tests.integration.rigs.logs import COLUMNS, ROWS, Log, bag, create_log, inserters
from tests.integration.rigs.logs import log as log
from tests.integration.rigs.mysql import mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.project import Project, killed_at
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import run_without_error, succeeded


@for_each_kind(MARIADB)
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
    assert view.on_replica is True
    latest = Timeline(log.shop.services.spark, log.attempt.path).latest_offsets()
    assert latest is not None
    assert view.split is not None
    assert latest.record.require_handoff().view.split == view.split
    assert log.shop.verify("events").equal


@for_each_kind()
def test_verify_names_rows_that_one_side_has_oftener(log: Log) -> None:
    succeeded(log.onboard())
    # Not captured, as in any log.
    log.shop.database.execute("DELETE FROM events WHERE n = 6")
    with inserters(log.shop.database, "events"):
        found = log.shop.verify("events")
    assert not found.equal
    assert found.source_rows == found.lake_rows - 50 > ROWS
    (extra,) = found.differences
    assert (extra.kind, extra.key["n"]) == ("extra", 6)


@for_each_kind()
def test_a_table_of_a_key_is_copied_as_of_one_moment(log: Log) -> None:
    """Two rows that every transaction changes together are equal in the copy, in any chunks."""
    database, rows = log.shop.database, 3000
    log.shop.create("orders", rows)
    label = database.label("orders")
    log.shop.tables[label] = {"one_view": True, "chunk_rows": 500, "parallel_chunks": 2}
    log.shop.reconfigure()
    first, last = "id = 1", f"id = {rows}"
    with log.shop.writing(f"UPDATE orders SET v = v + 1 WHERE {first} OR {last}") as done:
        succeeded(log.shop.onboard("orders"))
        assert done[0] > 10
        attempt = log.shop.record("orders").attempt
        assert attempt is not None
        views = log.shop.services.source(log.shop.database.name)
        # As many as are open at once, where no session can take over another's view.
        assert (len(attempt.chunks) > 2) if views.shares_views else (len(attempt.chunks) == 2)
    copied = log.shop.services.spark.read.format("hudi")
    first_commit = min(
        one.instant for one in Timeline(log.shop.services.spark, attempt.path).commits()
    )
    rows_then = copied.option("as.of.instant", first_commit).load(attempt.path)
    ends = rows_then.where(f"{first} OR {last}").select("v").collect()
    assert len(ends) == 2
    assert ends[0] == ends[1]
    log.shop.assert_equal("orders")


@for_each_kind(POSTGRES)
def test_a_transaction_that_is_open_at_the_view_comes_from_the_stream(log: Log) -> None:
    left: list[ExitStack] = []

    def open_it() -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(log.shop.database.begin())
            cursor = stack.enter_context(connection.cursor())
            cursor.executemany(
                "INSERT INTO events VALUES ('open', %s, NULL)", [(n,) for n in range(20)]
            )
            stack.callback(connection.commit)
            left.append(stack.pop_all())
        log.insert(1)

    # Begun before the fence, committed once rows of the view have been read: its rows lie before
    # the view's position, its end after it.
    watch = Watch(
        on_start={"wait for the replica": open_it},
        on_advance={"copy": lambda: left[0].close()},
    )
    succeeded(log.onboard(watch))
    log.run()
    assert log.in_lake("_cdc_op", where="kind = 'open'") == [("c",)] * 20
    assert log.in_lake("_cdc_op", where="kind = 'one'") == [("r",)]
    log.assert_equal()


@pytest.mark.parametrize("policy", ["apply", "ignore", "pause"])
@for_each_kind()
def test_a_truncate_does_what_its_policy_says(log: Log, policy: str) -> None:
    log.settings["on_truncate"] = policy
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
    log.shop.settle("events")
    log.shop.run()
    assert log.shop.record("events").state is State.PAUSED
    assert len(log.in_lake()) == ROWS + 2, "what came before it is applied"


@for_each_kind()
def test_a_replay_writes_only_the_rows_of_its_records(log: Log) -> None:
    """A replay must not touch other rows: the lake has their values, and no event has them now."""
    shop = log.shop
    log.settings["on_bad_message"] = "quarantine"
    shop.reconfigure()
    succeeded(log.onboard())
    shop.database.execute("INSERT INTO events VALUES ('new', 1, 'first')")
    shop.settle("events")
    record, own = shop.record("events"), shop.services
    end = own.kafka.stable_offsets(record.topic)[0]
    found = own.kafka.read(record.topic, 0, own.kafka.start_offsets(record.topic)[0], end)
    (sent,) = [one.value for one in found if one.value is not None]
    lost = LostSchema(own.config.kafka.registry.url)
    produce(own.config, record.topic, lost.write(sent), key=None)
    shop.database.execute("INSERT INTO events VALUES ('new', 2, 'second')")
    log.run()
    shop.database.execute("ALTER TABLE events DROP COLUMN t")
    log.run()
    before = sorted(log.in_lake(where="kind = 'new'"))
    assert before == [("new", 1, "first"), ("new", 2, "second")]

    connector = own.capture_of(record).connector
    schema = own.registry.schema(int.from_bytes(sent[1:5], "big"))
    lost.restore(schema, own.connect, connector)
    kept = Quarantine(own.store).list([str(log.attempt.id)])
    for _ in range(2):
        assert replay_table(own.run_context, shop.record("events")).records == 1
        # The message has the place of the first row in a binlog, where it is no row of its own.
        again = [] if shop.database.kind != POSTGRES else [("new", 1, None)]
        after = log.in_lake(where="kind = 'new'")
        assert sorted(after, key=str) == sorted([*before, *again], key=str)
        Quarantine(own.store).keep(kept)  # as a replay leaves them that is killed after its commit


@for_each_kind()
def test_a_view_that_is_lost_takes_the_attempt_with_it(log: Log) -> None:
    log.settings.update(chunk_rows=500, parallel_chunks=1)
    log.shop.reconfigure()
    ended: list[int] = []
    watch = Watch(on_advance={"copy": lambda: ended.append(log.shop.database.end_snapshots())})
    with inserters(log.shop.database, "events"):
        (outcome,) = log.onboard(watch)
    assert outcome.error is None, outcome.error
    assert ended[0]
    log.run()
    log.assert_equal()


@pytest.mark.breadth
@pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_an_alter_amid_a_copy_does_not_stop_the_replica(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's first session is made slow, as with a large table; the ALTER comes meanwhile."""
    database, genuine = mysql_of(log.shop.database), reader.session_init
    log.settings.update(parallel_chunks=1)
    log.shop.reconfigure()
    slow = [f"; SELECT 1 AS held FROM {database.name}.events LIMIT 1; DO SLEEP(200)"]

    def session_init(view: View | None, kind: str) -> str:
        return genuine(view, kind) + (slow.pop() if slow else "")

    def alter() -> None:
        query = "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP(200)%'"
        wait_until(lambda: bool(database.root(query, replica=True)), "the session reads")
        database.execute("ALTER TABLE events COMMENT = 'altered'")
        database.catch_up()

    monkeypatch.setattr(reader, "session_init", session_init)
    monkeypatch.setattr(lock_watch, "WATCH_S", 1.0)
    with ThreadPoolExecutor(1) as pool:
        altered = pool.submit(alter)
        (outcome,) = log.onboard()
        altered.result(60)
    assert outcome.error is None, outcome.error
    log.run()
    log.assert_equal()


@for_each_kind()
def test_a_replay_that_someone_else_paused_is_left_alone(log: Log) -> None:
    source = log.shop.services.source(log.shop.database.name)
    services = log.shop.services
    with log.shop.database.paused():
        with (
            pytest.raises(ReplicaError, match="paused, and not by Tributary") as raised,
            resuming(source, services.store, services.leases),
        ):
            raise AssertionError("not reached")
        assert source.replay_paused()
        told = re.findall(r"SELECT \w+\(\)|START REPLICA \w+", raised.value.remedy)
        log.shop.database.on_replica(told[log.shop.database.kind != POSTGRES])
        with resuming(source, services.store, services.leases):
            assert not source.replay_paused()
    assert services.store.paused_replays() == []
    assert not source.replay_paused()


@for_each_kind()
def test_another_mode_is_refused_once_a_table_is_on_the_plan(log: Log) -> None:
    succeeded(log.onboard())
    label = log.shop.database.label("events")
    log.shop.tables[label] = {"mode": "upsert", "key_columns": ["n"]}
    log.shop.reconfigure()
    log.insert(1)
    log.shop.settle("events")
    (result,) = log.shop.run()
    assert result.error is not None
    assert result.error.error == ConfigError.__name__
    assert "mode: append" in result.error.message


@for_each_kind()
def test_the_application_goes_on_to_update_and_delete(log: Log) -> None:
    succeeded(log.onboard())
    if log.shop.database.kind == POSTGRES:
        log.shop.database.execute("ALTER TABLE events REPLICA IDENTITY NOTHING")
    log.shop.database.execute(
        "UPDATE events SET n = -1 WHERE n = 5", "DELETE FROM events WHERE n = 6"
    )
    log.insert(1, 1)
    log.run()
    assert len(log.in_lake()) == ROWS + 2
    assert log.in_lake(where="n = -1") == []
    found = log.shop.verify("events")
    assert not found.equal
    assert found.difference_count == 50 + 50 + 50, "old images, new images, and deleted rows"


@for_each_kind()
def test_deletes_and_changes_of_a_key_amid_a_copy_are_no_rows(log: Log) -> None:
    shop, rows = log.shop, 2000
    shop.database.execute("CREATE TABLE visits (id int PRIMARY KEY, n int)")
    shop.database.load("visits", ((n, 0) for n in range(1, rows + 1)))
    shop.tables[shop.database.label("visits")] = {"mode": "append"}
    shop.reconfigure()
    with shop.writing(
        "INSERT INTO visits VALUES (10000 + {turn}, 1)",
        "DELETE FROM visits WHERE id = {turn} + 1",
        f"UPDATE visits SET id = id + 1000000 WHERE id = {rows} - {{turn}}",
        pause_s=0.02,
    ) as done:
        succeeded(shop.onboard("visits"))
    shop.settle("visits")
    run_without_error(shop)
    lake = shop.lake("visits")
    new = lake.where("id BETWEEN 10000 AND 999999")
    assert new.count() == new.select("id").distinct().count() == done[0] > 20
    assert lake.where("id > 1000000 AND _cdc_op = 'c'").count() == 0
    assert lake.where("_cdc_op NOT IN ('c', 'r')").count() == 0


@pytest.fixture
def project(database: OwnDatabase, tmp_path: Path) -> Project:
    create_log(database, "events", ROWS)
    database.let_pause()
    return Project.create(
        tmp_path,
        database,
        tables={database.label("events"): {"mode": "append"}},
        defaults={"chunk_rows": 1000},
    )


def paused(project: Project) -> bool:
    services = Services(load(project.folder / "tributary.yaml"), NullProgress())
    try:
        return services.source(project.database.name).replay_paused()
    finally:
        services.close()


@for_each_kind()
def test_a_replay_that_a_killed_process_left_paused_is_resumed(project: Project) -> None:
    label = project.label("events")
    killed_at(project, "replay.paused", "onboard", label)
    assert paused(project)
    project.run("status").expect(0, 3, 4)
    assert not paused(project), "the next command resumes it"

    killed_at(project, "replay.paused", "onboard", label)
    assert paused(project)
    # Nobody runs a command: the server itself resumes it.
    deadline = time.monotonic() + 20 + 10
    while paused(project):
        assert time.monotonic() < deadline, "replay is still paused"
        time.sleep(0.2)


@for_each_kind()
def test_rows_arrive_once_whatever_is_killed(project: Project, spark: SparkSession) -> None:
    database, label = project.database, project.label("events")
    with inserters(database, "events"):
        killed_at(project, "bootstrap.after_chunk_commit", "onboard", label)
        project.run("onboard", label).expect(0)
    killed_at(project, "run.in_commit", "run", label)
    database.execute("INSERT INTO events VALUES ('last', 1, NULL)")
    services = Services(load(project.folder / "tributary.yaml"), NullProgress(), spark=spark)
    try:
        found = verify_table(services, services.run_context, database.table("events"))
        assert found.equal, found.differences
    finally:
        services.close()
    assert bag(project.lake_rows(spark, label, COLUMNS)) == bag(project.source_rows(label, COLUMNS))
