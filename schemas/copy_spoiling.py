"""Finds the schema changes of a source table that spoil a copy in progress."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from schemas.catalog import Catalog, differences
from schemas.changes import AddPartition, NewFile, Verdict
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.fingerprint import Fingerprint
from schemas.table import Column


def spoiling(
    before: Catalog,
    now: Catalog,
    *,
    wanted: Sequence[Column],
    empty: Collection[int],
    key: tuple[str, ...],
    keeps_deleted: bool = False,
) -> Iterator[str]:
    """Yield, in words, each schema change from ``before`` to ``now`` that spoils a copy.

    A change with the verdict BOOTSTRAP (:func:`schemas.evolution.diff`) spoils the copy. The
    following changes spoil it, too:

    - a column was added (even if it was dropped again), dropped or renamed, or its type was
      changed: some chunks can be read before the change and some after it;
    - the definitions of several columns were written again without a difference: the columns can
      have swapped their names, and can have swapped them back after a chunk was read;
    - the table has a new file: a view from before the rewrite then shows no rows, and the query
      does not fail;
    - an append table has a new partition: no chunk reads this partition.

    Args:
        before: PostgreSQL's catalog at the copy's last check.
        now: The catalog now.
        wanted: The columns that the settings replicate.
        empty: Object ids of partitions without rows.
        key: The key columns of the lake table; empty for an append table.
        keeps_deleted: Whether the lake keeps rows that the source has deleted.
    """
    if otherwise := [
        *differences("columns", _columns_of_chunk_queries(before), _columns_of_chunk_queries(now))
    ]:
        yield from otherwise
        return
    if before.attributes != now.attributes:
        yield "a column was added and dropped, and copied rows may have its values"
    back = [
        new.name
        for old, new in now.kept_columns(before)
        if old.written != new.written and new.is_as(old)
    ]
    if len(back) > 1:
        yield f"columns {', '.join(back)} may have had each other's names for a while"
    lake = LakeColumns(
        {one.name: one.lake_type for one in wanted},
        read_by_key=frozenset(one.name for one in wanted if one.read_by_key),
        hidden={one.name: (one.hide, one.plain) for one in wanted if one.hide},
    )
    rules = Rules(wanted, keyed=bool(key), keeps_deleted=keeps_deleted, key=key)
    for change in diff(before, now, lake, rules, Evidence(empty=empty)):
        unread = isinstance(change, NewFile) or (isinstance(change, AddPartition) and not key)
        if unread or change.verdict is Verdict.BOOTSTRAP:
            yield str(change)


def spoiling_facts(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return, in words, the schema changes of a MySQL or MariaDB table that spoil its copy.

    Every change of the catalog spoils the copy, with one exception: partitions were added, and no
    partition was removed. If the copy does not read a row of a new partition, the row arrives as an
    event.

    The binlog also has DDL statements whose effect the catalog does not show. The first run after
    the copy judges all statements that follow the copy's first read of the catalog.

    Args:
        before: The fingerprint at the copy's last check.
        now: The current fingerprint.
    """
    files = (str(one.facts.get("table_id", "")).split(",") for one in (before, now))
    former, current = map(frozenset, files)
    apart = ("table_id", "altered")
    rest = [
        Fingerprint({name: fact for name, fact in one.facts.items() if name not in apart})
        for one in (before, now)
    ]
    grown = bool(now.facts.get("partitioned")) and former < current
    return [] if grown and rest[0].digest == rest[1].digest else before.diff(now)


def _columns_of_chunk_queries(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """Return, for each column number, the column's attributes on which a copy's queries depend."""
    return {
        str(number): {"name": one.name, "type": one.type, "generated": one.generated}
        for number, one in catalog.columns.items()
    }
