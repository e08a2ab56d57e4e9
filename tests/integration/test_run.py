"""Incremental runs on the real stack: what each change on the source becomes in the lake."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from cdc.config import Config
from cdc.debezium import PLACEHOLDER
from cdc.errors import FencedError
from cdc.lake.commit import CommitRecord
from cdc.lake.timeline import Timeline
from cdc.lease import Lease, Leases
from cdc.position import Lsn
from cdc.run import RunResult, run_table, run_tables
from cdc.state import State, transition
from schemas.errors import RegistryError
from schemas.registry import SchemaRegistry
from schemas.table import TableId
from stack.local import LocalStack
from tests.integration.conftest import own_database
from tests.integration.replication import Replication

COLUMNS = ("id", "note", "body", "price")
BIG = "(SELECT string_agg(md5(random()::text || n), '') FROM generate_series(1, 400) n)"
"""12,800 characters that do not compress: stored out of line."""

_NUMBERS = itertools.count(1)
Test = TypeVar("Test", bound=Callable[..., None])

pytestmark = pytest.mark.filterwarnings(
    # py4j leaves the socket of a finished thread to the garbage collector.
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    "ignore:unclosed <socket:ResourceWarning",
)


@pytest.fixture(scope="module")
def spark(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    config = Config.model_validate(
        {
            "sources": {
                "x": {
                    "kind": "postgres",
                    "primary": {"host": "localhost", "database": "x"},
                    "credentials": {"admin": {"user": "x"}},
                }
            },
            "kafka": {
                "bootstrap_servers": "localhost:1",
                "registry": {"url": "http://localhost:1"},
            },
            "connect": {"url": "http://localhost:1"},
            "lake": {"url": (folder / "lake").as_uri()},
            "spark": {
                "master": "local[2]",
                "driver_memory": "2g",
                "conf": {"spark.local.dir": str(folder / "scratch")},
            },
        }
    )
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()


@pytest.fixture(scope="module")
def shared(
    stack: LocalStack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replication]:
    """One captured database; each test adds tables of its own."""
    with own_database(stack) as database:
        yield Replication(database, spark, tmp_path_factory.mktemp("replication"))


def settings(**wanted: Any) -> Callable[[Test], Test]:
    """Settings of the test's table."""

    def mark(test: Test) -> Test:
        test.settings = wanted  # type: ignore[attr-defined]  # functions take attributes
        return test

    return mark


@pytest.fixture
def orders(shared: Replication, request: pytest.FixtureRequest) -> Orders:
    name = f"t{next(_NUMBERS)}_" + request.node.name.removeprefix("test_").split("[")[0][:50]
    shared.database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, note text, body text, price numeric(10,2))"
    )
    if wanted := getattr(request.function, "settings", None):
        shared.configure(**{f"public__{name}": wanted})
    shared.add(name)
    return Orders(shared, name)


