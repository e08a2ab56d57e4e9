"""The parts of a table that ``verify`` compares one after the other, and their joint result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.store.verifications import Proven
from operate.verify.compare import ComparedRows

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc.log.position import LogPosition
    from cdc.sources.source_facts import KeyRange
    from operate.verify.suspects import Suspect

_NOTHING = ComparedRows(0, 0, 0, 0, ())


@dataclass(frozen=True)
class Part:
    """A part of a table, whose rows ``verify`` compares together.

    Args:
        ranges: The ranges of the key that are read from the source.
        of_lake: The condition that a lake row belongs to the part; None if all rows do.
        of_source: The condition that a source row belongs to the part; None if all rows do.
    """

    ranges: list[KeyRange]
    of_lake: SparkColumn | None = None
    of_source: SparkColumn | None = None


@dataclass(frozen=True)
class ComparedPart:
    """The result for a part of a table, after the part's differing keys were checked one by one.

    Args:
        rows: The result of the last pass over all rows of the part.
        differences: The keys with a confirmed difference.
        pending: The keys that kept changing.
        rounds: Number of rounds over the differing keys.
        position: Position of the source's log up to which the pass covers all changes.
        covered: Offsets of the topic. The pass covers all events before these offsets.
    """

    rows: ComparedRows
    differences: tuple[Suspect, ...]
    pending: tuple[Suspect, ...]
    rounds: int
    position: LogPosition
    covered: Mapping[int, int]

    @property
    def equal(self) -> bool:
        """Whether no difference and no unsettled key was found."""
        beyond = self.rows.differing - len(self.rows.suspects)
        return not (self.differences or self.pending or beyond)


@dataclass(frozen=True)
class Compared:
    """The joint result of the parts of a table that were compared so far.

    Args:
        rows: The sums of rows and keys.
        differences: The keys with a confirmed difference.
        pending: The keys that kept changing.
        beyond: Number of differing keys that were not checked one by one.
        rounds: Number of rounds over the differing keys.
        position: Position of the source's log up to which the newest part covers all changes; None
            without a part.
        covered: Offsets of the topic. The first part covers all events before these offsets.
        parts: Number of parts.
        equal_upto: The upper end of the last part before the first unequal part. None if the first
            part is unequal, or if all parts up to the end of the table are equal.
        ranges: Number of ranges in all parts together.
        equal: Whether all parts were equal.
        equal_keys: Number of keys in the parts before the first unequal part.
    """

    rows: ComparedRows = _NOTHING
    differences: tuple[Suspect, ...] = ()
    pending: tuple[Suspect, ...] = ()
    beyond: int = 0
    rounds: int = 0
    position: LogPosition | None = None
    covered: Mapping[int, int] = field(default_factory=dict)
    parts: int = 0
    equal_upto: tuple[str, ...] | None = None
    ranges: int = 0
    equal: bool = True
    equal_keys: int = 0

    def after(self, found: ComparedPart, part: Part) -> Compared:
        """Return the joint result, with the result of one more part taken into account."""
        rows, more = self.rows, found.rows
        equal = self.equal and found.equal
        return replace(
            self,
            rows=ComparedRows(
                rows.source_rows + more.source_rows,
                rows.lake_rows + more.lake_rows,
                rows.keys + more.keys,
                rows.differing + more.differing,
                (),
            ),
            differences=self.differences + found.differences,
            pending=self.pending + found.pending,
            beyond=self.beyond + more.differing - len(more.suspects),
            rounds=self.rounds + found.rounds,
            position=found.position,
            covered=self.covered or found.covered,
            parts=self.parts + 1,
            equal_upto=part.ranges[-1].upper if equal else self.equal_upto,
            ranges=self.ranges + len(part.ranges),
            equal=equal,
            equal_keys=self.equal_keys + (more.keys if equal else 0),
        )


_NOTHING_YET = Compared()


@dataclass(frozen=True)
class Plan:
    """What ``verify`` compares of a table.

    Args:
        parts: The parts, in the order of the key.
        ranges: Number of ranges or partitions of the whole table; None if the number is not shown.
        earlier: The result of the unfinished comparison that this comparison continues; None if
            this comparison continues no earlier comparison.
        began_at: When this comparison began; None if this comparison is not in pieces.
        begin: The result for what needs no comparison of rows, for example for partitions whose
            digests are equal. The parts' results are added to this result.
        differing: Number of partitions that are compared row by row; None if the table is not
            compared by partitions.
    """

    parts: tuple[Part, ...]
    ranges: int | None = None
    earlier: Proven | None = None
    began_at: datetime | None = None
    begin: Compared = _NOTHING_YET
    differing: int | None = None

    @property
    def continued(self) -> bool:
        """Whether the comparison begins where an earlier comparison ended."""
        return self.earlier is not None

    def counts(self, found: Compared) -> tuple[int, int] | None:
        """Return how many ranges or partitions there are, and how many were compared row by row."""
        if self.ranges is None:
            return None
        return self.ranges, found.ranges if self.differing is None else self.differing

    def proven(self, found: Compared) -> Proven | None:
        """Return how far the table is proven equal.

        The result is None if nothing is proven, or if the whole table is equal.
        """
        earlier, began_at = self.earlier, self.began_at
        if found.equal and found.parts == len(self.parts):
            return None
        if found.equal_upto is None or began_at is None:
            return earlier
        return Proven(
            began_at=began_at if earlier is None else earlier.began_at,
            upto=found.equal_upto,
            position=str(found.position),
            rows=found.equal_keys + (0 if earlier is None else earlier.rows),
        )
