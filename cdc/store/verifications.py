"""Stores the newest result of ``verify`` for each table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import named, of_table, verification_rows
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.state_store import Store


@dataclass(frozen=True)
class Proven(Part):
    """The progress of a ``verify`` that compares a table piece by piece, in the order of the keys.

    A piece is a range of keys.

    Args:
        began_at: When the first piece began.
        upto: Values of the key columns, as the source prints them. All rows with a smaller key were
            found equal.
        position: The position in the source's log up to which the comparison of the newest piece
            covers all changes.
        rows: Number of keys that were found equal so far.
    """

    began_at: datetime
    upto: tuple[str, ...]
    position: str
    rows: int


@dataclass(frozen=True)
class VerifyRecord(Part):
    """The newest result of ``verify`` for one table, without rows and keys.

    Args:
        attempt: Identity of the attempt whose lake table was compared.
        at: When the comparison ended.
        rows: Number of distinct keys on both sides together.
        differences: Number of confirmed differences by kind. ``more`` counts the differences beyond
            the thousand that ``verify`` lists. ``unsettled`` counts the keys that differed
            and were then neither found equal nor confirmed as different.
        position: The position in the source's log up to which the comparison covers all changes.
        seconds: Duration of the comparison in seconds.
        equal_at: The end of the newest comparison of this attempt that found source and lake equal;
            None if there is no such comparison. If that comparison was in pieces and continued an
            earlier one, the value is the start of the first piece instead.
        proven: The progress of an unfinished comparison in pieces; None if there is none.
        equal_since: The start of the comparison to which ``equal_at`` belongs.
        primary_equal_since: The start of the newest comparison that read the source's rows from the
            primary and found source and lake equal.
        format: Version of this document.
    """

    attempt: str
    at: datetime
    rows: int
    differences: Mapping[str, int]
    position: str
    seconds: float
    equal_at: datetime | None = None
    proven: Proven | None = None
    equal_since: datetime | None = None
    primary_equal_since: datetime | None = None
    format: Literal[1] = field(default=1)

    @property
    def equal(self) -> bool:
        """Whether the comparison found source and lake equal."""
        return not any(self.differences.values())

    @property
    def summary(self) -> dict[str, Any]:
        """The part of the result that commands show, as plain values and times."""
        return {
            "at": self.at,
            "equal": self.equal,
            "equal_at": self.equal_at,
            "rows": self.rows,
            "differences": dict(self.differences),
        }


VERIFY_RECORDS = Codec(VerifyRecord, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's results of ``verify``."""


class Verifications:
    """The newest ``verify`` result of each table; all processes of a state store share the results.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> dict[TableId, VerifyRecord]:
        """Return the newest result for each table, read with one SQL statement.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a result.
        """
        return self._read(sa.select(verification_rows))

    def of(self, table: TableId) -> VerifyRecord | None:
        """Return the newest result of one table; None if there is none.

        Raises:
            StateError: The state store cannot be used, or the stored document is not a result.
        """
        return self._read(
            sa.select(verification_rows).where(of_table(verification_rows, table))
        ).get(table)

    def _read(self, query: sa.Select[Any]) -> dict[TableId, VerifyRecord]:
        with self._store.transaction() as connection:
            rows = connection.execute(query).all()
        found = {}
        for row in rows:
            table = TableId(row.source, row.schema_name, row.table_name)
            name = f"the result of verify for table {table}"
            found[table] = VERIFY_RECORDS.read(row.result, name, table=table)
        return found

    def keep(self, table: TableId, result: VerifyRecord) -> None:
        """Store a result in place of the table's earlier result.

        Raises:
            StateError: The state store cannot be used.
        """
        text = {"result": VERIFY_RECORDS.write(result)}
        again = (
            sa.update(verification_rows).where(of_table(verification_rows, table)).values(**text)
        )
        for _ in range(2):
            try:
                with self._store.transaction() as connection:
                    if connection.execute(again).rowcount != 1:
                        connection.execute(
                            sa.insert(verification_rows).values(**named(table), **text)
                        )
            except IntegrityError:  # another process has just stored the first result
                continue
            return
