"""All kinds of ALTER TABLE on the real stack: the lake equals the source, or a run says why not.

All tables go through the same two runs, several at a time. Before each change,
`tributary schema check` must give the verdict on the statements that the run gives afterwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.run import RunResult
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.context import Services
from operate.schema import SchemaDifference, check, difference
from schemas.changes import Verdict
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

COLUMNS = ("id", "note", "n", "price", "q")
CREATE = (
    "CREATE TABLE T (id int PRIMARY KEY, note varchar(10), n int, price numeric(10,2),"
    " q int NOT NULL DEFAULT 1)"
)
GRANT = "GRANT SELECT (id, note, n, price, q) ON T TO PUBLIC"
WITH_DEFAULT = (CREATE, "ALTER TABLE T ADD COLUMN x int DEFAULT 5")
NO_DEFAULT = (*WITH_DEFAULT, "ALTER TABLE T ALTER x DROP DEFAULT")
PARTITIONED = (
    "CREATE TABLE T (id int PRIMARY KEY, note varchar(10), n int, price numeric(10,2),"
    " q int NOT NULL DEFAULT 1) PARTITION BY RANGE (id)",
    "CREATE TABLE T_p0 PARTITION OF T FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE T_p1 PARTITION OF T FOR VALUES FROM (100) TO (200)",
)
MOODY = (
    "CREATE TYPE T_mood AS ENUM ('sad', 'happy')",
    "CREATE TABLE T (id int PRIMARY KEY, note varchar(10), n int, price numeric(10,2),"
    " q int NOT NULL DEFAULT 1, mood T_mood NOT NULL DEFAULT 'sad')",
)
ROWS = "INSERT INTO T VALUES (1, 'a', 1, 1.5, 1), (2, 'b', 2, 2.5, 2)"
IN_BOTH = f"{ROWS}, (101, 'c', 3, 3.5, 3)"
ROOT = (
    "CREATE TABLE k_root (id int PRIMARY KEY, note varchar(10), n int, price numeric(10,2),"
    " q int NOT NULL DEFAULT 1) PARTITION BY RANGE (id)"
)
ATTACHED = (
    "ALTER TABLE k_root ATTACH PARTITION T FOR VALUES FROM (0) TO (100)",
    "UPDATE T SET note = 'unseen' WHERE id = 2",
    "ALTER TABLE k_root DETACH PARTITION T",
)
LATER = (
    "UPDATE T SET note = 'z' WHERE id = 1",
    "INSERT INTO T (id, note, price) VALUES (3, 'c', 3.5)",
    "DELETE FROM T WHERE id = 2",
)
INSERT = ("INSERT INTO T (id, note, price) VALUES (3, 'c', 3.5)",)


@dataclass(frozen=True)
class Kind:
    """One kind of change.

    Args:
        name: The name of the kind; the table is named after it.
        statements: The statements of the change; ``T`` stands for the table.
        verdict: The expected verdict on the change.
        columns: Columns in which source and lake must be equal afterwards.
        later: Statements that change rows after the change of the table.
        asked: Whether `schema check` understands the statements.
        create: Statements that create the table.
        rows: The statement that inserts the rows before the change.
        by_superuser: Statements that only a superuser may run; they run before ``statements``.
        renames: The entry in the table's setting `columns.renames`, as a pair.
    """

    name: str
    statements: tuple[str, ...]
    verdict: Verdict
    columns: tuple[str, ...] = COLUMNS
    later: tuple[str, ...] = LATER
    asked: bool = True
    create: tuple[str, ...] = (CREATE,)
    rows: str = ROWS
    by_superuser: tuple[str, ...] = ()
    renames: tuple[str, str] | None = None

    def sql(self, *statements: str) -> list[str]:
        return [re.sub(r"\bT(?=\b|_)", f"k_{self.name}", text) for text in statements]


def kind(name: str, verdict: Verdict, *statements: str, **options: object) -> Kind:
    return Kind(name, statements, verdict, **options)  # type: ignore[arg-type]


IGNORE, EVOLVE, FILL, BOOTSTRAP = Verdict
WITH_X = (*COLUMNS, "x")
WITH_MOOD = (*COLUMNS, "mood")
WITHOUT_N = ("id", "note", "price", "q")
A = "ALTER TABLE T "
KINDS = [
    kind("add_nullable", EVOLVE, A + "ADD COLUMN x int", columns=WITH_X),
    kind("add_constant", FILL, A + "ADD COLUMN x int DEFAULT 5", columns=WITH_X),
    kind("add_not_null", FILL, A + "ADD COLUMN x text NOT NULL DEFAULT 'd'", columns=WITH_X),
    kind("add_now", FILL, A + "ADD COLUMN x date DEFAULT current_date", columns=WITH_X),
    kind("add_array", FILL, A + "ADD COLUMN x int[] DEFAULT '{1,2}'", columns=WITH_X),
    kind("add_volatile", BOOTSTRAP, A + "ADD COLUMN x float DEFAULT random()"),
    kind(
        "add_then_default",
        EVOLVE,
        A + "ADD COLUMN x int",
        A + "ALTER COLUMN x SET DEFAULT 7",
        columns=WITH_X,
    ),
    kind(
        "add_backfill_not_null",
        EVOLVE,
        A + "ADD COLUMN x int",
        "UPDATE T SET x = id * 2",
        A + "ALTER COLUMN x SET NOT NULL",
        columns=WITH_X,
        later=("UPDATE T SET note = 'z' WHERE id = 1", "DELETE FROM T WHERE id = 2"),
    ),
    kind("add_generated", IGNORE, A + "ADD COLUMN x int GENERATED ALWAYS AS (n * 2) STORED"),
    kind("add_identity", BOOTSTRAP, A + "ADD COLUMN x int GENERATED BY DEFAULT AS IDENTITY"),
    kind("add_serial", BOOTSTRAP, A + "ADD COLUMN x bigserial"),
    kind("drop_column", EVOLVE, A + "DROP COLUMN n", columns=WITHOUT_N),
    kind("drop_and_add", BOOTSTRAP, A + "DROP COLUMN n", A + "ADD COLUMN n int"),
    kind("add_and_drop", IGNORE, A + "ADD COLUMN x int DEFAULT 5", A + "DROP COLUMN x"),
    kind("rename_column", BOOTSTRAP, A + "RENAME COLUMN n TO m", later=INSERT),
    kind(
        "rename_followed",
        FILL,
        A + "RENAME COLUMN n TO m",
        columns=("id", "note", "m", "price", "q"),
        later=(*LATER, "UPDATE T SET m = 7 WHERE id = 3"),
        renames=("m", "n"),
    ),
    kind("rename_table", BOOTSTRAP, A + "RENAME TO T_other", later=()),
    kind(
        "rename_and_back",
        BOOTSTRAP,
        A + "RENAME TO T_other",
        "INSERT INTO T_other VALUES (9, 'lost')",
        "ALTER TABLE T_other RENAME TO T",
        asked=False,
    ),
    kind("set_schema", BOOTSTRAP, A + "SET SCHEMA elsewhere", later=()),
    kind("widen_integer", EVOLVE, A + "ALTER COLUMN n TYPE bigint"),
    kind("widen_text", EVOLVE, A + "ALTER COLUMN note TYPE varchar(20)"),
    kind("varchar_to_text", EVOLVE, A + "ALTER COLUMN note TYPE text"),
    kind("widen_numeric", EVOLVE, A + "ALTER COLUMN price TYPE numeric(20,2)"),
    kind("widen_scale", EVOLVE, A + "ALTER COLUMN price TYPE numeric(20,4)"),
    kind("narrow_integer", BOOTSTRAP, A + "ALTER COLUMN n TYPE smallint"),
    kind("narrow_text", BOOTSTRAP, A + "ALTER COLUMN note TYPE varchar(5)"),
    kind("rewrite_same_type", BOOTSTRAP, A + "ALTER COLUMN n TYPE int USING n + 1"),
    kind(
        "more_digits_using", BOOTSTRAP, A + "ALTER COLUMN price TYPE numeric(20,2) USING price + 1"
    ),
    kind("integer_to_oid", BOOTSTRAP, A + "ALTER COLUMN n TYPE oid", later=INSERT),
    kind("integer_to_text", BOOTSTRAP, A + "ALTER COLUMN n TYPE text"),
    kind("numeric_to_unbounded", BOOTSTRAP, A + "ALTER COLUMN price TYPE numeric"),
    kind("replace_key", BOOTSTRAP, A + "DROP CONSTRAINT T_pkey, ADD PRIMARY KEY (id, q)"),
    kind("drop_key", BOOTSTRAP, A + "DROP CONSTRAINT T_pkey", later=INSERT),
    kind("set_not_null", EVOLVE, A + "ALTER COLUMN note SET NOT NULL"),
    kind("drop_not_null", EVOLVE, A + "ALTER COLUMN q DROP NOT NULL"),
    kind("set_default", EVOLVE, A + "ALTER COLUMN price SET DEFAULT 9"),
    kind("drop_default", EVOLVE, A + "ALTER COLUMN q DROP DEFAULT", later=LATER[:1]),
    kind("identity_full", EVOLVE, A + "REPLICA IDENTITY FULL"),
    kind("identity_nothing", BOOTSTRAP, A + "REPLICA IDENTITY NOTHING", later=INSERT),
    kind(
        "identity_index",
        BOOTSTRAP,
        "CREATE UNIQUE INDEX T_i ON T (id, q)",
        A + "REPLICA IDENTITY USING INDEX T_i",
    ),
    kind(
        "identity_for_a_while",
        BOOTSTRAP,
        "CREATE UNIQUE INDEX T_i ON T (q)",
        A + "REPLICA IDENTITY USING INDEX T_i",
        "DELETE FROM T WHERE id = 1",
        A + "REPLICA IDENTITY DEFAULT",
        later=(),
        asked=False,
    ),
    kind("set_storage", IGNORE, A + "ALTER COLUMN note SET STORAGE EXTERNAL"),
    kind("set_statistics", IGNORE, A + "ALTER COLUMN n SET STATISTICS 100"),
    kind("set_options", IGNORE, A + "SET (fillfactor = 70)", asked=False),
    kind("vacuum_full", EVOLVE, "VACUUM FULL T", asked=False),
    kind("vacuum_with_default", EVOLVE, "VACUUM FULL T", asked=False, create=WITH_DEFAULT),
    kind("widen_with_default", EVOLVE, A + "ALTER COLUMN n TYPE bigint", create=WITH_DEFAULT),
    kind("using_default", BOOTSTRAP, A + "ALTER x TYPE int USING x + 1", create=WITH_DEFAULT),
    kind("vacuum_no_default", BOOTSTRAP, "VACUUM FULL T", asked=False, create=NO_DEFAULT),
    kind("cluster", EVOLVE, A + "CLUSTER ON T_pkey", "CLUSTER T", asked=False),
    kind("truncate", EVOLVE, "TRUNCATE T", asked=False),
    kind("add_check", IGNORE, A + "ADD CONSTRAINT T_c CHECK (n < 100)"),
    kind(
        "validate_check",
        IGNORE,
        A + "ADD CONSTRAINT T_c CHECK (n < 100) NOT VALID",
        A + "VALIDATE CONSTRAINT T_c",
    ),
    kind("add_unique", IGNORE, A + "ADD CONSTRAINT T_u UNIQUE (id, q)"),
    kind("add_foreign_key", IGNORE, A + "ADD FOREIGN KEY (q) REFERENCES known (q)"),
    kind("rename_constraint", IGNORE, A + "RENAME CONSTRAINT T_pkey TO T_key"),
    kind("create_index", IGNORE, "CREATE INDEX ON T (n)"),
    kind("owner", IGNORE, A + "OWNER TO CURRENT_USER"),
    kind("triggers", IGNORE, A + "DISABLE TRIGGER USER", A + "ENABLE TRIGGER USER"),
    kind("row_security", IGNORE, A + "ENABLE ROW LEVEL SECURITY"),
    kind("inherit", IGNORE, "CREATE TABLE T_parent (id int)", A + "INHERIT T_parent", asked=False),
    kind(
        "rename_label",
        BOOTSTRAP,
        "ALTER TYPE T_mood RENAME VALUE 'sad' TO 'blue'",
        columns=WITH_MOOD,
        later=(),
        asked=False,
        create=MOODY,
    ),
    kind(
        "add_label",
        EVOLVE,
        "ALTER TYPE T_mood ADD VALUE 'calm' BEFORE 'sad'",
        columns=WITH_MOOD,
        later=(*LATER, "UPDATE T SET mood = 'calm' WHERE id = 3"),
        asked=False,
        create=MOODY,
    ),
    kind("drop_table", BOOTSTRAP, "DROP TABLE T", later=()),
    kind("drop_and_create", BOOTSTRAP, "DROP TABLE T", CREATE, ROWS, asked=False),
    kind(
        "attach_partition",
        BOOTSTRAP,
        "CREATE TABLE T_p2 (LIKE T INCLUDING ALL)",
        "INSERT INTO T_p2 VALUES (201, 'unseen')",
        A + "ATTACH PARTITION T_p2 FOR VALUES FROM (200) TO (300)",
        asked=False,
        create=PARTITIONED,
    ),
    kind(
        "attach_empty",
        EVOLVE,
        "CREATE TABLE T_p2 PARTITION OF T FOR VALUES FROM (200) TO (300)",
        asked=False,
        create=PARTITIONED,
    ),
    kind(
        "detach_partition", BOOTSTRAP, A + "DETACH PARTITION T_p1", asked=False, create=PARTITIONED
    ),
    kind(
        "detach_and_attach",
        BOOTSTRAP,
        "INSERT INTO T VALUES (101, 'a', 1, 1.5, 1)",
        f"BEGIN; {A}DETACH PARTITION T_p1; DELETE FROM T_p1;"
        f" {A}ATTACH PARTITION T_p1 FOR VALUES FROM (100) TO (200); COMMIT",
        asked=False,
        create=PARTITIONED,
    ),
    kind(
        "unlogged_for_a_while",
        BOOTSTRAP,
        "INSERT INTO T VALUES (101, 'a', 1, 1.5, 1)",
        "ALTER TABLE T_p1 SET UNLOGGED",
        "UPDATE T SET note = 'unseen' WHERE id = 101",
        "ALTER TABLE T_p1 SET LOGGED",
        asked=False,
        create=PARTITIONED,
    ),
    kind(
        "access_method",
        BOOTSTRAP,
        A + "SET ACCESS METHOD packed",
        asked=False,
        by_superuser=("CREATE ACCESS METHOD packed TYPE TABLE HANDLER heap_tableam_handler",),
    ),
    kind(
        "truncate_uncounted",
        BOOTSTRAP,
        "TRUNCATE T_p1",
        asked=False,
        create=PARTITIONED,
        rows=IN_BOTH,
        by_superuser=("SELECT pg_stat_reset()",),
    ),
    kind(
        "truncate_within",
        BOOTSTRAP,
        "BEGIN; SAVEPOINT a; TRUNCATE T_p1; RELEASE a;"
        " INSERT INTO T VALUES (102, 'd', 4, 4.5, 4); COMMIT",
        asked=False,
        create=PARTITIONED,
        rows=IN_BOTH,
    ),
    kind("truncate_partitions", EVOLVE, "TRUNCATE T", asked=False, create=PARTITIONED),
    *(
        kind(name, BOOTSTRAP, *done, asked=False, create=PARTITIONED, rows=IN_BOTH)
        for name, *done in (
            ("truncate_each", "TRUNCATE T_p0", "TRUNCATE T_p1"),
            ("truncate_named", "TRUNCATE T_p0, T_p1"),
            (
                "truncate_granted",
                *("TRUNCATE T_p0", "TRUNCATE T_p1", "GRANT SELECT ON T_p0, T_p1 TO PUBLIC"),
            ),
        )
    ),
    kind(
        "vacuum_foreign",
        EVOLVE,
        asked=False,
        create=PARTITIONED,
        rows=IN_BOTH,
        by_superuser=("ALTER TABLE T_p1 OWNER TO CURRENT_USER", "VACUUM FULL T_p1"),
    ),
    *(
        kind(n, BOOTSTRAP, *ATTACHED, *more, later=(), asked=False, create=(CREATE, *more))
        for n, *more in (("attached_for_a_while",), ("attached_and_granted", GRANT))
    ),
    kind("granted_again", IGNORE, GRANT, asked=False, create=(CREATE, GRANT)),
    kind(
        "another_name_for_a_while",
        BOOTSTRAP,
        A + "RENAME COLUMN q TO q_old",
        A + "ADD COLUMN q int",
        "UPDATE T SET q = 9 WHERE id = 1",
        A + "DROP COLUMN q",
        A + "RENAME COLUMN q_old TO q",
        later=(),
        asked=False,
    ),
    kind(
        "swapped_for_a_while",
        BOOTSTRAP,
        A + "RENAME COLUMN n TO t",
        A + "RENAME COLUMN q TO n",
        A + "RENAME COLUMN t TO q",
        "UPDATE T SET q = 9 WHERE id = 2",
        A + "RENAME COLUMN n TO t",
        A + "RENAME COLUMN q TO n",
        A + "RENAME COLUMN t TO q",
        later=(),
        asked=False,
    ),
    kind(
        "key_for_a_while",
        BOOTSTRAP,
        A + "DROP CONSTRAINT T_pkey, ADD PRIMARY KEY (id, q)",
        "INSERT INTO T VALUES (1, 'other', 1, 1.5, 7)",
        "DELETE FROM T WHERE id = 1 AND q = 7",
        A + "DROP CONSTRAINT T_pkey, ADD PRIMARY KEY (id)",
        later=(),
        asked=False,
    ),
    kind(
        "label_for_a_while",
        BOOTSTRAP,
        "ALTER TYPE T_mood RENAME VALUE 'sad' TO 'blue'",
        "UPDATE T SET note = 'z' WHERE id = 1",
        "ALTER TYPE T_mood RENAME VALUE 'blue' TO 'sad'",
        columns=WITH_MOOD,
        later=(),
        asked=False,
        create=MOODY,
    ),
    kind("inherited", BOOTSTRAP, "CREATE TABLE T_child () INHERITS (T)", asked=False),
    kind(
        "fill_partitions",
        FILL,
        A + "ADD COLUMN x int DEFAULT 5",
        columns=WITH_X,
        create=PARTITIONED,
    ),
]


ONE_OF_EACH = frozenset(
    {
        "add_nullable",
        "add_constant",
        "rename_column",
        "rename_followed",
        "widen_scale",
        "rewrite_same_type",
        "replace_key",
        "identity_nothing",
        "truncate_within",
        "attached_for_a_while",
        "swapped_for_a_while",
        "key_for_a_while",
        "attach_partition",
        "attach_empty",
        "detach_and_attach",
        "inherited",
        "rename_label",
    }
)
"""The kinds of change that every test run includes; `make test-all` adds all others."""


def each() -> list[Any]:
    """Test parameters for all kinds; kinds not in `ONE_OF_EACH` run in `make test-all` only."""
    return [
        pytest.param(one, id=one.name, marks=() if one.name in ONE_OF_EACH else pytest.mark.breadth)
        for one in KINDS
    ]


@dataclass(frozen=True)
class Changed:
    """The answers of `schema check` before the run of the changed tables, and the run's results."""

    replication: Replication
    answers: dict[str, Verdict]
    told: SchemaDifference
    results: dict[str, RunResult]


