"""The remedies of `check` and of the plan, before a table's copy, work (see test_remedies.py)."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import pq

from cdc.sources.source_facts import Check
from cdc.store.table_state import State
from operate.check import check
from operate.status import status
from stack.postgres import POSTGRES
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import early as early
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.servers import add_partition, alter_topic

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]


def seen(person: Person) -> dict[str, Check]:
    """The lines of `check` that are not ``ok``, by their names."""
    return {line.name: line for line in check(person.shop.services) if line.status != "ok"}


def test_names_that_two_tables_would_share_are_parted_as_it_says(early: Person) -> None:
    shop, label = early.shop, early.shop.database.label
    early.done("onboard", "--no-bootstrap", *created(shop, "a_b", "orders"))
    created(shop, '"a.b"', '"ORDERS"')

    told = early.refused("onboard", "--no-bootstrap", label('"a.b"')).remedy
    assert told.startswith("Give one of them another tier (tables: <name>: tier: ...)")
    shop.tables = {'public."a.b"': {"tier": "other"}}
    early.configure()
    early.done("onboard", "--no-bootstrap", label('"a.b"'))

    remedy = early.refused("onboard", "--no-bootstrap", label('"ORDERS"')).remedy
    named = re.fullmatch(r"Set name of (.+), under tables, to a path of its own\.", remedy)
    assert named, remedy
    shop.tables = {**shop.tables, named[1]: {"name": "capitals"}}
    early.configure()
    early.done("onboard", "--no-bootstrap", label('"ORDERS"'))


def test_a_table_that_is_gone_and_a_topic_that_does_not_fit_leave_the_checks(
    early: Person,
) -> None:
    shop = early.shop
    gone, parted, _ = created(shop, "gone", "parted", "kept")
    early.done("onboard", "--no-bootstrap", gone, parted, shop.database.label("kept"))
    before = seen(early)
    shop.database.execute("DROP TABLE gone")
    topic = shop.record("parted").topic
    add_partition(shop.services.config.kafka, topic)

    found = seen(early)
    # Rows of a table that is gone cannot be sampled for its topic either.
    assert len(found.keys() - before.keys()) == 3
    early.follow(found[f"table {shop.table('gone')}"].remedy)
    leave, back = early.led_to(found[f"topic {topic}"].remedy)
    early.done(*leave)
    wait_until(lambda: not shop.services.kafka.topics([topic]), "the end of the topic")
    early.done(*back, "--no-bootstrap")
    assert seen(early) == before


def test_a_topic_that_was_deleted_is_made_anew_as_it_says(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    before = seen(early)
    topic = shop.record("orders").topic
    shop.services.kafka.delete_topic(topic)
    wait_until(lambda: not shop.services.kafka.topics([topic]), "the end of the topic")
    (line,) = [one for name, one in seen(early).items() if name not in before]
    assert line.remedy.startswith("Run `tributary onboard` for its table, which creates the topic")
    early.done("onboard", "--no-bootstrap", orders)
    assert seen(early) == before


def kafka_topics(person: Person, **settings: Any) -> None:
    """Write settings for the topics that the product creates into the configuration."""
    kafka = person.shop.config().kafka.model_dump(mode="json", exclude_unset=True)
    person.configure(kafka={**kafka, "topic": {**kafka.get("topic", {}), **settings}})


def test_settings_of_topics_and_connectors_fit_after_what_the_checks_say(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    before, topic = seen(early), shop.record("orders").topic

    kafka_topics(early, retention_ms=3_600_000)
    assert seen(early)["Kafka: retention"].remedy.startswith("Raise kafka.topic.retention_ms above")
    kafka_topics(early, retention_ms=7 * 24 * 3_600_000)
    assert seen(early) == before

    alter_topic(shop.services.config.kafka, topic, retention_ms="3600000")
    told = early.refused("onboard", "--no-bootstrap", orders).remedy
    assert told.startswith(f"Raise retention.ms of topic {topic}, or lower")
    alter_topic(shop.services.config.kafka, topic, retention_ms=str(7 * 24 * 3_600_000))
    early.done("onboard", "--no-bootstrap", orders)

    connect = shop.config().connect.model_dump(mode="json", exclude_unset=True)
    name = shop.services.capture(shop.table("orders")).connector
    early.configure(connect={**connect, "connector": {"max.queue.size": "9321"}})
    line = seen(early)[f"connector {name}: settings"]
    assert line.remedy.startswith("Tributary changes only sizes of a connector in use")
    running = shop.services.connect.connector(name)
    assert running is not None
    shop.services.connect.put_connector(name, {**running, "max.queue.size": "9321"})
    shop.services.connect.wait_running(name)
    assert seen(early) == before


def test_a_source_that_left_the_settings_is_put_back_for_its_tables_to_leave(
    early: Person,
) -> None:
    shop, source = early.shop, early.shop.database.name
    early.done("onboard", "--no-bootstrap", *created(shop, "orders", "parts"))
    named = [str(shop.table(name)) for name in ("orders", "parts")]
    (section,) = shop.database.document(shop.folder)["sources"].values()
    early.configure(sources={"other": section})
    for words in (named[:1], [*named[:1], "--source-gone"], [f"{source}:public.*"]):
        for told in early.refused("offboard", *words).remedies:
            assert told.startswith(f"Put sources.{source} back"), told
    (note,) = (
        one
        for one in status(shop.services, [shop.table("orders")]).tables[0].notes
        if "configuration" in one
    )
    assert f"sources.{source}" in note
    early.configure()
    early.done("offboard", *named)
    assert [early.state(name) for name in ("orders", "parts")] == [State.RETIRED] * 2


def test_a_slot_that_something_else_reads_goes_after_its_reader_as_it_says(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    names = shop.services.capture_of(shop.record("orders"))
    shop.services.connect.delete(names.connector, forget_offsets=False)
    assert isinstance(shop.database, Database)
    reader = psycopg.connect(shop.database.dsn(), replication="database", autocommit=True)
    options = f"(proto_version '1', publication_names '{names.publication}')"
    start = f'START_REPLICATION SLOT "{names.slot}" LOGICAL 0/0 {options}'

    def reads() -> bool:
        """Whether the slot can be read; the connector's session may still hold it for a moment."""
        return reader.pgconn.exec_(start.encode()).status == pq.ExecStatus.COPY_BOTH

    with closing(reader):
        wait_until(reads, "the slot is read")
        told = early.refused("offboard", orders)
    assert re.search(r"still being read after 30 s by .*, process \d+", told.messages)
    assert told.remedy.startswith("If this reader is the connector of this capture, delete it")
    early.done("offboard", orders)
    assert early.state("orders") is State.RETIRED
