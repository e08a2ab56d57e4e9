"""Reads of the catalog, and captures, on a real primary and its streaming replica."""

from __future__ import annotations

import re
from dataclasses import replace

import psycopg
import pytest

from cdc.config import TableSettings
from cdc.errors import CaptureError, SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres import fingerprint, lookup
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.selection import require_named
from schemas.catalog import Catalog
from schemas.changes import LoseEvents
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.fingerprint import Fingerprint
from schemas.lost_events import identified_otherwise, lost_events
from schemas.table import TableId
from schemas.types_postgres import PostgresType
from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import capture_of, open_source, source_config, table_id

QUIET = NullProgress()
PUBLICATION = "pub_test"


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, PUBLICATION).prepare()
    opened.wait_for_marker_on_replica(opened.write_marker(), timeout_s=60, progress=QUIET)
    return opened


# ---- catalog


def test_tables_are_listed_with_what_onboarding_needs(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        "CREATE TABLE plain (b int, a text, PRIMARY KEY (a, b))",
        "INSERT INTO plain SELECT g, 'x' FROM generate_series(1, 100) g",
        "CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",
        "CREATE TABLE keyless (x int)",
        "ALTER TABLE keyless REPLICA IDENTITY NOTHING",
        "ANALYZE",
    )
    found = {stats.table.name: stats for stats in source.tables()}
    assert set(found) == {"plain", "parts", "parts_1", "fast", "keyless"}
    assert found["plain"].primary_key == ("a", "b")
    assert found["plain"].rows_estimate == 100
    assert found["plain"].total_bytes > 8192
    assert (found["parts"].kind, found["parts"].partition_root) == ("partitioned", None)
    assert found["parts_1"].partition_root == table_id(database, "parts")
    assert found["parts"].total_bytes >= found["parts_1"].total_bytes > 0
    assert found["fast"].kind == "unlogged"
    assert found["keyless"].replica_identity == "nothing"


def test_a_table_is_described_with_hostile_names_and_types_taken_apart(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        'CREATE SCHEMA "s; drop"',
        "CREATE TYPE \"s; drop\".mood AS ENUM ('ok')",
        "CREATE DOMAIN price AS numeric(6,3)",
        'CREATE TABLE "s; drop"."t.""q" (id int PRIMARY KEY, "Order" price NOT NULL, '
        'c numeric(10,2)[], m "s; drop".mood, g int GENERATED ALWAYS AS (id * 2) STORED)',
    )
    table = source.table(TableId(database.name, "s; drop", 't."q'))
    types = {column.name: column.type for column in table.columns}
    price, array, mood = types["Order"], types["c"], types["m"]
    assert isinstance(price, PostgresType)
    assert isinstance(array, PostgresType)
    assert isinstance(mood, PostgresType)
    assert (price.kind, price.base and price.base.display) == ("d", "numeric(6,3)")
    assert array.element is not None
    assert array.element.display == "numeric(10,2)"
    assert mood.kind == "e"
    assert [column.name for column in table.columns if column.generated] == ["g"]
    assert table.identity_columns == ("id",)
    schema = source.schema(table, TableSettings())
    assert [(c.name, c.lake_type) for c in schema.columns] == [
        ("id", "int"),
        ("Order", "decimal(6,3)"),
        ("c", "array<decimal(10,2)>"),
        ("m", "string"),
    ]


