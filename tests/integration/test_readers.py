"""Query engines read the tables by name and show each cell as the source has it.

The page docs/readers_engines.md lists the cells that engines show differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from operate.resync import resync
from stack.artifacts import version_of
from stack.local import LocalStack
from stack.mysql_software import MARIADB
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.trino import CATALOG, REDIRECTING_CATALOG
from tests.integration.rigs import query_servers
from tests.integration.rigs.engines import GENERATION, Counted, Engine, Spark, Trino
from tests.integration.rigs.jdbc import Hive, Jdbc, Presto
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_cells import CASES, OWN
from tests.integration.rigs.named import NamedShop, Readers, named_spark
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.reader_page import agrees, compare
from tests.integration.rigs.shop import run_without_error, succeeded
from tests.integration.rigs.typed import TYPES, create_types, rows_of_types

pytestmark = pytest.mark.breadth

PAGE = Path(__file__).parents[2] / "docs" / "readers_engines.md"
TYPES_PART = "Types of the lake"
CHANGES_PART = "Changes"
PARTITIONS_PART = "Partitions"
ODD = ("a b", "ä€", "a/b", "a=b", "100%", "a:b", "x'y\"z", "#?&")
"""Values of a partition column; most of them are encoded in the names of their folders."""


@pytest.fixture(scope="module")
def metastore(stack: LocalStack) -> str:
    stack.up(optional=["trino"])
    url = stack.addresses().metastore_url
    assert url is not None
    return url


@pytest.fixture(scope="module")
def spark(
    stack: LocalStack, metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    with named_spark(stack, metastore, tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def trino(stack: LocalStack, metastore: str) -> list[Trino]:
    """Engines for both catalogs of Trino, which must show the same."""
    port = stack.addresses().ports["trino"]
    title = f"Trino {version_of('trino', 'trino-server')}"
    return [Trino(HOST, port, catalog, title) for catalog in (CATALOG, REDIRECTING_CATALOG)]


@pytest.fixture(scope="module")
def hive(
    spark: SparkSession, metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hive]:
    folder = tmp_path_factory.mktemp("hive") / "server"
    with query_servers.hive_server(folder, metastore) as server:
        driver = "org.apache.hive.jdbc.HiveDriver"
        yield Hive(Jdbc(spark, driver, server.url), f"Hive {query_servers.HIVE}")


@pytest.fixture(scope="module")
def presto(
    spark: SparkSession, metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Presto]]:
    """Engines for both catalogs of Presto."""
    folder = tmp_path_factory.mktemp("presto") / "server"
    with query_servers.presto_server(folder, metastore) as server:
        connections = Jdbc(
            spark,
            "com.facebook.presto.jdbc.PrestoDriver",
            server.url,
            query_servers.presto_jdbc(),
            {"user": "tributary"},
        )
        title = f"Presto {query_servers.PRESTO}"
        yield [
            Presto(connections, catalog, f"{title}, catalog `{catalog}`")
            for catalog in query_servers.PRESTO_CATALOGS
        ]


@pytest.fixture
def readers(
    database: Database,
    spark: SparkSession,
    metastore: str,
    trino: list[Trino],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Readers]:
    shop = NamedShop(database, spark, tmp_path)
    shop.tables = {
        database.label("parts"): {"partition_by": ["part", "day"]},
        **{database.label(name): {"partition_by": ["part"]} for name in ("odd", "nulls")},
        database.label("soft"): {"delete_mode": "soft"},
    }
    shop.reconfigure(catalog={"metastore": metastore})
    engines: list[Engine] = [Spark(spark, f"Spark {spark.version}"), *trino]
    if database.kind == POSTGRES:
        # One kind is enough for the engines whose servers take minutes.
        engines += [request.getfixturevalue("hive"), *request.getfixturevalue("presto")]
    yield Readers(shop, engines)
    shop.services.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "database", kinds(POSTGRES, MARIADB, of=(POSTGRES, MARIADB)), indirect=True
)
def test_each_engine_shows_what_the_page_says(readers: Readers, database: Database) -> None:
    shop = readers.shop
    create_typed(database)
    create_others(database)
    tables = ("typed", "parts", "odd", "nulls", "soft")
    succeeded(shop.onboard(*tables))
    readers.compare_types(TYPES_PART, "typed")
    readers.compare(CHANGES_PART, "copy", "typed", "parts", "soft")
    readers.compare(PARTITIONS_PART, "by numbers and dates", "parts")
    special = "by text, " + " ".join(f"`{value}`" for value in ODD)
    readers.compare(PARTITIONS_PART, special, "odd")
    readers.compare(PARTITIONS_PART, "by numbers, with NULL", "nulls")
    change_rows(readers)
    change_columns(readers)
    succeeded(resync(shop.services, [shop.table(name) for name in ("typed", "parts", "soft")]))
    readers.compare(CHANGES_PART, "resync", "typed", "parts", "soft")
    shop.database.execute("TRUNCATE TABLE parts", f"INSERT INTO parts {VALUES.format(7, 9)}")
    follow(readers, "parts")
    readers.compare(CHANGES_PART, "TRUNCATE, then new rows", "parts")
    if database.kind == POSTGRES:
        compare(PAGE, readers.results)
    else:
        agrees(PAGE, readers.results)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_queries_of_trino_go_on_while_resyncs_move_the_names(
    database: Database, spark: SparkSession, metastore: str, trino: list[Trino], tmp_path: Path
) -> None:
    """A scan stays on the generation that it began with; later queries read one complete table."""
    names = ("whole", "parts")
    shop = NamedShop(database, spark, tmp_path)
    # No former generation stays for its number, only for the readers.
    kept = {"retain_generations": 0, "readers_keep": "1h"}
    shop.tables = {
        database.label("whole"): {"index": "bucket", "buckets": SCANNED_FILES, **kept},
        database.label("parts"): {"partition_by": ["v"], **kept},
    }
    shop.reconfigure(catalog={"metastore": metastore})
    with closing(shop.services):
        shop.create("whole", SCANNED_ROWS)
        database.execute("CREATE TABLE parts (id int PRIMARY KEY, v int NOT NULL)")
        database.load("parts", ((n, n % 7) for n in range(SCANNED_ROWS)))
        succeeded(shop.onboard(*names))
        served = [[shop.serving(name) for name in names]]
        counts = [Counted(trino[0], shop.named(name)) for name in names]
        with trino[0].scan(f"SELECT id, {GENERATION}, {WIDE} FROM {shop.named('whole')}") as scan:
            rows = [scan.fetchone()]
            with counts[0].counting(), counts[1].counting():
                for _ in range(MOVES):
                    succeeded(resync(shop.services, [shop.table(name) for name in names]))
                    served.append([shop.serving(name) for name in names])
            ((scanned,),) = trino[0].ask(SCANNED.format(scan.query_id))
            rows += scan.fetchall()
    assert scanned < SCANNED_ROWS, "the scan had read all before the names moved"
    assert sorted(number for number, *_ in rows) == list(range(1, SCANNED_ROWS + 1))
    assert {generation for _, generation, _ in rows} == {served[0][0]}
    whole, parts = counts
    for counted, generations in zip(counts, zip(*served, strict=True), strict=True):
        assert counted.generations() == list(generations)
        assert {rows for rows, *_ in counted.answers} - {0} == {SCANNED_ROWS}
    assert ([rows for rows, *_ in whole.answers if not rows], whole.failures) == ([], [])
    # Trino asks for the partitions of a table by its name, after it has asked for the table. So a
    # query that begins before the name moves, and asks after it, fails or finds no partitions.
    moved = ("TABLE_NOT_FOUND", "HUDI_CANNOT_OPEN_SPLIT", "HUDI_PARTITION_NOT_FOUND")
    assert [reason for reason in parts.failures if not reason.startswith(moved)] == []
    hit = len(parts.failures) + sum(not rows for rows, *_ in parts.answers)
    assert hit <= MOVES, "at each move at most the query of that moment"


MOVES = 2
SCANNED_ROWS = 4800
SCANNED_FILES = 24
WIDE = "rpad(t, 30000, t)"
"""SQL for a wide text: with it, Trino cannot finish a scan before the client fetches rows."""
SCANNED = "SELECT sum(processed_input_rows) FROM system.runtime.tasks WHERE query_id = '{}'"
VALUES = "(id, part, day, n, f, d, v) VALUES ({}, {}, '2024-02-29', 1, 1, 1, 'new')"


def create_typed(database: Database) -> None:
    """Create a table with a column of each type, and rows with all test values of the types."""
    if database.kind == POSTGRES:
        create_types(database)
        columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(TYPES))
        database.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {columns})")
        for number, (given, values) in enumerate(rows_of_types(), 1):
            into, row = ", ".join(given), ", ".join(values)
            database.execute(f"INSERT INTO typed (id, {into}) VALUES ({number}, {row})")
        return
    cases = (*CASES, *OWN[database.kind])
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(cases))
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', NAMES utf8mb4")
        cursor.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {columns}) CHARSET utf8mb4")
        for number in range(1, max(len(values) for _, values in cases) + 1):
            row = ", ".join(values[number % len(values)][0] for _, values in cases)
            cursor.execute(f"INSERT INTO typed VALUES ({number}, {row})")


def create_others(database: Database) -> None:
    real = "real" if database.kind == POSTGRES else "float"
    database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, part int NOT NULL, day date NOT NULL, n int,"
        f" f {real}, d decimal(10,2), v varchar(100), gone varchar(10),"
        f" {database.quoted('CamelCase')} int)",
        "CREATE TABLE odd (id int PRIMARY KEY, part varchar(50) NOT NULL)",
        "CREATE TABLE nulls (id int PRIMARY KEY, part int)",
        "CREATE TABLE soft (id int PRIMARY KEY, v varchar(100))",
    )
    database.load(
        "parts",
        (
            (n, n % 3, f"2024-02-{n % 2 + 1:02}", n, n / 7, f"{n}.25", f"row {n}", "x", -n)
            for n in range(1, 31)
        ),
    )
    database.load("odd", enumerate(ODD))
    database.load("nulls", [(1, 1), (2, None)])
    database.load("soft", ((n, f"row {n}") for n in range(1, 6)))


def change_rows(readers: Readers) -> None:
    """Update, delete and move rows to other partitions, and compare after each change."""
    readers.shop.database.execute(
        *(f"DELETE FROM {name} WHERE id = 3" for name in ("typed", "parts")),
        "UPDATE typed SET c2 = NULL WHERE id = 2",
        "UPDATE parts SET n = n + 100 WHERE id = 4",
        "UPDATE parts SET part = 2 WHERE id = 6",
        "UPDATE parts SET part = 8 WHERE id = 7",
        f"INSERT INTO parts {VALUES.format(100, 9)}",
        "UPDATE soft SET v = 'changed' WHERE id = 2",
    )
    follow(readers, "typed", "parts", "soft")
    readers.compare(CHANGES_PART, "updates, deletes, moves between partitions", "typed", "parts")
    readers.shop.database.execute("DELETE FROM soft WHERE id = 4")
    follow(readers, "soft")
    types = {"id": "int", "v": "string", "_cdc_deleted": "boolean"}
    rows = [
        {"id": n, "v": "changed" if n == 2 else f"row {n}", "_cdc_deleted": n == 4}
        for n in range(1, 6)
    ]
    readers.expect(CHANGES_PART, "deletes with `delete_mode: soft`", "soft", types, rows)


def change_columns(readers: Readers) -> None:
    """Add, widen and drop columns, and compare after each change.

    Most partitions keep the files from before the change.
    """
    database = readers.shop.database
    database.execute(
        *(f"ALTER TABLE {name} ADD w varchar(10)" for name in ("typed", "parts")),
        *(f"UPDATE {name} SET w = 'w' WHERE id = 2" for name in ("typed", "parts")),
    )
    follow(readers, "typed", "parts")
    readers.compare(
        CHANGES_PART, "a new column, also with partitions from before", "typed", "parts"
    )
    for column, kind in {"n": "bigint", "f": "double precision", "d": "decimal(14,2)"}.items():
        database.execute(database.retype("parts", column, kind))
    database.execute("UPDATE parts SET n = 5000000000, f = 1e300, d = 123456789012.34 WHERE id = 1")
    follow(readers, "parts")
    wider = "wider numbers (int to bigint, float to double, more digits)"
    readers.compare(CHANGES_PART, wider, "parts")
    database.execute("ALTER TABLE parts DROP COLUMN gone", "UPDATE parts SET v = 'z' WHERE id = 1")
    follow(readers, "parts")
    readers.compare(CHANGES_PART, "a dropped column", "parts")


def follow(readers: Readers, *names: str) -> None:
    for name in names:
        readers.shop.settle(name)
    run_without_error(readers.shop)
