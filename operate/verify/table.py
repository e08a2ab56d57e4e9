"""Verifies one table: a pass over all rows, then rounds over the keys that differed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from bootstrap.capture_proof import Capture
from bootstrap.chunks import at_most, chunk_count, default_chunk_rows
from cdc.errors import LakeError, StateError
from cdc.rows.masking import hidden
from cdc.run.comparison import frozen
from cdc.run.published_generation import check_serving
from cdc.sources import open_source
from cdc.sources.source_facts import KeyRange
from cdc.store.kept_task_looks import KeptLooks
from cdc.store.table_state import State
from cdc.store.verifications import Verifications, VerifyRecord
from operate.lifecycle import require
from operate.verify.compare import ComparedRows, as_table, compare, digests, source_rows, with_keys
from operate.verify.following import WAIT_S, Following
from operate.verify.log import LogComparison
from operate.verify.parts import Compared, ComparedPart, Part, Plan
from operate.verify.result import Difference, Verification
from operate.verify.sampling import Sampler
from operate.verify.scope import (
    EVERYTHING,
    PIECES,
    SAMPLED_RANGES,
    KeyOrder,
    Scope,
    joined,
    left,
    pieces,
    ranges_of,
    sampled,
)
from operate.verify.selection import (
    MOST_PARTITIONS,
    differing_partitions,
    of_partitions,
    of_ranges,
    of_time,
)
from operate.verify.suspects import Key, Sighting, Suspect, judge, sightings
from schemas.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import TableSettings
    from cdc.run import RunContext
    from cdc.sources.base import Source
    from cdc.sources.source_facts import Marker
    from cdc.sources.views import View
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord
    from operate.context import Services

MAX_SUSPECTS = 20_000
"""Maximum number of differing keys that are checked one by one."""
MAX_PASSES = 3
"""Maximum number of passes over all rows while more than `MAX_SUSPECTS` keys differ."""
MAX_ROUNDS = 12
"""Maximum number of rounds over the differing keys.

Keys that still change in the last round are unsettled.
"""
_REPORTED = 1_000
_PRIMARY = {"snapshot_from": "primary"}


def verify_table(
    services: Services, context: RunContext, table: TableId, scope: Scope = EVERYTHING
) -> Verification:
    """Compare a table with its source row by row while both change.

    The result is kept in the state store, for `status` and metrics. If the whole table was compared
    at once and is equal, `status` no longer warns that rows of the table could have been lost when
    a task of the connector ended.

    Args:
        services: The services of the command.
        context: The context of the runs that bring the lake up to date.
        table: The table, in state INCREMENTAL.
        scope: Which part is compared. The result of a sample or a window is not kept in the state
            store, since it says nothing about other rows.

    Raises:
        LakeError: The scope does not fit the table.
        StateError: The table is not published.
        TributaryError: Source, stream or lake cannot be read.
    """
    verifier = _TableVerifier(services, context, table, scope)
    with services.cpu.beside():
        found = verifier.run()
    if scope.whole:
        # The earlier pieces of a comparison can have read the replica.
        whole_now = replace(scope, from_primary=scope.from_primary and not found.continued)
        primary = reads_primary(services, table, whole_now)
        _keep_verification(services, verifier._attempt, found, primary=primary)
    if found.equal and scope.whole and not scope.in_pieces:
        connector = services.capture_of(require(services, table)).connector
        KeptLooks(services.store).clear_doubt(connector, table, found.covered.get(0, 0))
    return found


def reads_primary(services: Services, table: TableId, scope: Scope) -> bool:
    """Return whether ``verify`` reads the source's rows from the primary."""
    return scope.from_primary or services.config.source(table.source).replica is None