def test_the_same_table_of_another_case_is_not_found(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with pytest.raises(SourceError, match="no table"):
        source.table(table_id(database, "Orders"))


def test_keys_and_columns_that_the_lake_cannot_carry_are_refused(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        "CREATE TABLE t (a int NOT NULL, b int, c int NOT NULL, p point, h int, "
        '"A" int, _cdc_op int)',
        "CREATE UNIQUE INDEX ON t (a)",
        "CREATE UNIQUE INDEX ON t (b)",
        "CREATE UNIQUE INDEX ON t (c) WHERE c > 0",
    )
    table = source.table(table_id(database, "t"))

    def settings(key: tuple[str, ...], *include: str) -> TableSettings:
        return TableSettings.model_validate(
            {"key_columns": key, "columns": {"include": include or ("a", "b", "c", "h")}}
        )

    assert source.schema(table, settings(("a",))).key == ("a",)
    for key, told in ((("b",), "allows NULL"), (("c",), "unique"), ((), "no primary key")):
        with pytest.raises(SchemaError, match=told):
            source.schema(table, settings(key))
    with pytest.raises(UnsupportedTypeError, match=r"'p'.*point"):
        source.schema(table, settings(("a",), "a", "p"))
    with pytest.raises(SchemaError, match="case"):
        source.schema(table, settings(("a",), "a", "A"))
    with pytest.raises(SchemaError, match="begins like"):
        source.schema(table, settings(("a",), "a", "_cdc_op"))
    # A table that is followed may lose a column that its settings name; none is copied so.
    assert [c.name for c in source.schema(table, settings(("a",), "a", "zz")).columns] == ["a"]
    with pytest.raises(SchemaError, match="no column 'zz'"):
        require_named(table, settings(("a",), "a", "zz"))


CHANGES = [
    ("ALTER TABLE t ALTER COLUMN v TYPE int USING length(v)", "columns.2.type"),
    ("ALTER TABLE t ALTER COLUMN v TYPE varchar(9) USING lower(v)", "columns.2.typmod"),
    ("ALTER TABLE t ALTER COLUMN v TYPE text USING v || ''", "relfilenode"),
    ("ALTER TABLE t ADD COLUMN n int", "columns.3 is new"),
    ("ALTER TABLE t DROP COLUMN v", "columns.2 is gone"),
    ("ALTER TABLE t REPLICA IDENTITY FULL", "replica_identity"),
    ("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text)", "oid"),
    ("TRUNCATE t", "relfilenode"),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (v)", "keys.primary"),
    ("ALTER TABLE p ATTACH PARTITION q FOR VALUES IN (2)", "leaves.q"),
    ("ALTER TABLE p DETACH PARTITION p1", "leaves.p1"),
    (
        "ALTER TABLE p DETACH PARTITION p1; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)",
        "leaves.p1.attached",
    ),
    ("CREATE TABLE c () INHERITS (t)", "children.c"),
]


def test_fingerprint_shows_what_row_events_do_not(
    database: Database, source: PostgresSource
) -> None:
    def fingerprints(*, on_replica: bool) -> list[Fingerprint]:
        if on_replica:
            source.wait_for_marker_on_replica(source.write_marker(), timeout_s=60, progress=QUIET)
        return [
            capture_of(source, "none").fingerprint(table, on_replica=on_replica) for table in tables
        ]

    tables = []
    for number, (change, _) in enumerate(CHANGES):
        database.execute(
            f"CREATE SCHEMA s{number}",
            f"CREATE TABLE s{number}.t (id int PRIMARY KEY, v text)",
            f"CREATE TABLE s{number}.p (id int, PRIMARY KEY (id)) PARTITION BY LIST (id)",
            f"CREATE TABLE s{number}.p1 PARTITION OF s{number}.p FOR VALUES IN (1)",
            f"CREATE TABLE s{number}.q (id int PRIMARY KEY)",
        )
        name = "p" if change.startswith("ALTER TABLE p") else "t"
        tables.append(table_id(database, name, f"s{number}"))
    before = fingerprints(on_replica=False)
    gone = table_id(database, "t", "nowhere")
    at_once = capture_of(source, "none").fingerprints([*tables, gone])
    # Not the facts themselves: the moment of the look is one, and is compared by nobody.
    assert {table: found.digest for table, found in at_once.items()} == {
        table: found.digest for table, found in zip(tables, before, strict=True)
    }
    assert [found.digest for found in fingerprints(on_replica=True)] == [
        found.digest for found in before
    ]
    for number, (change, _) in enumerate(CHANGES):
        database.execute(f"SET search_path TO s{number}; {change}")
    after = fingerprints(on_replica=False)
    for (change, told), old, new in zip(CHANGES, before, after, strict=True):
        lines = [re.sub(r"\.s\d+\.", ".", line) for line in old.diff(new)]
        assert any(line.startswith(told) for line in lines), (change, lines)
    assert [found.digest for found in fingerprints(on_replica=True)] == [
        found.digest for found in after
    ]
    for upkeep in ("VACUUM FREEZE", "VACUUM FULL"):
        for catalog in ("pg_inherits", "pg_attribute", "pg_type"):
            database.stack.psql(f"{upkeep} pg_catalog.{catalog}", database=database.name)
    assert [found.digest for found in fingerprints(on_replica=False)] == [
        found.digest for found in after
    ]


def test_another_identity_for_a_while_is_told_from_upkeep_of_indexes(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, w int NOT NULL)",
        "CREATE UNIQUE INDEX t_v ON t (v)",
        "CREATE UNIQUE INDEX t_both ON t (id, v)",
        "CREATE UNIQUE INDEX t_with ON t (w) INCLUDE (id)",
        "CREATE TABLE p (id int PRIMARY KEY, v int NOT NULL) PARTITION BY LIST (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
        "CREATE UNIQUE INDEX p1_v ON p1 (v)",
        "CREATE UNIQUE INDEX p1_both ON p1 (id, v)",
        "ALTER TABLE p1 REPLICA IDENTITY USING INDEX p1_both",
    )
    tables = [table_id(database, name) for name in ("t", "p")]

    def look() -> list[Catalog]:
        found = capture_of(source, "none").fingerprints(tables)
        return [Catalog.read(found[table].facts) for table in tables]

    def told(*statements: str) -> list[str]:
        before = look()
        database.execute(*statements)
        return [
            change.fact.split(" had ")[0]
            for old, new in zip(before, look(), strict=True)
            for change in identified_otherwise(old, new)
        ]

    upkeep = (
        "CREATE UNIQUE INDEX CONCURRENTLY t_w ON t (w)",
        "GRANT SELECT ON t TO PUBLIC",
        "REINDEX TABLE CONCURRENTLY t",
        "REINDEX TABLE t",
        "VACUUM (ANALYZE, FREEZE) t",
        "VACUUM FULL t",
        "CLUSTER t USING t_v",
        "TRUNCATE t",
        "ALTER TABLE t ADD CONSTRAINT t_unique UNIQUE USING INDEX t_w",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_both",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
    )
    for statement in upkeep:
        assert told(statement) == [], statement
    assert told(*upkeep[1:4]) == []
    for_a_while = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {1}"
    default = "ALTER TABLE t REPLICA IDENTITY DEFAULT"
    assert told(for_a_while.format("t", "t_v"), default) == ["the table"]
    assert told(for_a_while.format("t", "t_with"), "GRANT SELECT ON t TO PUBLIC", default) == [
        "the table"
    ]
    made = "CREATE UNIQUE INDEX CONCURRENTLY t_new ON t (v)"
    assert told(made, for_a_while.format("t", "t_new"), default) == ["the table"]
    back = for_a_while.format("p1", "p1_both")
    assert told(for_a_while.format("p1", "p1_v"), back) == ["partition public.p1"]
    before = look()[1]
    database.execute(for_a_while.format("p1", "p1_v"))
    assert before.partitions["public.p1"].identity_key == ("id", "v")
    assert look()[1].partitions["public.p1"].identity_key == ("v",)


