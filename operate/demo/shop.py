"""The demo's small shop: the parts that are the same on every kind of database."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "shop"

TABLES: tuple[str, ...] = ("customers", "products", "orders", "order_lines", "carts")
"""The replicated tables, in the order in which the demo shows them."""

KEYLESS = "page_views"
"""A table without a key, which `onboard` refuses."""


@dataclass(frozen=True)
class Deed:
    """One transaction of a customer or of the shop.

    Args:
        name: What happens, in the words of the shop.
        weight: How often it happens, relative to the other deeds.
        statements: SQL statements with the parameters ``%(n)s`` (a running number) and ``%(r)s``
            (a random number from 1 to a million); a percent sign is written twice.
    """

    name: str
    weight: int
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Witness:
    """A row that the demo shows before and after a change, at the source and in the lake.

    Args:
        table: Table of :data:`TABLES`.
        what: The change of the row, in words for a person.
        changes: The statements that make the change.
        before: SQL condition that finds the row before the change, at the source and in the lake.
        after: SQL condition that finds the row after it.
        columns: Columns to show.
    """

    table: str
    what: str
    changes: tuple[str, ...]
    before: str
    after: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ShopKind:
    """The shop on one kind of database: all of the demo's SQL for that database.

    Args:
        kind: The kind of source, as ``tributary.yaml`` and the stack name it.
        title: The database's name, for a person.
        create: Statements that recreate the tables :data:`TABLES` and :data:`KEYLESS`.
        fill: Statements that fill these tables, each in a transaction of its own.
        deeds: The transactions from which the writers choose while the demo runs.
        witnesses: The changes that the demo makes by hand, one of each kind.
        tables: The tables to replicate, of :data:`TABLES`.
        rate: Transactions per second of each writer.
    """

    kind: str
    title: str
    create: tuple[str, ...]
    fill: tuple[str, ...]
    deeds: tuple[Deed, ...]
    witnesses: tuple[Witness, ...]
    tables: tuple[str, ...] = TABLES
    rate: float = 40.0


WITNESSES: tuple[Witness, ...] = (
    Witness(
        "orders",
        "an order is paid",
        ("UPDATE shop.orders SET status = 'paid', total = 4711.00 WHERE id = 60000",),
        "id = 60000",
        "id = 60000",
        ("id", "status", "total"),
    ),
    Witness(
        "carts",
        "a cart is deleted",
        ("DELETE FROM shop.carts WHERE customer_id = 4999",),
        "customer_id = 4999",
        "customer_id = 4999",
        ("id", "customer_id", "weight_kg"),
    ),
    Witness(
        "products",
        "a product's key changes (its large, unchanged manual comes along)",
        ("UPDATE shop.products SET sku = 'NEW-00042' WHERE sku = 'SKU-00042'",),
        "sku = 'SKU-00042'",
        "sku = 'NEW-00042'",
        ("sku", "title", "price"),
    ),
    Witness(
        "customers",
        "a column is added, and one customer gets a value",
        (
            "ALTER TABLE shop.customers ADD COLUMN phone text",
            "UPDATE shop.customers SET phone = '+49 30 123456' WHERE id = 7",
        ),
        "id = 7",
        "id = 7",
        ("id", "name", "phone"),
    ),
)
"""Changes in SQL that every kind of database understands.

The writers do not change the columns that the demo shows of these rows.
"""
