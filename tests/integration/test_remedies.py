"""The remedies of errors work: the tests take the commands out of the texts and run them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.capture.remembered_losses import loss_scopes
from cdc.lake.pointer import POINTER, local_folder
from cdc.run import plan
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State
from stack.postgres import POSTGRES
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import FEW, Person, commands, created, folder, produce
from tests.integration.rigs.person import early as early
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

on_postgres = pytest.mark.parametrize("database", [POSTGRES], indirect=True)


STATES: dict[str, tuple[str, list[list[str]]]] = {
    "new": ("onboard", [["pause"], ["bootstrap"], ["path"], ["schema", "diff"]]),
    "registered": ("bootstrap", [["retry"], ["resync"], ["verify"], ["path"], ["schema", "diff"]]),
    "paused": ("resume", [["retry"], ["bootstrap"], ["resync"], ["verify"]]),
    "broken": ("bootstrap", [["retry"], ["resume"], ["verify"], ["quarantine", "replay"]]),
    "gone": ("onboard", [["path"], ["resync"], ["schema", "diff"]]),
}
"""By table, each in another state: the command that helps, and the commands that are refused."""


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_a_command_that_a_state_refuses_names_the_one_that_helps(person: Person) -> None:
    shop = person.shop
    tables = dict(zip(STATES, created(shop, *STATES), strict=True))
    person.done("onboard", tables["paused"], tables["broken"], tables["gone"])
    person.done("onboard", "--no-bootstrap", tables["registered"])
    person.done("pause", tables["paused"])
    person.done("offboard", tables["gone"], "--delete-data")
    shop.database.execute(shop.database.retype("broken", "v", "varchar(10)"))
    shop.settle("broken")
    stopped = person.run("run", tables["broken"])
    assert (stopped.code, person.state("broken")) == (4, State.NEEDS_BOOTSTRAP)

    for name, (command, refused) in STATES.items():
        helps = [command, str(shop.table(name))]
        for words in refused:
            told = person.refused(*words, tables[name]).remedy
            assert helps in person.led_to(told), (words, told)
        person.done(*helps)
        assert person.state(name) is State.INCREMENTAL
    person.done("verify", *tables.values())


@on_postgres
def test_what_is_refused_before_a_table_is_copied_names_what_helps(early: Person) -> None:
    shop = early.shop
    known, gone, moved, parts, _ = created(shop, "known", "gone", "moved", "parts", "new")
    early.done("onboard", "--no-bootstrap", known, gone, moved)

    early.done("offboard", gone)
    for name in ("new", "gone"):
        for command in ("pause", "resume", "retry", "path", "bootstrap"):
            told = early.refused(command, shop.database.label(name)).remedy
            assert ["onboard", str(shop.table(name))] in early.led_to(told), (name, command)
    for command in ("pause", "resume", "retry", "path"):
        told = early.refused(command, known).remedy
        assert early.led_to(told)[0] == ["bootstrap", str(shop.table("known"))], command

    shop.tables = {moved: {"tier": "other"}}
    early.configure()
    early.follow(early.refused("onboard", moved).remedy)
    assert (shop.record("moved").tier, shop.record("moved").other) == ("other", None)

    topic = shop.services.capture(shop.table("parts")).topic(shop.table("parts"))
    admin = AdminClient(shop.services.config.kafka.librdkafka_config())
    for made in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        made.result()
    told = early.refused("onboard", "--no-bootstrap", parts).remedy
    assert told.startswith(f"Delete topic {topic}")
    shop.services.kafka.delete_topic(topic)
    wait_until(lambda: not shop.services.kafka.topics([topic]), "the end of the topic")
    early.done("onboard", "--no-bootstrap", parts)


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_a_failed_table_goes_on_or_is_copied_again_as_it_says(person: Person) -> None:
    shop = person.shop
    (table,) = created(shop, "orders")
    person.done("onboard", table)
    produce(shop, "orders", b"damaged")
    failed = person.run("run", table)
    assert person.state("orders") is State.FAILED, failed.documents
    choices = person.led_to(person.refused("bootstrap", table).remedy)
    assert [words[0] for words in choices] == ["retry", "resync"]
    person.follow(person.refused("resume", table).remedy)
    assert person.state("orders") is State.INCREMENTAL
    again = person.run("run", table)
    assert person.state("orders") is State.FAILED, "the record is what it was"
    person.follow(again.remedy, "resync")
    assert person.state("orders") is State.INCREMENTAL
    person.done("verify", table)


def without_folder(shop: Shop, name: str) -> None:
    attempt = shop.record(name).attempt
    assert attempt is not None
    copied = local_folder(attempt.path)
    assert copied is not None
    shutil.rmtree(copied)


def without_all(shop: Shop, name: str) -> None:
    shutil.rmtree(folder(shop, name))


def without_pointer(shop: Shop, name: str) -> None:
    (folder(shop, name) / POINTER).unlink()


LOST: dict[str, tuple[Callable[[Shop, str], None], list[list[str]]]] = {
    "folder": (without_folder, [["schema", "diff"], ["quarantine", "replay"], ["verify"]]),
    "all": (without_all, [["run"], ["path"], ["schema", "diff"]]),
    "pointer": (without_pointer, [["path"], ["quarantine", "replay"], ["verify"]]),
}


@pytest.mark.breadth
@on_postgres
@pytest.mark.parametrize("what", LOST)
def test_a_lake_that_lost_a_part_of_a_table_is_made_anew_as_each_command_says(
    person: Person, what: str
) -> None:
    """No run has looked at the table since the loss, so the table's state does not show it."""
    shop = person.shop
    lose, told_by = LOST[what]
    (table,) = created(shop, "orders")
    person.done("onboard", table)
    for words in told_by:
        lose(shop, "orders")
        shop.database.execute("UPDATE orders SET v = v + 1")
        shop.settle("orders")
        person.follow(person.refused(*words, table).remedy)
        person.done("verify", table)


