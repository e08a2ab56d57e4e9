"""Columns of type numeric without a precision, as the decimal type that the settings choose.

Each value arrives exactly, or the error names the value.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.lake.publish import current_path
from cdc.store.table_state import State
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded

KEY = "a key of the test"
NAMES = ("free", "wide", "exact", "amount", "usual")
CHOSEN = dict.fromkeys((*NAMES, "secret"), "decimal(12,2)")
VALUES = ("1.500", "12", "-0.1", "9999999999.99", "1e5", "-9999999999.990000", "0", "null")


@pytest.fixture
def shop(
    database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("TEST_HASH_KEY", KEY)
    shop = Shop(database, spark, tmp_path)
    yield shop
    shop.services.close()


def configure(shop: Shop, **tables: dict[str, Any]) -> None:
    lake = shop.config().lake
    shop.tables |= {f"public.{name}": {"columns": columns} for name, columns in tables.items()}
    shop.reconfigure(lake={"url": lake.url, "hash_key": "${TEST_HASH_KEY}"})


def in_lake(shop: Shop, name: str, *columns: str) -> list[tuple[Any, ...]]:
    assert shop.spark is not None
    path = current_path(shop.record(name).base_path)
    rows = shop.spark.read.format("hudi").load(str(path)).select(*columns).collect()
    return sorted(tuple(row) for row in rows)


def at_source(shop: Shop, name: str, *columns: str) -> list[tuple[Any, ...]]:
    with shop.database.connect() as connection:
        query = f"SELECT {', '.join(columns)} FROM {name}"
        return sorted(connection.execute(query.encode()).fetchall())


def rows_of(first: int) -> list[str]:
    """INSERT statements, one for each value, with the value in all six columns."""
    return [
        f"INSERT INTO numbers VALUES ({first + n}, 0, {', '.join([value] * 6)})"
        for n, value in enumerate(VALUES)
    ]


@pytest.mark.breadth
def test_numbers_are_the_decimal_of_the_settings_by_copy_and_by_stream(
    shop: Shop, spark: SparkSession
) -> None:
    shop.database.execute(
        "CREATE DOMAIN amount AS numeric CHECK (VALUE < 1e12)",
        "CREATE TABLE numbers (id int PRIMARY KEY, n int, free numeric, wide numeric(60,9),"
        " exact numeric(14,2), amount amount, secret numeric, usual numeric DEFAULT 1.5)",
        "CREATE TABLE keyed (k numeric PRIMARY KEY, v text)",
        "INSERT INTO keyed VALUES (1.50, 'a'), (2, 'b'), (3.000, 'c')",
        *rows_of(0),
    )
    configure(
        shop,
        numbers={"as": CHOSEN, "hash": ["secret"]},
        keyed={"as": {"k": "decimal(8,2)"}},
    )
    succeeded(shop.onboard("numbers", "keyed"))
    assert in_lake(shop, "numbers", "id", *NAMES) == at_source(shop, "numbers", "id", *NAMES)
    shop.database.execute(
        *rows_of(10),
        "UPDATE numbers SET n = 1 WHERE id IN (1, 2, 11)",
        "UPDATE numbers SET free = 7.10, usual = 1.500 WHERE id = 3",
        "UPDATE numbers SET usual = NULL WHERE id = 4",
        "DELETE FROM numbers WHERE id = 5",
        "UPDATE keyed SET v = 'z', k = 1.5 WHERE k = 1.5",
        "UPDATE keyed SET k = 4.0 WHERE k = 2",
        "DELETE FROM keyed WHERE k = 3",
    )
    assert shop.verify("numbers").equal  # brings the lake up to date
    assert shop.verify("keyed").equal
    assert in_lake(shop, "numbers", "id", *NAMES) == at_source(shop, "numbers", "id", *NAMES)
    assert in_lake(shop, "keyed", "k", "v") == [(Decimal("1.50"), "z"), (Decimal("4.00"), "b")]
    types = dict(spark.read.format("hudi").load(shop_path(shop, "numbers")).dtypes)
    assert {types[name] for name in NAMES} == {"decimal(12,2)"}
    # What is hashed is the decimal's text, whichever way it came.
    hashed = {row[0]: row[1] for row in in_lake(shop, "numbers", "id", "secret")}
    expected = hmac.new(KEY.encode(), b"1.50", hashlib.sha256).hexdigest()
    assert (hashed[0], hashed[10]) == (expected, expected)
    # Old rows get the default of a column that comes later.
    chosen = {**CHOSEN, "late": "decimal(5,1)"}
    configure(shop, numbers={"as": chosen, "hash": ["secret"]})
    shop.database.execute(
        "ALTER TABLE numbers ADD COLUMN late numeric DEFAULT 3.000",
        "INSERT INTO numbers (id, late) VALUES (30, 4.50)",
    )
    assert shop.verify("numbers").equal
    late = dict(in_lake(shop, "numbers", "id", "late"))
    assert (late[0], late[30]) == (Decimal("3.0"), Decimal("4.5"))


def shop_path(shop: Shop, name: str) -> str:
    return str(current_path(shop.record(name).base_path))


BAD = {"digits": "1.234", "large": "12345678901", "nan": "'NaN'", "endless": "'-Infinity'"}
SHOWN = {
    "digits": ("1.234", "1.234"),
    "large": ("12345678901", "12345678901"),
    "nan": ("NaN", "NAN"),
    "endless": ("-Infinity", "NEGATIVE_INFINITY"),
}
"""By kind of value that cannot be stored: its text in the copy's error and in the stream's."""


@pytest.mark.breadth
def test_a_value_that_the_decimal_does_not_hold_stops_by_name(shop: Shop) -> None:
    chosen = {"as": {"v": "decimal(12,2)"}}
    copied, streamed = [f"copy_{kind}" for kind in BAD], [f"stream_{kind}" for kind in BAD]
    hidden = ("copy_hidden", "stream_hidden")
    for name in (*copied, *streamed, *hidden):
        shop.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v numeric)")
    rules = dict.fromkeys((*copied, *streamed), chosen)
    configure(shop, **rules, **{name: {**chosen, "hash": ["v"]} for name in hidden})
    for kind, value in {**BAD, "hidden": "1.234"}.items():
        shop.database.execute(f"INSERT INTO copy_{kind} VALUES (1, 1), (2, {value})")
    outcomes = shop.onboard(*copied, "copy_hidden")
    errors = {one.table.name.removeprefix("copy_"): str(one.error) for one in outcomes}
    succeeded(shop.onboard(*streamed, "stream_hidden"))
    for kind, value in {**BAD, "hidden": "1.234"}.items():
        shop.database.execute(f"INSERT INTO stream_{kind} VALUES (1, 1), (2, {value})")
    wait_for_all(shop, "stream_hidden")
    results = {result.table.name: str(result.error) for result in shop.run()}
    for kind in (*BAD, "hidden"):
        copy, stream = errors[kind], results[f"stream_{kind}"]
        for number, error in enumerate((copy, stream)):
            shown = SHOWN[kind][number] if kind in SHOWN else "***"
            assert f"holds {shown}, which decimal(12,2)" in error, error
            assert "choose another decimal, or string" in error
            assert f"{('copy', 'stream')[number]}_{kind}" in error
        if kind == "hidden":
            assert "1.234" not in copy + stream
        else:
            assert in_lake(shop, f"stream_{kind}", "id") == []
    # More digits let the same change through, in place.
    configure(shop, stream_digits={"as": {"v": "decimal(13,3)"}})
    again(shop, "stream_digits")
    assert in_lake(shop, "stream_digits", "id", "v") == [
        (1, Decimal("1.000")),
        (2, Decimal("1.234")),
    ]


def again(shop: Shop, name: str) -> None:
    """Run a failed table at once, before its next try is due, and assert that it has no error."""
    record = replace(shop.record(name), retry_at=datetime.now(timezone.utc))
    shop.services.store.put(record)
    (error,) = [one.error for one in shop.run() if one.table.name == name]
    assert error is None


def wait_for_all(shop: Shop, name: str) -> None:
    """Wait until all changes that are committed on the source can be read from Kafka."""
    services, record = shop.services, shop.record(name)
    source, names = services.source(record.table.source), services.capture_of(record)
    upto = source.write_marker().position
    for _ in range(600):
        health = source.capture(names).kept_log.health()
        if health and health.confirmed_flush_lsn and health.confirmed_flush_lsn >= upto:
            return
        time.sleep(0.1)
    raise AssertionError("not captured")


@pytest.mark.breadth
def test_a_wider_decimal_is_followed_and_a_narrower_one_is_not(shop: Shop) -> None:
    shop.database.execute(
        "CREATE TABLE rates (id int PRIMARY KEY, v numeric, t text)",
        "INSERT INTO rates VALUES (1, 1.25, 'a'), (2, -3, 'b')",
    )
    configure(shop, rates={"as": {"v": "decimal(10,2)", "t": "decimal(10,2)"}})
    (refused,) = shop.onboard("rates")
    assert refused.failed
    assert "'t'" in str(refused.error)
    assert "has type text, but columns.as is decimal(10,2)" in str(refused.error)
    configure(shop, rates={"as": {"v": "decimal(10,2)"}})
    succeeded(shop.onboard("rates"))
    configure(shop, rates={"as": {"v": "decimal(14,4)"}})
    shop.database.execute("INSERT INTO rates VALUES (3, 0.1234)")
    assert shop.verify("rates").equal
    assert in_lake(shop, "rates", "v") == [
        (Decimal("-3.0000"),),
        (Decimal("0.1234"),),
        (Decimal("1.2500"),),
    ]
    for narrower in ({"v": "decimal(14,2)"}, {}):
        configure(shop, rates={"as": narrower})
        shop.run()
        assert shop.record("rates").state is State.NEEDS_BOOTSTRAP
