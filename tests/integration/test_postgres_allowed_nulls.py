"""NULLs and keys that the PostgreSQL connector does not expect.

The connector reads table definitions from the catalog, not from the log. If a transaction waits
for a standby, the log has the transaction before the catalog shows its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.store.table_state import State
from tests.integration.rigs.bootstrapping import Bootstrapping
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import COLUMNS, Orders
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

REQUIRED = {
    "n": ("int", "7"),
    "z": ("bigint", "0"),
    "s": ("text", "''"),
    "d": ("date", "'1970-01-01'"),
    "f": ("float8", "2.5"),
    "m": ("numeric(10,2)", "0"),
    "l": ("int[]", "'{}'"),
    "b": ("bytea", "'\\x00'"),
    "o": ("boolean", "true"),
}
NULLS = ", ".join("NULL" for _ in REQUIRED)


def while_it_waits(
    database: Database, execute: Callable[..., None], captured: Callable[[], None], statement: str
) -> None:
    """Run a transaction that the connector reads before any other session sees it."""
    hangs = database.commits_hang()
    with ThreadPoolExecutor(1) as pool, hangs as release:
        hanging = pool.submit(
            execute, "SET synchronous_commit TO on", f"BEGIN; {statement}; COMMIT"
        )
        captured()
        assert not hanging.done()
        release()
        hanging.result(20)


def test_nulls_of_the_transaction_that_allows_them_stay_null(orders: Orders) -> None:
    # The columns have no defaults: to read one, the connector would wait for the commit's locks.
    added = ", ".join(f"ADD COLUMN {name} {kind} NOT NULL" for name, (kind, _) in REQUIRED.items())
    values = ", ".join(value for _, value in REQUIRED.values())
    orders.execute(
        f"ALTER TABLE T {added}",
        f"INSERT INTO T VALUES (1, 'a', null, 1, {values}), (2, 'b', null, 2, {values})",
    )
    assert orders.run().error is None
    columns = (*COLUMNS, *REQUIRED)
    orders.assert_equal(columns)
    allowed = ", ".join(f"ALTER {name} DROP NOT NULL" for name in REQUIRED)
    while_it_waits(
        orders.replication.database,
        orders.execute,
        orders.replication.settle,
        f"ALTER TABLE T {allowed}; INSERT INTO T VALUES (3, 'c', null, 3, {NULLS})",
    )
    # No statement makes the server describe the table again.
    orders.execute(
        f"INSERT INTO T VALUES (4, 'd', null, 4, {NULLS}), (5, 'e', null, 5, {values})",
        "UPDATE T SET n = NULL, s = NULL WHERE id = 1",
    )
    assert orders.run().error is None
    orders.assert_equal(columns)


@pytest.mark.breadth
def test_nulls_that_a_domain_allows_from_now_on_stay_null(orders: Orders) -> None:
    """ALTER DOMAIN does not make the server send the table's definition again."""
    domain = f"{orders.name}_d"
    orders.execute(
        # A column of a domain that already refuses NULL would be stored in each row.
        f"CREATE DOMAIN {domain} AS int",
        f"ALTER TABLE T ADD COLUMN n {domain} DEFAULT 7",
        f"ALTER DOMAIN {domain} SET NOT NULL",
        "INSERT INTO T VALUES (1, 'a', null, 1, 1)",
    )
    assert orders.run().error is None
    # A domain that refuses NULL lets this one through.
    orders.execute("INSERT INTO T VALUES (5, 'e', null, 5, (SELECT n FROM T WHERE false))")
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "n"))
    orders.execute(
        f"ALTER DOMAIN {domain} DROP NOT NULL",
        "INSERT INTO T VALUES (2, 'b', null, 2, NULL), (3, 'c', null, 3, 0), (4, 'd', null, 4, 7)",
    )
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "n"))


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


@pytest.mark.breadth
def test_a_key_that_a_transaction_replaced_is_the_key_of_events_after_the_copy(
    shop: Bootstrapping,
) -> None:
    shop.database.execute(
        "CREATE TABLE moved (id int PRIMARY KEY, code int NOT NULL, v int)",
        "INSERT INTO moved VALUES (1, 11, 1)",
    )
    shop.add("moved")
    shop.bootstrap("moved")
    shop.database.execute("INSERT INTO moved VALUES (2, 12, 2)")
    assert shop.run_one().error is None
    while_it_waits(
        shop.database,
        shop.database.execute,
        shop.settle,
        "ALTER TABLE moved DROP CONSTRAINT moved_pkey, ADD PRIMARY KEY (code);"
        " INSERT INTO moved VALUES (3, 13, 3)",
    )
    assert shop.run_one().state is State.NEEDS_BOOTSTRAP
    shop.bootstrap("moved")
    shop.database.execute(
        "UPDATE moved SET code = code + 10", "INSERT INTO moved VALUES (1, 12, 4)"
    )
    assert shop.run_one().error is None
    shop.assert_equal("moved", ("id", "code", "v"))


def test_a_copy_after_a_truncate_leaves_the_connector_alone(shop: Bootstrapping) -> None:
    """The event of a TRUNCATE has no key, but it does not show that the definition is outdated."""
    shop.database.execute("CREATE TABLE emptied (id int PRIMARY KEY, v int)")
    shop.add("emptied")
    shop.database.execute("INSERT INTO emptied VALUES (1, 1)", "TRUNCATE emptied")
    shop.settle()
    readers = "SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical'"
    before = shop.database.rows(readers)
    shop.bootstrap("emptied")
    assert shop.database.rows(readers) == before
