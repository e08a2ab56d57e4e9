"""`verify` on the real stack: tables are equal during writes, and every planted fault is found."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.lake.write import LakeTable
from cdc.sources.source_facts import TimeRange
from cdc.store.verifications import Verifications
from operate.verify.result import Verification
from operate.verify.scope import Scope
from operate.verify.table import verify_table
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, overlook_the_catalog, succeeded
from tests.integration.rigs.shop import shop as shop


def kinds(found: Verification) -> dict[object, str]:
    return {one.key["id"]: one.kind for one in found.differences}


def test_hot_rows_settle_while_the_writers_go_on(shop: Shop) -> None:
    shop.create("orders", 5000)
    succeeded(shop.onboard("orders"))
    with shop.writing(
        "UPDATE orders SET v = v + 1 WHERE id <= 5",
        "DELETE FROM orders WHERE id = 6",
        "INSERT INTO orders VALUES (6, 0, 'again')",
        pause_s=0.02,
    ) as written:
        found = shop.verify("orders")
        assert written[0] > 10
    assert found.equal
    assert found.rows_compared in (4999, 5000)
    assert found.checked_again > 0, "nothing was in motion: the test proves nothing"
    assert found.position


def test_every_planted_difference_is_found_and_nothing_else(shop: Shop) -> None:
    shop.create("orders", 5000)
    succeeded(shop.onboard("orders"))
    publication = shop.services.capture(shop.table("orders")).publication
    shop.database.execute(
        f'ALTER PUBLICATION "{publication}" DROP TABLE orders',
        "INSERT INTO orders VALUES (9001, 1, 'lost insert')",
        "DELETE FROM orders WHERE id = 17",
        "UPDATE orders SET t = 'lost update' WHERE id = 18",
        "UPDATE orders SET t = NULL WHERE id = 19",
        f'ALTER PUBLICATION "{publication}" ADD TABLE orders',
    )
    overlook_the_catalog(shop, "orders")
    # Slower than the source is looked at: else a row may never be caught in the lake's state.
    hot = "UPDATE orders SET v = v + 1 WHERE id BETWEEN 100 AND 110"
    with shop.writing(hot, pause_s=0.05):
        found = shop.verify("orders")
    assert not found.equal
    assert kinds(found) == {9001: "missing", 17: "extra", 18: "different", 19: "different"}
    assert {one.columns for one in found.differences if one.kind == "different"} == {("t",)}
    assert found.unsettled_count == 0


@pytest.mark.breadth
def test_planted_differences_are_found_by_keys_of_floating_point(shop: Shop) -> None:
    shop.database.execute(
        "CREATE TABLE readings (id real, d float8, t text, PRIMARY KEY (id, d))",
        "INSERT INTO readings SELECT n / 10.0, n / 10.0, 'row' FROM generate_series(1, 500) AS n",
        "INSERT INTO readings VALUES ('NaN', 'NaN', 'row'), ('Infinity', '-Infinity', 'row')",
    )
    succeeded(shop.onboard("readings"))
    shop.assert_equal("readings")
    publication = shop.services.capture(shop.table("readings")).publication
    shop.database.execute(
        f'ALTER PUBLICATION "{publication}" DROP TABLE readings',
        "INSERT INTO readings VALUES (999.1, 999.1, 'lost insert')",
        "DELETE FROM readings WHERE t = 'row' AND d = 1.7",
        "UPDATE readings SET t = 'lost update' WHERE d IN (1.8, 'NaN', '-Infinity')",
        f'ALTER PUBLICATION "{publication}" ADD TABLE readings',
    )
    overlook_the_catalog(shop, "readings")
    found = shop.verify("readings")
    assert {str(one.key["d"]): one.kind for one in found.differences} == {
        "999.1": "missing",
        "1.7": "extra",
        "1.8": "different",
        "nan": "different",
        "-inf": "different",
    }
    assert found.unsettled_count == 0


@pytest.mark.breadth
def test_a_key_that_is_twice_in_the_lake_is_reported(shop: Shop, spark: SparkSession) -> None:
    shop.tables = {"public.orders": {"index": "bloom"}}  # a bucket index takes no second copy
    shop.reconfigure()
    shop.create("orders", 100)
    succeeded(shop.onboard("orders"))
    attempt = shop.record("orders").attempt
    assert attempt is not None
    source = shop.services.source(shop.database.name)
    described = source.table(shop.table("orders"))
    settings = shop.services.config.table_settings(shop.table("orders"))
    lake = LakeTable(spark, attempt.path, source.schema(described, settings), settings)
    twice = lake.read().where("id = 42")
    latest = lake.timeline().latest_offsets()
    assert latest is not None
    lake.insert(twice, latest.record, lambda _: None)
    assert kinds(shop.verify("orders")) == {42: "duplicate"}


def planted(shop: Shop) -> None:
    """Copy 2,000 rows, then make an insert, a delete and an update that the stream never gets."""
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, day date, at timestamptz, t text)",
        "INSERT INTO orders SELECT n, DATE '2026-01-01' + n / 100,"
        " TIMESTAMPTZ '2026-01-01 00:00:00+00' + n * INTERVAL '1 minute', 'row'"
        " FROM generate_series(1, 2000) AS n",
        "ANALYZE orders",
    )
    succeeded(shop.onboard("orders"))
    publication = shop.services.capture(shop.table("orders")).publication
    shop.database.execute(
        f'ALTER PUBLICATION "{publication}" DROP TABLE orders',
        "INSERT INTO orders VALUES (9001, '2026-01-05', '2026-01-01 00:30:00+00', 'lost insert')",
        "DELETE FROM orders WHERE id = 250",
        "UPDATE orders SET t = 'lost update' WHERE id = 1900",
        f'ALTER PUBLICATION "{publication}" ADD TABLE orders',
    )
    overlook_the_catalog(shop, "orders")


def part(shop: Shop, **scope: Any) -> Verification:
    table = shop.table("orders")
    return verify_table(shop.services, shop.services.run_context, table, Scope(**scope))


@pytest.mark.breadth
def test_a_part_of_a_table_is_compared_exactly(shop: Shop) -> None:
    planted(shop)
    kept = Verifications(shop.services.store)
    found = part(shop, method="sample", fraction=1.0, max_sessions=2)
    assert kinds(found) == {9001: "missing", 250: "extra", 1900: "different"}
    assert found.parts is not None
    assert found.parts[0] == found.parts[1] > 10
    some = part(shop, method="sample", fraction=0.3, seed=5)
    assert 300 < some.rows_compared < 1200
    assert set(kinds(some)) <= {9001, 250, 1900}
    by_day = part(shop, method="partitions", partition_by=("day",))
    assert kinds(by_day) == {9001: "missing", 250: "extra", 1900: "different"}
    assert by_day.parts is not None
    assert by_day.parts[0] == 21
    record = kept.of(shop.table("orders"))
    assert record is not None, "partitions cover the whole table"
    assert sum(record.differences.values()) == 3
    window = TimeRange("at", "2026-01-01 00:00:00", "2026-01-01 01:00:00")
    early = part(shop, method="window", window=window)
    assert kinds(early) == {9001: "missing"}
    assert early.rows_compared == 60
    days = TimeRange("day", "2026-01-03 00:00:00", "2026-01-04 00:00:00")
    assert kinds(part(shop, method="window", window=days)) == {250: "extra"}
    assert kept.of(shop.table("orders")) == record, "a window says nothing of other rows"


def test_a_comparison_with_a_budget_goes_on_where_it_ended(shop: Shop) -> None:
    shop.create("orders", 2000)
    shop.database.execute("ANALYZE orders")
    succeeded(shop.onboard("orders"))
    kept, table = Verifications(shop.services.store), shop.table("orders")
    first = part(shop, max_seconds=0.001, max_sessions=5)
    assert first.equal
    assert first.proven is not None
    assert 0 < first.rows_compared < 2000
    record = kept.of(table)
    assert record is not None
    assert (record.proven, record.equal_at) == (first.proven, None)
    second = part(shop, max_seconds=0.001, max_sessions=5, go_on=True)
    assert second.proven is not None
    assert second.proven.began_at == first.proven.began_at
    assert second.proven.rows == first.rows_compared + second.rows_compared
    shop.database.execute("UPDATE orders SET v = 1 WHERE id IN (1, 1999)")
    rest = part(shop, go_on=True)
    assert (rest.equal, rest.proven) == (True, None)
    assert first.rows_compared + second.rows_compared + rest.rows_compared == 2000
    record = kept.of(table)
    assert record is not None
    assert (record.proven, record.equal_at) == (None, first.proven.began_at)


def test_an_empty_table_equals_an_empty_table(shop: Shop) -> None:
    shop.create("orders", 0)
    succeeded(shop.onboard("orders"))
    found = shop.verify("orders")
    assert found.equal
    assert (found.rows_compared, found.source_rows, found.lake_rows) == (0, 0, 0)


def test_values_of_every_awkward_kind_compare_by_type(shop: Shop) -> None:
    shop.database.execute(
        """CREATE TABLE things (a text, b uuid, f float8, g float4, n numeric(12,3), y bytea,
        j jsonb, l text[], d date, s timestamptz, w timestamp, o boolean, PRIMARY KEY (a, b))""",
        """INSERT INTO things VALUES
        ('x', gen_random_uuid(), 'NaN', 'Infinity', 1.500, '\\x00ff', '{"k": null}', '{a,NULL}',
         '2024-02-29', '2024-03-31 01:30:00+00', '2024-03-31 02:30:00', true),
        ('', gen_random_uuid(), '-0', 0.1, NULL, '', 'null', '{}', NULL, NULL, NULL, NULL),
        ('Ä,''"', gen_random_uuid(), 1e308, -1, -0.001, NULL, NULL, NULL, '1900-01-01',
         '1969-12-31 23:59:59.999999+00', '1969-12-31 23:59:59.999999', false),
        ('old', gen_random_uuid(), 0, 0, 0, '', NULL, NULL, '0001-01-01',
         '0001-01-01 00:00:00.000001+00', '1500-02-28 12:34:56.789012', NULL),
        ('older than Spark likes', gen_random_uuid(), 0, 0, 0, '', NULL, NULL, '1582-10-10',
         '1890-06-01 12:00:00+00', '0001-01-01 00:00:00', NULL)""",
    )
    succeeded(shop.onboard("things"))
    shop.database.execute(
        "UPDATE things SET f = 'NaN' WHERE a = ''",
        "UPDATE things SET f = '-0', l = '{NULL,b}' WHERE a = 'x'",
        "UPDATE things SET d = '1400-01-01', w = '1582-10-05 01:02:03' WHERE a = 'old'",
    )
    found = shop.verify("things")
    assert found.equal, found.differences
    assert found.rows_compared == 5
