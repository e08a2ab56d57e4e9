"""Tables that are renamed on the source, and how they leave the publication."""

from __future__ import annotations

import logging

import pytest

from cdc.debezium import CaptureNames
from cdc.store.table_state import State
from operate.status import status
from operate.tier_capture import members
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]
REPLACED = (
    "BEGIN; ALTER TABLE orders RENAME TO orders_2023;"
    " CREATE TABLE orders (LIKE orders_2023 INCLUDING ALL); COMMIT"
)


def published(shop: Shop, names: CaptureNames) -> set[str]:
    return {f"{one.schema}.{one.name}" for one in members(shop.services, names)}


def free(shop: Shop, table: str) -> None:
    """Run statements that the application could run before the table was onboarded."""
    shop.database.execute(
        f"ALTER TABLE {table} DROP CONSTRAINT orders_pkey",
        f"DELETE FROM {table} WHERE id = 1",
        f"ALTER TABLE {table} SET UNLOGGED",
    )


def test_a_renamed_table_leaves_the_publication_with_its_next_copy(
    person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    shop = person.shop
    orders, items = created(shop, "orders", "items")
    person.done("onboard", orders, items)
    names = shop.services.capture_of(shop.record("orders"))
    shop.database.execute(REPLACED)
    with caplog.at_level(logging.WARNING):
        person.run("run")
    assert person.state("orders") is State.NEEDS_BOOTSTRAP
    assert "public.orders_2023, which no table on the plan is" in caplog.text
    assert published(shop, names) == {"public.orders_2023", "public.items"}
    person.done("bootstrap", orders)
    assert published(shop, names) == {"public.orders", "public.items"}
    free(shop, "orders_2023")
    shop.database.execute("INSERT INTO orders VALUES (1, 1, 'new')")
    person.done("run")
    person.done("verify", orders, items)


def test_a_renamed_table_leaves_the_publication_when_it_is_offboarded(person: Person) -> None:
    shop = person.shop
    orders, items = created(shop, "orders", "items")
    person.done("onboard", orders, items)
    names = shop.services.capture_of(shop.record("orders"))
    shop.database.execute(REPLACED)
    person.done("offboard", orders)
    assert published(shop, names) == {"public.items"}
    free(shop, "orders_2023")
    person.done("run")
    person.done("verify", items)


def test_tables_that_have_swapped_their_names_stay_published(person: Person) -> None:
    shop = person.shop
    orders, items = created(shop, "orders", "items")
    person.done("onboard", orders, items)
    names = shop.services.capture_of(shop.record("orders"))
    shop.database.execute(
        "BEGIN; ALTER TABLE orders RENAME TO other; ALTER TABLE items RENAME TO orders;"
        " ALTER TABLE other RENAME TO items; COMMIT"
    )
    person.done("offboard", orders)
    assert published(shop, names) == {"public.items"}
    person.run("run")
    person.done("bootstrap", items)
    assert published(shop, names) == {"public.items"}
    person.done("verify", items)


def test_a_table_that_no_record_has_is_named_with_the_statement_that_removes_it(
    person: Person,
) -> None:
    shop = person.shop
    orders, _ = created(shop, "orders", "extra")
    person.done("onboard", orders)
    names = shop.services.capture_of(shop.record("orders"))
    assert status(shop.services, []).captures[0].warning is None
    shop.database.execute(f"ALTER PUBLICATION {names.publication} ADD TABLE extra")
    capture = status(shop.services, []).captures[0]
    assert capture.warning is None
    assert "public.extra, which no table on the plan is" in (capture.problem or "")
    shop.database.execute(_statement(person))
    assert published(shop, names) == {"public.orders"}
    assert status(shop.services, []).captures[0].problem is None
    shop.database.execute("ALTER TABLE orders RENAME TO orders_2023")
    capture = status(shop.services, []).captures[0]
    assert "orders_2023" not in (capture.problem or "")
    assert "public.orders_2023, which no table on the plan is" in (capture.warning or "")
    shop.database.execute(_statement(person))
    assert published(shop, names) == set()


def _statement(person: Person) -> str:
    """The statement in ``check``'s output that removes a table from the publication."""
    told = [one for one in person.run("check").remedies if "run on the source:" in one]
    (statement,) = {one.partition("run on the source: ")[2] for one in told}
    return statement
