"""What is read of MySQL and MariaDB: key ranges, facts of tables, rows by key, the fence."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from cdc.config import MysqlSourceConfig, TableSettings, parse
from cdc.errors import MissingTableError, PermanentError, ReplicaError, SourceError
from cdc.gtid import GtidSet
from cdc.position import Lsn
from cdc.progress import NullProgress
from cdc.sources.mysql import (
    boundaries,
    catalog,
    grants,
    lookup,
    preparation,
    primary,
    reader,
    replica,
)
from cdc.sources.mysql.connection import Connections
from cdc.sources.mysql.keys import key_types, predicate
from cdc.sources.selection import lake_schema
from cdc.sources.values import KeyRange, Marker, ServerIdentity, SourceTable, TableSize, View
from schemas.catalog import Catalog
from schemas.table import TableId, TableSchema
from stack.local import LocalStack
from stack.mysql_software import MARIADB
from stack.roles import ADMIN, SNAPSHOT
from tests.integration.mysql import MysqlDatabase
from tests.integration.mysql import database as database
from tests.integration.mysql import mysql_stack as mysql_stack

UTC = timezone.utc


@dataclass(frozen=True)
class Lab:
    """One database and how it is read."""

    database: MysqlDatabase
    connections: Connections
    folder: Path

    @property
    def kind(self) -> str:
        return self.database.kind

    def table(self, name: str) -> SourceTable:
        with self.connections.open("admin") as session:
            return catalog.read_table(session, TableId("shop", self.database.name, name))

    def make(self, name: str, *statements: str) -> SourceTable:
        with self.database.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self.database.catch_up()
        return self.table(name)

    def ranges(self, table: SourceTable, chunks: int, *, rows: int) -> list[KeyRange]:
        with self.connections.open("snapshot", on_replica=True) as session:
            found = boundaries.sample_boundaries(
                session, table, table.primary_key, chunks, TableSize(rows, rows * 100)
            )
        points = [None, *found.points, None]
        return [KeyRange(*ends) for ends in itertools.pairwise(points)]


@pytest.fixture
def lab(database: MysqlDatabase, tmp_path: Path) -> Lab:
    text = database.stack.config_text(
        database=database.name, kinds=[database.kind], folder=tmp_path
    )
    ((name, config),) = parse(text).sources.items()
    assert isinstance(config, MysqlSourceConfig)
    return Lab(database, Connections(name, config), tmp_path)


@pytest.fixture(scope="module")
def spark(
    mysql_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("lake")
    config = parse(mysql_stack.config_text(folder=folder))
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()


def as_schema(table: SourceTable) -> TableSchema:
    return lake_schema(table, TableSettings())


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
"""By kind of key: the columns, the key, and the rows."""


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
        'CREATE TABLE `odd names` (`the "key` int, `part``2` varchar(20), `ä` decimal(38,10),'
        ' b binary(3), t timestamp(6) NULL, d date, PRIMARY KEY (`the "key`, `part``2`))'
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
    finally:
        lab.database.root(f"GRANT SELECT ON {lab.database.name}.* TO {SNAPSHOT}@'127.0.0.1'")


def failure(lab: Lab, spark: SparkSession, table: SourceTable, view: View) -> SourceError:
    query = reader.snapshot_query(
        lab.connections, table, as_schema(table), [KeyRange()], view=view, fetch_size=100
    )
    with pytest.raises(Exception) as raised:
        spark.read.jdbc(
            query.url, query.table, predicates=list(query.predicates), properties=query.properties
        ).selectExpr(*query.select).collect()
    assert reader.is_from_server(str(raised.value))
    return reader.explain_failure(table.table, str(raised.value))


def a_view(lab: Lab) -> View:
    """Behind a marker that the replica has."""
    with lab.connections.open("marker") as session:
        written = primary.write_marker(session, lab.kind)
    reached = replica.wait_for_position(
        lab.connections, written.executed, timeout_s=30, progress=NullProgress()
    )
    assert reached.reaches(written.executed)
    with lab.connections.open("snapshot", on_replica=True) as session:
        server, is_replica = primary.identity(session, lab.kind)
        assert is_replica
        assert replica.marker_visible(session, written.id)
        assert not replica.marker_visible(session, uuid.uuid4())
    assert server != written.server
    return View(
        snapshot_id="",
        upper_bound=Lsn(0),
        opened_at=datetime.now(UTC),
        on_replica=True,
        marker=Marker(written.id, written.server, None, Lsn(0)),
        identity=ServerIdentity(server, None, is_replica),
    )


@pytest.mark.breadth
def test_a_replica_that_stands_still_is_named(lab: Lab) -> None:
    preparation.prepare(lab.connections)
    lab.database.catch_up()
    word = "SLAVE" if lab.kind == MARIADB else "REPLICA"
    lab.database.root(f"STOP {word} SQL_THREAD", replica=True)
    try:
        with lab.connections.open("marker") as session:
            written = primary.write_marker(session, lab.kind)
        with pytest.raises(ReplicaError, match="applier is stopped"):
            replica.wait_for_position(
                lab.connections, written.executed, timeout_s=0.2, progress=NullProgress()
            )
        assert replica.position(lab.connections).stopped
        with lab.connections.open("snapshot", on_replica=True) as session:
            assert not replica.marker_visible(session, written.id)
    finally:
        lab.database.root(f"START {word} SQL_THREAD", replica=True)
    lab.database.catch_up()
    assert not replica.position(lab.connections).stopped


@pytest.mark.breadth
def test_facts_agree_on_primary_and_replica_and_tell_what_happened(lab: Lab) -> None:
    before = lab.make(
        "told-é",
        "CREATE TABLE `told-é` (id int PRIMARY KEY, a varchar(20) NOT NULL DEFAULT 'x', b int,"
        " v int AS (b + 1), s int AS (b + 2) STORED, UNIQUE (a), UNIQUE part (a(3)), UNIQUE (b))",
    )
    assert before.unique_indexes[0] == ("id",)
    assert set(before.unique_indexes) == {("id",), ("a",), ("b",)}
    assert not any(column.generated for column in before.columns), "events carry them"
    assert before.primary_key == before.identity_columns == ("id",)
    assert before.oid
    table = before.table
    with lab.connections.open("admin") as session:
        described, facts = catalog.read_described(session, table)
        assert described == before
        assert set(catalog.read_fingerprints(session, [table])) == {table}
        with pytest.raises(MissingTableError):
            catalog.read_table(session, TableId("shop", lab.database.name, "gone"))
    with lab.connections.open("snapshot", on_replica=True) as session:
        theirs = catalog.read_fingerprint(session, table, on_replica=True)
    assert facts.diff(catalog.with_files(theirs, facts)) == []
    assert Catalog.read(facts.facts).primary_key == ("id",)

    def changed(*statements: str) -> set[str]:
        nonlocal facts
        for statement in statements:
            lab.database.query(statement)
        with lab.connections.open("admin") as session:
            now = catalog.read_fingerprint(session, table)
        differences = {line.split(" ")[0].split(".")[0] for line in facts.diff(now)}
        facts = now
        return differences

    files = {"relfilenode", "table_id"}
    assert changed("INSERT INTO `told-é` (id, a, b) VALUES (1, 'x', 1)") == set()
    assert files <= changed("TRUNCATE `told-é`")
    assert files <= changed(
        "CREATE TABLE n LIKE `told-é`", "RENAME TABLE `told-é` TO o, n TO `told-é`"
    )
    assert files <= changed("ALTER TABLE `told-é` FORCE")
    assert "expressions" in changed("ALTER TABLE `told-é` DROP v, ADD v int AS (b + 3)")
    assert "columns" in changed("ALTER TABLE `told-é` CONVERT TO CHARACTER SET latin1")
    if lab.kind == MARIADB:
        lab.database.query("DO sleep(1.1)")  # the time of the last ALTER, in seconds
    # In place where that is possible, else by a rebuild.
    assert {"altered", "table_id"} & changed(
        "ALTER TABLE `told-é` ADD c int", "ALTER TABLE `told-é` DROP c"
    )


@pytest.mark.breadth
def test_rows_by_key_are_what_the_lake_has(lab: Lab) -> None:
    table = lab.make(
        "looked",
        "CREATE TABLE looked (a varchar(10), b datetime(6), c time(6), e enum('x','y'),"
        " u bigint unsigned, f float, d date, bits bit(1), bin varbinary(5), ts timestamp(6) NULL,"
        " PRIMARY KEY (a, b, c, e, u)) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "INSERT INTO looked VALUES ('Ä''', '2024-01-02 03:04:05.000006', '-01:00:00.5', 'y',"
        " 18446744073709551615, 0.1, '2024-02-29', b'1', x'00ff', '2024-01-01 00:00:00.000001')",
    )
    schema = as_schema(table)
    key = ["Ä'", datetime.fromisoformat("2024-01-02 03:04:05.000006"), -3_600_500_000, "y"]
    whole = [*key, Decimal(2**64 - 1)]
    other_case = ["ä'", *whole[1:]]
    names = [column.name for column in schema.columns]
    with lab.connections.open("snapshot") as session:
        rows = lookup.fetch_by_key(session, table, schema, [whole, other_case], names)
        assert lookup.fetch_by_key(session, table, schema, [other_case], names) == []
        assert lookup.count(session, table) == 1
        size = boundaries.table_size(session, table)
        assert boundaries.largest_row(session, table)
    assert size.rows == 1
    assert size.heap_bytes > 0
    assert rows == [
        {
            **dict(zip(schema.key, whole, strict=True)),
            "f": 0.10000000149011612,
            "d": date(2024, 2, 29),
            "bits": True,
            "bin": b"\0\xff",
            "ts": datetime.fromisoformat("2024-01-01 00:00:00.000001+00:00"),
        }
    ]


@pytest.mark.breadth
def test_what_a_column_added_later_shows_in_older_rows(lab: Lab) -> None:
    table = lab.make(
        "older",
        "CREATE TABLE older (id int PRIMARY KEY)",
        "INSERT INTO older VALUES (1)",
        "ALTER TABLE older ADD t varchar(10) NOT NULL DEFAULT 'it''s',"
        " ADD d decimal(9,2) DEFAULT 7, ADD n int, ADD b varbinary(3) DEFAULT 'ab'",
    )
    schema = as_schema(table)
    with lab.connections.open("admin") as session:
        shown = [
            lookup.stored_value(session, table, schema.column(name))[0] for name in ("t", "d", "b")
        ]
    assert shown == ["it's", "7.00", "6162"]


@pytest.mark.breadth
def test_grants_are_enough_and_what_is_wrong_with_the_binlog_is_named(lab: Lab) -> None:
    table = lab.make("granted", "CREATE TABLE granted (id int PRIMARY KEY)")
    preparation.prepare(lab.connections)
    statements = grants.grants_sql(
        lab.connections.config, [table], grants.accounts(lab.connections)
    )
    lab.database.root(*statements)
    with lab.connections.open("admin") as session:
        assert preparation.audit(session, table) == []
        executed: GtidSet = primary.executed(session, lab.kind)
        assert executed.reaches(primary.purged(session, lab.kind))
        assert primary.binlog_bytes(session) > 0
    lab.database.root("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        with lab.connections.open("admin") as session:
            assert any("binlog_row_image" in line for line in preparation.audit(session, table))
    finally:
        lab.database.root("SET GLOBAL binlog_row_image = 'FULL'")
    lab.database.root(f"REVOKE PROCESS ON *.* FROM {ADMIN}@'127.0.0.1'")
    try:
        with pytest.raises(SourceError, match="InnoDB") as raised:
            lab.table("granted")
        assert raised.value.remedy.startswith("GRANT PROCESS")
    finally:
        lab.database.root(f"GRANT PROCESS ON *.* TO {ADMIN}@'127.0.0.1'")