@pytest.fixture(scope="module")
def changed(shared: Replication, spark: SparkSession, request: pytest.FixtureRequest) -> Changed:
    """Create and change one table for each kind that the tests of this session need."""
    asked = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    kinds = [one for one in KINDS if one.name in asked | {"add_constant"}]
    database = shared.database
    database.execute(
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE known (q int PRIMARY KEY)",
        "INSERT INTO known VALUES (1), (2)",
        ROOT,
        *(text for one in kinds for text in one.sql(*one.create)),
    )
    for one in kinds:
        if one.renames is not None:
            renames = dict([one.renames])
            shared.configure(**{f"public__k_{one.name}": {"columns": {"renames": renames}}})
    shared.add("k_root", *(f"k_{one.name}" for one in kinds))
    database.execute(*(text for one in kinds for text in one.sql(one.rows)))
    assert not [result.error for result in shared.run() if result.error is not None]
    services = Services(shared.config, NullProgress(), spark=spark)
    try:
        answers = {}
        for one in kinds:
            statements = one.sql(*one.statements)
            if one.asked:
                table, ddl = shared.table(f"k_{one.name}"), "; ".join(statements)
                answers[one.name] = check(services, table, ddl).verdict
            for text in one.sql(*one.by_superuser):
                database.stack.psql(text, database=database.name)
            database.execute(*statements, *one.sql(*one.later))
        told = difference(services, shared.table("k_add_constant"))
    finally:
        services.close()
    results = {result.table.name.removeprefix("k_"): result for result in shared.run()}
    return Changed(shared, answers, told, results)


