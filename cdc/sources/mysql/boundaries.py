"""Measures a table, and finds keys that cut it into ranges of about equal size."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.sources.mysql.connection import Session, quoted
from cdc.sources.mysql.keys import key_types, predicate, printed, range_key, relation, zero_date
from cdc.sources.source_facts import Boundaries, KeyRange, SourceTable, TableSize
from schemas.types_mysql import CALENDAR, MysqlType, on_calendar

MEASURED_ROWS = 200
_FEW_ROWS = 100_000
"""A number of rows. If the server's estimate is lower, the rows are counted, up to this number.

The estimate can be far too low, even 0.
"""

_SIZE = """
SELECT coalesce(TABLE_ROWS, 0), coalesce(DATA_LENGTH, 0)
FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""


def table_size(session: Session, table: SourceTable) -> TableSize:
    """Return a MySQL or MariaDB table's estimated number of rows, and its size in bytes.

    The size is the size of the clustered index, which contains the rows.
    """
    session.read_fresh_statistics()
    rows = session.rows(_SIZE, (table.table.schema, table.table.name))
    estimate, size = (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)
    if estimate < _FEW_ROWS:
        # The count is bounded, since a large table that has just been filled can have such a low
        # estimate, too.
        query = f"SELECT count(*) FROM (SELECT 1 FROM {relation(table)} LIMIT {_FEW_ROWS}) AS few"  # noqa: S608
        estimate = max(estimate, int(session.value(query)))
    return TableSize(rows=estimate, heap_bytes=size)


def sample_boundaries(
    session: Session, table: SourceTable, key: Sequence[str], chunks: int, size: TableSize
) -> Boundaries:
    """Return keys that cut a MySQL or MariaDB table into about ``chunks`` ranges of equal size.

    The keys are sorted in the server's order.

    The function reads the key's index once, and reads no rows. Every n-th key becomes a boundary,
    where n is the estimated number of rows divided by ``chunks``. If the estimate is too low, n is
    too small. So when there are ``2 * chunks`` boundaries, the function drops every second boundary
    and doubles n.

    Args:
        session: A session.
        table: The table.
        key: The table's key in the lake. An append table without a primary key gets no boundaries.
        chunks: The wanted number of ranges. There can be fewer ranges, or almost twice as many.
        size: The table's estimated size.

    Raises:
        SourceError: A key column has a type whose values cannot be cut into ranges.
    """
    columns = range_key(table, key)
    if chunks <= 1 or not columns:
        return Boundaries((), size)
    types = key_types(table, columns)
    names = [quoted(name) for name in columns]
    step = max(1, -(-size.rows // chunks))
    points: list[tuple[str, ...]] = []
    lower: tuple[str, ...] | None = None
    while (found := _next_key(session, table, names, types, lower, step)) not in (None, lower):
        lower = found
        points.append(found)
        if len(points) >= 2 * chunks:
            points, step = points[1::2], 2 * step
    counted = TableSize(max(size.rows, len(points) * step), size.heap_bytes)
    return Boundaries(tuple(points), counted)


def _next_key(
    session: Session,
    table: SourceTable,
    names: Sequence[str],
    types: Sequence[MysqlType],
    lower: tuple[str, ...] | None,
    step: int,
) -> tuple[str, ...] | None:
    """Return the key ``step`` rows after the key ``lower`` in a MySQL or MariaDB table.

    The result is None if fewer rows follow. If ``lower`` is None, the rows are counted from the
    table's first row.
    """
    shown = ", ".join(printed(kind, name) for kind, name in zip(types, names, strict=True))
    # The subquery sorts, since the printed text would sort differently.
    query = (
        f"SELECT {shown} FROM (SELECT {', '.join(names)} FROM {relation(table)}"  # noqa: S608
        f" WHERE {predicate(KeyRange(lower), names, types)}"
        f" ORDER BY {', '.join(names)} LIMIT 1 OFFSET {step}) AS at_step"
    )
    rows = session.rows(query)
    return tuple(str(value) for value in rows[0]) if rows else None


def largest_row(session: Session, table: SourceTable) -> int | None:
    """Sample a MySQL or MariaDB table; return the size in bytes of the largest sampled row.

    The size of a row is the sum of the sizes of its values as text. The result is None if the table
    is empty.

    The sample has the first and the last rows by the primary key. For a table without a primary
    key, the sample has arbitrary rows.
    """
    names = [quoted(column.name) for column in table.columns]
    total = " + ".join(f"coalesce(length({name}), 0)" for name in names)
    order = [quoted(name) for name in table.primary_key]
    found: list[int] = []
    for direction in ("", " DESC") if order else ("",):
        by = f" ORDER BY {', '.join(f'{name}{direction}' for name in order)}" if order else ""
        value = session.value(
            f"SELECT max(bytes) FROM (SELECT {total} AS bytes FROM {relation(table)}{by}"  # noqa: S608
            f" LIMIT {MEASURED_ROWS}) AS some"
        )
        if value is not None:
            found.append(int(value))
    return max(found, default=None)


def zero_dates(session: Session, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
    """Return the problem of a MySQL or MariaDB key with dates such as 2024-00-00, and the remedy.

    No calendar has such a date. A copy reads such a date as NULL, but the connectors send a
    different date or stop. So the date cannot identify a row of the lake. The result is None if no
    key column has such a date.
    """
    types = zip(key, key_types(table, key), strict=True)
    for name in (name for name, kind in types if kind.name in CALENDAR):
        # The first test finds the zero date itself by the index, if one begins with the column.
        for test in (f"{quoted(name)} < '0001-01-01'", f"NOT ({on_calendar(quoted(name))})"):
            if session.rows(f"SELECT 1 FROM {relation(table)} WHERE {test} LIMIT 1"):  # noqa: S608
                return zero_date(f"in key column {name!r}")
    return None