@dataclass(frozen=True)
class Orders:
    """A table of one test, captured and handed over while empty."""

    replication: Replication
    name: str

    def execute(self, *statements: str) -> None:
        """Run statements; ``T`` stands for the table."""
        self.replication.database.execute(*(re.sub(r"\bT\b", self.name, s) for s in statements))

    def run(self, **changes: Any) -> RunResult:
        self.replication.settle()
        record = self.replication.record(self.name)
        (result,) = run_tables(self.replication.context(**changes), [record])
        return result

    def lake(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.replication.lake(self.name, *columns)

    def assert_equal(self, columns: Sequence[str] = COLUMNS) -> None:
        self.replication.assert_equal(self.name, columns)

    @property
    def state(self) -> State:
        return self.replication.record(self.name).state

    @property
    def newest(self) -> CommitRecord:
        committed = self.timeline.latest_offsets()
        assert committed is not None
        return committed.record

    @property
    def timeline(self) -> Timeline:
        attempt = self.replication.record(self.name).attempt
        assert attempt is not None
        return Timeline(self.replication.spark, attempt.path)


def test_inserts_updates_and_deletes_reach_the_lake(orders: Orders) -> None:
    orders.execute(
        "INSERT INTO T SELECT n, 'n' || n, null, n * 1.25 FROM generate_series(1, 100) n",
        "UPDATE T SET note = 'changed' WHERE id <= 10",
        "DELETE FROM T WHERE id > 90",
    )
    result = orders.run()
    assert (result.error, result.state, result.commits) == (None, State.INCREMENTAL, 1)
    assert result.counts == {"c": 100, "u": 10, "d": 10, "tombstone": 10}
    assert result.events == 120
    orders.assert_equal()
    assert len(orders.lake("id")) == 90
    idle = run_tables(orders.replication.context(), [orders.replication.record(orders.name)])
    assert idle == [], "a table without new offsets has no work"

    orders.execute("UPDATE T SET price = -1.50 WHERE id = 50")
    again = orders.run()
    assert (again.error, again.counts) == (None, {"u": 1})
    orders.assert_equal()


def test_a_commit_says_where_it_is(orders: Orders) -> None:
    before = datetime.now(timezone.utc)
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "INSERT INTO T VALUES (2, 'a', 'b', 1)")
    result = orders.run(run_id="run-1")
    commit = orders.newest
    assert commit.kind == "run"
    assert commit.run_id == "run-1"
    assert commit.start_offsets == {0: 0}
    assert commit.offsets == result.offsets == orders.replication.kafka.stable_offsets(commit.topic)
    assert commit.topic_id == orders.replication.kafka.topic_id(commit.topic)
    assert commit.counts == {"c": 2}
    assert len(commit.schema_ids) == 1
    assert commit.position is not None
    assert 0 < Lsn.parse(commit.position).value <= orders.replication.source.current_lsn().value
    assert commit.watermark is not None
    assert before - timedelta(seconds=1) <= commit.watermark <= datetime.now(timezone.utc)
    cached = orders.replication.record(orders.name).last_commit
    assert cached is not None
    assert (cached.offsets, cached.watermark) == (commit.offsets, commit.watermark)
    (entry,) = orders.replication.store.last_runs(orders.replication.table(orders.name))
    assert (entry.run_id, entry.counts, entry.commits) == ("run-1", {"c": 2}, 1)


def test_meta_columns_tell_where_a_row_comes_from(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "UPDATE T SET note = 'c'")
    orders.run()
    ((op, offset, position, schema_id),) = orders.lake(
        "_cdc_op", "_cdc_offset", "_cdc_position", "_cdc_schema_id"
    )
    assert (op, offset) == ("u", 1) or offset > 0
    assert re.fullmatch(r"[0-9A-F]{16}:[0-9A-F]{16}", position)
    assert (schema_id,) == orders.newest.schema_ids


def test_delete_and_insert_of_one_key(orders: Orders) -> None:
    orders.execute(
        "INSERT INTO T VALUES (1, 'first', 'b', 1), (2, 'stays', 'b', 2)",
        "DELETE FROM T WHERE id = 1",
        "INSERT INTO T VALUES (1, 'second', null, 3)",
    )
    orders.run()
    orders.assert_equal()
    orders.execute("DELETE FROM T WHERE id = 1", "INSERT INTO T VALUES (1, 'third', null, 4)")
    orders.run()
    orders.assert_equal()
    orders.execute("DELETE FROM T WHERE id = 1")
    orders.run()
    orders.assert_equal()


def test_keys_that_are_changed_and_swapped(orders: Orders) -> None:
    orders.execute(
        f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 6) n",
    )
    orders.run()
    orders.execute(
        "UPDATE T SET id = 101 WHERE id = 1",
        "BEGIN; UPDATE T SET id = -1 WHERE id = 2; UPDATE T SET id = 2 WHERE id = 3;"
        " UPDATE T SET id = 3 WHERE id = -1; COMMIT",
    )
    result = orders.run()
    assert result.error is None
    orders.assert_equal()


