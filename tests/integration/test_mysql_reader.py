"""How rows of MySQL and MariaDB are read: key ranges, chunks behind the fence, the replica."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession

from cdc.config import parse
from cdc.errors import PermanentError, ReplicaError, SourceError
from cdc.log.position import Lsn
from cdc.runtime import spark as spark_module
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql import preparation, primary, reader, replica
from cdc.sources.mysql.keys import key_types, predicate
from cdc.sources.source_facts import KeyRange, Marker, ServerIdentity, SourceTable
from cdc.sources.views import View
from stack.local import LocalStack
from stack.mysql_software import MARIADB
from stack.roles import SNAPSHOT
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import empty_transaction
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab, as_schema
from tests.integration.rigs.mysql_lab import lab as lab

UTC = timezone.utc


@pytest.fixture(scope="module")
def spark(
    mysql_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("lake")
    config = parse(mysql_stack.config_text(folder=folder))
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()


KEYS: dict[str, tuple[str, str, list[str]]] = {
    "int": ("id int", "id", [str(n * n) for n in range(-10, 60) if n > -1]),
    "bigint unsigned": (
        "id bigint unsigned",
        "id",
        [str(n) for n in (*range(20), *range(2**63 - 10, 2**63 + 10), 2**64 - 1)],
    ),
    "composite": (
        "a int, b varchar(20), c datetime(6)",
        "a, b, c",
        [
            f"{a}, '{b}', '2024-01-0{c} 00:00:00.00000{c}'"
            for a in (-1, 0, 7)
            for b in ("", "a", "É", "z''")
            for c in (1, 2, 3)
        ],
    ),
    "text": (
        "id varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "id",
        [
            f"'{text}'"
            for text in (
                *("a", "B", "é", "zz", "ß", "", "0", "😀", "中文", "a b", "a%", "a_", 'a"b'),
                *("x''; DROP TABLE keyed; --", "Z1", "z2", "Öl", "straße", "aa", "AB"),
            )
        ],
    ),
    "text with ties": (
        "id varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, n int",
        "id, n",
        [f"'{text}', {n}" for n, text in enumerate(("a", "A", "Ä", "á", "B", "b", "Z", "é", "E"))],
    ),
    "text by bytes": (
        "id varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "id",
        [f"'{text}'" for text in ("a", "A", "á", "Á", "😀", "b", "B", "\\\\", "ZZ", "zz", "")],
    ),
    "latin1": (
        "id varchar(20) CHARACTER SET latin1",
        "id",
        [f"'{text}'" for text in ("ä", "b", "ü", "z", "€", "A1", "a2", "Ö", "n")],
    ),
    "uuid as bytes": (
        "id binary(16)",
        "id",
        [f"x'{uuid.uuid5(uuid.NAMESPACE_DNS, str(n)).hex}'" for n in range(60)],
    ),
    "varbinary": ("id varbinary(8)", "id", ["x''", "x'00'", "x'0000'", "x'27'", "x'ff5c'"]),
    "decimal": ("id decimal(20,5)", "id", ["-1.5", "0", "0.00001", "12345678901234.99999", "7"]),
    "datetime": (
        "id datetime(3)",
        "id",
        [f"'{year}-02-28 12:00:00.{year % 1000:03}'" for year in range(1000, 2100, 50)],
    ),
    "timestamp": ("id timestamp", "id", [f"'20{n}-06-01 00:00:00'" for n in range(10, 37)]),
    "date": ("id date", "id", [f"'2024-01-{day:02}'" for day in range(1, 31)]),
    "enum": ("id enum('z','a','m')", "id", ["'z'", "'a'", "'m'"]),
    "double": ("id double", "id", ["-1e300", "-0.1", "0.1", "0.30000000000000004", "1e300"]),
    "year": ("id year", "id", ["1999", "2000", "2001", "2155"]),
    "time": ("id time(6)", "id", ["'-838:59:59'", "'-00:00:00.000001'", "'0:0:0'", "'99:0:0'"]),
    "bit": ("id bit(12)", "id", ["0", "1", "2047", "4095"]),
}
"""By kind of key: the SQL of the columns, the key's columns, and the SQL values of the rows."""


@pytest.mark.breadth
def test_chunks_have_each_row_once(lab: Lab) -> None:
    for title, (columns, parts, rows) in KEYS.items():
        values = ", ".join(f"({row}, {n})" for n, row in enumerate(rows))
        table = lab.make(
            title,
            f"CREATE TABLE `{title}` ({columns}, v int, PRIMARY KEY ({parts}))"
            " CHARACTER SET utf8mb4",
            f"INSERT INTO `{title}` VALUES {values}",
        )
        require_each_once(lab, table, len(rows))


