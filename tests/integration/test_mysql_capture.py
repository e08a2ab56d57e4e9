"""The behaviour of the MySQL and MariaDB connectors on which the handoff relies."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.capture.kept_statements import StatementsInStore
from cdc.capture.known_definition import newest
from cdc.config import KafkaConfig
from cdc.connect import failures
from cdc.debezium import (
    Definitions,
    ReportedStatements,
    StatementsByTable,
    audit,
    fresh_starts,
    known_tables,
)
from cdc.errors import ConnectError
from cdc.kafka import KafkaAdmin, KafkaRecord
from cdc.store.state_store import Store
from schemas.table import TableId
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_captured import MysqlCaptured, mysql_capturing
from tests.integration.rigs.sources import capture_of

pytestmark = pytest.mark.breadth


@pytest.fixture
def captured(database: MysqlDatabase) -> Iterator[MysqlCaptured]:
    database.query("CREATE TABLE item (id int PRIMARY KEY, note varchar(20))")
    database.query("CREATE TABLE late (id int PRIMARY KEY)")
    with mysql_capturing(database, "item") as started:
        yield started


def beats(captured: MysqlCaptured) -> list[int]:
    found = captured.read(captured.names.heartbeat_topic)
    return [event.after["beats"] for event in found if event.after is not None]


def ids(captured: MysqlCaptured, table: str) -> list[int]:
    found = captured.read(captured.topic(table))
    return [event.after["id"] for event in found if event.after is not None]


def test_every_operation_arrives_and_the_position_passes_it(captured: MysqlCaptured) -> None:
    database = captured.database
    for statement in (
        "INSERT INTO item VALUES (1, 'a'), (2, 'b')",
        "UPDATE item SET note = 'c' WHERE id = 1",
        "DELETE FROM item WHERE id = 1",
        "TRUNCATE TABLE item",
        "TRUNCATE item",
        "INSERT INTO item VALUES (3, 'd')",
    ):
        database.query(statement)
    written = captured.position()
    captured.wait_until_captured(written)
    events = captured.read(captured.topic("item"))
    assert [event.op for event in events] == ["c", "c", "u", "d", None, "t", "t", "c"]
    assert events[2].before == {"id": 1, "note": "a"}
    assert events[3].before == {"id": 1, "note": "c"}
    for event in events:
        if event.op not in (None, "t"):
            assert event.value is not None
            position = type(written).parse(event.value["source"]["gtid"])
            assert written.reaches(position)  # type: ignore[arg-type]


def test_the_running_connector_is_proven_and_a_change_by_hand_is_found(
    captured: MysqlCaptured,
) -> None:
    name = captured.names.connector
    effective = captured.connect.connector(name)
    assert effective is not None
    assert audit(effective, captured.names) == []
    assert effective["database.password"].startswith("${directory:")
    forbidden = {"skipped.operations": "t", "column.exclude.list": "x.y.z"}
    captured.connect.put_connector(name, {**effective, **forbidden})
    changed = captured.connect.connector(name)
    assert changed is not None
    found = audit(changed, captured.names)
    assert [finding.property for finding in found] == ["column.exclude.list", "skipped.operations"]


def test_a_transaction_that_is_open_in_kafka_is_not_in_the_stored_position(
    captured: MysqlCaptured,
) -> None:
    captured.wait_until_captured(captured.mark())
    with captured.database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for block in range(40):
            rows = ", ".join(f"({1000 * block + n}, 'x')" for n in range(1000))
            cursor.execute(f"INSERT INTO item VALUES {rows}")
        cursor.execute("COMMIT")
    whole = captured.position()
    while True:
        stored = captured.stored()
        # After the look at the position: what it claims must be in Kafka by then.
        seen = captured.kafka.stable_offsets(captured.topic("item"))[0]
        assert stored is not None
        if stored.reaches(whole):  # type: ignore[arg-type]
            break
        captured.mark()
    assert seen >= 40_000


def test_a_table_is_added_while_it_is_written_to(captured: MysqlCaptured) -> None:
    numbers, stop, written = itertools.count(100), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            number = next(numbers)
            captured.database.query(f"INSERT INTO late VALUES ({number})")
            written.append(number)

    writer = threading.Thread(target=write)
    with captured.database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO late VALUES (1)")
        writer.start()
        try:
            captured.configure("item", "late")
            captured.mark()
            fence = len(written) + 1  # one may be on its way
            cursor.execute("INSERT INTO late VALUES (2)")
            cursor.execute("COMMIT")
            while len(written) < fence + 20:
                stop.wait(0.05)
        finally:
            stop.set()
            writer.join(30)
    captured.wait_until_captured(captured.position())
    assert captured.listed() == [captured.table("item"), captured.table("late")]
    arrived = ids(captured, "late")
    assert set(written[fence:]) <= set(arrived), "changes after the marker are missing"
    # A transaction is in the binlog as a whole, where it commits.
    assert {1, 2} <= set(arrived)
    assert len(arrived) == len(set(arrived))


NAMES = ("My Table", "größe", "a.b", "UPPER", "k,l", "x$y", "(v|w)*", "t\\d")


def test_any_name_of_a_table_is_captured(captured: MysqlCaptured) -> None:
    for name in NAMES:
        captured.database.query(f"CREATE TABLE `{name}` (id int PRIMARY KEY)")
    captured.database.query("CREATE TABLE td (id int PRIMARY KEY)")
    captured.configure(*NAMES)
    for name in NAMES:
        captured.database.query(f"INSERT INTO `{name}` VALUES (1)")
    captured.database.query("INSERT INTO td VALUES (1)")
    captured.wait_until_captured(captured.position())
    for name in NAMES:
        (event,) = captured.read(captured.topic(name))
        assert event.value is not None
        assert (event.value["source"]["table"], event.after) == (name, {"id": 1})
        assert event.schema is not None
        assert event.schema.mismatch(captured.topic(name)) is None
    assert captured.kafka.topics([captured.topic("td")]) == {}
    assert captured.listed() == sorted(captured.table(name) for name in NAMES)


def test_heartbeats_count_without_a_gap_over_a_restart(captured: MysqlCaptured) -> None:
    for _ in range(2):
        captured.wait_for_beat()
    captured.connect.stop(captured.names.connector)
    captured.connect.resume(captured.names.connector)
    captured.connect.wait_running(captured.names.connector)
    captured.wait_for_beat()
    found = beats(captured)
    assert len(found) >= 3
    assert found == list(range(1, len(found) + 1))
    # Not every MariaDB has an id of its own.
    server = (
        "@@server_uuid" if captured.database.kind == MYSQL else "concat(@@hostname, ':', @@port)"
    )
    expected = captured.database.query(f"SELECT {server}")[0][0]
    beat = captured.latest_beat()
    assert (beat.owner, beat.system_identifier) == (captured.names.connector, expected)
    assert (beat.timeline, beat.beats) == (None, found[-1])


def test_what_mariadb_logged_before_it_was_rolled_back_arrives(captured: MysqlCaptured) -> None:
    """If a transaction creates or drops a temporary table, MariaDB logs its rows and ROLLBACK."""
    between = {
        1: "INSERT INTO scratch VALUES (1)",
        2: "CREATE TEMPORARY TABLE other (n int)",
        3: "TRUNCATE scratch",
        4: "DROP TEMPORARY TABLE other",
    }
    with captured.database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE scratch (n int)")
        connection.commit()
        for number, statement in between.items():
            cursor.execute(f"INSERT INTO item VALUES ({number}, 'rolled back')")
            cursor.execute(statement)
            # TRUNCATE commits.
            connection.rollback()
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO item VALUES (5, 'rolled back')")
        cursor.execute("CREATE TEMPORARY TABLE another (n int)")
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        cursor.execute("INSERT INTO item VALUES (6, 'kept')")
        connection.commit()
    captured.wait_until_captured(captured.position())
    unseen = [2, 4, 5] if captured.database.kind == MARIADB else []
    assert ids(captured, "item") == sorted([3, 6, *unseen])
    assert sorted(captured.database.query("SELECT id FROM item")) == [(3,), (6,)]


@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_rows_that_are_compressed_in_the_binlog_are_ignored_and_the_setting_is_refused(
    captured: MysqlCaptured,
) -> None:
    database = captured.database
    source = captured.source()
    assert capture_of(source).audit() == []
    database.query("ALTER TABLE item MODIFY note varchar(2000)")
    database.root("SET GLOBAL log_bin_compress = ON")
    try:
        assert capture_of(source).audit() == ["log_bin_compress is ON and must be OFF"]
        lines = {line.name: line.status for line in source.checks()}
        assert lines["log_bin_compress"] == "error"
        database.query("INSERT INTO item VALUES (1, repeat('compressed', 100)), (2, 'with it')")
    finally:
        database.root("SET GLOBAL log_bin_compress = OFF")
    database.query("INSERT INTO item VALUES (3, 'sent')")
    captured.wait_until_captured(captured.position())
    assert ids(captured, "item") == [3]


COMPRESSED = {
    "rows": "INSERT INTO packed VALUES (1, 'a')",
    "CREATE TABLE": "CREATE TABLE other (id int PRIMARY KEY, t text COMPRESSED)",
    "ALTER TABLE": "ALTER TABLE packed ADD COLUMN u varchar(200) COMPRESSED",
}


@pytest.mark.parametrize("statement", COMPRESSED.values(), ids=COMPRESSED)
@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_compressed_columns_stop_the_connector_wherever_they_are(
    database: MysqlDatabase, statement: str
) -> None:
    """A compressed column stops the connector even in a table that is not captured."""
    database.query("CREATE TABLE packed (id int PRIMARY KEY, t text COMPRESSED)")
    database.query("CREATE TABLE item (id int PRIMARY KEY)")
    with mysql_capturing(database, "item") as captured:
        source = captured.source()
        problem, remedy = source.capture_obstacle() or ("", "")
        assert f"`{database.name}`.`packed` (`t`)" in problem
        assert "without COMPRESSED" in remedy
        lines = {line.name: line.status for line in source.checks()}
        assert lines["compressed columns"] == "error"
        database.query(statement)
        assert "offboard all of its tables" in failures.remedy(captured.failure(), "unknown")
        database.query("ALTER TABLE packed MODIFY t text")
        database.query("DROP TABLE IF EXISTS other")
        if "ADD" not in statement:
            assert source.capture_obstacle() is None


@pytest.mark.parametrize("database", [MYSQL], indirect=True)
def test_transactions_with_a_tag_in_their_gtid_are_sent_again_with_keep_alive(
    captured: MysqlCaptured,
) -> None:
    """Such transactions come again after later transactions, so the product refuses their events.

    Without keep-alive, a restarted connector sends each such transaction once.
    """
    connect, name = captured.connect, captured.names.connector

    def insert(number: int, given: str = "AUTOMATIC") -> None:
        row = f"INSERT INTO {captured.name}.item VALUES ({number}, '{given}')"
        captured.database.root(f"SET gtid_next = '{given}'", row)

    def start_again(keep_alive: str, number: int) -> None:
        connect.stop(name)
        insert(number, "AUTOMATIC:shop")
        effective = connect.connector(name)
        assert effective is not None
        connect.put_connector(name, {**effective, "connect.keep.alive": keep_alive})
        connect.resume(name)
        connect.wait_running(name)

    insert(1, "AUTOMATIC:shop")
    insert(2)
    captured.wait_until_captured(captured.position())
    start_again("false", 3)
    insert(4)
    captured.wait_until_captured(captured.position())
    start_again("true", 5)
    insert(6)
    captured.wait_until_captured(captured.position())
    captured.database.lose_connection()
    insert(7)
    captured.wait_until_captured(captured.position())
    assert ids(captured, "item") == [1, 2, 3, 4, 5, 6, 5, 7]
    assert ":shop:" in str(captured.stored())
    events = captured.read(captured.topic("item"))
    found = [event.value["source"]["gtid"] for event in events if event.value is not None]
    assert [":shop:" in one for one in found] == [True, False] * 4


def test_a_purged_binlog_stops_the_connector(captured: MysqlCaptured) -> None:
    database, name = captured.database, captured.names.connector
    captured.wait_until_captured(captured.mark())
    captured.connect.stop(name)
    database.query("INSERT INTO item VALUES (1, 'lost')")
    database.root("FLUSH BINARY LOGS")
    database.catch_up()
    wait_until(lambda: purged(database), "the binlog is purged")
    captured.connect.resume(name)
    # MySQL's connector finds it out before it starts; the server reports it to MariaDB's.
    mysql = database.kind == MYSQL
    told = "no longer available on the server" if mysql else "Error code: 1236"
    assert told in captured.failure()
    with pytest.raises(ConnectError, match=name) as caught:
        captured.connect.wait_running(name)
    assert caught.value.remedy
    assert ids(captured, "item") == []


def purged(database: MysqlDatabase) -> bool:
    """Purge all binlogs except the last; returns whether only this one is left.

    MariaDB keeps a binlog while a replica still has it open.
    """
    last = database.root("SHOW BINARY LOGS")[-1][0]
    database.root(f"PURGE BINARY LOGS TO '{last}'")
    return len(database.root("SHOW BINARY LOGS")) == 1


def test_without_a_stored_position_it_starts_anew_and_tells_so(captured: MysqlCaptured) -> None:
    """Changes are lost, but neither rows nor heartbeats show the gap.

    Only the topic of definitions shows it, because the connector reads all definitions again.
    """
    name = captured.names.connector
    captured.database.query("INSERT INTO item VALUES (1, 'a')")
    captured.wait_until_captured(captured.position())
    assert len(fresh_starts(captured.changes())) == 1
    captured.connect.stop(name)
    captured.database.query("INSERT INTO item VALUES (2, 'lost')")
    captured.forget_offsets()
    assert captured.stored() is None
    captured.connect.resume(name)
    captured.connect.wait_running(name)
    captured.wait_for_beat()
    captured.database.query("INSERT INTO item VALUES (3, 'c')")
    captured.wait_until_captured(captured.position())
    assert ids(captured, "item") == [1, 3]
    found = beats(captured)
    assert found == list(range(1, len(found) + 1)), "nothing beats while the connector is stopped"
    assert len(fresh_starts(captured.changes())) == 2


def test_the_topic_of_definitions_explains_changes(captured: MysqlCaptured) -> None:
    database = captured.database
    start = captured.kafka.stable_offsets(captured.names.schema_change_topic)[0]
    for statement in (
        "ALTER TABLE item ADD COLUMN more int",
        "CREATE TABLE item_new LIKE item",
        "RENAME TABLE item TO item_old, item_new TO item",
        "TRUNCATE TABLE item",
        "OPTIMIZE TABLE item",
        "DROP TABLE item_old",
    ):
        database.query(statement)
    captured.wait_until_captured(captured.position())
    told = captured.changes(start)
    ours = [one for one in told if one.table and one.table.schema == database.name]
    found = [(one.kind, one.table.name) for one in ours if one.table is not None]
    assert all(one.gtid and not one.snapshot for one in ours)
    assert found == [
        ("ALTER", "item"),
        ("CREATE", "item_new"),
        ("ALTER", "item_old"),
        ("ALTER", "item"),
        ("DROP", "item_old"),
    ], "TRUNCATE is a change of rows, OPTIMIZE none at all"


class Noting(KafkaAdmin):
    """Notes the offsets that are read of topics."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(config)
        self.asked = list[tuple[int, int]]()

    def read(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float = 30.0
    ) -> Iterator[KafkaRecord]:
        self.asked.append((start, end))
        return super().read(topic, partition, start, end, timeout_s=timeout_s)