def test_a_moved_row_does_not_take_the_large_value_of_another(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 2) n")
    orders.run()
    # The lake still has the old row 1 under the key that row 2 moves to.
    orders.execute("DELETE FROM T WHERE id = 1", "UPDATE T SET id = 1 WHERE id = 2")
    assert orders.run().error is None
    orders.assert_equal()


def test_a_moved_row_that_is_gone_by_now_is_not_an_error(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT 1, 'n', {BIG}, 1")
    orders.run()
    orders.execute("UPDATE T SET id = 2")
    orders.replication.settle()
    stop = orders.replication.kafka.stable_offsets(orders.newest.topic or "")
    orders.execute("DELETE FROM T WHERE id = 2")
    orders.replication.settle()
    part = run_table(
        orders.replication.context(), orders.replication.record(orders.name), until=stop
    )
    assert (part.error, part.offsets) == (None, stop)
    orders.run()
    orders.assert_equal()
    assert orders.lake("id") == []


def test_unchanged_large_values_are_kept(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, {BIG}, {BIG}, n FROM generate_series(1, 4) n")
    orders.run()
    orders.execute(
        "UPDATE T SET price = 9 WHERE id = 1",
        "UPDATE T SET note = 'small now' WHERE id = 2",
        f"UPDATE T SET note = {BIG} WHERE id = 3",
        "UPDATE T SET price = 7 WHERE id = 3",
        "UPDATE T SET body = null WHERE id = 4",
        "UPDATE T SET price = 7 WHERE id = 4",
    )
    assert orders.run().error is None
    orders.assert_equal()
    assert not [row for row in orders.lake(*COLUMNS) if PLACEHOLDER in row]


def test_a_large_value_that_the_lake_lost_is_fetched_from_the_source(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n', {BIG}, n FROM generate_series(1, 3) n")
    orders.replication.settle()
    # As if the rows had never been copied: their insert lies before the handoff.
    orders.replication.store.delete(orders.replication.table(orders.name))
    orders.replication.add(orders.name)
    orders.execute("UPDATE T SET price = 8")
    assert orders.run().error is None
    orders.assert_equal()


@settings(delete_mode="soft")
def test_a_soft_delete_keeps_the_row(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 3) n")
    orders.run()
    (kept,) = orders.replication.truth(orders.name, *COLUMNS)[:1]
    orders.execute(
        f"DELETE FROM T WHERE id = {kept[0]}",
        "INSERT INTO T VALUES (9, 'short', 'life', 1)",
        "DELETE FROM T WHERE id = 9",
    )
    assert orders.run().error is None
    deleted = [row for row in orders.lake("_cdc_deleted", *COLUMNS) if row[0]]
    assert sorted(deleted) == sorted([(True, *kept), (True, 9, "short", "life", Decimal("1.00"))])
    assert sorted(row[1:] for row in orders.lake("_cdc_deleted", *COLUMNS) if not row[0]) == sorted(
        orders.replication.truth(orders.name, *COLUMNS)
    )


def test_truncate_empties_the_table_in_log_order(orders: Orders) -> None:
    orders.execute("INSERT INTO T SELECT n, 'old', null, n FROM generate_series(1, 5) n")
    orders.run()
    orders.execute(
        "UPDATE T SET note = 'doomed'",
        "TRUNCATE T",
        "INSERT INTO T SELECT n, 'new', null, n FROM generate_series(4, 6) n",
        "DELETE FROM T WHERE id = 5",
    )
    result = orders.run()
    assert (result.error, result.counts["t"]) == (None, 1)
    orders.assert_equal()
    assert len(orders.lake("id")) == 2

    orders.execute("TRUNCATE T")
    assert orders.run().error is None
    assert orders.lake("id") == []
    orders.execute("INSERT INTO T VALUES (1, 'again', null, 1)")
    assert orders.run().error is None
    orders.assert_equal()


@settings(on_truncate="ignore")
def test_truncate_can_be_ignored(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute("TRUNCATE T", "INSERT INTO T VALUES (2, 'b', null, 2)")
    assert orders.run().error is None
    assert orders.lake("id") == [(1,), (2,)]


@settings(on_truncate="pause")
def test_truncate_can_pause_the_table(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)", "TRUNCATE T")
    orders.execute("INSERT INTO T VALUES (2, 'b', null, 2)")
    result = orders.run()
    assert (result.state, orders.state) == (State.PAUSED, State.PAUSED)
    assert result.commits == 1, "what came before the TRUNCATE is in"
    assert orders.lake("id") == [(1,)]
    assert "truncated" in (orders.replication.record(orders.name).reason or "")

    orders.replication.configure(**{f"public__{orders.name}": {"on_truncate": "apply"}})
    paused = orders.replication.record(orders.name)
    now = datetime.now(timezone.utc)
    orders.replication.store.put(transition(paused, State.INCREMENTAL, at=now))
    assert orders.run().error is None
    assert orders.lake("id") == [(2,)]


@settings(max_events_per_run=10)
def test_large_backlogs_become_several_commits(orders: Orders) -> None:
    orders.execute(
        *(f"INSERT INTO T VALUES ({n}, 'n', null, 1)" for n in range(12)),
        "UPDATE T SET note = 'm'",
    )
    result = orders.run()
    assert result.error is None
    assert result.commits >= 3
    runs = [c.record for c in orders.timeline.commits() if c.record.kind == "run"]
    assert len(runs) == result.commits
    assert all(a.offsets == b.start_offsets for a, b in itertools.pairwise(runs))
    assert all(record.offsets[0] - record.start_offsets[0] <= 10 for record in runs)
    positions = [Lsn.parse(record.position).value for record in runs if record.position]
    assert positions == sorted(positions)
    orders.assert_equal()


def test_a_nullable_column_is_added_in_place(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN extra int",
        "INSERT INTO T VALUES (3, 'c', null, 3, 33)",
        "UPDATE T SET extra = 22 WHERE id = 2",
    )
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "extra"))
    orders.execute("UPDATE T SET extra = null WHERE id = 3")
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "extra"))


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE T ADD COLUMN extra int DEFAULT 5",),
        ("ALTER TABLE T ADD COLUMN extra int DEFAULT 5", "ALTER TABLE T ALTER extra DROP DEFAULT"),
        ("ALTER TABLE T ADD COLUMN extra int NOT NULL DEFAULT 5",),
        ("ALTER TABLE T RENAME COLUMN note TO remark",),
        ("ALTER TABLE T ALTER COLUMN price TYPE int USING 0",),
        ("ALTER TABLE T ALTER COLUMN price TYPE numeric(10,2) USING price + 1",),
        ("ALTER TABLE T DROP COLUMN note", "ALTER TABLE T ADD COLUMN note text"),
        ("ALTER TABLE T DROP CONSTRAINT %_pkey, ADD PRIMARY KEY (id, price)",),
    ],
)
def test_schema_changes_that_need_a_copy_stop_the_table(
    orders: Orders, statements: tuple[str, ...]
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    before = orders.lake(*COLUMNS)
    orders.execute(*(text.replace("%", orders.name) for text in statements))
    orders.execute("DELETE FROM T WHERE id = 1")
    result = orders.run()
    assert (result.state, orders.state) == (State.NEEDS_BOOTSTRAP, State.NEEDS_BOOTSTRAP)
    record = orders.replication.record(orders.name)
    assert record.reason
    assert "tributary bootstrap" in (record.remedy or "")
    assert orders.lake(*COLUMNS) == before


def test_a_rewrite_without_a_change_is_let_through(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("VACUUM FULL T", "INSERT INTO T VALUES (2, 'a', 'b', 2)")
    result = orders.run()
    assert result.error is None
    assert "tributary verify" in result.warnings[0]
    orders.assert_equal()


def test_a_rewrite_of_a_table_without_events_is_noticed(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("ALTER TABLE T ALTER COLUMN price TYPE numeric(10,2) USING price + 1")
    result = orders.run()
    assert (result.state, result.commits) == (State.NEEDS_BOOTSTRAP, 0)
    assert "'price' was altered" in (orders.replication.record(orders.name).reason or "")


def test_a_dropped_column_is_null_from_then_on(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1), (2, 'a', 'b', 2)")
    orders.run()
    orders.execute("ALTER TABLE T DROP COLUMN body", "UPDATE T SET note = 'c' WHERE id = 2")
    assert orders.run().error is None
    orders.assert_equal(("id", "note", "price"))
    assert orders.lake("id", "body") == [(1, "b"), (2, None)]


def test_wider_types_are_followed_in_place(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN n int",
        "INSERT INTO T VALUES (2, 'a', 'b', 2, 2147483647)",
    )
    orders.run()
    orders.execute(
        "INSERT INTO T VALUES (3, 'a', 'b', 2, 3)",
        "ALTER TABLE T ALTER COLUMN n TYPE bigint",
        "ALTER TABLE T ALTER COLUMN price TYPE numeric(20,2)",
        "INSERT INTO T VALUES (4, 'a', 'b', 123456789012345.67, 9999999999)",
    )
    result = orders.run()
    assert result.error is None
    orders.assert_equal((*COLUMNS, "n"))


def test_a_record_that_cannot_be_read_stops_its_table_only(
    orders: Orders, shared: Replication
) -> None:
    other = f"{orders.name}_other"
    orders.execute(f"CREATE TABLE {other} (id int PRIMARY KEY)")
    shared.add(other)
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", f"INSERT INTO {other} VALUES (1)")
    shared.settle()
    topic = shared.record(orders.name).topic
    produce(shared, topic, b"\x00\x00\x00\x00\x01 not avro")
    offset = shared.kafka.stable_offsets(topic)[0] - 1
    records = [shared.record(orders.name), shared.record(other)]
    bad, good = run_tables(shared.context(), records)
    assert (good.error, good.commits) == (None, 1)
    assert shared.lake(other, "id") == [(1,)]
    assert bad.error is not None
    assert bad.error["error"] == "DecodeError", bad.error
    assert bad.error["context"]["offset"] == str(offset)
    assert bad.error["context"]["topic"] == topic
    assert bad.error["context"]["schema_id"] == "1"
    failed = shared.record(orders.name)
    assert (failed.state, failed.failures) == (State.FAILED, 1)
    assert failed.retry_at is not None
    assert failed.retry_at > datetime.now(timezone.utc)
    assert run_tables(shared.context(), [failed]) == [], "its next try has not come"


def test_an_unknown_schema_id_names_the_record(orders: Orders, shared: Replication) -> None:
    topic = shared.record(orders.name).topic
    produce(shared, topic, b"\x00\x00\x0f\xff\xff body")
    result = orders.run()
    assert result.error is not None
    assert result.error["error"] == "DecodeError"
    assert result.error["context"]["schema_id"] == str(0x000FFFFF)
    assert result.error["context"]["offset"] == "0"


def test_a_failed_table_goes_on_when_its_time_has_come(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    broken = shared.context(registry=DownRegistry())
    (result,) = run_tables(broken, [shared.record(orders.name)])
    assert result.error is not None
    assert result.error["error"] == "RegistryError"
    failed = shared.record(orders.name)
    assert failed.state is State.FAILED
    shared.store.put(replace(failed, retry_at=datetime.now(timezone.utc)))
    assert orders.run().error is None
    healed = shared.record(orders.name)
    assert (healed.state, healed.failures, healed.error) == (State.INCREMENTAL, 0, None)
    orders.assert_equal()


def test_a_table_that_another_run_holds_is_left_alone(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    with Leases(shared.store, owner="someone").hold(shared.table(orders.name)):
        result = orders.run()
    assert (result.skipped, result.error, result.commits) == (True, None, 0)
    assert "someone" in result.warnings[0]
    assert orders.state is State.INCREMENTAL
    assert orders.run().commits == 1


def test_a_batch_that_was_read_before_another_commit_is_refused(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("DELETE FROM T")
    shared.settle()
    record = shared.record(orders.name)
    # The other run commits while this one is about to: only the guard can notice.
    registry = Interrupting(shared.registry, lambda: orders.run(leases=FreeLeases(shared.store)))
    stale = run_table(shared.context(registry=registry), record)
    assert registry.interrupted
    assert stale.error is not None
    assert stale.error["error"] == FencedError.__name__
    assert orders.state is State.INCREMENTAL
    assert orders.lake("id") == []


def test_a_topic_that_lost_records_needs_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "INSERT INTO T VALUES (2, 'a', 'b', 1)")
    shared.settle()
    topic = shared.record(orders.name).topic
    delete_records(shared, topic, 1)
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "offsets 0 to 0 of topic" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == []


def test_a_recreated_topic_needs_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    topic = shared.record(orders.name).topic
    shared.source.remove_from_publication(shared.capture.publication, [shared.table(orders.name)])
    shared.kafka.delete_topic(topic)
    deadline = time.monotonic() + 30
    while shared.kafka.topics([topic]) and time.monotonic() < deadline:
        time.sleep(0.1)
    shared.kafka.ensure_topic(topic)
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "created again" in (shared.record(orders.name).reason or "")


def test_a_table_that_left_the_publication_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    table = shared.table(orders.name)
    shared.source.remove_from_publication(shared.capture.publication, [table])
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "not in publication" in (shared.record(orders.name).reason or "")


def test_a_table_that_was_dropped_and_created_again_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute(
        "DROP TABLE T",
        "CREATE TABLE T (id int PRIMARY KEY, note text, body text, price numeric(10,2))",
    )
    shared.source.add_to_publication(shared.capture.publication, [shared.table(orders.name)])
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    assert orders.run().state is State.NEEDS_BOOTSTRAP


def test_a_lake_without_offsets_never_starts_again(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    record = shared.record(orders.name)
    assert record.attempt is not None
    elsewhere = replace(record.attempt, path=record.attempt.path + "-gone")
    shared.store.put(replace(record, attempt=elsewhere))
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "carries offsets" in (shared.record(orders.name).reason or "")


def test_a_table_that_is_paused_meanwhile_stays_paused(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    record = shared.record(orders.name)

    def pause() -> None:
        now = datetime.now(timezone.utc)
        fresh = shared.record(orders.name)
        shared.store.put(transition(fresh, State.PAUSED, at=now, reason="by a person"))

    shared.settle()
    result = run_table(shared.context(registry=Interrupting(shared.registry, pause)), record)
    assert (result.error, result.commits, result.state) == (None, 1, State.PAUSED)
    paused = shared.record(orders.name)
    assert (paused.state, paused.reason) == (State.PAUSED, "by a person")
    assert paused.last_commit is not None
    assert paused.last_commit.offsets == orders.newest.offsets


class DownRegistry:
    """A registry that cannot be reached."""

    def schema(self, schema_id: int) -> str:
        raise RegistryError("the registry is unreachable", remedy="Start it.")


class Interrupting:
    """A registry during whose first answer something else happens."""

    def __init__(self, registry: SchemaRegistry, act: Callable[[], object]) -> None:
        self._registry = registry
        self._act = act
        self.interrupted = False

    def schema(self, schema_id: int) -> str:
        if not self.interrupted:
            self.interrupted = True
            self._act()
        return self._registry.schema(schema_id)


class FreeLeases(Leases):
    """Leases that exclude nobody, as if the clock had let one run out."""

    @contextlib.contextmanager
    def hold(self, table: TableId, *, wait_s: float = 0.0) -> Iterator[Lease]:
        elsewhere = TableId(table.source, table.schema, f"{table.name}-free")
        with super().hold(elsewhere, wait_s=wait_s) as lease:
            yield lease


def produce(replication: Replication, topic: str, value: bytes) -> None:
    producer = Producer(replication.config.kafka.librdkafka_config())
    producer.produce(topic, value=value, key=b"k", partition=0)
    assert producer.flush(30) == 0


def delete_records(replication: Replication, topic: str, before: int) -> None:
    admin = AdminClient(replication.config.kafka.librdkafka_config())
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(30)
