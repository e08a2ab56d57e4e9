"""Kinds of tables: each is captured whole or refused, and the application keeps working."""

from __future__ import annotations

import re

import psycopg
import pytest

from cdc.config import TableSettings
from cdc.sources.postgres.source import PostgresSource
from operate.readiness import judge
from schemas.catalog import Catalog
from schemas.changes import LoseEvents
from schemas.fingerprint import Fingerprint
from schemas.lost_events import lost_events
from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import capture_of, open_source, table_id
from tests.integration.rigs.table_shapes import (
    APPEND,
    BY_ID,
    CHANGES,
    KEYED,
    KEYLESS,
    PARTED,
    ROW,
    A,
    Shape,
)

PUBLICATION = "pub_test"
NEXT = ("CREATE TABLE T_9 PARTITION OF T DEFAULT", "INSERT INTO T (id, v) VALUES (90, 1)")


SHAPES = [
    Shape(
        "parent",
        (KEYED, "CREATE TABLE T_child () INHERITS (T)", "INSERT INTO T_child VALUES (2, 2)"),
        refused="has tables that inherit from it (public.parent_child)",
    ),
    Shape(
        "child",
        ("CREATE TABLE T_parent (v int NOT NULL)", KEYED, f"{A} INHERIT T_parent"),
        then=(*ROW, "UPDATE T_parent SET v = v + 1", "DELETE FROM T_parent"),
    ),
    Shape("included", ("CREATE TABLE T (id int, v int, PRIMARY KEY (id) INCLUDE (v))",)),
    Shape("parts", PARTED, then=(*ROW, *NEXT, *CHANGES)),
    Shape("parts_full", (*PARTED, f"{A} REPLICA IDENTITY FULL"), then=(*ROW, *NEXT, *CHANGES)),
    Shape(
        "parts_of_parts",
        (
            f"{KEYED} PARTITION BY RANGE (id)",
            "CREATE TABLE T_0 PARTITION OF T FOR VALUES FROM (0) TO (10) PARTITION BY LIST (id)",
            f"{A}_0 REPLICA IDENTITY NOTHING",
            "CREATE TABLE T_1 PARTITION OF T_0 DEFAULT",
        ),
    ),
    Shape(
        "part_unlogged",
        (*PARTED, "CREATE UNLOGGED TABLE T_2 PARTITION OF T DEFAULT"),
        refused="has the partition public.part_unlogged_2, which is UNLOGGED",
    ),
    Shape(
        "log_unlogged",
        (*KEYLESS, "CREATE UNLOGGED TABLE T_2 PARTITION OF T DEFAULT"),
        refused="has the partition public.log_unlogged_2, which is UNLOGGED",
        settings=APPEND,
    ),
    Shape(
        "log_foreign",
        (KEYLESS[0], KEYLESS[2], "CREATE FOREIGN TABLE T_2 PARTITION OF T DEFAULT SERVER nowhere"),
        refused="has the partition public.log_foreign_2, which is a foreign table",
        settings=APPEND,
        then=ROW,
    ),
    Shape("log_parts", KEYLESS, settings=APPEND, then=(*ROW, *NEXT, *CHANGES)),
    Shape(
        "part_without_identity",
        (*PARTED, f"{A}_1 REPLICA IDENTITY NOTHING"),
        refused="has the partition public.part_without_identity_1, whose replica identity is",
        breaks=True,
    ),
    Shape(
        "part_with_another_identity",
        (
            *PARTED,
            "CREATE UNIQUE INDEX T_i ON T_1 (v)",
            f"{A}_1 REPLICA IDENTITY USING INDEX T_i",
        ),
        refused="whose replica identity (v) lacks id, so its deletes cannot be applied",
    ),
    Shape(
        "parts_without_key",
        (*KEYLESS, f"{A} REPLICA IDENTITY FULL", f"{A}_1 REPLICA IDENTITY FULL"),
        refused="is partitioned and has no primary key",
        breaks=True,
        settings=BY_ID,
        then=(*ROW, *NEXT, *CHANGES),
    ),
    Shape(
        "deferred",
        ("CREATE TABLE T (id int PRIMARY KEY DEFERRABLE, v int)",),
        refused="has a DEFERRABLE primary key",
        breaks=True,
    ),
    Shape(
        "index_dropped",
        (
            KEYED,
            "CREATE UNIQUE INDEX T_i ON T (v)",
            f"{A} REPLICA IDENTITY USING INDEX T_i",
            "DROP INDEX T_i",
        ),
        refused="its log identifies deleted rows by no column",
        breaks=True,
    ),
]


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, PUBLICATION).prepare()
    capture_of(opened, "logs", append=True).prepare()
    return opened


def test_what_is_captured_breaks_no_statement_of_the_application(
    database: Database, source: PostgresSource
) -> None:
    database.stack.psql(
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;"
        f"GRANT USAGE ON FOREIGN SERVER nowhere TO {ADMIN}",
        database=database.name,
    )
    for shape in SHAPES:
        database.execute(*shape.sql(shape.create))
        with database.connect() as connection, connection.transaction(force_rollback=True):
            for statement in shape.sql(shape.then):
                connection.execute(statement)
        table = table_id(database, shape.name)
        verdict = judge(source.table(table), shape.settings)
        assert verdict.ok == (not shape.refused), (shape.name, verdict)
        assert shape.refused in verdict.problem
        assert verdict.ok or verdict.remedy
        capture_of(source, "logs" if shape.settings.appends else PUBLICATION).sent_tables.add(
            [table]
        )
        broken = []
        for statement in shape.sql(shape.then):
            try:
                database.execute(statement)
            except psycopg.Error as error:
                broken.append(f"{shape.name}: {error}")
        assert bool(broken) == shape.breaks, broken
        assert all("replica identity" in text for text in broken)


