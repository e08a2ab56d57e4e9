"""Zero dates, which no calendar has: NULL in the lake; in a key, the table is refused or stops."""

from __future__ import annotations

import pytest

from cdc.store.table_state import State
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

NAMES = ("short", "exact", "moment", "day")


def run_leniently(shop: Shop, *statements: str) -> None:
    """Run statements in a session whose SQL mode accepts any date."""
    with shop.database.connect() as connection, connection.cursor() as cursor:
        for statement in ("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", *statements):
            cursor.execute(statement)


@pytest.mark.breadth
def test_a_zero_date_in_a_key_is_refused_or_stops_the_table(shop: Shop) -> None:
    dates = {
        "zero": ("date", "0000-00-00"),
        "no_day": ("date", "2024-02-00"),
        "no_month": ("datetime(6)", "2024-00-10 01:02:03.000004"),
        "moment": ("timestamp", "0000-00-00 00:00:00"),
        "no_such_day": ("date", "2024-02-31"),
        "no_such_time": ("datetime(6)", "2023-11-31 01:02:03.000004"),
    }
    run_leniently(
        shop,
        *(
            f"CREATE TABLE {name} (id int, d {kind} NOT NULL, v int, PRIMARY KEY (id, d))"
            for name, (kind, _) in dates.items()
        ),
        *(f"INSERT INTO {name} VALUES (1, '2024-02-29', 1)" for name in dates),
        *(f"INSERT INTO {name} VALUES (2, '{text}', 1)" for name, (_, text) in dates.items()),
        "CREATE TABLE bent (id int PRIMARY KEY, d date, t datetime(3))",
        "INSERT INTO bent VALUES (1, '2024-02-31', '2023-04-31 10:00:00'), (2, NULL, NULL),"
        " (3, '2024-02-29', '0001-01-01'), (4, '9999-12-31', '2023-12-31')",
        "CREATE TABLE later (d datetime NOT NULL PRIMARY KEY, v int)",
        "INSERT INTO later VALUES ('2024-02-29', 1), ('1970-01-01', 1)",
    )
    mysql_of(shop.database).catch_up()
    for name, outcome in zip(dates, shop.onboard(*dates), strict=True):
        assert "a date that no calendar has in key column 'd'" in str(outcome.error), name
        assert outcome.error is not None
        assert outcome.error.remedy.startswith("Give such rows real dates")
    run_leniently(shop, "UPDATE zero SET d = '2024-02-28' WHERE id = 2")
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("zero", "later", "bent"))
    rows = {row.id: (row.d, row.t) for row in shop.lake("bent").select("id", "d", "t").collect()}
    assert rows[1] == rows[2] == (None, None)
    assert all(None not in rows[n] for n in (3, 4))
    shop.assert_equal("bent")
    run_leniently(
        shop,
        "INSERT INTO later VALUES ('2024-03-01', 2)",
        "INSERT INTO later VALUES ('2024-02-00', 2)",
        "INSERT INTO zero VALUES (3, '2024-03-01', 2)",
    )
    for name in ("zero", "later"):
        shop.settle(name)
    results = {result.table.name: result for result in shop.run()}
    assert results["zero"].error is None
    shop.assert_equal("zero")
    assert results["later"].state is State.FAILED
    assert "zero date" in results["later"].error.message
    assert shop.lake("later").where("d IS NULL").count() == 0


def test_a_zero_moment_is_null_by_copy_insert_and_update(shop: Shop) -> None:
    """This includes zero times with fractional seconds, which MariaDB's events show as 1970."""
    zero = ", ".join(["'0000-00-00 00:00:00'"] * 3 + ["'0000-00-00'"])
    real = ", ".join(["'2024-01-01 10:00:00'"] * 3 + ["'1970-01-01'"])
    to_zero = ", ".join(f"{n} = {v}" for n, v in zip(NAMES, zero.split(", "), strict=True))
    to_real = ", ".join(f"{n} = {v}" for n, v in zip(NAMES, real.split(", "), strict=True))
    run_leniently(
        shop,
        "CREATE TABLE moments (id int PRIMARY KEY, short timestamp(3) NULL,"
        " exact timestamp(6) NOT NULL DEFAULT '2020-01-01 00:00:00', moment datetime(3), day date)",
        *(f"INSERT INTO moments VALUES ({n}, {zero})" for n in (1, 2)),
        f"INSERT INTO moments VALUES (3, {real})",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("moments"))
    assert zeros(shop) == [1, 2]
    run_leniently(
        shop,
        f"UPDATE moments SET {to_real} WHERE id = 2",
        f"UPDATE moments SET {to_zero} WHERE id = 3",
        f"INSERT INTO moments VALUES (4, {zero}), (5, {real})",
    )
    shop.settle("moments")
    run_without_error(shop)
    assert zeros(shop) == [1, 3, 4]
    shop.assert_equal("moments")


def zeros(shop: Shop) -> list[int]:
    """The keys of rows with NULL in all columns; asserts that other rows have no NULL."""
    rows = {row.id: [*row][1:] for row in shop.lake("moments").select("id", *NAMES).collect()}
    nulls = {key: [value is None for value in values] for key, values in rows.items()}
    assert all(all(one) or not any(one) for one in nulls.values()), rows
    return sorted(key for key, one in nulls.items() if all(one))
