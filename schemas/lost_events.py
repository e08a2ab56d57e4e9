"""Finds the schema changes after which events of a table's rows can be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from schemas.catalog import (
    Catalog,
    IdentityIndex,
    Partition,
    PublicationState,
    differences,
    not_before,
)
from schemas.changes import AddPartition, Change, LoseEvents, Verdict


def lost_events(
    before: Catalog,
    now: Catalog,
    *,
    empty: Collection[int],
    truncated: Collection[int],
    statements: Iterable[str],
) -> Iterator[Change]:
    """Yield the schema changes that can lose events, except changes of columns and of keys.

    The result includes changes of partitions, inheriting tables, publication, name and
    `Catalog.rest`. A new partition without rows is also yielded, as `AddPartition`, although this
    partition loses no event.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
        empty: Object ids of partitions without rows.
        truncated: Object ids of partitions that were truncated themselves. A truncation of the
            whole table does not count.
        statements: The DDL statements in the binlog whose effect on the rows Tributary cannot
            derive. Empty for PostgreSQL.
    """
    yield from _partition_changes(before, now, empty, truncated)
    if before.children != now.children:
        names = ", ".join(sorted({*before.children, *now.children}))
        why = (
            "queries of the table show or showed their rows, but the changes of those are not"
            " its events"
        )
        yield _lost_events_change(f"other tables inherit or inherited from it ({names})", why)
    if _publication_altered(before.publication, now.publication):
        yield _lost_events_change(
            "its publication was altered (ALTER PUBLICATION ... SET, RENAME or OWNER TO and back)",
            "a setting of the meantime may have kept changes out of the log without a trace",
        )
    if _belonged_elsewhere(before, now):
        yield _lost_events_change(
            "the definitions of all columns were written at once, and are unchanged (ATTACH"
            " PARTITION and DETACH)",
            "while it was a partition of another table, its changes may have gone to that table's"
            " topic",
        )
    for fact in (*differences("", before.rest, now.rest), *statements):
        yield _lost_events_change(fact)
    if before.named != now.named and before.owner == now.owner:
        yield _lost_events_change(
            "the table had another name or schema for a while",
            "its changes meanwhile went to another topic",
        )


def _partition_changes(
    before: Catalog, now: Catalog, empty: Collection[int], truncated: Collection[int]
) -> Iterator[Change]:
    """Yield each change of a table's partitions that loses events, and each new empty partition."""
    fresh = {
        name
        for name, leaf in now.partitions.items()
        if name not in before.partitions
        and leaf.number in empty
        and now.files[name] == leaf.number  # a new file means a TRUNCATE or a rewrite
        and (leaf.kind, leaf.persistence, leaf.access_method) == ("r", "p", "")
        and leaf.replica_identity == now.replica_identity
    }
    for name in sorted(fresh):
        why = "it is empty, so all its rows will come as events"
        yield AddPartition(verdict=Verdict.EVOLVE, why=why, name=name)
    for name, leaf in now.partitions.items():
        if leaf.number in truncated:
            why = "TRUNCATE of a partition sends no event, so the lake would keep its rows"
            fact = f"partition {name} was truncated, or has a new file with young rows only"
            yield _lost_events_change(fact, why)
        elif _attached_again(before.partitions.get(name), leaf):
            why = "its changes meanwhile sent no events of the table"
            yield _lost_events_change(f"partition {name} was detached and attached again", why)
    kept = {name: leaf for name, leaf in now.partitions.items() if name not in fresh}
    for fact in differences(
        "leaves", _compared_partitions(before.partitions), _compared_partitions(kept)
    ):
        yield _lost_events_change(fact)


def identified_otherwise(before: Catalog, now: Catalog) -> Iterator[LoseEvents]:
    """Yield a schema change if another index can have been the replica identity for a while.

    The function examines the time between two reads of the catalog, for the table and each of its
    partitions.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
    """
    tables = {"the table": (before.indexes, now.indexes)} | {
        f"partition {name}": (old.indexes, now.partitions[name].indexes)
        for name, old in before.partitions.items()
        if name in now.partitions
    }
    for table, (old, new) in tables.items():
        if any(_was_identity_index(old.get(index), facts) for index, facts in new.items()):
            yield _lost_events_change(
                f"{table} had another index as its replica identity for a while (REPLICA IDENTITY"
                " USING INDEX and back)",
                "events of that time lack the key of the rows that they delete or move",
            )


def _was_identity_index(old: IdentityIndex | None, new: IdentityIndex) -> bool:
    """Whether an index can have been the replica identity between two reads of the catalog.

    An index that is in both catalogs can have been the replica identity if its catalog row was
    written again with the same flags. For a new index, the result is `IdentityIndex.chosen`.

    Args:
        old: The index in the earlier catalog; None if the index is new.
        new: The index in the current catalog.
    """
    if old is None:
        return new.chosen
    return old.written != new.written and old.flags == new.flags


def _attached_again(old: Partition | None, new: Partition) -> bool:
    """Whether a partition was detached and attached again between two reads of the catalog."""
    return old is not None and old.number == new.number and old.attached != new.attached


def _compared_partitions(partitions: Mapping[str, Partition]) -> dict[str, dict[str, Any]]:
    """Return the facts that a search for lost events compares, for each partition's name."""
    return {name: one.compared for name, one in partitions.items()}


def _belonged_elsewhere(before: Catalog, now: Catalog) -> bool:
    """Whether the table can have been a partition of another table between two catalog reads.

    The events of that time can be in the other table's topic.

    ATTACH PARTITION and DETACH PARTITION write the catalog rows of the table and of all its
    columns. So if the catalog row of one column was not written, the table was not attached. If the
    catalog row of a column was written without a change of the column, the cause is either ATTACH
    and DETACH, or a GRANT or REVOKE on the column. GRANT and REVOKE on a column do not write the
    table's catalog row.
    """
    kept = [*now.kept_columns(before)]
    if now.source_kind != "postgres" or before.number != now.number:
        return False
    if not all(old.written != new.written for old, new in kept):
        return False
    # A change of the table's owner writes the row of the table, and the rows of the columns that
    # have privileges.
    table_too = before.owner == now.owner and not_before(now.row_written or "0", before.horizon)
    return any(
        new.written_again(old) or (table_too and new.is_as(replace(old, granted=new.granted)))
        for old, new in kept
    )


def _publication_altered(before: PublicationState | None, now: PublicationState | None) -> bool:
    """Whether the publication's settings were changed between two reads of the catalog.

    Settings that were changed back count, too.

    If the publication is missing, the result is False, since another check reports a missing
    publication. The result is also False if only the owner differs, since a change of the owner
    loses no event.
    """
    if before is None or now is None or before == now:
        return False
    return before.owner == now.owner or before.settings != now.settings


def _lost_events_change(
    fact: str, why: str = "this sends no events, and changes of rows may have sent none"
) -> LoseEvents:
    """Return the schema change by which events of a table can be lost, with the reason."""
    return LoseEvents(verdict=Verdict.BOOTSTRAP, why=why, fact=fact)