def test_the_server_refuses_changes_of_what_lost_its_identity(
    database: Database, source: PostgresSource
) -> None:
    """PostgreSQL refuses updates of any published table that has no replica identity.

    Here, statements remove the identity of tables that are published already.
    """
    lost = {
        "no_key": "ALTER TABLE no_key DROP CONSTRAINT no_key_pkey",
        "nothing": "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "no_index": "DROP INDEX no_index_i",
    }
    for name, statement in lost.items():
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL)",
            f"CREATE UNIQUE INDEX {name}_i ON {name} (v)",
            f"INSERT INTO {name} VALUES (1, 1)",
        )
        if name == "no_index":
            database.execute(f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_i")
        capture_of(source, PUBLICATION).sent_tables.add([table_id(database, name)])
        database.execute(f"UPDATE {name} SET v = 2", statement)
        for change in (f"UPDATE {name} SET v = 3", f"DELETE FROM {name}"):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identi"):
                database.execute(change)
        database.execute(f"INSERT INTO {name} VALUES (2, 5)")


def test_what_timescaledb_keeps_is_named(database: Database, source: PostgresSource) -> None:
    """TimescaleDB's catalog and a chunk are imitated, since not every machine has the extension."""
    internal, catalog = "_timescaledb_internal", "_timescaledb_catalog"
    database.execute(
        f"CREATE SCHEMA {catalog}",
        f"CREATE SCHEMA {internal}",
        f"CREATE TABLE {catalog}.hypertable (schema_name name, table_name name)",
        f"INSERT INTO {catalog}.hypertable VALUES ('public', 'metrics'), ('public', 'young')",
        "CREATE TABLE metrics (id int PRIMARY KEY)",
        "CREATE TABLE young (id int PRIMARY KEY)",
        f"CREATE TABLE {internal}._hyper_1_1_chunk () INHERITS (metrics)",
    )
    for schema, name, told in (
        ("public", "metrics", "is a hypertable of TimescaleDB"),
        ("public", "young", "is a hypertable of TimescaleDB"),
        (internal, "_hyper_1_1_chunk", "is in the schema of TimescaleDB's chunks"),
    ):
        verdict = judge(source.table(table_id(database, name, schema)), TableSettings())
        assert verdict.problem.startswith(told)
        assert verdict.remedy


def test_what_the_log_has_no_rows_of_is_named(database: Database, source: PostgresSource) -> None:
    """Tables with an unknown access method, and tables of Citus, are refused.

    Both are imitated, since not every machine has the extensions: the access method uses heap's
    handler, and the test creates the catalog of Citus.
    """
    database.stack.psql(
        "CREATE ACCESS METHOD packed TYPE TABLE HANDLER heap_tableam_handler;"
        "CREATE ACCESS METHOD tde_heap TYPE TABLE HANDLER heap_tableam_handler",
        database=database.name,
    )
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE spread (id int PRIMARY KEY)",
        "CREATE TABLE sealed (id int PRIMARY KEY)",
    )
    tables = {name: table_id(database, name) for name in ("plain", "parted", "spread", "sealed")}
    capture = capture_of(source, PUBLICATION)
    assert all(judge(source.table(one), TableSettings()).ok for one in tables.values())
    capture.sent_tables.add(tables.values())
    before = {name: capture.fingerprint(one, on_replica=False) for name, one in tables.items()}
    database.execute(
        "ALTER TABLE plain SET ACCESS METHOD packed",
        "CREATE TABLE parted_2 PARTITION OF parted DEFAULT USING packed",
        "ALTER TABLE sealed SET ACCESS METHOD tde_heap",
    )
    database.stack.psql(
        "SET allow_system_table_mods = on;"
        "CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass);"
        "GRANT SELECT ON pg_catalog.pg_dist_partition TO PUBLIC;"
        "INSERT INTO pg_catalog.pg_dist_partition VALUES ('public.spread')",
        database=database.name,
    )
    remedies = {}
    for name, told, fact in (
        ("plain", "has the access method packed", 'access_method is new ("packed")'),
        (
            "parted",
            "has the partition public.parted_2 with the access method packed",
            "leaves.public.parted_2 is new",
        ),
        ("spread", "is a table of Citus", "distributed_by_citus is new"),
    ):
        verdict = judge(source.table(tables[name]), TableSettings())
        assert verdict.problem.startswith(told), (name, verdict)
        remedies[name] = verdict.remedy
        (lost,) = _lost(before[name], capture.fingerprint(tables[name], on_replica=False))
        assert lost.startswith(fact)
    assert judge(source.table(tables["sealed"]), TableSettings()).ok
    assert not _lost(before["sealed"], capture.fingerprint(tables["sealed"], on_replica=False))
    assert "cannot be replicated" in remedies["spread"]
    for name in ("plain", "parted"):
        database.execute(*re.findall(r"ALTER .*? heap", remedies[name]))
        assert judge(source.table(tables[name]), TableSettings()).ok


def _lost(before: Fingerprint, now: Fingerprint) -> list[str]:
    """The facts whose changes require a new copy, if all new partitions are empty."""
    catalogs = (Catalog.read(one.facts) for one in (before, now))
    empty = [leaf["oid"] for leaf in now.facts["leaves"].values()]
    lost = lost_events(*catalogs, empty=empty, truncated=(), statements=())
    return [change.fact for change in lost if isinstance(change, LoseEvents)]
