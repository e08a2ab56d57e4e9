"""Spark's reads from the source: in a view, and by ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from bootstrap.chunks import cut_chunks, key_range
from cdc.config import TableSettings
from cdc.errors import ReplicaError, SnapshotLostError, SourceError
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres import key_order
from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.source_facts import KeyRange, NextInserted, SourceTable
from schemas.table import TableId, TableSchema
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import (
    WHOLE,
    capture_of,
    local_spark,
    on_replica,
    open_source,
    read,
    table_id,
)

QUIET = NullProgress()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, "pub_test").prepare()
    return opened


# ---- ranges and view


KEYS = [
    ("bigint", "(id bigint PRIMARY KEY)", "SELECT g FROM generate_series(1, 5000) g"),
    (
        "skewed",
        "(id bigint PRIMARY KEY)",
        "SELECT CASE WHEN g <= 4900 THEN g ELSE g * 10000000000 END "
        "FROM generate_series(1, 5000) g",
    ),
    ("uuid", "(id uuid PRIMARY KEY)", "SELECT gen_random_uuid() FROM generate_series(1, 5000)"),
    (
        "composite",
        '("Order" int, b text COLLATE "C", PRIMARY KEY ("Order", b))',
        "SELECT g % 3, 'k' || g FROM generate_series(1, 5000) g",
    ),
    (
        "text",
        '(id text COLLATE "und-x-icu" PRIMARY KEY)',
        "SELECT chr(97 + g % 26) || CASE WHEN g % 2 = 0 THEN 'Ä' ELSE 'b''\\' END || g "
        "FROM generate_series(1, 5000) g",
    ),
    ("char", "(id char(8) PRIMARY KEY)", "SELECT 'k' || g FROM generate_series(1, 5000) g"),
    (
        "bytea",
        "(id bytea PRIMARY KEY)",
        "SELECT sha256(g::text::bytea) FROM generate_series(1, 5000) g",
    ),
    (
        "time",
        "(at timestamptz, d date, PRIMARY KEY (at, d))",
        "SELECT '2020-01-01'::timestamptz + g * interval '1.5 s', '2020-01-01'::date + g "
        "FROM generate_series(1, 5000) g",
    ),
    (
        "float",
        "(id float8 PRIMARY KEY)",
        "SELECT CASE g WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' "
        "ELSE g / 3.0 END FROM generate_series(1, 5000) g",
    ),
    (
        "mood",
        "(k mood, id int, PRIMARY KEY (k, id))",
        "SELECT (array['zz', 'aa'])[1 + g % 2]::mood, g FROM generate_series(1, 5000) g",
    ),
    ("empty", "(id int PRIMARY KEY)", "SELECT 1 WHERE false"),
    ("one", "(id int PRIMARY KEY)", "SELECT 1"),
    (
        "partitioned",
        "(id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "SELECT g FROM generate_series(1, 5000) g",
    ),
]


@pytest.mark.parametrize("analyzed", [True, False])
def test_chunks_are_even_disjoint_and_complete_for_every_kind_of_key(
    database: Database, source: PostgresSource, analyzed: bool
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('zz', 'aa')")
    for name, definition, rows in KEYS:
        database.execute(f"CREATE TABLE {name}_t {definition} ")
        if name == "partitioned":
            database.execute(
                "CREATE TABLE part_1 PARTITION OF partitioned_t FOR VALUES FROM (0) TO (1000)",
                "CREATE TABLE part_2 PARTITION OF partitioned_t FOR VALUES FROM (1000) TO (9999)",
            )
        database.execute(f"INSERT INTO {name}_t {rows}")
    if analyzed:
        database.execute("ANALYZE")
    on_replica(source)
    for name, _, _ in KEYS:
        table = source.table(table_id(database, f"{name}_t"))
        schema = source.schema(table, TableSettings())
        chunks = cut_chunks(source.sample_boundaries(table, schema.key, 8))
        counts = [count_in(database, source, table, schema, key_range(chunk)) for chunk in chunks]
        total = source.count(table)
        assert sum(counts) == total, name
        assert total == {"empty": 0, "one": 1}.get(name, 5000)
        if total > 1:
            assert len(chunks) == 8, name
            assert max(counts) <= 1.2 * total / 8, (name, counts)
        else:
            assert len(chunks) == 1


def test_a_text_key_that_a_replica_sorts_otherwise_is_not_cut(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test servers have the same libraries, so the test fakes the replica's version."""
    database.execute(
        'CREATE TABLE sorted (code text COLLATE "und-x-icu", n int, PRIMARY KEY (code, n))',
        "INSERT INTO sorted SELECT 'k' || g, g FROM generate_series(1, 5000) g",
    )
    on_replica(source)
    table, key = source.table(table_id(database, "sorted")), ("code", "n")
    with database.connect() as session:
        answers = [
            session.execute(key_order.versions_query(version), (table.number, [*key])).fetchall()
            for version in (140000, 150000)
        ]
    assert answers[0] == answers[1], "versions differ in the database's own collation only"
    ((name, actual, recorded),) = answers[0]
    assert (name, actual) == ("code", recorded)
    assert len(cut_chunks(source.sample_boundaries(table, key, 4))) == 4
    real = key_order.versions

    def another(session: Session, *arguments: Any) -> dict[str, key_order.LibraryVersion]:
        found = real(session, *arguments)
        assert all(version.actual for version in found.values())
        standby = session.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
        other = key_order.LibraryVersion("0.1", recorded=None)
        return dict.fromkeys(found, other) if standby else found

    monkeypatch.setattr(key_order, "versions", another)
    assert len(cut_chunks(source.sample_boundaries(table, key, 4))) == 1
    assert len(cut_chunks(source.sample_boundaries(table, ("n",), 4))) == 4


