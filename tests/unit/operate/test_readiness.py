"""Which tables can be replicated; each refusal names its choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.config import TableSettings
from cdc.errors import CaptureError
from cdc.sources.source_facts import Leaf, SourceColumn, SourceTable
from operate.readiness import Readiness, judge, too_large
from schemas.table import TableId
from schemas.types_postgres import PostgresType

TABLE = TableId("shop", "public", "orders")
BIGINT = PostgresType("int8", display="bigint")


def column(name: str, number: int, *, nullable: bool = False, generated: bool = False):
    return SourceColumn(name, BIGINT, nullable, generated, None, number=number)


KEYED = SourceTable(
    table=TABLE,
    kind="table",
    columns=(column("id", 1), column("code", 2), column("note", 3, nullable=True)),
    primary_key=("id",),
    unique_indexes=(("id",), ("code",)),
    replica_identity="default",
    identity_columns=("id",),
    owner="app",
    source_kind="postgres",
)
KEYLESS = replace(KEYED, primary_key=(), unique_indexes=(), identity_columns=())
DEFAULTS = TableSettings()


def test_of_mysql_only_what_mysql_takes_is_advised() -> None:
    keyless = replace(
        KEYLESS,
        table=TableId("shop", "Shop", "or`ders"),
        replica_identity=None,
        source_kind="mysql",
        unique_indexes=(),
    )
    keys = judge(keyless, TableSettings(key_columns=("code",)))
    for remedy in (judge(keyless, DEFAULTS).remedy, keys.remedy):
        assert "`Shop`.`or``ders`" in remedy
        assert "CONCURRENTLY" not in remedy
        assert "REPLICA IDENTITY" not in remedy
    assert "CREATE UNIQUE INDEX <name> ON" in keys.remedy
    parted = replace(keyless, kind="partitioned", unique_indexes=(("code",),))
    assert judge(parted, TableSettings(key_columns=("code",))).ok, "no server refuses its changes"


def test_a_keyed_table_can_travel() -> None:
    assert judge(KEYED, DEFAULTS).ok


def test_a_table_without_a_key_is_refused_with_the_choices() -> None:
    verdict = judge(KEYLESS, DEFAULTS)
    assert not verdict.ok
    assert "PostgreSQL refuses its UPDATE and DELETE" in verdict.problem
    for choice in (
        "ALTER TABLE public.orders ADD PRIMARY KEY",
        "ALTER TABLE public.orders REPLICA IDENTITY USING INDEX",
        "ALTER TABLE public.orders REPLICA IDENTITY FULL",
        "key_columns:",
        "mode: append",
    ):
        assert choice in verdict.remedy
    with pytest.raises(CaptureError, match=r"shop:public\.orders has no key"):
        verdict.require(TABLE)


def test_a_unique_index_that_would_do_is_named() -> None:
    table = replace(KEYLESS, unique_indexes=(("note",), ("code",)))
    assert "unique index on (code)" in judge(table, DEFAULTS).remedy


def test_key_columns_need_a_unique_index_on_columns_that_are_not_null() -> None:
    by_code = TableSettings(key_columns=("code",))
    full = replace(KEYLESS, replica_identity="full", unique_indexes=(("code",),))
    assert judge(full, by_code).ok
    assert not judge(replace(full, unique_indexes=()), by_code).ok
    nullable = TableSettings(key_columns=("note",))
    assert not judge(replace(full, unique_indexes=(("note",),)), nullable).ok
    unknown = judge(full, TableSettings(key_columns=("nope",)))
    assert "no column nope" in unknown.problem


def test_the_log_must_identify_deleted_rows_by_the_key() -> None:
    verdict = judge(KEYED, TableSettings(key_columns=("code",)))
    assert "identifies deleted rows by id" in verdict.problem
    assert "REPLICA IDENTITY FULL" in verdict.remedy
    using_index = replace(KEYED, replica_identity="index", identity_columns=("code",))
    assert not judge(using_index, DEFAULTS).ok
    assert judge(using_index, TableSettings(key_columns=("code",))).ok


def test_replica_identity_nothing_is_refused() -> None:
    nothing = replace(KEYED, replica_identity="nothing", identity_columns=())
    assert "REPLICA IDENTITY NOTHING" in judge(nothing, DEFAULTS).problem


def test_a_partition_is_refused_in_favour_of_its_root() -> None:
    root = TableId("shop", "public", "all_orders")
    verdict = judge(replace(KEYED, partition_root=root), DEFAULTS)
    assert "tributary onboard shop:public.all_orders" in verdict.remedy
    assert judge(replace(KEYED, kind="partitioned"), DEFAULTS).ok


def test_a_foreign_table_is_refused() -> None:
    assert not judge(replace(KEYED, kind="foreign"), DEFAULTS).ok


def test_generated_columns_and_full_identity_are_said() -> None:
    table = replace(
        KEYED,
        replica_identity="full",
        columns=(*KEYED.columns, column("sum", 4, generated=True)),
    )
    notes = " ".join(judge(table, DEFAULTS).notes)
    assert "sum" in notes
    assert "whole old row" in notes


def test_identity_nothing_is_refused_of_a_table_with_a_key() -> None:
    assert (
        "REPLICA IDENTITY NOTHING"
        in judge(replace(KEYED, replica_identity="nothing", identity_columns=()), DEFAULTS).problem
    )


def test_a_null_that_would_arrive_as_a_default_is_said() -> None:
    defaulted = replace(column("state", 4, nullable=True), default_sql="5")
    never_null = replace(column("kind", 5), default_sql="5")
    table = replace(KEYED, columns=(*KEYED.columns, defaulted, never_null))
    (note,) = judge(table, DEFAULTS).notes
    assert note.startswith("state: the converter apicurio sends the default")


@pytest.mark.parametrize(
    ("identity", "largest", "fits"),
    [
        ("default", None, True),
        ("default", 1000, True),
        ("default", 1001, False),
        ("full", 500, True),
        ("full", 501, False),
    ],
)
def test_rows_that_do_not_fit_into_a_message_are_told(
    identity: str, largest: int | None, *, fits: bool
) -> None:
    table = replace(KEYED, replica_identity=identity)
    told = too_large(table, largest, 1000)
    assert (told is None) == fits
    assert told is None or f"a row has {largest:,} bytes" in told


LOG = TableSettings(mode="append")


def test_a_table_without_a_key_can_travel_as_a_log() -> None:
    for identity in ("default", "nothing", "full"):
        table = replace(KEYLESS, replica_identity=identity)
        verdict = judge(table, LOG)
        assert verdict.ok
        assert "updates and deletes are not captured" in verdict.notes[0]
        assert "another partition" not in verdict.notes[0]
        parted = replace(table, kind="partitioned")
        assert "moves a row to another partition adds the row" in judge(parted, LOG).notes[0]
    counted = replace(KEYLESS, updated=1234, deleted=5)
    assert "1,234 updated and 5 deleted rows" in judge(counted, LOG).notes[0]


def test_an_append_table_needs_its_not_null_constraints_validated() -> None:
    code = replace(column("code", 2, nullable=True), not_validated=True)
    table = replace(KEYLESS, columns=(column("id", 1), code), unique_indexes=())
    refused = judge(table, LOG)
    assert not refused.ok
    assert "NOT VALID (code)" in refused.problem
    assert "VALIDATE CONSTRAINT" in refused.remedy
    assert judge(table, TableSettings(mode="append", columns={"exclude": ["code"]})).ok
    assert judge(replace(KEYED, columns=(column("id", 1), code)), DEFAULTS).ok, "read by key"


@pytest.mark.parametrize(
    ("default", "fits"),
    [("5", False), ("'new'::text", False), ("now()", True), ("nextval('s'::regclass)", True)],
)
def test_a_log_refuses_a_null_that_nobody_can_tell_from_a_default(default, fits) -> None:
    unclear = replace(column("state", 4, nullable=True), default_sql=default)
    table = replace(KEYLESS, columns=(*KEYLESS.columns, unclear))
    assert judge(table, LOG).ok is fits
    assert judge(table, LOG, nulls_are_kept=True).ok
    without = TableSettings(mode="append", columns={"exclude": ["state"]})
    assert judge(table, without).ok
    if not fits:
        assert "connect.converter: confluent, and a `tier` whose" in judge(table, LOG).remedy


def test_generated_columns_of_whole_old_rows_are_refused_where_the_server_would() -> None:
    full = replace(KEYED, replica_identity="full", identity_columns=("id", "code", "note"))
    assert judge(full, DEFAULTS).ok
    verdict = judge(replace(full, withheld=("note",)), DEFAULTS)
    assert "generated columns (note) and replica identity FULL" in verdict.problem
    assert "REPLICA IDENTITY DEFAULT" in verdict.remedy
    assert judge(replace(KEYED, withheld=("note",)), DEFAULTS).ok
    leaf = Leaf(replace(TABLE, name="orders_1"), "table", "full", ("id", "code", "note"))
    root = replace(KEYED, kind="partitioned", withheld=("note",))
    assert not judge(replace(root, leaves=(leaf,)), DEFAULTS).ok
    assert judge(replace(root, leaves=(replace(leaf, replica_identity="default"),)), DEFAULTS).ok


def test_columns_behind_a_generated_one_are_refused_beside_a_domain_over_an_enum() -> None:
    enum = PostgresType("mood", kind="e", display="mood")
    over = PostgresType("feeling", kind="d", base=enum, display="feeling")
    state = replace(column("state", 4), type=PostgresType("more", kind="d", base=over))
    computed, after = column("twice", 5, generated=True), column("z", 6)
    verdict = judge(replace(KEYED, columns=(*KEYED.columns, state, computed, after)), DEFAULTS)
    assert "a domain over an enum" in verdict.problem
    assert "ALTER TABLE public.orders ALTER COLUMN state TYPE mood" in verdict.remedy
    assert judge(replace(KEYED, columns=(*KEYED.columns, state, computed)), DEFAULTS).ok
    plain = replace(state, type=enum)
    verdict = judge(replace(KEYED, columns=(*KEYED.columns, plain, computed, after)), DEFAULTS)
    assert verdict.ok
    warning = "a new label of mood (column state) asks for a new copy at its first row"
    assert any(warning in note for note in verdict.notes)
    verdict = judge(replace(KEYED, columns=(*KEYED.columns, plain, computed)), DEFAULTS)
    assert not any(warning in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (PostgresType("text"), True),
        (PostgresType("tsvector"), True),
        (PostgresType("geometry"), True),
        (PostgresType("point"), True),
        (PostgresType("bit", typmod=3), True),
        (PostgresType("over", kind="d", base=PostgresType("text")), True),
        (PostgresType("earth", kind="d", base=PostgresType("cube")), False),
        (PostgresType("tsquery"), False),
        (PostgresType("int4multirange", kind="m"), False),
        (PostgresType("pair", kind="c"), False),
        (PostgresType("_interval", element=PostgresType("interval")), False),
        (PostgresType("regclass"), False),
    ],
)
def test_columns_behind_a_generated_one_that_no_event_has_are_refused_beside_an_enum(
    kind: PostgresType, *, fits: bool
) -> None:
    """If events lack the generated column, nothing shows that values are in wrong columns."""
    enum = replace(column("state", 4), type=PostgresType("mood", kind="e", display="mood"))
    computed = replace(column("spot", 5, generated=True), type=kind)
    shown, after = column("twice", 6, generated=True), column("z", 7)

    def judged(*columns: SourceColumn) -> Readiness:
        return judge(replace(KEYED, columns=(*KEYED.columns, *columns)), DEFAULTS)

    verdict = judged(enum, computed, after)
    assert verdict.ok is fits
    if not fits:
        assert f"behind the generated column spot of type {kind}" in verdict.problem
        assert "Add spot again as the table's last column" in verdict.remedy
        assert judged(after, computed, after, enum).problem, "the enum may be anywhere"
    assert judged(enum, after, computed).ok, "nothing is behind it"
    assert judged(enum, after, computed, shown).ok, "nothing is behind it that has values"
    assert judged(computed, after).ok, "without an enum, nothing is read again"


def test_an_access_method_whose_rows_the_log_lacks_is_refused() -> None:
    verdict = judge(replace(KEYED, access_method="columnar"), DEFAULTS)
    assert verdict.problem.startswith("has the access method columnar")
    assert "ALTER TABLE public.orders SET ACCESS METHOD heap" in verdict.remedy
    leaf = Leaf(replace(TABLE, name="orders_1"), "table", "default", ("id",))
    root = replace(KEYED, kind="partitioned", leaves=(leaf,))
    assert judge(root, DEFAULTS).ok
    verdict = judge(replace(root, leaves=(replace(leaf, access_method="columnar"),)), DEFAULTS)
    assert "the partition public.orders_1 with the access method columnar" in verdict.problem
    assert "ALTER TABLE public.orders_1 SET ACCESS METHOD heap" in verdict.remedy


def test_a_table_of_citus_is_refused() -> None:
    for table in (KEYED, replace(KEYED, access_method="columnar")):
        verdict = judge(replace(table, kind="distributed"), DEFAULTS)
        assert verdict.problem.startswith("is a table of Citus")
