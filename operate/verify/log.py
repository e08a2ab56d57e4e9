"""Verifies an append table, whose rows have no key, by a comparison at one position of the log.

Rows without a key cannot be read again one by one. So both sides are read at the same position S of
the source's log. A view of the source contains exactly the transactions that ended at or before S.
In the lake, the rows of these transactions have offsets below the offset of the first event after
S; all other rows have this offset or a later one.
The two sides are equal if each row occurs in the lake as often as in the view. Changes after S are
not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bootstrap.boundary import Origin, find_boundary
from bootstrap.snapshot import read_once
from cdc.errors import LakeError
from cdc.rows.columns import OFFSET
from cdc.sources.replay_pause import resuming
from operate.verify.compare import BagComparison, as_table, compare_bags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bootstrap.capture_proof import Capture
    from cdc.config import TableSettings
    from cdc.lake.write import FollowedTable
    from cdc.log.position import LogPosition
    from cdc.run import RunContext
    from cdc.sources.source_facts import KeyRange
    from cdc.sources.views import View

PASSES = 3
"""Maximum number of comparisons.

A comparison is repeated if a TRUNCATE spoils it.
"""
_REPORTED = 1_000


@dataclass(frozen=True)
class LogComparison:
    """The comparison of an append table with its source.

    Args:
        context: The context of the runs that bring the lake up to date.
        capture: The capture of the table's changes.
        lake: The lake table.
        settings: The table's settings.
        ranges: Divides the source table into ranges that Spark reads in parallel.
        read_source: Returns the source's rows of the given ranges, as the given view shows them.
        advance: Applies changes until the lake has all events before the given offsets.
        wait_s: Bound of each wait, in seconds.
    """

    context: RunContext
    capture: Capture
    lake: FollowedTable
    settings: TableSettings
    ranges: Callable[[], list[KeyRange]]
    read_source: Callable[[list[KeyRange], View], DataFrame]
    advance: Callable[[Mapping[int, int]], None]
    wait_s: float

    def compare(self) -> tuple[LogPosition, Mapping[int, int], BagComparison]:
        """Compare source and lake of an append table at a position S of the source's log.

        Returns:
            The position S, the offsets of the first event after S, and the result.

        Raises:
            LakeError: In each of `PASSES` comparisons, a TRUNCATE after S may have removed rows of
                the lake before they were compared.
            TributaryError: Source, stream or lake cannot be read.
        """
        for _ in range(PASSES):
            split, boundary, found = self._compare_once()
            if not self._truncated_beyond(boundary):
                return split, boundary, found
        table = self.capture.table
        raise LakeError(
            f"table {table} was truncated during each of {PASSES} comparisons",
            remedy=f"Run `tributary verify {table}` at a time without TRUNCATE of the table.",
            table=table,
        )

    def _compare_once(self) -> tuple[LogPosition, Mapping[int, int], BagComparison]:
        """Compare source and lake of an append table once; return the same as `compare`."""
        capture, context = self.capture, self.context
        source, schema = capture.source, self.lake.layout.derived_schema
        origin, ranges = Origin.now(capture), self.ranges()
        with source.open_exact_view(
            source.write_marker(),
            sessions=len(ranges),
            from_primary=self.settings.snapshot_from == "primary",
            resuming=lambda: resuming(source, context.store, context.leases),
            timeout_s=self.wait_s,
            progress=capture.progress,
        ) as view:
            rows = self.read_source(ranges, view)
            if not source.shares_views:
                rows = read_once(rows, source, capture.table, view)
            task = capture.progress.start(f"compare {capture.table}", None, "rows")
            try:
                if view.split is None:
                    raise AssertionError("an exact view has a position")
                split = view.split.known()
                # Without a new row, the log of an idle source would never pass S.
                capture.wait_until_captured(source.write_marker().position, timeout_s=self.wait_s)
                boundary = find_boundary(
                    capture, context.registry, origin, split, timeout_s=self.wait_s
                )
                self.advance(boundary)
                lake = self.lake.read().where(F.col(OFFSET) < max(boundary.values()))
                found = compare_bags(rows, as_table(lake, schema), schema, limit=_REPORTED)
                task.advance(found.source_rows)
            finally:
                task.done()
                rows.unpersist()
            source.assert_view_alive(view)
        return split, boundary, found

    def _truncated_beyond(self, boundary: Mapping[int, int]) -> bool:
        """Whether a TRUNCATE after log position S may have removed lake rows before the comparison.

        The result is True if a run's commit has a TRUNCATE and an event after S. An event after S
        has an offset in ``boundary`` or a later offset.
        """
        return any(
            committed.record.counts.get("t")
            and any(committed.record.offsets[p] > at for p, at in boundary.items())
            for committed in self.lake.timeline().commits()
            if committed.record.kind == "run" and committed.record.offsets
        )