@pytest.mark.breadth
@on_postgres
def test_tables_of_a_lake_that_is_not_mounted_fail_and_continue_after_the_mount(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "FIRST_RETRY", timedelta())
    shop = person.shop
    names = ("changed", "idle", "caught")
    changed, idle, caught = created(shop, *names)
    person.done("onboard", changed, idle, caught)
    shop.services.store.put(replace(shop.record("caught"), state=State.CATCHING_UP))
    shop.database.execute("UPDATE changed SET v = v + 1", "UPDATE caught SET v = v + 1")
    shop.settle("changed")
    shop.settle("caught")
    lake = local_folder(shop.services.config.lake.url)
    assert lake is not None
    away = lake.rename(lake.with_name("away"))
    lake.mkdir()  # the place of the mount

    failed = person.run("run")
    assert failed.code == 3, failed.documents
    failing = person.refused("bootstrap", caught)
    for name, said in zip(names, (failed, failed, failing), strict=True):
        assert person.state(name) is State.FAILED, said.documents
        assert f"the folder of table {shop.table(name)} is not there" in said.messages
    capture = shop.services.capture(shop.table(names[0]))
    _, *scopes = loss_scopes(capture, *(shop.table(name) for name in names))
    assert not Losses(shop.services.store).seen(*scopes)
    assert list(lake.rglob("*")) == [], "nothing is written beside the lake"

    lake.rmdir()
    away.rename(lake)
    person.done("run")
    person.done("bootstrap", caught)
    assert {shop.record(name).generation for name in names} == {1}, "none is copied again"
    person.done("verify", changed, idle, caught)

    shop.services.store.put(replace(shop.record("caught"), state=State.CATCHING_UP))
    shutil.rmtree(folder(shop, "caught"))
    gone = person.refused("bootstrap", caught)
    assert person.state("caught") is State.FAILED, gone.documents
    person.follow(gone.remedy)
    person.done("verify", caught)


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_policies_and_tables_that_went_away_go_on_as_they_say(person: Person) -> None:
    shop = person.shop
    names = ("held", "emptied", "dropped", "recreated", "topicless")
    label = shop.database.label
    shop.tables = {
        label("held"): {"on_schema_change": "pause"},
        label("emptied"): {"on_truncate": "pause"},
    }
    person.configure()
    held, emptied, dropped, recreated, topicless = created(shop, *names)
    person.done("onboard", held, emptied, dropped, recreated, topicless)

    shop.database.execute(
        "ALTER TABLE held ADD COLUMN n int",
        "TRUNCATE TABLE emptied",
        "INSERT INTO emptied VALUES (9, 9, 'x')",
    )
    for name in ("held", "emptied"):
        shop.settle(name)
        paused = person.run("run", label(name))
        assert person.state(name) is State.PAUSED, paused.documents
        assert f"Set on_{'schema_change' if name == 'held' else 'truncate'}" in paused.remedy
        shop.tables = {**shop.tables, label(name): {}}
        person.configure()
        person.follow(paused.remedy)
        person.done("run", label(name))
    person.done("verify", held, emptied)

    shop.database.execute("DROP TABLE dropped", "DROP TABLE recreated")
    gone = person.run("run", dropped)
    assert person.state("dropped") is State.NEEDS_BOOTSTRAP
    person.follow(gone.remedy, "offboard")
    back = person.run("run", recreated)
    shop.create("recreated", FEW + 1)
    person.follow(back.remedy, "bootstrap")
    person.done("verify", recreated)

    topic = shop.record("topicless").topic
    shop.services.kafka.delete_topic(topic)
    wait_until(lambda: not shop.services.kafka.topics([topic]), "the end of the topic")
    lost = person.run("run", topicless)
    assert person.state("topicless") is State.NEEDS_BOOTSTRAP, lost.documents
    person.follow(lost.remedy)
    person.done("verify", topicless)


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_what_does_not_fit_the_plan_begins_anew_as_it_says(person: Person) -> None:
    shop = person.shop
    label = shop.database.label
    moved, logged, altered = created(shop, "moved", "logged", "altered")
    person.done("onboard", moved, logged, altered)

    shop.tables = {label("moved"): {"tier": "other"}, label("logged"): {"mode": "append"}}
    person.configure()
    shop.database.let_pause()
    for words in (["onboard"], ["bootstrap"]):
        assert "or set tier: default" in person.refused(*words, moved).remedy
    person.follow(person.refused("resync", moved).remedy)
    assert shop.record("moved").tier == "other"

    told = person.refused("bootstrap", logged).remedy
    assert "Set mode: upsert" in told
    person.follow(told)
    person.done("verify", moved, logged)

    shop.services.store.put(replace(shop.record("altered"), attempt=None))
    shop.database.execute("UPDATE altered SET v = v + 1")
    shop.settle("altered")
    stopped = person.run("run", altered)
    assert stopped.code != 0
    person.follow(stopped.remedy)
    person.done("verify", altered)


@pytest.mark.breadth
@on_postgres
def test_a_capture_that_was_taken_apart_is_restored_as_it_says(person: Person) -> None:
    shop = person.shop
    tables = created(shop, "first", "second")
    person.done("onboard", *tables)
    names = shop.services.capture_of(shop.record("first"))

    shop.services.connect.delete(names.connector, forget_offsets=False)
    shop.database.execute("UPDATE first SET v = v + 1")
    told = person.refused("run", *tables).remedy
    assert commands(told) == [["onboard"]], "for one of its tables"
    person.done("onboard", tables[0])
    person.done("verify", *tables)

    shop.database.execute(f"DROP PUBLICATION {names.publication}", "UPDATE second SET v = v + 1")
    stopped = person.run("run", *tables)
    assert {person.state("first"), person.state("second")} == {State.NEEDS_BOOTSTRAP}
    for remedy in stopped.remedies:
        if "bootstrap" in remedy:
            person.follow(remedy, "bootstrap")
    person.done("verify", *tables)