def test_a_later_process_goes_on_after_the_statements_of_an_earlier_one(
    captured: MysqlCaptured, tmp_path: Path
) -> None:
    store, names, kafka = (
        Store(f"sqlite:///{tmp_path / 'state.db'}"),
        captured.names,
        Noting(captured.config.kafka),
    )

    def found(kept: StatementsInStore | None) -> ReportedStatements:
        """What a new process finds."""
        kafka.asked.clear()
        return Definitions(kafka, captured.registry, kept).of(names)

    earlier = found(StatementsInStore(store))
    assert kafka.asked[0][0] == earlier.first
    last = earlier.changes[-1].offset
    captured.database.query("ALTER TABLE item ADD COLUMN more int")
    captured.wait_until_captured(captured.position())
    later = found(StatementsInStore(store))
    assert kafka.asked[0] == (last, last + 1)
    assert kafka.asked[1][0] == last + 1
    item = captured.table("item")
    assert [one.kind for one in later.by_table.of(item)] == ["ALTER"]
    whole = found(None)
    assert later.by_table.of(item) == whole.by_table.of(item)
    assert newest(later.changes) == newest(whole.changes)
    assert fresh_starts(later.changes) == fresh_starts(whole.changes)
    assert known_tables(later.changes) == known_tables(whole.changes)

    topic = names.schema_change_topic
    kafka.delete_topic(topic)
    wait_until(lambda: not kafka.topics([topic]), "the end of the topic")
    kafka.ensure_topic(topic, config=names.topic_config(topic))
    assert found(StatementsInStore(store)).changes == found(None).changes


