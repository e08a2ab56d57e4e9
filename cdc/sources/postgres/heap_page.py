"""Finds the row that a transaction inserted next into a heap page, after a given row.

One record of the WAL can have all rows that COPY inserts into a page. The events of these rows then
have the same log position, but the rows have different line numbers in the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

from cdc.sources.postgres.column_type import plain_type_of
from cdc.sources.postgres.connection import Session, reading
from cdc.sources.postgres.reader import relation
from cdc.sources.source_facts import NextInserted, SourceTable

_PLAIN = frozenset({"int2", "int4", "int8", "text", "varchar", "uuid"})
"""Types whose values are the same in an event and in the server's text."""
_SMALLEST_ROW = 28
"""Size of the smallest row with its line pointer, in bytes."""


def next_inserted(
    session: Session, table: SourceTable, key: Mapping[str, object], transaction: int | None
) -> NextInserted:
    """Return the PostgreSQL row that a given row's transaction inserted next into the same page.

    A row that a later transaction changed or deleted is skipped, since it also has later events.

    Args:
        session: A session on the primary.
        table: The table.
        key: The key of the given row: values from the row's event, by column name.
        transaction: The transaction's id in the event of the given row. The given row in the table
            must have this id as ``xmin``. None accepts any ``xmin``: the ``xmin`` of a row that was
            inserted after a savepoint differs from the id in its event.
    """
    kinds = {column.name: plain_type_of(column).name for column in table.columns}
    if not key or any(kinds.get(name) not in _PLAIN for name in key):
        return NextInserted(known=False)
    by = None if transaction is None else str(transaction % (1 << 32))
    wanted = sql.SQL(" AND ").join(
        sql.SQL("{} = {}::" + kinds[name]).format(sql.Identifier(name), sql.Literal(str(value)))
        for name, value in key.items()
    )
    found = sql.SQL(
        "SELECT tableoid::text, ctid::text, current_setting('block_size')::int, xmin::text FROM {}"
        " WHERE {} AND coalesce(xmin::text = {}, true)"
    ).format(relation(table), wanted, sql.Literal(by))
    with reading(session):
        row = session.execute(found).fetchone()
        if row is None:
            return NextInserted(known=False)
        behind = sql.SQL(
            "SELECT {} FROM {} WHERE ctid = ANY({}::tid[]) AND tableoid::text = {}"
            " AND xmin::text = {} ORDER BY ctid LIMIT 1"
        ).format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in key),
            relation(table),
            sql.Literal(_places_behind(str(row[1]), int(row[2]))),
            sql.Literal(row[0]),
            sql.Literal(row[3]),
        )
        mate: Any = session.execute(behind).fetchone()
    return NextInserted(known=True, key=None if mate is None else tuple(map(str, mate)))


def _places_behind(place: str, block_size: int) -> str:
    """Return the ``ctid`` values behind ``place`` in the page, as a PostgreSQL array literal."""
    page, number = (int(part) for part in place.strip("()").split(","))
    last = block_size // _SMALLEST_ROW
    return "{" + ",".join(f'"({page},{n})"' for n in range(number + 1, last + 1)) + "}"
