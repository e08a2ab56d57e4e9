"""The two assets of a table: one for its changes, one for its complete hours or days.

An event without a partition starts no DAG that waits for partitions, and an event with a partition
starts no DAG that waits for plain events. So each table has two assets.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset

from tributary_airflow.layout import Table

DEFAULT_NAME = "tributary"


def changed(table: str, name: str = DEFAULT_NAME) -> Asset:
    """Return the asset that gets an event when a run changes a table, for ``schedule=[asset]``.

    Args:
        table: The table, as ``source:schema.table``.
        name: The installation; two of them can have tables of the same name.
    """
    return _asset(table, name, "changed")


def complete(table: str, name: str = DEFAULT_NAME) -> Asset:
    """Return the asset whose partitions are the complete hours or days of a table.

    A DAG waits for a partition with
    ``PartitionedAssetTimetable(assets=complete("shop:public.orders"))``. The key of a partition is
    the name of the period: 2026-11-23T10, or 2026-11-23.

    Args:
        table: The table, as ``source:schema.table``.
        name: The installation.
    """
    return _asset(table, name, "complete")


def _asset(text: str, name: str, what: str) -> Asset:
    table = Table.parse(text)
    path = "/".join(quote(part, safe="") for part in (table.source, table.schema, table.name, what))
    return Asset(
        name=f"{name}/{_ascii(str(table))}/{what}",
        uri=f"tributary://{quote(name, safe='')}/{path}",
        group=name,
    )


def _ascii(text: str) -> str:
    """Return a text with its non-ASCII characters escaped, since names of assets are ASCII."""
    return text.encode("ascii", "backslashreplace").decode()
