"""Text in character sets whose bytes the connector decodes differently than the server."""

from __future__ import annotations

import pytest

from cdc.store.table_state import State
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

pytestmark = pytest.mark.breadth


def test_text_that_the_connector_reads_otherwise_is_read_by_key_or_refused(shop: Shop) -> None:
    shop.database.execute(
        # UTF-8 that an application has written through a connection of latin1.
        "CREATE TABLE latin (id int PRIMARY KEY, v varchar(20)) CHARACTER SET latin1",
        "CREATE TABLE keyed (k varchar(20) PRIMARY KEY, v int) CHARACTER SET latin1",
        "CREATE TABLE swedish (id int PRIMARY KEY, v varchar(20)) CHARACTER SET swe7",
        "INSERT INTO latin VALUES (1, _latin1 x'C381')",
        "INSERT INTO keyed VALUES (_latin1 x'C381', 1), ('b', 1)",
        "INSERT INTO swedish VALUES (1, '\u00c5')",
    )
    mysql_of(shop.database).catch_up()
    (refused,) = shop.onboard("swedish")
    assert "does not read character set swe7" in str(refused.error)
    shop.tables = {f"{shop.database.name}.swedish": {"columns": {"as": {"v": "string"}}}}
    shop.reconfigure()
    succeeded(shop.onboard("latin", "keyed", "swedish"))
    shop.database.execute(
        "INSERT INTO latin VALUES (2, _latin1 x'C38D'), (3, 'plain'), (4, NULL)",
        "UPDATE latin SET v = _latin1 x'C39D' WHERE id = 1",
        "INSERT INTO swedish VALUES (2, '\u00d6')",
        "UPDATE keyed SET v = 2 WHERE k = 'b'",
    )
    run_without_error(shop)
    shop.assert_equal("latin", "keyed", "swedish")
    found = {row.id: row.v for row in shop.lake("latin").collect()}
    assert found == {1: "\u00c3\x9d", 2: "\u00c3\x8d", 3: "plain", 4: None}
    # A row cannot be read by a key that is itself in doubt.
    shop.database.execute("UPDATE keyed SET v = 2 WHERE k = _latin1 x'C381'")
    shop.settle("keyed")
    results = {result.table.name: result for result in shop.run()}
    assert results["keyed"].state is State.FAILED
    assert "key column k" in results["keyed"].error.message