def test_a_statement_is_told_with_the_table_that_its_record_lacks(captured: MysqlCaptured) -> None:
    """A record of DROP INDEX has the session's database, which no other record has."""
    database = captured.database
    here, there = database.name, f"{database.name}_too"
    parts = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))"
    indexes = "KEY a (n), KEY b (n), KEY c (n)"
    database.root(
        f"CREATE DATABASE {there}",
        *(f"CREATE TABLE {db}.kept (id int PRIMARY KEY, n int, {indexes})" for db in (here, there)),
        f"CREATE TABLE {here}.big (id int PRIMARY KEY) {parts}",
        *(f"CREATE TABLE {db}.swap (id int PRIMARY KEY)" for db in (here, there)),
    )
    try:
        captured.wait_until_captured(captured.mark())
        start = captured.kafka.stable_offsets(captured.names.schema_change_topic)[0]
        swap = "EXCHANGE PARTITION p WITH TABLE"
        database.root(
            f"USE {here}",
            "DROP INDEX a ON kept",
            f"/* app */ DROP INDEX b ON {there}.`kept`",
            f"ALTER TABLE big {swap} swap",
            f"USE {there}",
            "-- app\nDROP INDEX c ON kept",
            f"DROP INDEX b ON {here} . kept",
            f"ALTER TABLE {here}.big {swap} {there}.swap",
            f"ALTER TABLE {here}.big {swap} swap",
        )
        captured.wait_until_captured(captured.mark())
        reported = StatementsByTable(captured.changes(start))
        found = {
            (db, table): [one.statement for one in reported.of(TableId(captured.name, db, table))]
            for db in (here, there)
            for table in ("kept", "swap", "big")
        }
    finally:
        database.root(f"DROP DATABASE {there}")
    assert {key: len(value) for key, value in found.items()} == {
        (here, "kept"): 2,
        (there, "kept"): 2,
        # The last statement's session is unknown, so it counts for each table of that name.
        (here, "swap"): 2,
        (there, "swap"): 2,
        (here, "big"): 3,
        (there, "big"): 0,
    }, found


def test_the_tables_are_told_that_the_connector_knows(captured: MysqlCaptured) -> None:
    database = captured.database
    known = known_tables(captured.changes())
    assert {captured.table("item"), captured.table("late")} <= known
    database.query("CREATE TABLE young (id int PRIMARY KEY)")
    captured.wait_until_captured(captured.position())
    assert captured.table("young") in known_tables(captured.changes())