def test_a_look_waits_for_no_lock_on_a_table(database: Database, source: PostgresSource) -> None:
    """VACUUM FULL and REINDEX lock a table for hours; a waiting look would hold up other tables."""
    database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, v int DEFAULT 1) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (9) PARTITION BY LIST (id)",
        "CREATE TABLE one PARTITION OF low FOR VALUES IN (1)",
        "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (9) TO (99)",
        "ALTER TABLE parts ADD COLUMN late int DEFAULT 7",
        "CREATE TABLE plain (id int PRIMARY KEY)",
    )
    tables = [table_id(database, name) for name in ("parts", "plain")]

    def looked() -> list[object]:
        described = [capture_of(source, "none").described(table) for table in tables]
        both = capture_of(source, "none").fingerprints(tables)
        return [*((one, facts.digest) for one, facts in described), *(both[t].digest for t in both)]

    before = looked()
    parts, _ = capture_of(source, "none").described(tables[0])
    assert [leaf.table.name for leaf in parts.leaves] == ["high", "one"]
    assert parts.columns[2].old_values == ("{7}",)
    with database.begin() as session:
        session.execute("LOCK TABLE parts, plain IN ACCESS EXCLUSIVE MODE")
        session.execute("REINDEX INDEX plain_pkey")
        assert looked() == before
        session.rollback()


def test_a_name_that_is_cut_is_no_other_tables(database: Database, source: PostgresSource) -> None:
    database.execute(f"CREATE TABLE {'x' * 63} (id int PRIMARY KEY)")
    there, longer = (table_id(database, "x" * length) for length in (63, 70))
    assert set(capture_of(source, "none").fingerprints([there, longer])) == {there}
    assert capture_of(source, "none").fingerprints([longer]) == {}


def test_a_temporary_child_is_its_sessions_own(database: Database, source: PostgresSource) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = table_id(database, "t")
    alone = capture_of(source, "none").fingerprint(table, on_replica=False).digest
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute("CREATE TEMP TABLE x () INHERITS (t)")
        assert capture_of(source, "none").fingerprint(table, on_replica=False).digest == alone
        assert source.table(table).children == ()
    database.execute("CREATE TABLE c () INHERITS (t)")
    assert source.table(table).children == ("public.c",)


