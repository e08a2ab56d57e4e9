"""A replica that differs from the primary, for example by its own writes, while a copy reads it."""

from __future__ import annotations

import uuid

import pytest

from cdc.errors import ReplicaError
from cdc.lake.publish import current_path
from cdc.store.table_state import State
from operate.onboard import bootstrap
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.bootstrapping import Watch
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import MysqlDatabase, empty_transaction, mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop


@pytest.mark.breadth
@pytest.mark.parametrize("database", kinds(MARIADB, of=(MARIADB, MYSQL)), indirect=True)
def test_rows_that_only_the_replica_has_are_never_published(shop: Shop) -> None:
    """The rows are written after the fence, before the copy's first session reads."""
    server = mysql_of(shop.database)
    shop.create("orders", 100)
    written: list[str] = []
    table = f"{server.name}.orders"
    watch = Watch(
        on_start={
            "copy": lambda: written.extend(
                on_replica_alone(
                    server,
                    f"UPDATE {table} SET v = 7 WHERE id = 1",
                    f"INSERT INTO {table} VALUES (1000, 7, 'of nobody')",
                )
            )
        }
    )
    shop.reconfigure(progress=watch)
    try:
        (refused,) = shop.onboard("orders")
    finally:
        # The replica is made equal to the primary again, as if from a new copy of it.
        written += on_replica_alone(
            server,
            f"UPDATE {table} SET v = 0 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 1000",
        )
        for gtid in written:
            server.root(*empty_transaction(server.kind, gtid))
        server.catch_up()
    assert isinstance(refused.error, ReplicaError)
    assert "has executed transactions that the primary has not" in refused.error.message
    assert "Recreate the replica from this primary" in refused.error.remedy
    record = shop.record("orders")
    assert (record.state, current_path(record.base_path)) == (State.FAILED, None)
    succeeded(bootstrap(shop.services, [record.table]))
    shop.assert_equal("orders")


def on_replica_alone(server: MysqlDatabase, *statements: str) -> list[str]:
    """Run statements on the replica, as an application might; returns their GTIDs."""
    found: list[str] = []
    for statement in statements:
        if server.kind == MYSQL:
            found.append(f"{uuid.uuid4()}:1")
            server.root(
                "SET GLOBAL super_read_only = OFF",
                f"SET GTID_NEXT = '{found[-1]}'",
                statement,
                "SET GTID_NEXT = 'AUTOMATIC'",
                "SET GLOBAL super_read_only = ON",
                replica=True,
            )
        else:
            # In another domain, so that the primary's next transaction still has the next number.
            domain, asked = "SET SESSION gtid_domain_id = 7", "SELECT @@last_gtid"
            found.append(str(server.root(domain, statement, asked, replica=True)[-1][0]))
    return found
