"""JSON documents and geometries of MySQL and MariaDB by copy and by stream, plain and hidden."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from cdc.store.table_state import State
from stack.mysql_software import MYSQL
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_cells import ewkb
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

pytestmark = pytest.mark.breadth

KEY = "a key of the test"
PLACE = "ST_GeomFromText('POINT({} 2)', 3857)"


def test_documents_and_geometries_travel(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_HASH_KEY", KEY)
    name = f"{shop.database.schema}.t"
    columns = {"hash": ["hidden_doc", "hidden_place"], "mask": ["masked"]}
    shop.tables = {name: {"columns": columns}}
    shop.reconfigure(lake={"url": shop.config().lake.url, "hash_key": "${TEST_HASH_KEY}"})
    first, second = PLACE.format(1), PLACE.format(3)
    shop.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, doc json, home_place point NOT NULL, area geometry,"
        " hidden_doc json, hidden_place point, masked geometry)",
        f"INSERT INTO t VALUES (1, '[1e10, 1.0]', {first}, {second}, '[1e10]', {first}, {first}),"
        f" (2, '-7', {first}, NULL, '-7', {first}, NULL),"
        f" (3, NULL, {first}, NULL, NULL, NULL, NULL)",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("t"))
    shop.assert_equal("t")
    shop.database.execute(
        f"INSERT INTO t VALUES (4, '[1e10, 1.0]', {first}, {second}, '[1e10]', {first}, {first})",
        # What the connector does not report, and what it does beside it.
        f"UPDATE t SET doc = '{{\"a\": [-8, 1e-7]}}', home_place = {second} WHERE id = 1",
        f"UPDATE t SET doc = '[1e20]', hidden_doc = '[-9]', area = {first} WHERE id = 2",
    )
    run_without_error(shop)
    shop.assert_equal("t")
    rows = {row.id: row for row in shop.lake("t").collect()}
    canonical = shop.database.kind == MYSQL
    assert [rows[n].doc for n in (1, 2, 3, 4)] == (
        ['{"a":[-8,1e-7]}', "[100000000000000000000]", None, "[10000000000,1]"]
        if canonical
        else ['{"a": [-8, 1e-7]}', "[1e20]", None, "[1e10, 1.0]"]
    )
    assert bytes(rows[1].home_place) == ewkb(3.0, 2.0, srid=3857)
    assert rows[4].hidden_place == rows[1].hidden_place == hashed(ewkb(1.0, 2.0, srid=3857))
    assert rows[2].hidden_doc == hashed(b"[-9]")
    assert (rows[1].masked, rows[2].masked) == ("***", None)
    shop.database.execute("ALTER TABLE t ADD late json", "UPDATE t SET late = '[2e0]' WHERE id = 1")
    run_without_error(shop)
    shop.assert_equal("t")
    # Another type of both is one in the lake, and asks for a copy.
    shop.database.execute("ALTER TABLE t MODIFY home_place geometry NOT NULL")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP


def hashed(value: bytes) -> str:
    return hmac.new(KEY.encode(), value, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("database", [MYSQL], indirect=True)
def test_rows_from_before_a_document_that_must_be_there_stay_what_they_are(shop: Shop) -> None:
    """Rows older than a NOT NULL document column stay ``null``.

    No value is stored for them: the server shows null, and the connector sends an empty object.
    """
    shop.create("orders", 3)
    shop.database.execute("ALTER TABLE orders ADD COLUMN doc json NOT NULL")
    succeeded(shop.onboard("orders"))
    shop.database.execute(
        "UPDATE orders SET v = 1 WHERE id = 1",
        "INSERT INTO orders (id, v, doc) VALUES (9, 9, '{}')",
    )
    run_without_error(shop)
    shop.assert_equal("orders")
    found = {row.id: row.doc for row in shop.lake("orders").select("id", "doc").collect()}
    assert found == {1: "null", 2: "null", 3: "null", 9: "{}"}
