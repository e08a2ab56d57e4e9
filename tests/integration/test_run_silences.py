"""The messages of runs about connectors that send no changes: failed, paused, silent or deleted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import sqlalchemy as sa
import stamina

from cdc.connect import ConnectClient
from cdc.run import silences
from cdc.store.tables import restart_rows
from operate.check import check
from operate.context import Services
from operate.discover import followed
from operate.exit_codes import ExitCode
from operate.lifecycle import retry
from operate.run import Runs
from operate.status import status
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop

SILENCE = "runs, and its last heartbeat"


class Told:
    """Runs the shop's tables; a call returns the messages on silences, or an empty text.

    Asserts that the exit code of the run is 3 with messages, and 0 without.
    """

    def __init__(self, shop: Shop) -> None:
        self.services = shop.services
        names = [str(shop.table(name)) for name in ("orders", "lines")]
        self.runs = Runs(shop.services, followed(shop.services, names))
        self.capture = shop.services.capture(shop.table("orders"))

    def __call__(self) -> str:
        self.runs.once()
        expected = ExitCode.SOME_FAILED if self.runs.silences else ExitCode.OK
        assert self.runs.exit_code() is expected
        return "".join(f"{one.message}. {one.remedy}" for one in self.runs.silences)

    def wait_for(self, part: str, what: str, timeout_s: float = 60) -> str:
        """Run until the messages contain a text; returns all messages of the last run."""
        said: list[str] = []

        def tells() -> bool:
            said.append(self())
            return part in said[-1]

        wait_until(tells, what, timeout_s)
        return said[-1]

    def wait_for_restart(self) -> None:
        """Run until the runs have restarted the connector; each new try is made due at once."""
        topic = self.capture.heartbeat_topic
        beats = self.services.kafka.stable_offsets(topic)

        def recovered() -> bool:
            with self.services.store.transaction() as connection:
                connection.execute(sa.update(restart_rows).values(next_at=0))
            return self() == "" and self.services.kafka.stable_offsets(topic) != beats

        wait_until(recovered, "a restart by a run", 120)


def test_a_run_tells_through_which_connector_no_changes_come(
    shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "lines"):
        shop.create(name, 1)
    succeeded(shop.onboard("orders", "lines", with_bootstrap=False))
    services, connect, told = shop.services, shop.services.connect, Told(shop)
    name = told.capture.connector

    assert told() == ""
    database.stack.psql("ALTER ROLE tributary_capture NOLOGIN")
    try:
        connect.restart(name, only_failed=False)
        # A task that is restarted may be seen running for a moment before it fails again.
        first = told.wait_for("failed: ", "the failure", 120)
    finally:
        database.stack.psql("ALTER ROLE tributary_capture LOGIN")
    assert_failed_login(first, name, database)
    told.wait_for_restart()

    connect.pause(name)
    assert f"connector {name} is PAUSED" in told()
    assert "tributary retry" in told()
    retry(services, shop.table("orders"))
    assert told() == ""

    monkeypatch.setattr("cdc.capture.connector_activity.silence_bound_s", lambda _: 2.0)
    with database.begin() as session:
        session.execute("LOCK TABLE tributary.heartbeat IN EXCLUSIVE MODE")
        told.wait_for(SILENCE, "the silence")
        assert_silence_is_shown(services, name)
        assert "Kafka Connect does not answer" in away(services)[0]
    monkeypatch.undo()
    wait_until(lambda: told() == "", "a heartbeat")
    assert away(services) == [], "changes come"

    monkeypatch.setattr("cdc.capture.connector_activity.silence_bound_s", lambda _: 2.0)
    assert_changes_without_heartbeats_are_no_silence(shop, database, told)
    connect.delete(name)
    assert f"there is no connector {name}" in told()


def assert_failed_login(said: str, connector: str, database: Database) -> None:
    assert f"connector {connector} failed: " in said
    assert "not permitted to log in" in said
    assert "credentials.capture" in said
    assert "restarted, time 1 of 8" in said
    assert said.count(f"{database.name}:public.") == 2, "all its tables are named"
    assert not re.search(r"\bat (?:org|io|java)\.|\n", said), "no Java stack"


def assert_silence_is_shown(services: Services, connector: str) -> None:
    (shown,) = status(services, []).captures
    assert SILENCE in (shown.problem or "")
    (line,) = (one for one in check(services) if one.name == f"connector {connector}")
    assert (line.status, SILENCE in line.detail) == ("error", True)
    assert "tributary.heartbeat" in line.remedy


def away(services: Services) -> list[str]:
    """The messages on silent connectors while Kafka Connect does not answer."""
    nowhere = services.config.connect.model_copy(update={"url": "http://127.0.0.1:9"})
    context = replace(services.run_context, connect=ConnectClient(nowhere))
    with stamina.set_testing(True, attempts=1):
        return [one.message for one in silences(context, services.store.tables())]


def assert_changes_without_heartbeats_are_no_silence(
    shop: Shop, database: Database, told: Told
) -> None:
    """Assert that a connector which sends changes but no heartbeats is not called silent.

    This happens while the connector sends one long transaction.
    """
    database.stack.psql(
        f'ALTER PUBLICATION "{told.capture.publication}" DROP TABLE tributary.heartbeat',
        database=database.name,
    )
    told.wait_for(SILENCE, "the silence")
    kafka, topic = shop.services.kafka, shop.record("orders").topic
    before = kafka.stable_offsets(topic)
    database.execute("UPDATE orders SET v = 3 WHERE id = 1")
    wait_until(lambda: kafka.stable_offsets(topic) != before, "the change")
    assert told() == ""
    told.wait_for(SILENCE, "the silence after it")
