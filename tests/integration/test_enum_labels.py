"""Events that follow an enum label which the real connector does not know yet.

At such a label, the connector reads the table's definition from the present catalog. This
definition has generated columns, but the log does not. The connector then assigns the values of
later rows to columns by position, so values can come into wrong columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.store.table_state import State
from operate.onboard import bootstrap
from operate.readiness import Readiness, judge
from tests.integration.rigs.bootstrapping import Bootstrapping
from tests.integration.rigs.captured import capturing
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded

pytestmark = pytest.mark.breadth

COMPUTED = "full_name text GENERATED ALWAYS AS (a || b) STORED"
COLUMNS = {
    "between": f"id int PRIMARY KEY, status S, a text, b text, {COMPUTED}, phone text, city text",
    "at_the_end": f"id int PRIMARY KEY, status S, a text, b text, city text, {COMPUTED}",
    "dropped": "id int PRIMARY KEY, status S, a text, b text",
    "filled": "id int PRIMARY KEY, status S, a text, b text",
    "renamed": "id int PRIMARY KEY, status S, a text, n text",
    "known": "id int PRIMARY KEY, status S, a text, b text",
    "later": "id int PRIMARY KEY, status S, a text, b text",
}
NEW_LABEL = "UPDATE T SET status = 'x' WHERE id = 1"
STATEMENTS = {
    "between": (NEW_LABEL, "UPDATE T SET a = 'q' WHERE id = 2"),
    "at_the_end": (NEW_LABEL, "UPDATE T SET a = 'q' WHERE id = 2"),
    "dropped": (
        f"BEGIN; {NEW_LABEL}; UPDATE T SET b = 'q' WHERE id = 2;"
        " ALTER TABLE T DROP COLUMN a, ADD COLUMN c text; COMMIT",
    ),
    "filled": (
        f"BEGIN; {NEW_LABEL}; UPDATE T SET b = 'q' WHERE id = 2;"
        " ALTER TABLE T ADD COLUMN c text DEFAULT 'n/a'; COMMIT",
    ),
    "renamed": (f"BEGIN; {NEW_LABEL}; ALTER TABLE T RENAME COLUMN n TO m; COMMIT",),
    # No unknown label in the transaction, and none since.
    "known": (
        "BEGIN; ALTER TABLE T DROP COLUMN a, ADD COLUMN c text DEFAULT 'n/a';"
        " UPDATE T SET c = 'new' WHERE id = 1; COMMIT",
    ),
    # The label comes after the other definition.
    "later": (
        "ALTER TABLE T DROP COLUMN a, ADD COLUMN c text DEFAULT 'n/a'",
        NEW_LABEL,
        "UPDATE T SET b = 'q' WHERE id = 2",
    ),
}
LATER_COLUMNS = {
    "between": ("id", "status", "a", "b", "phone", "city"),
    "at_the_end": ("id", "status", "a", "b", "city"),
    "dropped": ("id", "status", "b", "c"),
    "filled": ("id", "status", "a", "b", "c"),
    "renamed": ("id", "status", "a", "m"),
    "known": ("id", "status", "b", "c"),
    "later": ("id", "status", "b", "c"),
}
STOPPED = {"between", "dropped", "filled", "renamed"}


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        opened.configure(public__renamed={"columns": {"renames": {"m": "n"}}})
        yield opened


def execute(database: Database, name: str, statements: Sequence[str]) -> None:
    """Run the statements on a table that has its own enum.

    Tables must not share the enum, because a label is unknown only at its first use in any table.
    """
    for statement in statements:
        database.execute(statement.replace(" T ", f" {name} ").replace(" S,", f" {name}_st,"))


def errors(shop: Bootstrapping) -> dict[str, str]:
    """Run all tables once; returns the names of the errors by table."""
    return {one.table.name: one.error.error for one in shop.run() if one.error is not None}


def test_no_row_behind_a_new_label_gets_another_columns_value(shop: Bootstrapping) -> None:
    for name, columns in COLUMNS.items():
        shop.database.execute(f"CREATE TYPE {name}_st AS ENUM ('a', 'b')")
        execute(
            shop.database,
            name,
            (
                f"CREATE TABLE T ({columns})",
                "INSERT INTO T (id, status, a) VALUES (1, 'a', 'p'), (2, 'b', 'r')",
            ),
        )
    shop.add(*COLUMNS)
    for name in COLUMNS:
        shop.bootstrap(name)
        execute(shop.database, name, ("INSERT INTO T (id, status) VALUES (7, 'a')",))
    assert errors(shop) == {}
    before = {name: shop.lake(name, "id", "status") for name in COLUMNS}

    for name, statements in STATEMENTS.items():
        if name != "known":
            shop.database.execute(f"ALTER TYPE {name}_st ADD VALUE 'x'")
        execute(shop.database, name, statements)
    assert errors(shop) == dict.fromkeys(sorted(STOPPED), "SchemaChangeError")
    for name, columns in LATER_COLUMNS.items():
        if name not in STOPPED:
            shop.assert_equal(name, columns)
            continue
        assert shop.record(name).state is State.NEEDS_BOOTSTRAP
        assert shop.lake(name, "id", "status") == before[name]
    assert "'full_name'" in str(shop.record("between").reason)

    # The copy restarts the connector, which has still read the table with its generated column.
    former = shop.source.capture(shop.capture).kept_log.reader()
    shop.bootstrap("between")
    assert shop.source.capture(shop.capture).kept_log.reader() != former
    for name in sorted(STOPPED - {"between"}):
        shop.bootstrap(name)
    for name in COLUMNS:
        row = "INSERT INTO T (id, status) VALUES (8, 'x')"
        known = name == "known"
        execute(shop.database, name, (row.replace("'x'", "'b'") if known else row,))
        execute(shop.database, name, ("UPDATE T SET status = 'b' WHERE id = 7",))
    assert errors(shop) == {}
    for name, columns in LATER_COLUMNS.items():
        shop.assert_equal(name, columns)


def test_an_enum_recreated_under_its_name_leaves_no_value_in_another_column(
    shop: Bootstrapping,
) -> None:
    """The connector keeps the labels of the first type with this name until its restart."""
    execute = shop.database.execute
    execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE users (id int PRIMARY KEY, m mood, a text, b text)",
        "INSERT INTO users VALUES (1, 'sad', 'x', 'p'), (2, 'ok', 'y', 'r')",
    )
    shop.add("users")
    shop.bootstrap("users")
    execute("UPDATE users SET m = 'ok' WHERE id = 1")
    assert errors(shop) == {}
    execute(
        "ALTER TYPE mood RENAME TO mood_old",
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
        "ALTER TABLE users ALTER m TYPE mood USING m::text::mood",
        "DROP TYPE mood_old",
    )
    assert errors(shop) == {"users": "SchemaChangeError"}
    shop.bootstrap("users")
    for label in ("sad", "ok"):
        execute(f"UPDATE users SET m = '{label}' WHERE id = 1")
        assert errors(shop) == {}
    execute(
        "BEGIN; UPDATE users SET m = 'happy' WHERE a = 'x'; UPDATE users SET b = 'q' WHERE id = 2;"
        " ALTER TABLE users DROP COLUMN a, ADD COLUMN c text; COMMIT"
    )
    assert errors(shop) == {}
    shop.assert_equal("users", ("id", "m", "b", "c"))


def test_no_row_of_an_append_table_gets_another_columns_value(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {"mode": "append", "snapshot_from": "primary"}
    shop = Shop(database, spark, tmp_path, tables={"public.log": settings})
    database.execute(
        "CREATE TYPE kind AS ENUM ('a', 'b')",
        "CREATE TABLE log (kind kind, n int, g int GENERATED ALWAYS AS (n * 2) STORED, z int)",
        "INSERT INTO log (kind, n, z) VALUES ('a', 1, 10)",
    )
    succeeded(shop.onboard("log"))
    database.execute(
        "ALTER TYPE kind ADD VALUE 'x'",
        "INSERT INTO log (kind, n, z) VALUES ('x', 2, 20)",
        "INSERT INTO log (kind, n, z) VALUES ('a', 3, 30)",
    )
    shop.settle("log")
    (result,) = shop.run()
    assert result.error is not None
    assert result.error.error == "SchemaChangeError"
    assert [tuple(row) for row in shop.lake("log").select("n", "z").collect()] == [(1, 10)]
    succeeded(bootstrap(shop.services, [shop.table("log")]))
    database.execute("INSERT INTO log (kind, n, z) VALUES ('x', 4, 40), ('b', 5, 50)")
    shop.settle("log")
    run_without_error(shop)
    rows = sorted(tuple(row) for row in shop.lake("log").select("n", "z").collect())
    assert rows == [(n, n * 10) for n in range(1, 6)]
    shop.services.close()


def test_what_events_have_of_a_table_with_generated_columns(database: Database) -> None:
    """A domain over an enum is like a label that is never known; an array of an enum is not."""
    database.execute("CREATE TYPE st AS ENUM ('a', 'b')", "CREATE DOMAIN over_st AS st")
    for name, kind in {"plain": "st", "over": "over_st", "many": "st[]"}.items():
        database.execute(
            f"CREATE TABLE t_{name} (id int PRIMARY KEY, s {kind}, n int,"
            " g int GENERATED ALWAYS AS (n * 2) STORED, z int)"
        )
    with capturing(database) as captured:
        topics = {name: captured.add(f"t_{name}") for name in ("plain", "over", "many")}
        for name in topics:
            value = "{a}" if name == "many" else "a"
            rows = f"(1, '{value}', 3, 5), (2, '{value}', 4, 6)"
            database.execute(f"INSERT INTO t_{name} (id, s, n, z) VALUES {rows}")
        for name, topic in topics.items():
            found = [one.after or {} for one in captured.events(topic, 2)]
            shown = [(one["n"], one.get("g"), one["z"]) for one in found]
            right = [(3, None, 5), (4, None, 6)]
            assert shown == ([(3, None, 5), (4, 6, None)] if name == "over" else right), name
        database.execute("ALTER TYPE st ADD VALUE 'c'")
        for name in topics:
            value = "{c}" if name == "many" else "c"
            database.execute(
                f"UPDATE t_{name} SET s = '{value}' WHERE id = 1",
                f"UPDATE t_{name} SET n = 7 WHERE id = 2",
            )

        def judged() -> Readiness:
            return judge(captured.source.table(captured.table("t_over")), TableSettings())

        many = [one.after or {} for one in captured.events(topics["many"], 4)]
        assert [one.get("g") for one in many] == [None] * 4
        assert many[-1]["z"] == 6
        # Such a domain is refused, and its table is right with the enum in its place.
        refused = judged()
        assert "over_st, a domain over an enum" in refused.problem
        found = re.search(r"ALTER TABLE \S+ ALTER COLUMN s TYPE [\w.]+", refused.remedy)
        assert found is not None
        database.execute(found[0])
        assert judged().ok
        database.execute(
            "UPDATE t_over SET n = 8 WHERE id = 1", "UPDATE t_over SET n = 9 WHERE id = 2"
        )
        latest = [one.after or {} for one in captured.events(topics["over"], 6)][-2:]
        assert [(one["n"], one["z"]) for one in latest] == [(8, 5), (9, 6)]
