"""The two assets of a table: that it changed, and its complete hours or days.

An event without a partition does not start a DAG that waits for partitions, nor the reverse. So
each table has an asset for each of the two.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset

from tributary_airflow.layout import Table

DEFAULT_NAME = "tributary"


def changed(table: str, name: str = DEFAULT_NAME) -> Asset:
    """Return the asset of which each commit of a table is an event, for ``schedule=[asset]``.

    Args:
        table: The table, as ``source:schema.table``.
        name: The installation; two of them can have tables of the same name.
    """
    return _asset(table, name, "changed")


def complete(table: str, name: str = DEFAULT_NAME) -> Asset:
    """Return the asset of which each complete hour or day of a table is a partition.

    A DAG waits for it with ``PartitionedAssetTimetable(assets=complete("shop:public.orders"))``.
    The key of a partition is the name of the period: 2026-11-23T10, or 2026-11-23.

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
    """Return a text with other characters escaped, since names of assets are ASCII."""
    return text.encode("ascii", "backslashreplace").decode()
