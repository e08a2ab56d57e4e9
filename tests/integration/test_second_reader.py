"""Two installations with the same names that share the database or only some of the servers."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from cdc.connect import INSTALLATION
from cdc.debezium import CaptureNames, latest_heartbeat, stored_position
from cdc.sources.postgres.slot import SlotHealth
from cdc.store.table_state import State
from operate.status import status
from operate.tier_capture import wanted_connector
from schemas.avro import field_name, split_wire
from stack.postgres import POSTGRES
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.faults import produce
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import early as early
from tests.integration.rigs.person import person as person
from tests.integration.rigs.postgres import own_database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]


@contextmanager
def another_reader(shop: Shop, names: CaptureNames) -> Iterator[str]:
    """A running connector of another installation, with the same slot and other topics."""
    connect = shop.services.connect
    there = replace(names, connector=f"{names.connector}_2", topic_prefix=f"{names.topic_prefix}_2")
    topics = [*there.own_topics, there.topic(shop.table("orders"))]
    shop.services.kafka.ensure_topics({topic: {} for topic in topics})
    settings = wanted_connector(shop.services, names)
    connect.put_connector(there.connector, {**settings, "topic.prefix": there.topic_prefix})
    kept = shop.services.source(names.source).capture(names).kept_log
    assert kept is not None
    try:
        wait_until(lambda: kept.shown_reader() is not None, "the slot is read")
        yield there.connector
    finally:
        connect.delete(there.connector)


def test_the_slot_of_another_installation_is_left_as_it_says(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    names = shop.services.capture(shop.table("orders"))
    on_source = shop.services.source(names.source).capture(names)
    assert on_source.sent_tables is not None
    assert on_source.kept_log is not None
    on_source.prepare()
    on_source.sent_tables.add([shop.table("orders")])
    on_source.kept_log.create()
    with another_reader(shop, names):
        wait_until(lambda: on_source.kept_log.beat_age_s() is not None, "a heartbeat")
        told = early.refused("onboard", "--no-bootstrap", orders)
        assert "is read by `Debezium" in told.messages
        assert told.remedy.startswith("If that reader is not yours, leave it")
    between = early.refused("onboard", "--no-bootstrap", orders)
    assert "its newest heartbeat is of then" in between.messages
    assert on_source.kept_log.exists()
    assert on_source.sent_tables.tables() == [shop.table("orders")]

    source = shop.database.document(shop.folder)["sources"][names.source]
    own = {"slot": "own_{tier}", "publication": "own_{tier}", "topic_prefix": "own_{tier}"}
    early.configure(sources={names.source: {**source, **own}})
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)
    assert on_source.kept_log.exists()
    shop.database.execute("UPDATE tributary.heartbeat SET beat_at = beat_at - interval '1 hour'")
    early.configure()
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)


def test_a_slot_of_another_database_of_the_server_is_left_as_it_says(early: Person) -> None:
    """The slot has no reader at the moment, and its heartbeats are in the other database."""
    shop = early.shop
    (orders,) = created(shop, "orders")
    source = shop.database.document(shop.folder)["sources"][shop.database.name]
    with own_database(shop.database.stack) as prod:
        slot = f"{prod.name}_slot"
        prod.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        early.configure(sources={shop.database.name: {**source, "slot": slot}})
        before = slots(shop, slot)
        told = early.refused("onboard", "--no-bootstrap", orders)
        assert f"exists for plugin pgoutput and database {prod.name}, not for" in told.messages
        assert told.remedy.startswith("If that slot is not yours, leave it")
        assert slots(shop, slot) == before
        assert f"slot {slot}" not in str(early.run("check").documents), "it is not ours to drop"

        own = {"slot": "own_{tier}", "publication": "own_{tier}", "topic_prefix": "own_{tier}"}
        early.configure(sources={shop.database.name: {**source, **own}})
        early.done("onboard", "--no-bootstrap", orders)
        early.done("offboard", orders)
        assert slots(shop, slot) == before


@pytest.mark.parametrize(
    ("plugin", "said"), [("test_decoding", "exists for plugin test"), ("pgoutput", "exists, but")]
)
def test_an_idle_slot_of_another_tool_is_left_as_it_says(
    early: Person, plugin: str, said: str
) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    slot = shop.services.capture(shop.table("orders")).slot or ""
    shop.database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', '{plugin}')")
    before = slots(shop, slot)
    told = early.refused("onboard", "--no-bootstrap", orders)
    assert f"slot {slot} of source {shop.database.name} {said}" in told.messages
    assert told.remedy.startswith("If that slot is not yours, leave it")
    assert slots(shop, slot) == before

    shop.database.execute(told.remedy.partition("run on the server: ")[2].partition(";")[0])
    assert slots(shop, slot) == []
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)


def test_the_publication_of_another_installation_is_left_as_it_says(early: Person) -> None:
    """An installation that offboards its last table would drop it, while the other one needs it."""
    shop = early.shop
    (orders,) = created(shop, "orders")
    names = shop.services.capture(shop.table("orders"))
    there = shop.services.source(names.source).capture(names)
    there.prepare()
    there.sent_tables.add([shop.table("orders")])
    there.kept_log.create()
    second = {"url": f"sqlite:///{shop.folder}/second.db"}
    source = shop.database.document(shop.folder)["sources"][names.source]
    own = {"slot": "own_{tier}", "topic_prefix": "own_{tier}"}
    early.configure(sources={names.source: {**source, **own}}, state=second)
    told = early.refused("onboard", "--no-bootstrap", orders)
    assert f"publication {names.publication} of source {names.source} already has" in told.messages
    assert f"slot {names.slot} " in told.messages
    assert told.remedy.startswith("If that publication is not yours, leave it")
    own["publication"] = "own_{tier}"
    early.configure(sources={names.source: {**source, **own}}, state=second)
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)
    assert there.sent_tables.tables() == [shop.table("orders")]

    # Without a slot nothing reads it: it was made for this installation beforehand.
    there.kept_log.drop()
    early.configure()
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)
    assert not there.sent_tables.exists()


def slots(shop: Shop, name: str) -> list[tuple[object, ...]]:
    """The server's facts on a slot, by which a new slot with the same name can be distinguished."""
    return shop.database.rows(
        "SELECT plugin, database, restart_lsn, confirmed_flush_lsn"
        f" FROM pg_replication_slots WHERE slot_name = '{name}'"
    )