@pytest.mark.parametrize("with_replica", [True, False])
def test_a_text_key_older_than_its_library_is_not_cut(
    database: Database, source: PostgresSource, with_replica: bool
) -> None:
    """The index is older than the collation library, as after a system upgrade without REINDEX.

    `check` names the collation.
    """
    database.execute(
        "CREATE COLLATION old (provider = icu, locale = 'und', version = '0.1')",
        "CREATE TABLE sorted (code text COLLATE old PRIMARY KEY)",
        "INSERT INTO sorted SELECT 'k' || g FROM generate_series(1, 5000) g",
    )
    on_replica(source)
    if not with_replica:
        source = open_source(database, replica=None)
    table = source.table(table_id(database, "sorted"))
    assert len(cut_chunks(source.sample_boundaries(table, ("code",), 4))) == 1
    (told,) = (one for one in source.checks() if one.name == "order of text")
    assert "recorded 0.1)" in told.detail
    database.execute("ALTER COLLATION old REFRESH VERSION")
    on_replica(source)
    assert len(cut_chunks(source.sample_boundaries(table, ("code",), 4))) == 4
    assert all(one.name != "order of text" for one in source.checks())


def count_in(
    database: Database,
    source: PostgresSource,
    table: SourceTable,
    schema: TableSchema,
    key_range: KeyRange,
) -> int:
    query = source.snapshot_query(table, schema, [key_range], view=None)
    with database.connect() as session:
        row = session.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE {}").format(
                sql.SQL(query.table), sql.SQL(query.predicates[0])
            )
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_ranges_use_the_index_of_the_key(database: Database, source: PostgresSource) -> None:
    database.execute(
        "CREATE TABLE t (a int, b text, v numeric, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT g % 100, 'k' || g, g FROM generate_series(1, 50000) g",
        "ANALYZE t",
    )
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    query = source.snapshot_query(table, schema, [KeyRange(("5", "k5"), ("6", "k6"))], view=None)
    with database.connect() as session:
        lines = session.execute(
            f"EXPLAIN SELECT c0, c2 FROM {query.table} WHERE {query.predicates[0]}".encode()
        ).fetchall()
    text = "\n".join(line[0] for line in lines)
    assert "t_pkey" in text
    assert "Index Cond" in text
    assert "Filter" not in text


def test_spark_reads_the_view_in_parallel_whatever_happened_since(
    database: Database, source: PostgresSource, spark: SparkSession
) -> None:
    database.execute(
        'CREATE TABLE "T ""1" ("Sélect" int PRIMARY KEY, "V1" text, "V" numeric(10,2))',
        'INSERT INTO "T ""1" SELECT g, \'a\' || g, g FROM generate_series(1, 20000) g',
    )
    table = source.table(table_id(database, 'T "1'))
    schema = source.schema(table, TableSettings.model_validate({"columns": {"exclude": ["V"]}}))
    marker = source.write_marker()
    with source.open_view(marker, one_moment=True, timeout_s=60, progress=QUIET) as view:
        chunks = cut_chunks(source.sample_boundaries(table, schema.key, 4))
        database.execute('DELETE FROM "T ""1" WHERE "Sélect" % 2 = 0')
        on_replica(source)
        ranges = [key_range(chunk) for chunk in chunks]
        frame = read(spark, source, table, schema, ranges, view, fetch_size=500)
        assert frame.rdd.getNumPartitions() == 4
        assert frame.columns == ["Sélect", "V1"]
        assert frame.count() == 20000
        assert frame.distinct().count() == 20000
        assert read(spark, source, table, schema).count() == 10000
        # without autocommit off, each statement would have been a transaction of its own
        one_by_one = read(spark, source, table, schema, ranges[:1], view, fetch_size=7)
        assert one_by_one.count() == 5000


