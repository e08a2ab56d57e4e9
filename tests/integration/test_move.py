"""Tables that move to another tier during writes, and what remains of their former tier."""

from __future__ import annotations

import pytest

from cdc.store.log_marks import LogMarks
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State
from operate.tier_capture import members
from stack.mysql_software import MARIADB
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Person
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

ROWS = 2000


def writes(first: int) -> list[str]:
    """The statements that writers repeat; ``first`` is the lowest key that they insert."""
    return [
        "UPDATE orders SET v = v + 1 WHERE id % 397 = {turn} % 397",
        "DELETE FROM orders WHERE id = 1 + {turn} % 500",
        f"INSERT INTO orders VALUES ({first} + {{turn}}, 1, 'new')",
        f"UPDATE orders SET id = id + 500000 WHERE id = {first} + {{turn}} - 3",
        "UPDATE lines_ SET v = v + 1 WHERE id % 489 = 3",
    ]


def assign(person: Person, **tiers: str) -> None:
    """Edit the tiers of tables in the settings."""
    label = person.shop.database.label
    person.shop.tables = {label(name): {"tier": tier} for name, tier in tiers.items()}
    person.configure()


def captured(shop: Shop, tier_of: str) -> set[str]:
    """The names of all tables in the capture that the settings choose for table ``tier_of``."""
    names = shop.services.capture(shop.table(tier_of))
    return {table.name for table in members(shop.services, names)}