def _keep_verification(
    services: Services, attempt: Attempt, found: Verification, *, primary: bool
) -> None:
    """Store the result of ``verify``, without keys and values of rows.

    If the comparison stopped before the table's end without a difference, an earlier result stays.
    In the earlier result, only ``proven`` changes: how far the table is proven equal.
    """
    kept, now = Verifications(services.store), services.store.now()
    earlier = _result_of_attempt(kept.of(found.table), attempt)
    if found.proven is not None and found.equal and earlier is not None:
        kept.keep(found.table, replace(earlier, proven=found.proven))
        return
    result = VerifyRecord(
        attempt=str(attempt.id),
        at=now,
        rows=found.rows_compared,
        differences=found.counts,
        position=found.position,
        seconds=found.seconds,
        equal_at=None if earlier is None else earlier.equal_at,
        proven=found.proven,
        equal_since=None if earlier is None else earlier.equal_since,
        primary_equal_since=None if earlier is None else earlier.primary_equal_since,
    )
    if result.equal and found.proven is None:
        began = None if earlier is None or earlier.proven is None else earlier.proven.began_at
        began = began if found.continued else None
        since = began or now - timedelta(seconds=found.seconds)
        result = replace(result, equal_at=began or now, equal_since=since)
        result = replace(result, primary_equal_since=since) if primary else result
    kept.keep(found.table, result)


def _result_of_attempt(record: VerifyRecord | None, attempt: Attempt) -> VerifyRecord | None:
    """Return a result of ``verify`` if it is about the given attempt (copy), else None."""
    return record if record is not None and record.attempt == str(attempt.id) else None


def require_published(services: Services, table: TableId) -> tuple[TableRecord, Attempt]:
    """Return the record and the attempt (copy) of a table that ``verify`` can compare.

    Raises:
        StateError: The table is not published, or runs do not keep it up to date.
    """
    record = require(services, table)
    if record.state is not State.INCREMENTAL or record.attempt is None:
        raise StateError(
            f"table {table} is {record.state.value}; only a published table that is kept up to"
            " date can be verified",
            remedy=f"See `tributary status {table}` for what it needs.",
            table=table,
            state=record.state.value,
        )
    return record, record.attempt


def _source_to_verify(services: Services, table: TableId, scope: Scope) -> Source:
    """Return the source that ``verify`` reads; it has no replica if the scope names the primary."""
    if not scope.from_primary:
        return services.source(table.source)
    config = services.config.source(table.source)
    return open_source(table.source, config.model_copy(update={"replica": None}))


