"""The command `check` on the real stack: it finds no fault, or it names each fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from cdc.sources.source_facts import Check
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import State
from operate.check import check
from operate.readiness_check import examine
from operate.status import status
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.servers import alter_topic
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.sources import on_replica


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database, None, tmp_path)
    yield shop
    shop.services.close()


def lines(shop: Shop) -> dict[str, Check]:
    return {line.name: line for line in check(shop.services)}


def errors(shop: Shop) -> dict[str, Check]:
    found = {name: line for name, line in lines(shop).items() if line.status == "error"}
    assert all(line.remedy for line in found.values()), "an error without a remedy"
    return found


def test_everything_is_looked_at_and_fine(shop: Shop) -> None:
    shop.create("orders", 10)
    succeeded(shop.onboard("orders", with_bootstrap=False))
    seen = lines(shop)
    assert not errors(shop)
    text = " ".join(seen)
    for part in (
        "state store",
        "login admin",
        "login capture",
        "login snapshot",
        "wal_level",
        "max_replication_slots",
        "max_wal_senders",
        "max_slot_wal_keep_size",
        "privileges",
        "replica",
        "replica snapshots",
        "replica lag",
        "table ",
        "Kafka",
        "Connect: Debezium",
        "Connect: exactly-once",
        "schema registry",
        "slot ",
        "connector ",
        "topic ",
        "lake",
    ):
        assert part in text, f"{part} is not looked at"


@pytest.mark.breadth
def test_a_server_that_does_not_answer_is_one_line_and_the_rest_goes_on(shop: Shop) -> None:
    shop.create("orders", 10)
    config = shop.config()
    elsewhere = {"url": "http://127.0.0.1:9"}
    shop.reconfigure(
        connect=elsewhere, kafka={**config.kafka.model_dump(mode="json"), "registry": elsewhere}
    )
    found = errors(shop)
    assert set(found) == {"Connect", "schema registry"}
    assert lines(shop)["lake"].status == "ok"


def test_what_was_changed_behind_our_back_is_named(shop: Shop) -> None:
    shop.create("orders", 10)
    shop.create("lines", 10)
    shop.create("items", 10)
    succeeded(shop.onboard("orders", "lines", "items", with_bootstrap=False))
    assert not errors(shop)
    copied_elsewhere(shop, "items")
    capture = shop.services.capture(shop.table("orders"))
    connector = dict(shop.services.connect.connector(capture.connector) or {})
    shop.services.connect.put_connector(capture.connector, {**connector, "skipped.operations": "d"})
    shop.database.execute(
        f'ALTER PUBLICATION "{capture.publication}" DROP TABLE orders',
        "ALTER TABLE lines REPLICA IDENTITY NOTHING",
        f"ALTER PUBLICATION \"{capture.publication}\" SET (publish = 'insert, delete, truncate')",
    )
    found = errors(shop)
    assert "is not in publication" in found[f"table {shop.table('orders')}"].detail
    assert "REPLICA IDENTITY NOTHING" in found[f"table {shop.table('lines')}"].detail
    assert f"connector {capture.connector}: skipped.operations" in found
    unpublished = f"publication {capture.publication} does not publish update"
    assert found[f"capture {capture.source}/{capture.tier}"].detail == unpublished
    assert "is another server: its system identifier was 1, is " in (
        found[f"table {shop.table('items')}"].detail
    )
    seen = status(shop.services, [])
    (lost,) = (table.lost for table in seen.tables if table.lost is not None)
    assert lost.subject == f"table {shop.table('items')}"
    assert "is another server" in lost.message
    (shown,) = seen.captures
    assert unpublished in (shown.problem or "")
    assert "skipped.operations" in (shown.problem or "")


def copied_elsewhere(shop: Shop, name: str) -> None:
    """Write to the state store that a followed table was copied from another server."""
    record, now = shop.record(name), datetime.now(timezone.utc)
    elsewhere = CopyView("1-1", "0/1", now, False, system_identifier="1", timeline=1)
    attempt = Attempt(id=uuid4(), started_at=now, path=record.base_path, view=elsewhere)
    copied = replace(record, state=State.INCREMENTAL, attempt=attempt)
    shop.services.store.put(copied)


def test_settings_that_a_connector_does_not_take_over_are_named_without_values(shop: Shop) -> None:
    shop.create("orders", 10)
    succeeded(shop.onboard("orders", with_bootstrap=False))
    name = f"connector {shop.services.capture(shop.table('orders')).connector}: settings"
    assert name not in lines(shop)
    connect = shop.config().connect.model_dump(mode="json", exclude_unset=True)
    shop.reconfigure(connect={**connect, "connector": {"max.queue.size": "4321"}})
    assert lines(shop)[name].status == "warning"
    assert "max.queue.size" in lines(shop)[name].detail
    assert "4321" not in lines(shop)[name].detail


def test_a_lake_that_cannot_be_written_is_an_error(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    shop.reconfigure(lake={"url": str(tmp_path / "file" / "lake")})
    assert "not writable" in errors(shop)["lake"].detail


def test_a_short_retention_is_a_warning(shop: Shop) -> None:
    config = shop.config().kafka.model_dump(mode="json")
    shop.reconfigure(kafka={**config, "topic": {"retention_ms": 3_600_000}})
    assert lines(shop)["Kafka: retention"].status == "warning"


@pytest.mark.breadth
def test_rows_that_do_not_fit_into_a_message_are_a_warning(shop: Shop) -> None:
    shop.create("orders", 10)
    config = shop.config().kafka.model_dump(mode="json")
    topic = {**config["topic"], "max_message_bytes": 40_000}
    shop.reconfigure(kafka={**config, "topic": topic})
    assert examine(shop.services, shop.table("orders")) == ()
    succeeded(shop.onboard("orders", with_bootstrap=False))
    shop.database.execute("UPDATE orders SET t = repeat('large', 10000) WHERE id = 1")
    on_replica(shop.services.source(shop.database.name))
    found = lines(shop)[f"topic {shop.record('orders').topic}"]
    assert (found.status, "a row has 50,002 bytes" in found.detail) == ("warning", True), found
    (note,) = examine(shop.services, shop.table("orders"))
    assert "raise kafka.topic.max_message_bytes" in note

    name, services = shop.record("orders").topic, shop.services
    connector = services.capture(shop.table("orders")).connector
    assert found.remedy.startswith(f"Raise max.message.bytes of topic {name}, and kafka.topic.max")
    told = "Raise max.message.bytes of the topic and kafka.topic.max_message_bytes. Then run"
    wait_until(lambda: any(one.remedy.startswith(told) for one in lines(shop).values()), told, 180)
    alter_topic(services.config.kafka, name, max_message_bytes="400000")
    shop.reconfigure(kafka={**config, "topic": {**topic, "max_message_bytes": 400_000}})
    succeeded(shop.onboard("orders", with_bootstrap=False))
    shop.services.connect.wait_running(connector)
    shop.settle("orders")
    assert lines(shop)[f"topic {name}"].status == "ok"
