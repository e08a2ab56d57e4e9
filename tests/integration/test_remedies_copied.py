"""The remedies for copied tables work, as in test_remedies.py: here, for rarer states."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.lake.pointer import POINTER, local_folder
from cdc.store.table_state import State
from stack.postgres import POSTGRES
from stack.roles import SNAPSHOT
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, commands, created, folder, produce
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import shop as shop

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]


def test_a_pointer_that_something_else_wrote_is_published_anew(person: Person) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    pointer = folder(shop, "orders") / POINTER
    for text in ("{", '{"format": 999}'):
        pointer.write_text(text)
        told = person.refused("path", orders).remedy
        assert told.startswith("Another program or another version of Tributary wrote it")
        assert commands(told) == [["resync"]], "of the table, once the file is removed"
        pointer.unlink()
        person.done("resync", orders)
        person.done("path", orders)
        person.done("verify", orders)


def test_a_mode_of_deletes_that_was_changed_is_set_back_or_copied_for(person: Person) -> None:
    shop = person.shop
    label = shop.database.label("orders")
    created(shop, "orders")
    person.done("onboard", label)
    for number, way in enumerate(("back", "copied"), 1):
        shop.tables = {label: {"delete_mode": "soft"}}
        person.configure()
        shop.database.execute(f"DELETE FROM orders WHERE id = {number}")
        shop.settle("orders")
        failed = person.run("run", label)
        assert person.state("orders") is State.FAILED, failed.documents
        assert failed.remedy.startswith("Set it back, or copy the table again")
        if way == "back":
            shop.tables = {}
            person.configure()
            person.done("retry", label)
            person.done("run", label)
        else:
            person.follow(failed.remedy)
        assert person.state("orders") is State.INCREMENTAL
        person.done("verify", label)


def test_a_table_whose_record_was_altered_begins_anew_as_it_says(person: Person) -> None:
    shop = person.shop
    lost, ahead = created(shop, "lost", "ahead")
    person.done("onboard", lost, ahead)
    record = shop.record("lost")
    shop.services.store.put(replace(record, state=State.BOOTSTRAPPING, attempt=None))
    person.follow(person.refused("bootstrap", lost).remedy)

    record = shop.record("ahead")
    assert record.attempt is not None
    attempt = replace(record.attempt, handoff_offsets=None)
    shop.services.store.put(replace(record, state=State.CATCHING_UP, attempt=attempt))
    person.follow(person.refused("bootstrap", ahead).remedy)
    person.done("verify", lost, ahead)


def test_the_generation_that_readers_are_sent_to_goes_after_the_next_one(person: Person) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    attempt = shop.record("orders").attempt
    assert attempt is not None
    person.follow(person.refused("generations", "remove", orders, str(attempt.id)).remedy)
    person.done("generations", "remove", orders, str(attempt.id))
    person.done("verify", orders)


def test_records_that_cannot_be_replayed_or_are_too_many_do_not_end_their_table(
    person: Person,
) -> None:
    shop = person.shop
    label = shop.database.label
    shop.tables = {
        label("many"): {"on_bad_message": "quarantine", "max_quarantined": 1},
        label("old"): {"on_bad_message": "quarantine"},
    }
    person.configure()
    many, old = created(shop, "many", "old")
    person.done("onboard", many, old)
    for name, count in (("many", 2), ("old", 1)):
        for _ in range(count):
            produce(shop, name, b"damaged")
    person.run("run", many, old)
    assert (person.state("many"), person.state("old")) == (State.FAILED, State.INCREMENTAL)
    (told,) = {one for one in person.run("status", many).remedies if "retry" in one}
    assert told.startswith("Find what writes such records")
    person.follow(told, "resync")
    assert person.state("many") is State.INCREMENTAL

    shop.database.execute("ALTER TABLE old ADD COLUMN n int")
    told = person.refused("quarantine", "replay", old).remedy
    assert told.startswith("Let a run look at it first")
    person.follow(told)
    topic = shop.record("old").topic
    produce(shop, "old", b"damaged")
    person.done("run", old)
    shop.services.kafka.delete_topic(topic)
    told = person.refused("quarantine", "replay", old).remedy
    person.follow(told)
    person.done("verify", many, old)


def test_values_and_rows_that_a_copy_cannot_read_are_put_right_as_it_says(person: Person) -> None:
    shop = person.shop
    hidden, spoiled = created(shop, "hidden", "spoiled")
    shop.database.execute(
        "ALTER TABLE spoiled ADD COLUMN n numeric(10, 2)",
        "UPDATE spoiled SET n = 'NaN' WHERE id = 1",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
    )
    told = person.refused("onboard", spoiled).remedy
    assert told.startswith("Correct the value on the source")
    shop.database.execute("UPDATE spoiled SET n = 1 WHERE id = 1")
    person.done("onboard", spoiled)

    told = person.refused("onboard", hidden).remedy
    assert "BYPASSRLS" in told, told
    shop.database.stack.psql(f"ALTER ROLE {SNAPSHOT} BYPASSRLS")
    try:
        person.done("onboard", hidden)
        person.done("verify", hidden, spoiled)
    finally:
        shop.database.stack.psql(f"ALTER ROLE {SNAPSHOT} NOBYPASSRLS")


SHARDED = {"sales.orders": {"from": ["*.orders_[0-9]+"], "shard": "{table}"}}


def test_a_shared_table_that_is_gone_is_made_anew_as_it_says(person: Person) -> None:
    shop = person.shop
    shop.tables = SHARDED
    person.configure()
    first, second = created(shop, "orders_1", "orders_2")
    person.done("onboard", first, second)
    shared = local_folder(person.done("path", first).documents[0]["path"])
    assert shared is not None
    shutil.rmtree(shared)
    shop.database.execute("UPDATE orders_1 SET v = 1", "UPDATE orders_2 SET v = 2")
    for name in ("orders_1", "orders_2"):
        shop.settle(name)
    stopped = person.run("run")
    assert {person.state("orders_1"), person.state("orders_2")} == {State.NEEDS_BOOTSTRAP}
    person.follow(stopped.remedy)
    person.done("verify", first, second)


def test_a_shared_table_whose_files_are_gone_is_made_anew_as_it_says(person: Person) -> None:
    shop = person.shop
    shop.tables = SHARDED
    person.configure()
    first, second = created(shop, "orders_1", "orders_2")
    person.done("onboard", first, second)
    for number in (1, 2):
        statements = (f"UPDATE {name} SET v = {number}" for name in ("orders_1", "orders_2"))
        shop.database.execute(*statements)
        for name in ("orders_1", "orders_2"):
            shop.settle(name)
        if number == 1:
            person.done("run")
            shared = local_folder(person.done("path", first).documents[0]["path"])
            assert shared is not None
            max(shared.rglob("*.parquet"), key=lambda file: file.stem.rpartition("_")[2]).unlink()
    failed = person.run("run")
    assert {person.state("orders_1"), person.state("orders_2")} == {State.FAILED}
    told = failed.remedy
    assert told.startswith("Was the lake copied while it was written")
    assert person.refused("resync", first).remedy == told, "it would hide that a file is missing"
    person.follow(told)
    person.done("verify", first, second)


def test_settings_that_make_another_table_of_a_shard_are_set_back_or_followed(
    person: Person, tmp_path: Path
) -> None:
    shop = person.shop
    shop.tables = SHARDED
    person.configure()
    (table,) = created(shop, "orders_1")
    person.done("onboard", table)
    shop.tables = {}
    person.configure()
    told = person.refused("onboard", table).remedy
    assert told.startswith("Set from, shard, shard_column and name back")
    shop.tables = SHARDED
    person.configure()
    person.done("onboard", table)
    shop.tables = {}
    person.configure()
    person.follow(told)
    person.done("verify", table)


def test_a_publication_that_leaves_changes_out_is_corrected_as_it_says(person: Person) -> None:
    shop = person.shop
    orders, parts = created(shop, "orders", "parts")
    person.done("onboard", orders, parts)
    publication = shop.services.capture_of(shop.record("orders")).publication
    short = f"ALTER PUBLICATION {publication} SET (publish = 'insert')"
    whole = f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')"

    for by_hand in (False, True):
        shop.database.execute(short, "UPDATE orders SET v = v + 1", "UPDATE parts SET v = v + 1")
        told = person.refused("check").remedies
        (said,) = (one for one in told if one.startswith("Correct that on the source. Run"))
        if by_hand:
            shop.database.execute(whole)
        shop.settle("orders")
        person.follow(said, "run")
        assert {person.state(name) for name in ("orders", "parts")} == {State.NEEDS_BOOTSTRAP}
        for table in ("orders", "parts"):
            person.follow(person.refused("status", shop.database.label(table)).remedy)
        assert not [one for one in person.run("check").remedies if one == said]
        person.done("verify", orders, parts)
