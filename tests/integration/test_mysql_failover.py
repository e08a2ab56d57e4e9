"""A server with a new address is known as the same; a promoted replica is noticed, then copied."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from cdc.store.table_state import State
from operate.lifecycle import retry
from operate.onboard import bootstrap
from operate.status import status
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import MysqlDatabase, had, mysql_stack_of, new_mysql_database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[MysqlDatabase]:
    """A database on servers of this test alone: a promoted replica cannot be used by others."""
    with mysql_stack_of(request.config, [request.param]) as stack:
        yield new_mysql_database(stack, had(stack, request.param))


@pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_a_replica_that_was_promoted_is_another_server(shop: Shop) -> None:
    database = shop.database
    assert isinstance(database, MysqlDatabase)
    shop.create("orders", 500)
    succeeded(shop.onboard("orders"))
    database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    run_without_error(shop)
    database.catch_up()
    off = "super_read_only = OFF, GLOBAL read_only" if database.kind == MYSQL else "read_only"
    database.root("STOP REPLICA", "RESET REPLICA ALL", f"SET GLOBAL {off} = OFF", replica=True)
    # The former primary lives on, and takes a write that the new one will never have.
    database.execute("UPDATE orders SET v = 100 WHERE id = 2")
    with database.connect(replica=True) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET v = 2 WHERE id = 3")
    document = database.document(shop.folder)["sources"][database.name]
    promoted = {**document, "primary": document["replica"]}
    del promoted["replica"]
    shop.reconfigure(sources={database.name: promoted})
    (seen,) = status(shop.services, []).tables
    assert seen.lost is not None
    assert "is another server" in seen.lost.message
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "is another server" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders")
    with database.connect(replica=True) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET v = 3 WHERE id = 4")
    shop.assert_equal("orders")
    found = {row.id: row.v for row in shop.lake("orders").where("v > 0").collect()}
    assert found == {1: 1, 3: 2, 4: 3}


@pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_a_server_that_moved_is_the_same_server(shop: Shop) -> None:
    """The server gets another address, as on a new machine or in a container with the same disk."""
    database = shop.database
    assert isinstance(database, MysqlDatabase)
    shop.create("orders", 500)
    succeeded(shop.onboard("orders"))
    run_without_error(shop)
    before, copied = identity(shop), shop.record("orders").base_path
    move(database)
    shop.reconfigure()
    assert identity(shop) == before
    run_without_error(shop)
    name, connect = shop.services.capture(shop.table("orders")).connector, shop.services.connect
    port = database.stack.addresses().ports[database.kind]
    connect.put_connector(name, {**connect.connector(name), "database.port": str(port)})
    connect.wait_running(name)
    database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    shop.assert_equal("orders")
    assert shop.record("orders").base_path == copied


@pytest.mark.breadth
@pytest.mark.parametrize("database", kinds(of=(MARIADB,)), indirect=True)
def test_a_server_without_its_row_is_no_other_server(shop: Shop) -> None:
    database = shop.database
    assert isinstance(database, MysqlDatabase)
    shop.create("orders", 5)
    succeeded(shop.onboard("orders"))
    own, _, _ = str(identity(shop)).partition("@")
    database.root("DELETE FROM tributary.source_identity")
    database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    (result,) = shop.run()
    assert (result.state, own in result.error.remedy) == (State.FAILED, True)
    database.root(f"INSERT INTO tributary.source_identity (one, id) VALUES (1, '{own}')")
    retry(shop.services, shop.table("orders"))
    shop.assert_equal("orders")


def identity(shop: Shop) -> str | None:
    return shop.services.source(shop.database.name).identity().system_identifier


def move(database: MysqlDatabase) -> None:
    """Start the primary at another port, because its own port is taken."""
    stack, known = database.stack, server_uid(database)
    address = (HOST, stack.addresses().ports[database.kind])
    stack.server(database.kind).kill()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
        taken.listen()
        stack.up()
    assert stack.addresses().ports[database.kind] != address[1]
    if database.kind == MARIADB:
        assert server_uid(database) != known


def server_uid(database: MysqlDatabase) -> object:
    """MariaDB's id of a server, which is derived from the machine's address and the port."""
    return database.root("SHOW GLOBAL VARIABLES LIKE 'server_uid'")
