"""Source servers that no longer answer: what commands do without them, and what they report."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from cdc.errors import ConnectError, SourceError
from cdc.store.attempt import Attempt
from cdc.store.table_state import Cause, State, transition
from operate.lifecycle import absent_sources, offboard, retry
from operate.tier_capture import members
from stack.postgres import POSTGRES
from tests.integration.rigs.faults import restarted
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Person
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import cold as cold
from tests.integration.rigs.shop import shop as shop


@for_each_kind(POSTGRES)
def test_tables_of_a_source_that_is_gone_leave_the_plan(cold: Shop) -> None:
    database, services = cold.database, cold.services
    for name in ("orders", "parts"):
        cold.create(name, 3)
    succeeded(cold.onboard("orders", "parts", with_bootstrap=False))
    orders, parts = cold.table("orders"), cold.table("parts")
    capture, stack = services.capture(orders), database.stack
    of_postgres = database.kind == POSTGRES
    assert absent_sources(services, [orders]) == {}
    with restarted(stack, "primary" if of_postgres else database.kind):
        with pytest.raises((SourceError, ConnectError)) as caught:
            offboard(services, orders, delete_data=False)
        assert f"run `tributary offboard {orders} --source-gone`" in caught.value.remedy
        assert cold.record("orders").state is State.REGISTERED
        absent = absent_sources(services, [orders, parts])
        assert list(absent) == [database.name]
        left = [
            offboard(services, table, delete_data=False, absent=absent[database.name])
            for table in (orders, parts)
        ]
        assert services.connect.connector(capture.connector) is None
    assert {cold.record(name).state for name in ("orders", "parts")} == {State.RETIRED}
    notes = [one.details.get("notes", []) for one in left]
    if not of_postgres:
        assert f"run `tributary offboard {orders}` again" in notes[0][0]
        assert notes[1] == []
        return
    assert "ALTER PUBLICATION" in notes[0][0]
    for found in notes:
        statements = found[0].partition("run there: ")[2]
        database.execute(*filter(None, statements.split(";")))
    kept = services.source(database.name).capture(capture).kept_log
    assert kept is not None
    assert not kept.exists()
    assert members(services, capture) == frozenset()


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_data_of_a_source_that_is_gone_is_deleted_as_its_tables_leave(person: Person) -> None:
    """The command line deletes the data while a table is offboarded, or afterwards."""
    shop = person.shop
    names = ("orders", "parts")
    for name in names:
        shop.create(name, 3)
    orders, parts = (shop.database.label(name) for name in names)
    person.done("onboard", orders, parts)
    records = [shop.record(name) for name in names]
    connector = shop.services.capture_of(records[0]).connector
    of_postgres = shop.database.kind == POSTGRES
    with restarted(shop.database.stack, "primary" if of_postgres else shop.database.kind):
        told = person.refused("offboard", orders, "--delete-data").remedy
        assert person.led_to(told) == [["offboard", str(shop.table("orders")), "--source-gone"]]
        person.done("offboard", orders, "--source-gone", "--delete-data")
        person.follow(person.refused("offboard", parts).remedy)
        assert Path(records[1].base_path).is_dir()
        person.done("offboard", parts, "--source-gone", "--delete-data")
        assert shop.services.connect.connector(connector) is None
    assert [person.state(name) for name in names] == [State.RETIRED] * 2
    for record in records:
        assert not Path(record.base_path).exists()
    assert not shop.services.kafka.topics([record.topic for record in records])


@pytest.mark.breadth
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_a_failed_table_goes_on_while_connect_does_not_answer(cold: Shop) -> None:
    cold.create("orders", 3)
    succeeded(cold.onboard("orders", with_bootstrap=False))
    table, name = cold.table("orders"), cold.services.capture(cold.table("orders")).connector
    answers = cold.services.config.connect.model_dump(mode="json", exclude_unset=True)
    cold.reconfigure(connect={**answers, "url": "http://127.0.0.1:9"})
    with pytest.raises(ConnectError, match="unreachable") as caught:
        retry(cold.services, table)
    assert "Check connect.url" in caught.value.remedy
    fail(cold, "orders")
    found = retry(cold.services, table)
    assert found.action.startswith("set to be tried again")
    (note,) = found.details["notes"]
    assert note.startswith(f"connector {name} was not looked at: Kafka Connect")
    assert cold.record("orders").state is State.BOOTSTRAPPING
    cold.reconfigure()


def fail(shop: Shop, name: str) -> None:
    """Let the table's copy fail at its start."""
    record, now = shop.record(name), datetime.now(timezone.utc)
    attempt = Attempt(
        id=uuid4(),
        started_at=now,
        path=f"{record.base_path}/attempt=gone",
        topic_id=None,
        start_offsets={0: 0},
        x0=None,
    )
    record = transition(record, State.BOOTSTRAPPING, at=now, attempt=attempt)
    cause = Cause(error=ConnectError("it failed", remedy="Try again."))
    shop.services.store.put(transition(record, State.FAILED, at=now, cause=cause))