def test_the_sides_of_a_change_are_shown_before_it_moves(changed: Changed) -> None:
    assert changed.told.verdict is FILL
    sides = {side.name: side for side in changed.told.columns}
    assert (sides["x"].source, sides["x"].lake) == ("integer", None)
    assert (sides["n"].registry, sides["n"].lake) == ("int", "int")
    assert changed.told.schema_id is not None


@pytest.mark.parametrize("one", each())
def test_each_kind_of_change_ends_equal_or_says_why(one: Kind, changed: Changed) -> None:
    replication, name = changed.replication, f"k_{one.name}"
    record = replication.record(name)
    if one.asked:
        assert changed.answers[one.name] is one.verdict
    history = replication.store.schema_history(record.table)
    if one.verdict is BOOTSTRAP:
        assert record.state is State.NEEDS_BOOTSTRAP, changed.results.get(one.name)
        assert record.reason
        assert "bootstrap" in (record.remedy or "")
        assert all(entry.outcome == "needs_bootstrap" for entry in history)
        return
    assert record.state is State.INCREMENTAL, record.reason
    replication.assert_equal(name, one.columns)
    found = [entry.verdict for entry in history]
    if found:
        assert found == [one.verdict]
    else:  # nothing of the schema changed: at most the table lies in a new file
        warned = any("rewritten" in text for text in changed.results[one.name].warnings)
        assert warned == (one.verdict is EVOLVE)


def test_the_server_refuses_to_unlog_what_is_published(shared: Replication) -> None:
    shared.database.execute("CREATE TABLE unlogged (id int PRIMARY KEY)")
    shared.add("unlogged")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="publication"):
        shared.database.execute("ALTER TABLE unlogged SET UNLOGGED")
