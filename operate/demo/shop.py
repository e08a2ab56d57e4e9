"""The demo's small shop: the parts that are the same on every kind of database."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "shop"

TABLES: tuple[str, ...] = ("customers", "products", "orders", "order_lines", "carts")
"""The tables that the demo replicates, in the order of the output."""

KEYLESS = "page_views"
"""A table without a key, which `onboard` refuses."""


@dataclass(frozen=True)
class Deed:
    """A kind of transaction that the demo's writers execute, for example an order.

    Args:
        name: What happens in the shop, for example ``a customer orders``.
        weight: How often the transaction is executed, relative to the other deeds.
        statements: SQL statements with the parameters ``%(n)s`` (a running number) and ``%(r)s`` (a
            random number from 1 to a million). A literal percent sign is doubled.
    """

    name: str
    weight: int
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Witness:
    """A row that the demo shows before and after a change, at the source and in the lake.

    Args:
        table: A table of :data:`TABLES`.
        what: What happens to the row, for the output, for example ``an order is paid``.
        changes: The SQL statements that make the change.
        before: SQL condition that finds the row before the change, at the source and in the lake.
        after: SQL condition that finds the row after the change.
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
        title: The database's name in the output.
        create: Statements that recreate the tables :data:`TABLES` and :data:`KEYLESS`.
        fill: Statements that fill these tables. Each statement runs in a transaction of its own.
        deeds: The transactions from which the writers choose while the demo runs.
        witnesses: Rows that the demo itself changes, one for each kind of change.
        tables: The tables to replicate, from :data:`TABLES`.
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
"""The demo's own changes, in SQL that every kind of database understands.

The writers do not change the columns that the demo shows of the changed rows.
"""
