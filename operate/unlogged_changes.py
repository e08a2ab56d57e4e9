"""Finds row changes that would not be logged, or would fail, once a table is published. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.sources.source_facts import Leaf, SourceTable

Obstacle = tuple[str, str]
"""The problem, as a predicate whose subject is the table, and the remedy."""
_REFUSED = "PostgreSQL refuses UPDATE and DELETE"


def not_logged(table: SourceTable) -> Obstacle | None:
    """Return a problem if changes of a partition are not logged, although a copy has its rows."""
    for leaf in table.leaves:
        if leaf.kind != "table":
            return (
                f"has the partition {leaf.table.relation}, which is"
                f" {'UNLOGGED' if leaf.kind == 'unlogged' else f'a {leaf.kind} table'}: a copy"
                " would have its rows, but their changes are not in the log",
                f"Run ALTER TABLE {leaf.table.relation} SET LOGGED."
                if leaf.kind == "unlogged"
                else f"Detach it: ALTER TABLE {table.table.relation} DETACH PARTITION"
                f" {leaf.table.relation}.",
            )
    return None


def refused_changes(table: SourceTable, key: Sequence[str]) -> Obstacle | None:
    """Return a problem if PostgreSQL would refuse changes of the table once it is published.

    PostgreSQL checks the replica identity of the partition that has the row, and not of the root
    table. The replica identity of a new partition is the root table's primary key, or none.
    """
    return (
        _deferrable(table)
        or _partitions_to_come(table)
        or next((found for leaf in table.leaves if (found := _partition(leaf, key))), None)
        or _whole_rows(table)
    )


def _deferrable(table: SourceTable) -> Obstacle | None:
    if (
        table.replica_identity != "default"
        or not table.primary_key
        or table.primary_key in table.unique_indexes
    ):
        return None
    return (
        "has a DEFERRABLE primary key, which does not identify rows in the log: once the table is"
        f" published, {_REFUSED}",
        "Make the primary key NOT DEFERRABLE; or use a unique index that is NOT DEFERRABLE: ALTER"
        f" TABLE {table.table.relation} REPLICA IDENTITY USING INDEX <index>, and key_columns:"
        " [...].",
    )


def _partitions_to_come(table: SourceTable) -> Obstacle | None:
    if table.kind != "partitioned" or table.primary_key:
        return None
    return (
        "is partitioned and has no primary key, so new partitions have no replica identity: once"
        f" the table is published, {_REFUSED} of their rows",
        f"Run ALTER TABLE {table.table.relation} ADD PRIMARY KEY (...), which must contain the"
        " columns that the table is partitioned by; or set mode: append for the table, if its rows"
        " are only inserted.",
    )


def _partition(leaf: Leaf, key: Sequence[str]) -> Obstacle | None:
    lacking = [name for name in key if name not in leaf.identity_columns]
    if not lacking:
        return None
    known = ", ".join(leaf.identity_columns)
    return (
        f"has the partition {leaf.table.relation}, whose replica identity"
        + (
            f" ({known}) lacks {', '.join(lacking)}, so its deletes cannot be applied"
            if known
            else f" is NOTHING: once the table is published, {_REFUSED} of its rows"
        ),
        f"Run ALTER TABLE {leaf.table.relation} REPLICA IDENTITY DEFAULT (by primary key).",
    )


def _whole_rows(table: SourceTable) -> Obstacle | None:
    whole = any(leaf.replica_identity == "full" for leaf in table.leaves)
    if not table.withheld or not (whole if table.leaves else table.replica_identity == "full"):
        return None
    return (
        f"has generated columns ({', '.join(table.withheld)}) and replica identity FULL: once it is"
        f" published, {_REFUSED} (from version 18 on)",
        f"Run ALTER TABLE {table.table.relation} REPLICA IDENTITY DEFAULT (by primary key), and"
        " the same for each partition.",
    )
