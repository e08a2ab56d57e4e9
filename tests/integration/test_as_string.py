"""Columns of types that events cannot carry exactly; the lake gets the server's own text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.run import run_tables
from cdc.store.table_state import State
from tests.integration.rigs.bootstrapping import Bootstrapping, open_transaction
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import BIG
from tests.integration.rigs.running import spark as spark

KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bits": ("bit(12)", ("B'000000000001'", "B'111111111111'", "null")),
    "flags": ("bit varying", ("B''", "B'0101'", "null")),
    "named": ("name", ("'a name'", "''", "null")),
    "rounded": ("numeric(5,-2)", ("12345", "-9999900", "null")),
    "pairs": ("hstore", ("'b=>1, a=>NULL, \"x y\"=>\"\"'", "''", "null")),
    "span": ("tstzrange", ("'[2024-03-31 01:30+01,infinity)'", "'empty'", "null")),
    "spot": ("point", ("'(1e300,-0.1)'", "'(NaN,Infinity)'", "null")),
    "shape": ("polygon", ("'((0,0),(1,1),(0.1,3))'", "'((5,5))'", "null")),
    "many": ("int4multirange", ("'{[1,3),[5,9)}'", "'{}'", "null")),
    "both": ("pair", ("ROW(1, 'a, \"b\"')", "ROW(null, null)", "null")),
    "words": ("tsquery", ("'fat & (rat | cat)'", "'a <2> b'", "null")),
    "at": ("pg_lsn", ("'0/16AE7F8'", "'FFFFFFFF/FFFFFFFF'", "null")),
    "days": ("date[]", ("'{0044-03-15 BC,NULL}'", "'{{2024-01-01},{2024-01-02}}'", "null")),
    "hours": ("time[]", ("'{24:00,00:00:00.000001}'", "'{}'", "null")),
    "moods": ("mood[]", ("'{sad,happy}'", "'{}'", "null")),
    "spells": ("interval[]", ("'{1 year 2 days 03:04:05.6,-1 mon}'", "'{}'", "null")),
    "day": ("date", ("'infinity'", "'0044-03-15 BC'", "null")),
    "moment": ("timestamptz", ("'294276-12-31 23:59:59.999999Z'", "'-infinity'", "null")),
    "exact": ("numeric(10,2)", ("'NaN'", "12345678.90", "null")),
    "padded": ("char(5)", ("'ab'", "''", "null")),
    "net": ("inet", ("'10.0.0.1'", "'10.0.0.0/8'", "null")),
    "ways": ("path", ("'[(0,0),(1,1)]'", "'((0,0),(1,1))'", "null")),
    "body": ("xml", ("'<a/>'", BIG + "::xml", "null")),
}  # fmt: skip
"""By column name: the type and three SQL values; only some types have a rule in the type map."""

NAMES = ("id", "n", *KINDS)


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


def assert_equal(shop: Bootstrapping) -> None:
    """Assert that the lake has exactly the text that the server prints."""
    shown = ", ".join(f'"{name}"' for name in KINDS)
    with shop.database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        # COPY prints values as their types do, and distinguishes NULL from all values.
        copied = f"COPY (SELECT id, n, {shown} FROM odd) TO STDOUT (FORMAT csv, NULL '~')"
        with connection.cursor().copy(copied.encode()) as copy:
            text = b"".join(copy).decode()
    truth = Counter(_rows(text))
    lake = Counter(
        tuple(None if value is None else str(value) for value in row)
        for row in shop.lake("odd", *NAMES)
    )
    assert lake - truth == Counter(), "only in the lake"
    assert truth - lake == Counter(), "missing in the lake"


def _rows(text: str) -> Iterator[tuple[str | None, ...]]:
    # The csv module does not distinguish a quoted field from a plain one, and no value is a tilde.
    for row in csv.reader(io.StringIO(text)):
        yield tuple(None if value == "~" else value for value in row)


@pytest.mark.breadth
def test_any_type_travels_as_text_by_copy_and_by_stream(shop: Bootstrapping) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in KINDS.items())
    values = [", ".join(KINDS[name][1][turn] for name in KINDS) for turn in range(3)]
    shop.configure(public__odd={"columns": {"as": dict.fromkeys(KINDS, "string")}})
    shop.database.execute(
        "CREATE EXTENSION hstore",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE odd (id int PRIMARY KEY, n int, {columns})",
        *(f"INSERT INTO odd VALUES ({turn}, 0, {values[turn]})" for turn in range(3)),
    )
    shop.add("odd")
    assert shop.bootstrap("odd").rows == 3
    assert_equal(shop)
    # Three rows are new, one swaps its values, one changes nothing of them, one goes away.
    swap = ", ".join(f'"{name}" = {KINDS[name][1][1]}' for name in KINDS)
    shop.database.execute(
        *(f"INSERT INTO odd VALUES ({turn + 10}, 1, {values[turn]})" for turn in range(3)),
        f"UPDATE odd SET {swap} WHERE id = 0",
        "UPDATE odd SET n = 5 WHERE id = 1",
        "DELETE FROM odd WHERE id = 2",
        "UPDATE odd SET id = 20 WHERE id = 10",
        "DELETE FROM odd WHERE id = 11",
    )
    assert shop.run_one().error is None
    assert_equal(shop)
    # A change that no event shows in any other column.
    shop.database.execute("UPDATE odd SET \"both\" = ROW(7, 'seven') WHERE id = 20")
    assert shop.run_one().error is None
    assert_equal(shop)
    assert shop.record("odd").state is State.INCREMENTAL


@pytest.mark.breadth
def test_a_new_column_of_such_a_type_waits_for_its_setting(shop: Bootstrapping) -> None:
    shop.database.execute("CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    shop.add("late")
    shop.bootstrap("late")
    shop.database.execute(
        "ALTER TABLE late ADD COLUMN spot point DEFAULT '(1.5,2)'",
        "INSERT INTO late VALUES (2, '(3,4)'), (3, null)",
    )
    stopped = shop.run_one()
    assert stopped.error is not None
    assert stopped.error.error == "UnsupportedTypeError"
    assert "columns.as: {spot: string}" in stopped.error.message + stopped.error.remedy
    shop.configure(public__late={"columns": {"as": {"spot": "string"}}})
    shop.store.put(replace(shop.record("late"), retry_at=datetime.now(timezone.utc)))
    assert shop.run_one().error is None
    rows: list[tuple[Any, ...]] = [(1, "(1.5,2)"), (2, "(3,4)"), (3, None)]
    assert shop.lake("late", "id", "spot") == rows


@pytest.mark.breadth
def test_a_deleted_row_that_is_kept_keeps_its_text(shop: Bootstrapping) -> None:
    settings = {"columns": {"as": {"spot": "string"}}, "delete_mode": "soft"}
    shop.configure(public__kept=settings)
    shop.database.execute(
        "CREATE TABLE kept (id int PRIMARY KEY, spot point)",
        "INSERT INTO kept VALUES (1, '(1,1)'), (2, '(2,2)')",
    )
    shop.add("kept")
    shop.bootstrap("kept")
    shop.database.execute("DELETE FROM kept WHERE id = 1", "UPDATE kept SET spot = '(3,3)'")
    assert shop.run_one().error is None
    rows = shop.lake("kept", "id", "spot", "_cdc_deleted")
    assert rows == [(1, "(1,1)", True), (2, "(3,3)", False)]


@pytest.mark.breadth
def test_the_source_is_asked_once_the_batchs_own_commits_can_be_seen(shop: Bootstrapping) -> None:
    """A commit is in the log before it is visible: here the commit waits for a missing standby."""
    shop.configure(public__slow={"columns": {"as": {"spot": "string"}}})
    shop.database.execute("CREATE TABLE slow (id int PRIMARY KEY, spot point)")
    shop.add("slow")
    shop.bootstrap("slow")
    # A transaction that the batch has nothing of is not waited for.
    unrelated = open_transaction(shop.database, "INSERT INTO slow VALUES (3, '(5,6)')")
    with unrelated, shop.database.commits_hang() as release, ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(
            shop.database.execute,
            "SET synchronous_commit TO on",
            "INSERT INTO slow VALUES (1, '(1,2)')",
        )
        shop.settle()
        assert not hanging.done()
        ran = pool.submit(run_tables, shop.context(), shop.store.tables())
        done, _ = wait([ran], timeout=20)
        assert not done, "the row was asked for before its commit could be seen"
        release()
        (result,) = ran.result(120)
        hanging.result(20)
    assert (result.error, result.counts) == (None, {"c": 1})
    assert shop.lake("slow", "id", "spot") == [(1, "(1,2)")]