def test_rows_of_an_open_transaction_stay_visible_on_a_replica_that_is_copied(
    database: Database, source: PostgresSource, spark: SparkSession
) -> None:
    """A session that imports a standby's snapshot can mark such rows as rolled back, for good."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'old' FROM generate_series(1, 5) g",
    )
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    with database.begin() as open_one:
        open_one.execute("SAVEPOINT s")
        open_one.execute("INSERT INTO t VALUES (6, 'new')")
        open_one.execute("UPDATE t SET v = 'new' WHERE id = 1")
        open_one.execute("DELETE FROM t WHERE id = 2")
        marker = source.write_marker()
        with source.open_view(marker, one_moment=False, timeout_s=60, progress=QUIET) as view:
            assert read(spark, source, table, schema, WHOLE, view).count() == 5
            open_one.commit()
            on_replica(source)
            # each session takes its own snapshot after the marker
            assert read(spark, source, table, schema, WHOLE, view).count() == 5
            source.assert_view_alive(view)
    wanted = [(1, "new"), (3, "old"), (4, "old"), (5, "old"), (6, "new")]
    for replica in (False, True):
        with database.connect(replica=replica) as session:
            found = session.execute("SELECT id, v FROM t ORDER BY id").fetchall()
            assert found == wanted, f"on the replica: {replica}"


@pytest.mark.parametrize("one_moment", [False, True])
def test_a_session_that_is_elsewhere_refuses_to_read(
    database: Database, source: PostgresSource, spark: SparkSession, one_moment: bool
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    marker = source.write_marker()
    opened = source.open_view(marker, one_moment=one_moment, timeout_s=60, progress=QUIET)
    with opened as view:
        identity = view.identity
        cases = [
            (replace(view, marker=replace(marker, id=uuid4())), ReplicaError, "marker"),
            (
                replace(view, identity=replace(identity, system_identifier="42")),
                ReplicaError,
                "another cluster",
            ),
            (replace(view, snapshot_id="00000042-00000042-1"), SourceError, "snapshot"),
        ]
        for elsewhere, kind, told in cases:
            with pytest.raises(Exception, match="PSQLException") as caught:
                read(spark, source, table, schema, WHOLE, elsewhere).collect()
            error = source.read_failure(table.table, str(caught.value), elsewhere)
            assert isinstance(error, kind)
            assert told in error.message
        assert read(spark, source, table, schema, WHOLE, view).count() == 1
        cancelled = "PSQLException: ERROR: canceling statement due to conflict with recovery"
        lost = source.read_failure(table.table, cancelled, view)
        assert isinstance(lost, SnapshotLostError)
        assert "max_standby_streaming_delay" in lost.message
    query = source.snapshot_query(table, schema, WHOLE, view=None)
    assert "password" in query.properties
    assert query.properties["password"] not in repr(query)


def test_the_next_row_of_a_page_is_the_one_that_its_transaction_inserted(
    source: PostgresSource, database: Database
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz)",
        "CREATE TABLE timed (at timestamptz PRIMARY KEY)",
        "INSERT INTO t SELECT n FROM generate_series(1, 3) n",
        "INSERT INTO t VALUES (4)",
        "INSERT INTO timed VALUES (now())",
        "UPDATE t SET at = now() WHERE id = 2",
    )
    table = source.table(TableId(source.name, "public", "t"))
    by = {row[0]: int(row[1]) for row in database.rows("SELECT id, xmin::text FROM t")}

    def following(number: int, transaction: int) -> NextInserted:
        return source.next_inserted(table, {"id": number}, transaction)

    assert following(1, by[1]) == NextInserted(known=True, key=("3",)), "2 has an event of its own"
    assert following(1, by[1] + (1 << 32)) == NextInserted(known=True, key=("3",))
    assert following(3, by[3]) == NextInserted(known=True), "another transaction inserted 4"
    assert following(2, by[1]) == NextInserted(known=False), "it was changed"
    assert following(9, by[1]) == NextInserted(known=False)
    with database.begin() as session:
        session.execute("INSERT INTO t VALUES (10)")
        session.execute("SAVEPOINT s")
        session.execute("INSERT INTO t VALUES (11), (12)")
        by[10] = int(session.execute("SELECT pg_current_xact_id()::text").fetchall()[0][0])
        session.commit()
    assert following(11, by[10]) == NextInserted(known=False), "behind the savepoint is another id"
    unchanged = partial(source.next_inserted, table, transaction=None)
    assert unchanged({"id": 11}) == NextInserted(known=True, key=("12",))
    assert unchanged({"id": 12}) == NextInserted(known=True)
    timed = source.table(TableId(source.name, "public", "timed"))
    assert source.next_inserted(timed, {"at": 0}, by[1]) == NextInserted(known=False)