def test_each_transaction_sets_what_values_and_defaults_are_read_by(
    database: Database, source: PostgresSource
) -> None:
    """A pooler may give each transaction another server session, without the earlier settings."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, f float8, i interval DEFAULT '1 day 02:00')",
        "INSERT INTO t VALUES (1, 0.1::float8 + 0.2::float8, '1 day 02:00')",
        f"ALTER DATABASE {database.name} SET extra_float_digits = 0",
        f"ALTER DATABASE {database.name} SET IntervalStyle = 'iso_8601'",
    )
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    with Connections(database.name, source_config(database)).open("admin") as session:
        known = fingerprint.read_fingerprint(session, table.table, "").digest
        session.execute("RESET ALL")
        assert fingerprint.read_fingerprint(session, table.table, "").digest == known
        (row,) = lookup.fetch_by_key(session, table, schema, [(1,)], ["f", "i"])
        assert session.execute("SHOW extra_float_digits").fetchone() == ("0",)
    assert row == {"id": 1, "f": 0.1 + 0.2, "i": "P0Y0M1DT2H0M0S"}


def test_a_partition_whose_rows_moved_is_told_from_one_that_lost_them(
    database: Database, source: PostgresSource
) -> None:
    root = '"a%sb""{c}"'
    database.execute(
        f"CREATE TABLE {root} (id int, kind text, PRIMARY KEY (id, kind)) PARTITION BY LIST (kind)",
        f"CREATE TABLE inner_ PARTITION OF {root} FOR VALUES IN ('1%', 'x''{{y}}')"
        " PARTITION BY HASH (id)",
        "CREATE TABLE moved PARTITION OF inner_ FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE emptied PARTITION OF inner_ FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        f"CREATE TABLE other PARTITION OF {root} DEFAULT",
        f"INSERT INTO {root} SELECT g, '1%' FROM generate_series(1, 50) g",
        f"INSERT INTO {root} VALUES (1, 'z')",
    )
    table = table_id(database, 'a%sb"{c}')
    before = Catalog.read(capture_of(source, "none").fingerprint(table, on_replica=False).facts)
    files = {leaf.number: int(before.files[name]) for name, leaf in before.partitions.items()}

    def found(since: str = before.horizon) -> set[str]:
        lost = source.partition_files.truncated(table, files, since)
        return {name for name, leaf in before.partitions.items() if leaf.number in lost}

    assert found() == set()
    database.execute("VACUUM FULL moved", "CLUSTER other USING other_pkey", "TRUNCATE emptied")
    assert found() == {"public.emptied"}
    assert found(since="") == {"public.emptied", "public.moved", "public.other"}
    # What is written into it later has no row of before, whatever is moved with it.
    database.execute(f"INSERT INTO {root} SELECT g, '1%' FROM generate_series(51, 99) g")
    database.execute("VACUUM FULL emptied")
    assert found() == {"public.emptied"}
    assert source.partition_files.written_together(files) is None
    with database.connect() as connection, connection.transaction():
        connection.execute(f"TRUNCATE {root}".encode())
        (xid,) = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone() or ("",)
    database.execute("VACUUM (ANALYZE, FREEZE)", "REINDEX TABLE moved")
    assert source.partition_files.written_together(files) == int(xid)
    database.execute("TRUNCATE emptied")
    assert source.partition_files.written_together(files) is None


# ---- capture


def test_another_owner_of_the_publication_is_told_from_other_settings(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = table_id(database, "t")
    capture_of(source, PUBLICATION).sent_tables.add([table])

    def told(*statements: str) -> list[str]:
        before = capture_of(source, PUBLICATION).fingerprint(table, on_replica=False)
        for statement in statements:
            altered = f"ALTER PUBLICATION {PUBLICATION} {statement}"
            database.stack.psql(altered, database=database.name)
        now = capture_of(source, PUBLICATION).fingerprint(table, on_replica=False)
        catalogs = (Catalog.read(one.facts) for one in (before, now))
        lost = lost_events(*catalogs, empty=(), truncated=(), statements=())
        return [change.fact for change in lost if isinstance(change, LoseEvents)]

    assert told("OWNER TO CURRENT_USER") == []
    otherwise, back = "SET (publish = 'insert')", "SET (publish = 'insert, update, delete')"
    for statements in (
        (otherwise, back),
        (f"OWNER TO {ADMIN}", otherwise),
        ("OWNER TO CURRENT_USER", f"OWNER TO {ADMIN}"),
    ):
        (fact,) = told(*statements)
        assert fact.startswith("its publication was altered")


def test_publication_is_built_once_and_audited(database: Database, source: PostgresSource) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE b (x int)")
    a, b = table_id(database, "a"), table_id(database, "b")
    capture_of(source, PUBLICATION).prepare()  # again: nothing to do
    assert "not in publication" in capture_of(source, PUBLICATION).audit_table(source.table(a))[0]
    assert capture_of(source, PUBLICATION).sent_tables.add([a, b]) == [a, b]
    assert capture_of(source, PUBLICATION).sent_tables.add([a]) == []
    assert capture_of(source, PUBLICATION).audit_table(source.table(a)) == []
    database.execute(
        "CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY LIST (id)",
        "ALTER TABLE whole ATTACH PARTITION a DEFAULT",
    )
    assert "whole now" in capture_of(source, PUBLICATION).audit_table(source.table(a))[0]
    database.execute("ALTER TABLE whole DETACH PARTITION a")
    assert capture_of(source, PUBLICATION).sent_tables.tables() == [a, b]
    assert capture_of(source, PUBLICATION).sent_tables.remove([b]) == [b]
    assert capture_of(source, PUBLICATION).sent_tables.remove([b]) == []
    for change, told in (
        (f"ALTER PUBLICATION {PUBLICATION} SET TABLE a (id)", "leaves out columns"),
        (f"ALTER PUBLICATION {PUBLICATION} SET TABLE a WHERE (id > 5)", "filters rows"),
        (f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert, update')", "publish delete"),
        (f"ALTER PUBLICATION {PUBLICATION} ADD TABLES IN SCHEMA public", "of schema public"),
        (f"ALTER PUBLICATION {PUBLICATION} DROP TABLES IN SCHEMA public", "publish delete"),
        (f"ALTER PUBLICATION {PUBLICATION} SET (publish_via_partition_root = false)", "root"),
    ):
        # only a superuser may publish whole schemas
        database.stack.psql(change, database=database.name)
        findings = [
            *capture_of(source, PUBLICATION).audit(),
            *capture_of(source, PUBLICATION).audit_table(source.table(a)),
        ]
        assert any(told in finding for finding in findings), (told, findings)
    assert "does not exist" in capture_of(source, "nowhere").audit()[0]
    with pytest.raises(CaptureError, match="nowhere"):
        capture_of(source, "nowhere").sent_tables.add([a])
    capture_of(source, PUBLICATION).sent_tables.drop()
    assert capture_of(source, PUBLICATION).sent_tables.tables() == []


def test_slots_are_created_watched_and_dropped(database: Database, source: PostgresSource) -> None:
    slot = f"{database.name}_slot"
    assert capture_of(source, slot=slot).kept_log.health() is None
    assert capture_of(source, slot=slot).kept_log.create()
    assert not capture_of(source, slot=slot).kept_log.create()
    health = capture_of(source, slot=slot).kept_log.health()
    assert health is not None
    assert (health.active, health.wal_status) == (False, "reserved")
    assert health.confirmed_flush_lsn is not None
    now = source.current_position()
    assert now >= health.confirmed_flush_lsn
    assert health.problem(now, now) is None
    beyond = Lsn(now.value + (1 << 40))
    for known in ((beyond, None), (None, beyond)):
        assert "restored to an earlier state" in (health.problem(*known) or "")
    assert capture_of(source, slot=slot).kept_log.drop()
    assert not capture_of(source, slot=slot).kept_log.drop()
    database.stack.psql(
        f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')",
        database=database.name,
    )
    foreign = capture_of(source, slot=slot).kept_log
    with pytest.raises(CaptureError, match="test_decoding"):
        foreign.create()
    with pytest.raises(CaptureError, match="test_decoding"):
        capture_of(source, slot=slot).planned([])
    assert not foreign.exists()
    assert not foreign.drop()
    with pytest.raises(CaptureError, match="test_decoding"):
        foreign.require_own()


def test_a_database_that_does_not_know_its_encoding_is_refused_by_name(database: Database) -> None:
    name = f"{database.name}_ascii"
    database.stack.psql(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        " TEMPLATE template0"
    )
    try:
        section = source_config(replace(database, name=name))
        for options in ({}, {"client_encoding": "UTF8"}):
            primary = section.primary.model_copy(update={"options": options})
            opened = PostgresSource(name, section.model_copy(update={"primary": primary}))
            with pytest.raises(SourceError, match=f"{name} has the encoding SQL_ASCII") as refused:
                opened.tables()
            assert "ENCODING 'UTF8'" in refused.value.remedy
            (line,) = (one for one in opened.checks() if one.name == "login admin")
            assert line.status == "error"
            assert "SQL_ASCII" in line.detail
    finally:
        database.stack.psql(f"DROP DATABASE {name}")