def interrupted(person: Person, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Run the command that moves the table ``orders``, and interrupt it at a crash point."""

    def end(point: str) -> None:
        if point == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("operate.move.crash", end)
        with pytest.raises(AssertionError, match="move"):
            person.done("move", person.shop.database.label("orders"))


@for_each_kind(POSTGRES)
def test_a_table_moves_to_another_tier_and_back_while_it_is_written_to(person: Person) -> None:
    shop = person.shop
    orders, lines = (shop.database.label(name) for name in ("orders", "lines_"))
    for name in ("orders", "lines_"):
        shop.create(name, ROWS)
    person.done("onboard", orders, lines)
    former = shop.services.capture_of(shop.record("orders"))
    first = shop.record("orders").attempt_id

    assign(person, orders="fast")
    with shop.writing(*writes(10_000), pause_s=0.05) as written:
        person.done("run", orders)  # the settings alone change nothing
        assert shop.record("orders").tier == "default"
        told = person.run("check").documents
        assert any("its settings have tier fast" in str(line) for line in told)
        shown = str(person.run("status", orders).documents)
        assert f"tributary move {shop.table('orders')}" in shown
        (moved,) = person.done("move", orders).documents[0]["tables"]
        before = written[0]
        person.done("run")
        assert written[0] > before > 0
    record = shop.record("orders")
    assert (record.tier, record.other, record.state) == ("fast", None, State.INCREMENTAL)
    assert record.generation == 2
    assert record.attempt_id != first
    assert f"left {former.resource}" in moved["action"]
    assert "dropped" not in moved["action"], "the other table needs that capture"
    assert captured(shop, "orders") == {"orders"}
    assert captured(shop, "lines_") == {"lines_"}
    person.done("verify", orders, lines)
    person.done("run", "--tier", "fast")
    (again,) = person.done("move", orders).documents[0]["tables"]
    assert again["action"] == "is in tier fast already"

    fast = shop.services.capture_of(record)
    assign(person)
    with shop.writing(*writes(200_000), pause_s=0.05):
        (back,) = person.done("move", orders, "--delete-topics").documents[0]["tables"]
    assert shop.record("orders").tier == "default"
    assert f"dropped connector {fast.connector}" in back["action"]
    assert fast.connector not in shop.services.connect.names()
    kept = shop.services.source(shop.database.name).capture(fast).kept_log
    assert kept is None or not kept.exists()
    assert not shop.services.kafka.topics([record.topic])
    # A slot of this name that is made later has decoded less, and nothing is lost.
    assert LogMarks(shop.services.store).of(fast.resource) is None
    assert captured(shop, "lines_") == {"orders", "lines_"}
    person.done("verify", orders, lines)


@for_each_kind()
def test_a_move_that_is_called_off_or_turned_leaves_no_capture_behind(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is interrupted after the table has joined the capture of its new tier."""
    shop = person.shop
    shop.create("orders", ROWS)
    orders = shop.database.label("orders")
    person.done("onboard", orders)

    for tiers, ends_in in (({}, "default"), ({"orders": "calm"}, "calm")):
        assign(person, orders="fast")
        interrupted(person, monkeypatch, "move.after_join")
        fast = shop.services.capture(shop.table("orders"))
        assert fast.connector in shop.services.connect.names()
        assign(person, **tiers)
        shop.database.execute("UPDATE orders SET v = v + 1")
        person.done("move", orders)
        record = shop.record("orders")
        assert (record.tier, record.other) == (ends_in, None)
        assert fast.connector not in shop.services.connect.names()
        person.done("verify", orders)


@pytest.mark.breadth
@for_each_kind(POSTGRES, MARIADB)
def test_the_capture_of_a_move_that_was_cut_off_is_watched(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of the table go on, and commands that report captures name the table that moves."""
    shop = person.shop
    shop.create("orders", ROWS)
    orders = shop.database.label("orders")
    person.done("onboard", orders)
    assign(person, orders="fast")
    interrupted(person, monkeypatch, "move.after_join")
    fast, connect = shop.services.capture(shop.table("orders")), shop.services.connect
    assert person.run("run").code == 0, "its capture works"
    shown = {one["tier"]: one for one in person.run("status").documents[0]["captures"]}
    assert shown["fast"]["connector"] == "running"
    assert shown["fast"]["moving"] == [str(shop.table("orders"))]

    connect.stop(fast.connector)
    shop.database.execute("UPDATE orders SET v = v + 1")
    shop.settle("orders")
    told = person.run("run")
    assert told.code == 3, told.documents
    assert f"connector {fast.connector} is STOPPED; it concerns the move of" in told.messages
    assert (shop.record("orders").tier, person.state("orders")) == ("default", State.INCREMENTAL)
    shop.assert_equal("orders")
    for command in ("status", "check"):
        said = person.run(command)
        assert said.code == 3 or command == "check", said.documents
        assert f"connector {fast.connector} is STOPPED; it concerns" in str(said.documents)

    remedy = next(one for one in told.remedies if "tributary move" in one)
    assert remedy.startswith("To resume it, run `tributary retry` for one of its tables.")
    person.done("retry", orders)
    assert person.run("run").code == 0
    connect.delete(fast.connector)
    told = person.run("run")
    assert f"there is no connector {fast.connector}" in told.messages
    (remedy,) = (one for one in told.remedies if "tributary move" in one)
    assert f"Then run `tributary move {shop.table('orders')}`" in remedy
    person.done("move", orders)
    assert (shop.record("orders").tier, shop.record("orders").other) == ("fast", None)
    person.done("run")
    person.done("verify", orders)


@pytest.mark.breadth
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_a_tier_that_comes_back_begins_without_the_loss_of_its_former_slot(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = person.shop
    shop.create("orders", ROWS)
    orders = shop.database.label("orders")
    person.done("onboard", orders)
    default = shop.services.capture(shop.table("orders"))
    for tiers in ({"orders": "fast"}, {}, {"orders": "fast"}):
        assign(person, **tiers)
        person.done("move", orders)
        shop.database.execute("UPDATE orders SET v = v + 1")
        person.done("run")
        person.done("status")
    fast = shop.services.capture(shop.table("orders"))
    assert dict(Losses(shop.services.store).seen(fast.resource, default.resource)) == {}
    person.done("verify", orders)


@pytest.mark.breadth
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_a_table_whose_capture_is_dead_moves_to_one_that_works(person: Person) -> None:
    """A run has marked one of two tables before the move; until the copy, readers see old data."""
    shop = person.shop
    for name in ("marked", "unmarked"):
        shop.create(name, ROWS)
    marked, unmarked = (shop.database.label(name) for name in ("marked", "unmarked"))
    person.done("onboard", marked, unmarked)
    names = shop.services.capture_of(shop.record("marked"))
    shop.services.connect.delete(names.connector)
    kept = shop.services.source(shop.database.name).capture(names).kept_log
    assert kept is not None
    kept.drop()
    shop.database.execute("UPDATE marked SET v = 5", "UPDATE unmarked SET v = 6")
    person.run("run", marked)
    assert person.state("marked") is State.NEEDS_BOOTSTRAP
    assert person.state("unmarked") is State.INCREMENTAL

    assign(person, marked="fast", unmarked="fast")
    person.done("move", marked, unmarked)
    for name in ("marked", "unmarked"):
        assert (shop.record(name).tier, shop.record(name).other) == ("fast", None)
    shop.database.execute("UPDATE marked SET v = v + 1 WHERE id < 9")
    person.done("run")
    person.done("verify", marked, unmarked)
    sent = shop.services.source(shop.database.name).capture(names).sent_tables
    assert sent is not None
    assert sent.tables() == []


@pytest.mark.breadth
@for_each_kind(POSTGRES, MARIADB)
def test_a_table_is_offboarded_amid_its_move(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = person.shop
    shop.create("orders", ROWS)
    orders = shop.database.label("orders")
    person.done("onboard", orders)
    former = shop.services.capture_of(shop.record("orders"))
    assign(person, orders="fast")

    interrupted(person, monkeypatch, "move.before_leave")
    told = str(person.run("check").documents)
    assert "has not left the capture of tier default yet" in told
    person.done("offboard", orders, "--delete-data")
    left = shop.services.connect.names()
    assert not {former.connector, shop.services.capture(shop.table("orders")).connector} & {*left}


@pytest.mark.breadth
@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_no_table_joins_the_topic_of_one_that_is_on_its_way_there(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = person.shop
    shop.create("orders", ROWS)
    shop.create('"orders "', 1)
    person.done("onboard", shop.database.label("orders"))
    assign(person, orders="fast")
    interrupted(person, monkeypatch, "move.after_note")
    shop.tables |= {"public.orders ": {"tier": "fast"}, "public.orders_": {"tier": "fast"}}
    person.configure()
    shop.create("orders_", 1)
    person.done("onboard", shop.database.label("orders_"))
    interrupted(person, monkeypatch, "move.after_join")
    (beside,) = shop.onboard("orders ", with_bootstrap=False)
    assert "would both write to topic" in str(beside.error)
