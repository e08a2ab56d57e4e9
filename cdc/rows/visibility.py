"""Finds the events of transactions that were not visible when PostgreSQL's catalog was read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cdc.rows.columns import TRANSACTION
from cdc.rows.decode import constant_sql

_LOWER_BITS, _SIGN = (1 << 32) - 1, 1 << 31


@dataclass(frozen=True)
class Reading:
    """The transactions that were visible when PostgreSQL's catalog was read.

    Args:
        snapshot: The ``pg_snapshot`` of the query that read the catalog, as a string. If the string
            is empty, all transactions count as visible. The string is empty, for example, for a
            source whose log has all DDL statements.
        still_open: The lower 32 bits of the ids of the transactions that were open at a moment
            between the batch's last event and the reading of the catalog; None if these ids are not
            known.
    """

    snapshot: str = ""
    still_open: Collection[int] | None = None


def not_visible_sql(reading: Reading) -> str:
    """Return Spark SQL that is true if the read catalog did not show an event's transaction yet.

    An event has the lower 32 bits of its transaction's id. The server orders these numbers in a
    circle. So if 2^31 ids or more follow a transaction's id, the transaction looks like one that
    began after the catalog was read. Only ``reading.still_open`` distinguishes the two cases.
    """
    if not reading.snapshot:
        return "FALSE"
    if reading.still_open is not None:
        still_open = ", ".join(f"{one}L" for one in reading.still_open)
        return f"{TRANSACTION} IN ({still_open})" if still_open else "FALSE"
    _, end, running = reading.snapshot.split(":")
    ids = [int(xid) & _LOWER_BITS for xid in (end, *filter(None, running.split(",")))]
    open_then = f"array({', '.join(f'{one}L' for one in ids)})"
    began_later = f"({TRANSACTION} - {constant_sql(f'{ids[0]}L')}) & {_SIGN}L"
    return f"({began_later}) = 0 OR array_contains({open_then}, {TRANSACTION})"
