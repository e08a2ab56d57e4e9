"""A capture and a lake table keep the names of their onboarding, also after an edit of settings."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.store.table_state import State
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Answer, Person, created
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import shop as shop


def edited(person: Person, **templates: str) -> dict[str, Any]:
    """The configuration's ``sources`` section, with other templates for names."""
    document = person.shop.database.document(person.shop.folder)
    ((name, section),) = document["sources"].items()
    return {name: {**section, **templates}}


def assert_told(answer: Answer, setting: str) -> None:
    """Assert that the command's answer names the edited setting and says how to go on."""
    assert f"{setting} gave " in answer.messages, answer.documents
    assert any(f"{setting} back" in remedy for remedy in answer.remedies), answer.remedies


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_other_names_are_refused_until_the_tables_are_onboarded_anew(person: Person) -> None:
    shop = person.shop
    first, second = created(shop, "first", "second")
    person.done("onboard", first)
    source = shop.database.name
    has_slot = shop.services.capture_of(shop.record("first")).slot is not None
    of_connector = "slot" if has_slot else "connector"
    for setting in ("topic_prefix", of_connector):
        before, topic = shop.services.connect.names(), shop.record("first").topic
        person.configure(sources=edited(person, **{setting: "v2_{source}_{tier}"}))
        named = f"sources.{source}.{setting}"
        shop.database.execute("UPDATE first SET v = v + 1")
        for words in (["bootstrap"], ["resync"], ["onboard"], ["run"]):
            assert_told(person.refused(*words, first), named)
        assert person.state("first") is State.FAILED
        assert_told(person.refused("onboard", second), named)
        assert any(f"{named} gave " in str(line) for line in person.run("check").documents)
        assert shop.services.connect.names() == before, "no second connector"

        person.configure()
        person.done("retry", first)
        person.done("verify", first)
        assert shop.record("first").topic == topic

        person.configure(sources=edited(person, **{setting: "v2_{source}_{tier}"}))
        former = shop.services.capture_of(shop.record("first"))
        person.done("offboard", first)
        assert former.connector not in shop.services.connect.names()
        kept = shop.services.source(source).capture(former).kept_log
        assert kept is None or not kept.exists()
        person.done("onboard", first)
        shop.database.execute("UPDATE first SET v = v + 1")
        person.done("verify", first)
        person.done("offboard", first, "--delete-data")
        person.configure()
        person.done("onboard", first)


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_a_connector_that_a_killed_command_left_is_named_before_there_are_two(
    person: Person,
) -> None:
    """The command was killed before it had put a table on the plan."""
    shop = person.shop
    (table,) = created(shop, "orders")
    person.done("onboard", "--no-bootstrap", table)
    former = shop.services.capture_of(shop.record("orders"))
    shop.services.store.delete(shop.table("orders"))
    source = shop.database.name
    of_connector = "connector" if former.slot is None else "slot"
    person.configure(sources=edited(person, **{of_connector: "v2_{source}_{tier}"}))

    told = person.refused("onboard", table)
    assert f"connector {former.connector} already writes" in told.messages
    assert told.remedy.startswith(f"If connector {former.connector} is left")
    shop.services.connect.delete(former.connector)
    if (kept := shop.services.source(source).capture(former).kept_log) is not None:
        kept.drop()
    person.done("onboard", table)
    shop.database.execute("UPDATE orders SET v = v + 1")
    person.done("verify", table)


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_another_folder_of_the_lake_is_refused_until_the_table_is_onboarded_anew(
    person: Person,
) -> None:
    shop = person.shop
    (table,) = created(shop, "orders")
    person.done("onboard", table)
    former = shop.record("orders").base_path
    moved = {"url": (shop.folder / "moved").as_uri()}
    person.configure(lake=moved)
    shop.database.execute("UPDATE orders SET v = v + 1")
    for words in (["run"], ["resync"], ["onboard"]):
        told = person.refused(*words, table)
        assert f"was onboarded to {former}, but lake.url" in told.messages, told.documents
    assert person.state("orders") is State.FAILED
    assert any("was onboarded to" in str(line) for line in person.run("check").documents)

    person.configure()
    person.done("retry", table)
    person.done("verify", table)

    person.configure(lake=moved)
    person.follow(told.remedy)
    assert shop.record("orders").base_path != former
    person.done("verify", table)