def require_each_once(lab: Lab, table: SourceTable, count: int) -> None:
    title = table.table.name
    ranges = lab.ranges(table, 4, rows=count)
    assert 3 <= len(ranges) <= 8, title
    names = [f"`{name}`" for name in table.primary_key]
    types = key_types(table, table.primary_key)
    found: list[int] = []
    with lab.connections.open("snapshot", on_replica=True) as session:
        for one in ranges:
            read = (
                f"SELECT v FROM {lab.database.name}.`{title}` WHERE {predicate(one, names, types)}"
            )
            rows = session.rows(read)
            assert rows, f"{title}: chunk {one} is empty"
            found += [row[0] for row in rows]
            plan = str(session.value(f"EXPLAIN FORMAT = JSON {read}"))
            # Comparing with their numbers, MySQL finds these without the index.
            assert "PRIMARY" in plan or title in ("enum", "bit", "year"), f"{title}: no index"
    assert sorted(found) == list(range(count)), title


@pytest.mark.breadth
def test_spark_reads_the_chunks_under_views_behind_the_fence(lab: Lab, spark: SparkSession) -> None:
    preparation.prepare(lab.connections)
    preparation.prepare(lab.connections)
    assert preparation.planned(lab.connections) == []
    table = lab.make(
        "odd names",
        "CREATE TABLE `odd names` (`key` int, `group` varchar(20), `ä` decimal(38,10),"
        " b binary(3), t timestamp(6) NULL, d date, PRIMARY KEY (`key`, `group`))"
        " CHARACTER SET utf8mb4",
        *(
            f"INSERT INTO `odd names` VALUES ({n // 7}, 'k{n}', {n}.5, x'00ff{n:02x}',"
            f" '2024-01-01 00:00:00.{n:06}', '2024-01-{n % 28 + 1:02}')"
            for n in range(60)
        ),
    )
    schema = as_schema(table)
    view = a_view(lab)
    for used in (view, None):
        query = reader.snapshot_query(
            lab.connections,
            table,
            schema,
            lab.ranges(table, 4, rows=60),
            view=used,
            fetch_size=7,
        )
        assert "password" not in repr(query)
        frame = spark.read.jdbc(
            query.url, query.table, predicates=list(query.predicates), properties=query.properties
        ).selectExpr(*query.select)
        rows = {row[1]: row for row in frame.collect()}
        assert len(rows) == 60
        assert rows["k59"][0] == 59 // 7
        assert rows["k59"][2:4] == (Decimal("59.5000000000"), bytearray(b"\0\xff\x3b"))
        assert rows["k59"][5] == date(2024, 1, 59 % 28 + 1)
        assert frame.schema["t"].dataType.simpleString() == "timestamp"
    elsewhere = View(
        **{**vars(view), "marker": Marker(uuid.uuid4(), None, None, Lsn(0))},
    )
    other_server = View(
        **{**vars(view), "identity": ServerIdentity("not this one", None, True)},
    )
    for wrong in (elsewhere, other_server):
        error = failure(lab, spark, table, wrong)
        assert isinstance(error, ReplicaError), error
    lab.database.root(f"REVOKE SELECT ON {lab.database.name}.* FROM {SNAPSHOT}@'127.0.0.1'")
    try:
        lab.database.catch_up()
        error = failure(lab, spark, table, view)
        assert isinstance(error, PermanentError), error
        assert error.remedy.startswith("Give credentials.snapshot SELECT on the table")
    finally:
        lab.database.root(f"GRANT SELECT ON {lab.database.name}.* TO {SNAPSHOT}@'127.0.0.1'")
    lab.database.catch_up()
    assert len(read(lab, spark, table, view)) == 60


@pytest.mark.breadth
def test_a_zero_date_in_a_key_ends_the_copy(lab: Lab, spark: SparkSession) -> None:
    preparation.prepare(lab.connections)
    table = lab.make(
        "dated",
        "CREATE TABLE dated (d date NOT NULL PRIMARY KEY)",
        "SET SESSION sql_mode = ''",
        "INSERT INTO dated VALUES ('2024-02-29'), ('0000-00-00')",
    )
    error = failure(lab, spark, table, a_view(lab))
    assert isinstance(error, PermanentError), error
    assert "a date that no calendar has" in error.message


def read(lab: Lab, spark: SparkSession, table: SourceTable, view: View) -> list[Row]:
    query = reader.snapshot_query(
        lab.connections, table, as_schema(table), [KeyRange()], view=view, fetch_size=100
    )
    frame = spark.read.jdbc(
        query.url, query.table, predicates=list(query.predicates), properties=query.properties
    )
    return frame.selectExpr(*query.select).collect()


def failure(lab: Lab, spark: SparkSession, table: SourceTable, view: View) -> SourceError:
    with pytest.raises(Exception) as raised:
        read(lab, spark, table, view)
    assert reader.is_from_server(str(raised.value))
    return reader.explain_failure(table.table, str(raised.value))