def test_a_slot_that_a_killed_command_has_left_is_named(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    names = shop.services.capture(shop.table("orders"))
    on_source = shop.services.source(names.source).capture(names)
    assert on_source.kept_log is not None
    assert f"slot {names.slot} of source" not in str(early.run("check").documents)
    on_source.prepare()
    on_source.kept_log.create()
    told = early.run("check")
    assert f"slot {names.slot} of source" in str(told.documents)
    (remedy,) = (one for one in told.remedies if "pg_drop_replication_slot" in one)
    early.done("onboard", "--no-bootstrap", orders)
    assert f"slot {names.slot} of source" not in str(early.run("check").documents)
    early.done("offboard", orders)
    assert not on_source.kept_log.exists()

    on_source.prepare()
    on_source.kept_log.create()
    for statement in remedy.partition("run on the source: ")[2].split("; "):
        shop.database.execute(statement)
    assert not on_source.kept_log.exists()


def test_the_connector_of_another_environment_is_left_as_it_says(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    names = shop.services.capture_of(shop.record("orders"))
    # To a state store that never had the capture, another name of the host is another database.
    document = shop.database.document(shop.folder)
    source = document["sources"][names.source]
    mine = source["primary"]["host"]
    host = "localhost" if mine != "localhost" else "127.0.0.1"
    there = {**source, "primary": {**source["primary"], "host": host}}
    staging = {"url": f"sqlite:///{shop.folder}/staging.db"}

    early.configure(sources={names.source: there}, state=staging)
    before = shop.services.connect.connector(names.connector)
    told = early.refused("onboard", "--no-bootstrap", orders)
    assert "is of installation" in told.messages
    told = early.refused("onboard", "--no-bootstrap", "--take-over", orders)
    assert f"already exists in this Kafka Connect and reads {mine}" in told.messages
    assert told.remedy.startswith("If that connector is not yours, leave it")
    assert shop.services.connect.connector(names.connector) == before

    own = {"slot": "own_{tier}", "publication": "own_{tier}", "topic_prefix": "own_{tier}"}
    early.configure(sources={names.source: {**there, **own}}, state=staging)
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)
    assert shop.services.connect.connector(names.connector) == before
    early.configure()
    early.done("offboard", orders)


def test_the_connector_of_another_installation_is_left_until_it_is_taken_over(
    early: Person,
) -> None:
    """The two installations have the same configuration except for their state stores."""
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    name = shop.services.capture_of(shop.record("orders")).connector

    def connector() -> dict[str, str]:
        found = shop.services.connect.connector(name)
        assert found is not None
        return found

    made = connector()
    assert made[INSTALLATION] == shop.services.store.installation.name
    early.configure(state={"url": f"sqlite:///{shop.folder}/staging.db"})
    told = early.refused("run")
    assert f"If another installation uses connector {name}, leave it" in told.remedy
    told = early.refused("onboard", "--no-bootstrap", orders)
    assert f"connector {name} is of installation {made[INSTALLATION]}" in told.messages
    assert told.remedy.startswith("Check state.url. If another installation uses the connector")
    assert connector() == made
    early.done("onboard", "--no-bootstrap", "--take-over", orders)
    mark = {INSTALLATION: shop.services.store.installation.name}
    assert connector() == made | mark

    early.configure()
    for words in (("offboard", orders), ("retry", orders), ("onboard", "--no-bootstrap", orders)):
        told = early.refused(*words)
        assert f"connector {name} is of installation" in told.messages, words
    assert f"connector {name} is of installation" in str(early.run("check").documents)
    assert connector() == made | mark
    assert shop.database.rows("SELECT count(*) FROM pg_publication_tables")[0][0] > 0
    early.done("onboard", "--no-bootstrap", "--take-over", orders)
    assert connector() == made
    early.done("offboard", orders)
    assert shop.services.connect.connector(name) is None


def test_topics_of_another_environment_are_left_as_it_says(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    names = shop.services.capture_of(shop.record("orders"))
    services, database = shop.services, shop.database
    # As if this connector were that of another environment, whose server and store are others.
    database.execute(
        "CREATE FUNCTION tributary.other() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.system_identifier = '1'; RETURN NEW; END $$"
    )
    database.execute(
        "CREATE TRIGGER other BEFORE INSERT OR UPDATE ON tributary.heartbeat"
        " FOR EACH ROW EXECUTE FUNCTION tributary.other()"
    )

    def beats() -> bool:
        beat = latest_heartbeat(services.kafka, services.schemas, names)
        return beat is not None and beat.system_identifier == "1"

    wait_until(beats, "a heartbeat of another server")
    services.connect.delete(names.connector)
    kept = services.source(names.source).capture(names).kept_log
    assert kept is not None
    kept.drop()
    database.execute("DROP TRIGGER other ON tributary.heartbeat")
    database.execute("DROP FUNCTION tributary.other()")

    staging = {"url": f"sqlite:///{shop.folder}/staging.db"}
    early.configure(state=staging)
    told = early.refused("onboard", "--no-bootstrap", orders)
    assert "has a heartbeat of server 1, of" in told.messages
    assert told.remedy.startswith("If those heartbeats are not of yours")
    assert shop.services.connect.connector(names.connector) is None

    source = database.document(shop.folder)["sources"][names.source]
    own = {**source, "topic_prefix": "own_{tier}"}
    early.configure(sources={names.source: own}, state=staging)
    early.done("onboard", "--no-bootstrap", orders)
    early.done("offboard", orders)


@contextmanager
def beats_of_another_server(shop: Shop, names: CaptureNames) -> Iterator[None]:
    """Write heartbeats of another database server to the same topic, while a block runs.

    Two environments of an earlier release could share topics like this.
    """
    services, topic = shop.services, names.heartbeat_topic
    record = services.kafka.latest_record(topic)
    assert record is not None
    assert record.value is not None
    schema_id, body = split_wire(record.value)
    schema = fastavro.parse_schema(json.loads(services.schemas.schema(schema_id)))
    event: Any = fastavro.schemaless_reader(io.BytesIO(body), schema)
    event["after"][field_name("system_identifier")] = "1"
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, event)
    value = record.value[: -len(body)] + out.getvalue()
    task = ("__debezium.context.runId", b"of-the-other-one")

    def work(_: int, stop: threading.Event) -> None:
        while not stop.wait(0.5):
            produce(services.config, topic, value, key=record.key, headers=[task])

    with at_work(work):
        yield


def test_another_environment_that_came_later_is_named_until_it_writes_elsewhere(
    person: Person,
) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    names = shop.services.capture_of(shop.record("orders"))

    def problem() -> str:
        return status(shop.services, []).captures[0].problem or ""

    assert not problem()
    with beats_of_another_server(shop, names):
        wait_until(lambda: "and 1 in turns" in problem(), "the other one is named")
        told = person.run("check")
        assert "and 1 in turns" in str(told.documents)
        assert [one for one in told.remedies if one.startswith("Give the installation that came")]
        person.run("run")
        assert person.state("orders") is State.NEEDS_BOOTSTRAP
        refused = person.refused("bootstrap", orders)
        assert "and 1 in turns" in refused.messages
    wait_until(lambda: not problem(), "its heartbeats are of former times", 120)
    person.done("bootstrap", orders)
    shop.database.execute("UPDATE orders SET v = 7 WHERE id = 1")
    person.done("run")
    person.done("verify", orders)


def test_what_another_reader_took_is_seen_before_the_connector_goes_on(person: Person) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    names = shop.services.capture_of(shop.record("orders"))
    connect, on_source = shop.services.connect, shop.services.source(names.source).capture(names)
    connect.stop(names.connector)

    def moved() -> bool:
        log, stored = on_source.log_health(), stored_position(connect, names)
        assert isinstance(log, SlotHealth)
        return log.confirmed_flush_lsn is not None and log.confirmed_flush_lsn > stored

    with another_reader(shop, names):
        shop.database.execute("UPDATE orders SET v = 7 WHERE id = 1")
        wait_until(moved, "the slot is moved")
        connect.resume(names.connector)

        def failed() -> bool:
            seen = connect.status(names.connector)
            return seen is not None and seen.failure is not None

        wait_until(failed, "the connector has failed", 150)
        health = status(shop.services, []).captures[0]
        assert "something other than the connector moved it" in (health.problem or "")
        refused = person.refused("retry", orders)
        assert "was not restarted, since changes are lost" in refused.messages
    refused = person.refused("retry", orders)
    assert failed(), "it would hide what is lost"
    assert person.state("orders") is State.INCREMENTAL
    assert refused.remedy.startswith("Run `tributary run`, which marks the tables")
    person.run("run")
    assert person.state("orders") is State.NEEDS_BOOTSTRAP
    person.done("bootstrap", orders)
    person.done("run")
    person.done("verify", orders)