class _TableVerifier:
    """The verification of one table; see :func:`verify_table` for the arguments."""

    def __init__(
        self, services: Services, context: RunContext, table: TableId, scope: Scope
    ) -> None:
        record, self._attempt = require_published(services, table)
        check_serving(context, record)
        self._services, self._context, self._id = services, context, table
        self._scope = scope
        self._topic = record.topic
        self._tier = record.tier
        self._source = _source_to_verify(services, table, scope)
        self._table = self._source.table(table)
        self._settings = self._lake_settings(services)
        self._schema = self._source.schema(self._table, self._settings)
        self._lake = context.lake(record, self._schema, self._settings)
        # Partition columns that are expressions are compared like the source's columns.
        self._compared = self._lake.layout.derived_schema
        self._capture = Capture.of(context, services.connect, record)
        self._following = Following(services, context, self._capture, self._attempt)

    def _lake_settings(self, services: Services) -> TableSettings:
        """Return the settings that determine which columns are compared.

        With ``on_schema_change: freeze``, only the lake's columns are compared.
        """
        settings = services.config.settings_on_plan(self._id, self._tier)
        latest = self._context.timeline(self._attempt).latest_offsets()
        if latest is None or latest.record.handoff is None:
            return settings
        return frozen(settings, self._table, latest.record.handoff.lake_columns)

    def run(self) -> Verification:
        """Compare the rows that the scope selects; in pieces, if `Scope.in_pieces` is true."""
        started = time.monotonic()
        if not self._schema.key:
            if replace(self._scope, from_primary=False) != EVERYTHING:
                raise LakeError(
                    f"table {self._id} has no key, so it can only be compared as a whole",
                    remedy="Verify it without a sample, a window, partitions and a budget.",
                    table=self._id,
                )
            return self._run_log(started)
        plan = self._plan()
        found = plan.begin
        for number, part in enumerate(plan.parts):
            over = self._scope.max_seconds
            if number and over is not None and time.monotonic() - started >= over:
                break
            of_part = self._compared_part(part)
            if plan.differing and part.of_lake is not None and not of_part.rows.keys:
                self._require_alike(plan.differing)
            found = found.after(of_part, part)
        if self._scope.whole and not plan.continued:
            self._require_rows(found.rows.keys)
        latest = self._context.timeline(self._attempt).latest_offsets()
        return Verification(
            table=self._id,
            rows_compared=found.rows.keys,
            source_rows=found.rows.source_rows,
            lake_rows=found.rows.lake_rows,
            differences=tuple(self._difference(one) for one in found.differences[:_REPORTED]),
            difference_count=len(found.differences),
            unsettled=tuple(self._named(one.key) for one in found.pending[:_REPORTED]),
            unsettled_count=len(found.pending) + found.beyond,
            checked_again=found.rows.differing,
            rounds=found.rounds,
            position=str(found.position),
            covered=found.covered,
            offsets=dict(latest.record.offsets) if latest else {},
            instant=latest.instant if latest else "",
            seconds=time.monotonic() - started,
            proven=plan.proven(found) if self._scope.in_pieces else None,
            parts=plan.counts(found),
            continued=plan.continued,
        )

    def _plan(self) -> Plan:
        """Return the parts of the table to compare, one after the other."""
        scope = self._scope
        if scope.method == "window" and scope.window is not None:
            ranges = [replace(one, within=scope.window) for one in self._ranges()]
            return Plan((Part(ranges, of_time(scope.window, self._schema)),))
        if scope.method == "partitions":
            return self._differing()
        if not scope.needs_order:
            return Plan((Part(self._ranges()),))
        kind = self._services.config.source(self._id.source).kind
        order = KeyOrder(self._schema, uuids_sort_as_text=kind == "postgres")
        if scope.method == "sample":
            every = self._ranges(at_least=math.ceil(SAMPLED_RANGES / max(scope.fraction, 0.01)))
            chosen = sampled(every, scope)
            part = Part(chosen, of_ranges(joined(chosen), order))
            return Plan((part,), ranges=len(every))
        before = _result_of_attempt(Verifications(self._services.store).of(self._id), self._attempt)
        proven = before.proven if before is not None and scope.go_on else None
        ranges = self._ranges(at_least=PIECES)
        every, ranges = ranges, ranges if proven is None else left(ranges, order, proven.upto)
        groups = pieces(ranges, self._scope.max_sessions or self._parallel())
        parts = tuple(Part(group, of_ranges(joined(group), order)) for group in groups)
        now = self._services.store.now()
        return Plan(parts, ranges=len(every), earlier=proven, began_at=now)

    def _differing(self) -> Plan:
        """Compare partitions by counts and checksums; return a plan for differing partitions."""
        by = self._partition_columns
        known = {column.name for column in self._compared.columns}
        if not by or not known.issuperset(by):
            raise LakeError(
                f"table {self._id} has no partitions to compare"
                + (f": it has no column {', '.join(sorted({*by} - known))}" if by else ""),
                remedy="Name existing columns under columns of the check, or set partition_by.",
                table=self._id,
            )
        marker, covered = self._catch_up()
        ranges = self._ranges()
        lake = as_table(self._lake.read(), self._compared)
        source = self._source_frame(ranges)
        partitions, rows, number = differing_partitions(source, lake, self._compared, by)
        few = len(partitions) <= MOST_PARTITIONS
        chosen = of_partitions(partitions, self._compared, by) if partitions and few else None
        parts = (Part(ranges, chosen, chosen),) if partitions else ()
        alike = ComparedRows(0, 0, 0, 0, ())
        if few:
            alike = ComparedRows(rows, rows, rows, 0, ())
        begin = Compared(rows=alike, position=marker.position, covered=covered)
        return Plan(parts, ranges=number, begin=begin, differing=len(partitions))

    @property
    def _partition_columns(self) -> tuple[str, ...]:
        """The columns whose values make a partition."""
        return self._scope.partition_by or self._lake.layout.partition_columns

    def _compared_part(self, part: Part) -> ComparedPart:
        """Compare a part's rows, and then the differing keys again in up to MAX_ROUNDS rounds."""
        marker, covered, found = self._pass(part)
        passes = 1
        while found.differing > MAX_SUSPECTS and passes < MAX_PASSES:
            marker, covered, found = self._pass(part)
            passes += 1
        pending = tuple(Suspect(key) for key in found.suspects)
        differences: list[Suspect] = []
        rounds = 0
        while pending and rounds < MAX_ROUNDS:
            rounds += 1
            result = judge(pending, self._round(pending, rounds))
            differences += result.differences
            pending = result.pending
        return ComparedPart(found, tuple(differences), pending, rounds, marker.position, covered)

    def _catch_up(self) -> tuple[Marker, Mapping[int, int]]:
        """Wait until replica and lake have passed a new marker.

        Returns:
            The marker, and the topic's end offsets before the marker was written.
        """
        # The transactions of these events end before the marker, so the source's rows show them.
        covered = self._services.kafka.stable_offsets(self._topic)
        marker = self._source.write_marker()
        self._source.wait_for_marker_on_replica(
            marker, timeout_s=WAIT_S, progress=self._services.progress
        )
        self._capture.wait_until_captured(marker.position, timeout_s=WAIT_S)
        self._following.advance()
        return marker, covered

    def _pass(self, part: Part) -> tuple[Marker, Mapping[int, int], ComparedRows]:
        """Compare a part's rows once, after lake and replica have passed a marker.

        Returns:
            The marker, the topic's end offsets before the marker was written, and the result.
        """
        marker, covered = self._catch_up()
        task = self._services.progress.start(f"compare {self._id}", None, "rows")
        try:
            task.note(f"{len(part.ranges)} ranges of the key")
            source = self._source_frame(part.ranges)
            lake = as_table(self._lake.read(), self._compared)
            found = compare(
                source if part.of_source is None else source.where(part.of_source),
                lake if part.of_lake is None else lake.where(part.of_lake),
                self._compared,
                limit=MAX_SUSPECTS,
            )
            task.advance(found.keys)
        finally:
            task.done()
        return marker, covered, found

    def _run_log(self, started: float) -> Verification:
        """Compare an append table with its source at one position of the source's log."""
        comparison = LogComparison(
            self._context,
            self._capture,
            self._lake,
            self._settings.model_copy(update=_PRIMARY if self._scope.from_primary else {}),
            ranges=self._ranges,
            read_source=self._source_frame,
            advance=self._following.advance,
            wait_s=WAIT_S,
        )
        split, covered, found = comparison.compare()
        self._require_rows(found.rows)
        latest = self._context.timeline(self._attempt).latest_offsets()
        return Verification(
            table=self._id,
            rows_compared=found.rows,
            source_rows=found.source_rows,
            lake_rows=found.lake_rows,
            differences=tuple(
                Difference("missing" if more > 0 else "extra", row) for more, row in found.surplus
            ),
            difference_count=found.differing,
            unsettled=(),
            unsettled_count=0,
            checked_again=0,
            rounds=0,
            position=str(split),
            covered=covered,
            offsets=dict(latest.record.offsets) if latest else {},
            instant=latest.instant if latest else "",
            seconds=time.monotonic() - started,
        )

    def _require_rows(self, compared: int) -> None:
        """Raise an error if no row was compared although the source has rows."""
        if compared == 0 and (rows := self._source.count(self._table)):
            raise LakeError(
                f"no row of table {self._id} was compared, but its source has {rows} rows",
                remedy="Run verify again; if this repeats, check that credentials.snapshot may read"
                " all rows of the table (row security hides rows).",
                table=self._id,
            )

    def _require_alike(self, differing: int) -> None:
        """Raise an error if partitions differ but contain no row that could be compared.

        The rows can have been deleted after they were counted. So the partitions are compared
        again, and the error is raised only if they still differ.
        """
        self._catch_up()
        lake = as_table(self._lake.read(), self._compared)
        by = self._partition_columns
        source = self._source_frame(self._ranges())
        again, _, _ = differing_partitions(source, lake, self._compared, by)
        if again:
            raise LakeError(
                f"{differing} partitions of table {self._id} differ from its source, but no row of"
                " them was compared",
                remedy="Run verify again, without partitions: it compares all rows.",
                table=self._id,
            )

    def _parallel(self) -> int:
        """Return the number of ranges that are read at the same time."""
        cores = self._services.spark.sparkContext.defaultParallelism
        return self._settings.parallel_chunks or cores

    def _ranges(self, at_least: int = 1) -> list[KeyRange]:
        """Divide the source table into ranges that Spark reads in parallel."""
        size, parallel = self._source.size(self._table), self._parallel()
        count = chunk_count(
            size,
            chunk_rows=self._settings.chunk_rows
            or default_chunk_rows(size, appends=self._settings.appends),
            chunk_bytes=int(self._settings.chunk_bytes),
            parallel=parallel,
        )
        count = max(count, min(at_least, size.rows))
        cut = self._source.sample_boundaries(self._table, self._schema.key, count, size=size)
        if not (self._schema.key or self._source.shares_views):
            cut = at_most(cut, parallel)
        return ranges_of(cut.points)

    def _source_frame(self, ranges: list[KeyRange], view: View | None = None) -> DataFrame:
        """Return source rows for ``verify`` in lake types, hashed and masked as in the lake."""
        query = self._source.snapshot_query(self._table, self._schema, ranges, view=view)
        rows = self._services.spark.read.jdbc(
            query.url, query.table, predicates=list(query.predicates), properties=query.properties
        ).selectExpr(*query.select[-len(self._schema.columns) :])
        if (most := self._scope.max_sessions) is not None and most < len(ranges):
            rows = rows.coalesce(most)
        rows = hidden(rows, self._schema, self._services.config.lake)
        return self._lake.layout.with_derived(rows)

    def _round(self, pending: tuple[Suspect, ...], number: int) -> Mapping[Key, Sighting]:
        """Sample suspect keys until the lake has caught up and was read; return the sightings."""
        keys = [suspect.key for suspect in pending]
        task = self._services.progress.start(
            f"compare {self._id} again, round {number}", len(keys), "keys"
        )
        try:
            start = self._source.current_position()
            with Sampler(self._source, self._table, self._schema, keys) as sampler:
                self._capture.wait_until_captured(start, timeout_s=WAIT_S)
                self._following.advance()
                lake = as_table(self._lake.read(), self._compared)
                wanted = with_keys(self._services.spark, lake, self._schema, keys)
                in_lake = digests(wanted, self._compared)
            sampled = source_rows(self._services.spark, sampler.rows, self._schema)
            sampled = hidden(sampled, self._schema, self._services.config.lake)
            at_source = digests(self._lake.layout.with_derived(sampled), self._compared)
            task.advance(len(keys))
        finally:
            task.done()
        return sightings(keys, at_source, sampler.absent, in_lake)

    def _difference(self, suspect: Suspect) -> Difference:
        sighting = suspect.last
        if sighting is None:
            raise AssertionError("a difference was seen at least once")
        names = tuple(column.name for column in self._compared.columns)
        columns = sighting.columns(names) if sighting.kind == "different" else ()
        return Difference(sighting.kind, self._named(suspect.key), columns)

    def _named(self, key: Key) -> dict[str, object]:
        """Return the values of a differing key, as a mapping from the key column's name."""
        return dict(zip(self._schema.key, key, strict=True))
