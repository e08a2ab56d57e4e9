"""verify on the real stack: equal under writers, and every planted fault is found."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc.lake.write import LakeTable
from operate.verify.table import Verification
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