def a_view(lab: Lab) -> View:
    """A view that is opened after the replica shows a new marker."""
    written = primary.write_marker(lab.connections)
    reached = replica.wait_for_position(
        lab.connections, written.position, timeout_s=30, progress=NullProgress()
    )
    assert reached.reaches(written.position)
    with lab.connections.open("snapshot", on_replica=True) as session:
        server, is_replica = primary.identity(session, lab.kind)
        assert is_replica
    assert lab.shows(written.id)
    assert not lab.shows(uuid.uuid4())
    assert server != written.system_identifier
    return View(
        snapshot_id="",
        upper_bound=Lsn(0),
        opened_at=datetime.now(UTC),
        on_replica=True,
        marker=replace(written, position=Lsn(0)),
        identity=ServerIdentity(server, None, is_replica),
    )


@pytest.mark.breadth
def test_a_replica_that_stands_still_is_named(lab: Lab) -> None:
    preparation.prepare(lab.connections)
    lab.database.catch_up()
    word = "SLAVE" if lab.kind == MARIADB else "REPLICA"
    lab.database.root(f"STOP {word} SQL_THREAD", replica=True)
    try:
        written = primary.write_marker(lab.connections)
        with pytest.raises(ReplicaError, match="applier is stopped"):
            replica.wait_for_position(
                lab.connections, written.position, timeout_s=0.2, progress=NullProgress()
            )
        assert replica.position(lab.connections).stopped
        assert not lab.shows(written.id)
    finally:
        lab.database.root(f"START {word} SQL_THREAD", replica=True)
    lab.database.catch_up()
    assert not replica.position(lab.connections).stopped


@pytest.mark.breadth
def test_a_replica_that_differs_in_silence_is_refused(lab: Lab) -> None:
    """The replica has own transactions, leaves out changes, or skips those that it cannot apply."""
    preparation.prepare(lab.connections)
    server = lab.database
    word = "SLAVE" if lab.kind == MARIADB else "REPLICA"
    skips = f"{word.lower()}_exec_mode"
    if lab.kind == MARIADB:
        setting = "CHANGE MASTER TO IGNORE_DOMAIN_IDS = ({})"
        leave_out, named = (setting.format(99), setting.format("")), "replicate_ignore_domain_ids"
    else:
        setting = "CHANGE REPLICATION FILTER REPLICATE_REWRITE_DB = ({})"
        leave_out, named = (setting.format("(a, b)"), setting.format("")), "replicate_rewrite_db"

    def refused() -> str:
        server.catch_up()
        try:
            reach(lab)
        except ReplicaError as error:
            return f"{error.message} {error.remedy}"
        return ""

    def stopped(statement: str) -> None:
        server.root(f"STOP {word}", statement, f"START {word}", replica=True)

    assert refused() == ""
    server.root(f"SET GLOBAL {skips} = 'IDEMPOTENT'", replica=True)
    assert f"than the primary has: {skips} = IDEMPOTENT" in refused()
    server.root(f"SET GLOBAL {skips} = 'STRICT'", replica=True)
    if lab.kind == MARIADB:
        triggers = "slave_run_triggers_for_rbr"
        stopped(f"SET GLOBAL {triggers} = 'YES'")
        assert f"than the primary has: {triggers} = YES" in refused()
        stopped(f"SET GLOBAL {triggers} = 'NO'")
    stopped(leave_out[0])
    told = refused()
    assert f"leaves out changes: {named}" in told
    assert "Use a replica without filters." in told
    stopped(leave_out[1])
    assert refused() == ""
    # What a managed service leaves out of each replica: tables of the server itself.
    own = "mysql.rds_history,innodb_memcache.cache_policies"
    stopped(ignoring(lab.kind, own))
    assert refused() == ""
    stopped(ignoring(lab.kind, f"{own},{server.name}.item"))
    assert "leaves out changes: replicate_ignore_table" in refused()
    stopped(ignoring(lab.kind, ""))
    assert refused() == ""

    gtid, write = errant(lab)
    server.root(*write, replica=True)
    told = refused()
    assert f"has executed transactions that the primary has not: {gtid}" in told
    assert "an empty transaction with the same GTID on the primary is enough" in told
    server.root(*empty_transaction(lab.kind, gtid))
    assert refused() == ""


def ignoring(kind: str, tables: str) -> str:
    """The statement that makes a replica ignore the changes of these tables."""
    if kind == MARIADB:
        return f"SET GLOBAL replicate_ignore_table = '{tables}'"
    return f"CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({tables})"


def reach(lab: Lab) -> None:
    written = primary.write_marker(lab.connections)
    replica.wait_for_position(
        lab.connections, written.position, timeout_s=60, progress=NullProgress()
    )


def errant(lab: Lab) -> tuple[str, tuple[str, ...]]:
    """The GTID of a transaction that only the replica has, and the statements that execute it."""
    if lab.kind == MARIADB:
        # In another domain, so that the primary's next transaction still has the next number.
        number = int(lab.database.root("SELECT @@server_id", replica=True)[0][0])
        gtid = f"7-{number}-{uuid.uuid4().int % 2**31}"
        return gtid, empty_transaction(MARIADB, gtid)
    gtid = f"{uuid.uuid4()}:1"
    return gtid, empty_transaction(lab.kind, gtid)
