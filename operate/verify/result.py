"""The result of ``verify`` for one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.store.verifications import Proven
    from operate.verify.suspects import DifferenceKind
    from schemas.table import TableId


@dataclass(frozen=True)
class Difference:
    """A key for which source and lake differ; for an append table, a row.

    Args:
        kind: ``missing``: only the source has the row. ``extra``: only the lake has the row.
            ``different``: the values of the row differ. ``duplicate``: the lake has several rows
            with the key.
        key: Values of the key columns by name; for an append table, values of all columns.
        columns: The columns that differ, if the kind is ``different``; otherwise empty.
    """

    kind: DifferenceKind
    key: Mapping[str, object]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The result of ``verify`` for one table.

    Args:
        table: The table.
        rows_compared: Number of distinct keys on both sides together; for an append table, of
            distinct rows.
        source_rows: Number of rows read from the source.
        lake_rows: Number of rows read from the lake.
        differences: Confirmed differences, up to a thousand. A row of an append table is listed
            once, however often it is missing or extra.
        difference_count: Number of confirmed differences. A row of an append table counts as often
            as it is missing or extra.
        unsettled: Keys that kept changing and were never seen equal, up to a thousand.
        unsettled_count: Number of unsettled keys, including the differing keys beyond the first
            `MAX_SUSPECTS`, which were not checked one by one.
        checked_again: Number of keys that differed in the last pass over all rows. Most of these
            keys were being written.
        rounds: Number of rounds over the keys that ``checked_again`` counts.
        position: Position of the source's log. The comparison covers all changes up to this
            position. For an append table, the comparison covers no later change.
        covered: Offsets of the topic. The comparison covers all events before these offsets.
        offsets: The offsets of the lake's last commit. The lake contains all events before these
            offsets.
        instant: The instant of the lake's last commit.
        seconds: Duration of the verification in seconds.
        proven: How far a comparison in pieces has come; None if the comparison has come to the end,
            or if the table was not compared in pieces.
        parts: Number of ranges or partitions, and how many of them were compared row by row; None
            if all rows were compared at once.
        continued: Whether the comparison began where an earlier comparison ended.
    """

    table: TableId
    rows_compared: int
    source_rows: int
    lake_rows: int
    differences: tuple[Difference, ...]
    difference_count: int
    unsettled: tuple[Mapping[str, object], ...]
    unsettled_count: int
    checked_again: int
    rounds: int
    position: str
    covered: Mapping[int, int]
    offsets: Mapping[int, int]
    instant: str
    seconds: float
    proven: Proven | None = None
    parts: tuple[int, int] | None = None
    continued: bool = False

    @property
    def equal(self) -> bool:
        """Whether ``verify`` found neither a difference nor an unsettled key."""
        return self.difference_count == 0 and self.unsettled_count == 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of differences that ``verify`` found, by kind; kinds without any are left out.

        ``more`` counts the differences that are not in ``differences``. ``unsettled`` counts the
        unsettled keys.
        """
        kinds = Counter[str](one.kind for one in self.differences)
        kinds["more"] = self.difference_count - kinds.total()
        kinds["unsettled"] = self.unsettled_count
        return dict(+kinds)

    def to_json(self) -> dict[str, Any]:
        """The result of ``verify`` as plain values."""
        return {
            "table": str(self.table),
            "equal": self.equal,
            "rows_compared": self.rows_compared,
            "source_rows": self.source_rows,
            "lake_rows": self.lake_rows,
            "differences": [
                {"kind": one.kind, "key": dict(one.key), "columns": list(one.columns)}
                for one in self.differences
            ],
            "difference_count": self.difference_count,
            "unsettled": [dict(key) for key in self.unsettled],
            "unsettled_count": self.unsettled_count,
            "checked_again": self.checked_again,
            "rounds": self.rounds,
            "position": self.position,
            "offsets": dict(self.offsets),
            "instant": self.instant,
            "seconds": round(self.seconds, 2),
            "complete": self.proven is None,
            "parts": None if self.parts is None else list(self.parts),
        }
