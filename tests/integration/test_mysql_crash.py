"""Commits that a server loses when its machine crashes, and GTIDs that the server uses again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from cdc.debezium import latest_heartbeat
from cdc.store.table_state import State
from operate.check import check
from operate.onboard import bootstrap
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase, had, mysql_stack_of, new_mysql_database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

pytestmark = pytest.mark.breadth


@pytest.fixture(params=[MARIADB, MYSQL])
def database(request: pytest.FixtureRequest) -> Iterator[MysqlDatabase]:
    """A database on servers of this test alone, because the test resets the servers' disks."""
    with mysql_stack_of(request.config, [request.param]) as stack:
        yield new_mysql_database(stack, had(stack, request.param))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seen_by_a_run", [pytest.param(True, id="seen by a run"), False])
def test_commits_that_a_crash_lost_and_whose_gtids_are_used_again_stop_the_tables(
    shop: Shop, tmp_path: Path, seen_by_a_run: bool
) -> None:
    """The servers' data is set back to an earlier state, since a killed process loses nothing.

    If no run has looked before, only the connector's heartbeats show the lost commits.
    """
    database = shop.database
    assert isinstance(database, MysqlDatabase)
    shop.create("orders", 300)
    succeeded(shop.onboard("orders"))
    database.stack.server(database.kind).kill()
    database.stack.up()
    database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    shop.settle("orders")
    run_without_error(shop)

    disk = Disk(database, tmp_path / "disk")
    database.execute("UPDATE orders SET v = 2 WHERE id = 2")
    if not seen_by_a_run:
        wait_for_heartbeats(shop)
    else:
        shop.settle("orders")
        run_without_error(shop)
        assert count(shop, "v = 2") == 1
    name, connect = shop.services.capture(shop.table("orders")).connector, shop.services.connect
    connect.stop(name)  # so that it sends nothing while the server lacks what it has sent
    captured = shop.services.source(database.name).current_position()
    disk.set_back()
    used_again = 0
    while not shop.services.source(database.name).current_position().reaches(captured):
        used_again += 1
        database.execute(f"UPDATE orders SET v = 3 WHERE id = {2 + used_again}")
    connect.resume(name)
    connect.wait_running(name)
    database.execute("UPDATE orders SET v = 4 WHERE id = 1")
    shop.settle("orders")

    assert [one for one in check(shop.services) if "which the connector skips" in one.detail]
    (result,) = shop.run()
    assert count(shop, "v = 3") == 0, "the connector skipped them"
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "which the server had executed before its file" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders")
    assert (count(shop, "v = 2"), count(shop, "v = 3")) == (0, used_again)
    run_without_error(shop)


def wait_for_heartbeats(shop: Shop) -> None:
    """Wait until heartbeats from after this moment are in Kafka, without writing a marker."""
    services, capture = shop.services, shop.services.capture(shop.table("orders"))

    def beats() -> int:
        found = latest_heartbeat(services.kafka, services.registry, capture)
        assert found is not None
        assert found.beats is not None
        return found.beats

    before = beats()
    wait_until(lambda: beats() > before + 2, "heartbeats", 60)


def count(shop: Shop, condition: str) -> int:
    return shop.lake("orders").where(condition).count()


class Disk:
    """A copy of the data of a primary and its replica, as a crash at this moment would leave it.

    Args:
        database: A database on the primary.
        folder: Folder for the copy.
    """

    def __init__(self, database: MysqlDatabase, folder: Path) -> None:
        database.catch_up()
        self._stack = database.stack
        self._servers = {}
        processes = []
        for name, replica in ((database.kind, False), (f"{database.kind}_replica", True)):
            ((data,),) = database.root("SELECT @@global.datadir", replica=replica)
            self._servers[name] = (Path(data), folder / name)
            processes.append(psutil.Process(self._stack.server(name).pid))
        folder.mkdir()
        try:
            for process in processes:  # the primary's first, so that the replica is not ahead
                process.suspend()
                wait_until(partial(is_suspended, process), "a server to be suspended")
            for data, copy in self._servers.values():
                subprocess.run(["cp", "-a", data, copy], check=True)
        finally:
            for process in processes:
                process.resume()

    def set_back(self) -> None:
        """Kill both servers, replace their data with this copy, and start them."""
        for name, (data, copy) in self._servers.items():
            self._stack.server(name).kill()
            shutil.rmtree(data)
            subprocess.run(["cp", "-a", copy, data], check=True)
        self._stack.up()


def is_suspended(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED
