"""Reads the histories of all tables, and deletes their old entries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from cdc.store.history import RUN_ENTRIES, SCHEMA_ENTRIES, STATE_ENTRIES
from cdc.store.retired_rows import forget_retired
from cdc.store.statements import forget_statements
from cdc.store.tables import (
    check_result_rows,
    of_table,
    run_rows,
    schema_change_rows,
    state_change_rows,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.documents import Codec
    from cdc.store.history import RunEntry, SchemaEntry, StateEntry
    from cdc.store.state_store import Store
    from schemas.table import TableId

    Entry = TypeVar("Entry", RunEntry, SchemaEntry, StateEntry)
else:
    Entry = TypeVar("Entry")

BATCH = 500
"""Maximum number of entries that one transaction deletes. While the transaction runs, no
other process can write to a SQLite store."""
BATCHES = 20
"""Maximum number of transactions with which `Histories.forget` deletes entries of one history."""


@dataclass(frozen=True)
class Noted:
    """An entry of a history.

    Args:
        at: When the entry was added, by the state store's clock. For an entry that several runs
            share, when the newest of these runs was added. For a schema change, when the lake
            followed the change, or when the table stopped at the change.
        entry: The entry.
    """

    at: datetime
    entry: RunEntry | SchemaEntry | StateEntry


class Histories:
    """The histories of all tables of a state store.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def since(
        self,
        at: datetime,
        tables: Collection[TableId] | None = None,
        most: int | None = None,
    ) -> list[Noted]:
        """Return all histories' entries from a time on, oldest first.

        Args:
            at: The time.
            tables: The tables; None returns the entries of all tables, also of removed tables.
            most: Maximum number of entries to return from each history; the newest ones are
                returned. The maximum applies to each table if ``tables`` is given, and to all
                tables together if not. None returns all entries, which can be hundreds of
                thousands.

        Raises:
            StateError: The state store cannot be used, or a stored document is not an entry.
        """
        new = at.timestamp()
        with self._store.transaction() as connection:
            runs = _read_history_rows(
                connection, run_rows, run_rows.c.noted_at >= new, tables, most
            )
            states = _read_history_rows(
                connection, state_change_rows, state_change_rows.c.noted_at >= new, tables, most
            )
            changes = _read_history_rows(
                connection, schema_change_rows, schema_change_rows.c.noted_at >= new, tables, most
            )
        # Parsing a day of a fleet takes seconds; until then a SQLite store would take no writes.
        found = [Noted(moment_of(row.noted_at), read_entry(RUN_ENTRIES, row)) for row in runs]
        found += [Noted(moment_of(row.noted_at), read_entry(STATE_ENTRIES, row)) for row in states]
        entries = [read_entry(SCHEMA_ENTRIES, row) for row in changes]
        found += [Noted(entry.at, entry) for entry in entries]
        return sorted(found, key=lambda noted: noted.at)

    def forget(self, keep_s: float) -> int:
        """Delete entries that are older than ``keep_s``, at most some thousands of each history.

        Schema changes of tables on the plan are not deleted, except those that only brought new
        partitions and that a later change has replaced for so long. From the other changes,
        `status` derives which columns a frozen table leaves out. If a table's newest change was
        deleted, a run would add the change again. When a table leaves the plan, its changes until
        then are deleted ``keep_s`` later, also if it is onboarded again meanwhile.

        Costs, results of checks and of `verify`, and quarantined records of a table are deleted
        once the table has been RETIRED for ``keep_s``.

        Args:
            keep_s: The greatest age of an entry, in seconds, by the state store's clock.

        Returns:
            Number of deleted entries.

        Raises:
            StateError: The state store cannot be used, or a stored document is not an entry.
        """
        gone = 0
        for time in (
            run_rows.c.noted_at,
            state_change_rows.c.noted_at,
            check_result_rows.c.noted_at,
            schema_change_rows.c.needless_at,
        ):
            for _ in range(BATCHES):
                deleted = self._delete_oldest(time, keep_s)
                gone += deleted
                if deleted < BATCH:
                    break
        gone += forget_statements(self._store, keep_s, BATCHES)
        return gone + forget_retired(self._store, keep_s, BATCH, BATCHES)

    def _delete_oldest(self, time: sa.Column[Any], keep_s: float) -> int:
        """Delete one batch of a history's old entries, the oldest first; return their number.

        Args:
            time: The SQL column with the time from which an entry's age counts. It has an index.
            keep_s: As in `forget`.
        """
        rows = time.table
        oldest = sa.select(rows.c.id).where(time < self._store.clock - keep_s)
        with self._store.transaction() as connection:
            ids = connection.execute(oldest.order_by(time).limit(BATCH)).scalars().all()
            if ids:
                connection.execute(sa.delete(rows).where(rows.c.id.in_(ids)))
        return len(ids)


def _read_history_rows(
    connection: Connection,
    rows: sa.Table,
    wanted: sa.ColumnElement[bool],
    tables: Collection[TableId] | None,
    most: int | None,
) -> list[sa.Row[Any]]:
    """Return wanted rows of a history's SQL table; with ``most``, only the newest (see `since`)."""
    query = sa.select(rows).where(wanted)
    if most is not None:
        newest = rows.c.noted_at if tables is None else rows.c.id
        query = query.order_by(newest.desc()).limit(most)
    queries = [query] if tables is None else [query.where(of_table(rows, one)) for one in tables]
    return [row for one in queries for row in connection.execute(one).all()]


def moment_of(seconds: float) -> datetime:
    """Convert seconds since 1970, by the state store's clock, to an aware time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def read_entry(codec: Codec[Entry], row: Any) -> Entry:
    """Return the entry in a row of a history's SQL table.

    Raises:
        StateError: The stored document is not an entry.
    """
    return codec.read(row.entry, f"entry {row.id} of a history")
