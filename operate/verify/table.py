"""Verifies one table: a pass over all rows, then rounds over the keys that differed."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bootstrap.capture_proof import Capture
from bootstrap.chunks import at_most, chunk_count
from cdc.errors import LakeError, StateError
from cdc.rows.masking import hidden
from cdc.run.comparison import frozen
from cdc.run.published_generation import check_serving
from cdc.sources.source_facts import KeyRange
from cdc.store.table_state import State
from cdc.store.task_looks import KeptLooks
from cdc.store.verifications import Verifications, VerifyRecord
from operate.lifecycle import require
from operate.verify.compare import ComparedRows, as_table, compare, digests, source_rows, with_keys
from operate.verify.following import WAIT_S, Following
from operate.verify.log import LogComparison
from operate.verify.sampling import Sampler
from operate.verify.settle import DifferenceKind, Key, Sighting, Suspect, judge, sightings
from schemas.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import TableSettings
    from cdc.run import RunContext
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

Keys that still change then are unsettled.
"""
_REPORTED = 1_000


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
    """The result of verify for one table.

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
        unsettled_count: Number of unsettled keys. It includes the differing keys beyond the first
            `MAX_SUSPECTS`, which were not checked one by one.
        checked_again: Number of keys that differed in the last pass over all rows. Most of them
            were being written.
        rounds: Number of rounds over the keys of ``checked_again``.
        position: Position of the source's log. The comparison covers all changes up to this
            position. For an append table, the comparison covers no later change.
        covered: Offsets of the topic. The comparison covers all events before these.
        offsets: The offsets of the lake's last commit. The lake contains all events before these.
        instant: The instant of that commit.
        seconds: Duration of the verification in seconds.
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

    @property
    def equal(self) -> bool:
        """Whether ``verify`` found neither a difference nor an unsettled key."""
        return self.difference_count == 0 and self.unsettled_count == 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of differences that ``verify`` found, by kind, without kinds that have none.

        ``more`` counts the differences that are not in ``differences``, and ``unsettled`` the
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
        }


def verify_table(services: Services, context: RunContext, table: TableId) -> Verification:
    """Compare a table with its source row by row while both change.

    The result is kept in the state store, for `status` and metrics. If the table equals its source,
    `status` no longer warns that rows of the table could have been lost when a task of the
    connector ended.

    Args:
        services: The services of the command.
        context: The context of the runs that bring the lake up to date.
        table: The table, in state INCREMENTAL.

    Raises:
        StateError: The table is not published.
        TributaryError: Source, stream or lake cannot be read.
    """
    verifier = _TableVerifier(services, context, table)
    found = verifier.run()
    _keep(services, verifier._attempt, found)
    if found.equal:
        connector = services.capture_of(require(services, table)).connector
        KeptLooks(services.store).settle(connector, table, found.covered.get(0, 0))
    return found


def _keep(services: Services, attempt: Attempt, found: Verification) -> None:
    """Store the result of ``verify``, without keys and values of rows."""
    kept, now = Verifications(services.store), services.store.now()
    earlier = kept.of(found.table)
    same = earlier is not None and earlier.attempt == str(attempt.id)
    result = VerifyRecord(
        attempt=str(attempt.id),
        at=now,
        rows=found.rows_compared,
        differences=found.counts,
        position=found.position,
        seconds=found.seconds,
        equal_at=earlier.equal_at if same and earlier is not None else None,
    )
    kept.keep(found.table, replace(result, equal_at=now) if result.equal else result)


def require_published(services: Services, table: TableId) -> tuple[TableRecord, Attempt]:
    """Return the record and the attempt of a table that ``verify`` can compare.

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


class _TableVerifier:
    """The verification of one table; see :func:`verify_table` for the arguments."""

    def __init__(self, services: Services, context: RunContext, table: TableId) -> None:
        record, self._attempt = require_published(services, table)
        check_serving(context.spark, record)
        self._services, self._context, self._id = services, context, table
        self._topic = record.topic
        self._tier = record.tier
        self._source = services.source(table.source)
        self._table = self._source.table(table)
        self._settings = self._lake_settings(services)
        self._schema = self._source.schema(self._table, self._settings)
        self._lake = context.lake(record, self._schema, self._settings)
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
        started = time.monotonic()
        if not self._schema.key:
            return self._run_log(started)
        marker, covered, found = self._pass()
        passes = 1
        while found.differing > MAX_SUSPECTS and passes < MAX_PASSES:
            marker, covered, found = self._pass()
            passes += 1
        self._require_rows(found.keys)
        pending = tuple(Suspect(key) for key in found.suspects)
        differences: list[Suspect] = []
        rounds = 0
        while pending and rounds < MAX_ROUNDS:
            rounds += 1
            result = judge(pending, self._round(pending, rounds))
            differences += result.differences
            pending = result.pending
        timeline = self._context.timeline(self._attempt)
        latest = timeline.latest_offsets()
        beyond = found.differing - len(found.suspects)
        return Verification(
            table=self._id,
            rows_compared=found.keys,
            source_rows=found.source_rows,
            lake_rows=found.lake_rows,
            differences=tuple(self._difference(one) for one in differences[:_REPORTED]),
            difference_count=len(differences),
            unsettled=tuple(self._named(one.key) for one in pending[:_REPORTED]),
            unsettled_count=len(pending) + beyond,
            checked_again=found.differing,
            rounds=rounds,
            position=str(marker.position),
            covered=covered,
            offsets=dict(latest.record.offsets) if latest else {},
            instant=latest.instant if latest else "",
            seconds=time.monotonic() - started,
        )

    def _pass(self) -> tuple[Marker, Mapping[int, int], ComparedRows]:
        """Compare all rows once for ``verify``, after lake and replica have passed a marker.

        Returns:
            The marker, the topic's end offsets before the marker was written, and the result.
        """
        # The transactions of these events end before the marker, so the source's rows show them.
        covered = self._services.kafka.stable_offsets(self._topic)
        marker = self._source.write_marker()
        self._source.wait_for_marker_on_replica(
            marker, timeout_s=WAIT_S, progress=self._services.progress
        )
        self._capture.wait_until_captured(marker.position, timeout_s=WAIT_S)
        self._following.advance()
        ranges = self._ranges()
        task = self._services.progress.start(f"compare {self._id}", None, "rows")
        try:
            task.note(f"{len(ranges)} ranges of the key")
            found = compare(
                self._source_frame(ranges),
                as_table(self._lake.read(), self._schema),
                self._schema,
                limit=MAX_SUSPECTS,
            )
            task.advance(found.keys)
        finally:
            task.done()
        return marker, covered, found

    def _run_log(self, started: float) -> Verification:
        """Verify an append table."""
        comparison = LogComparison(
            self._context,
            self._capture,
            self._lake,
            self._settings,
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

    def _ranges(self) -> list[KeyRange]:
        """Divide the source table into ranges that Spark reads in parallel."""
        size = self._source.size(self._table)
        cores = self._services.spark.sparkContext.defaultParallelism
        parallel = self._settings.parallel_chunks or cores
        count = chunk_count(
            size,
            chunk_rows=self._settings.chunk_rows,
            chunk_bytes=int(self._settings.chunk_bytes),
            parallel=parallel,
        )
        cut = self._source.sample_boundaries(self._table, self._schema.key, count, size=size)
        if not (self._schema.key or self._source.shares_views):
            cut = at_most(cut, parallel)
        edges = (None, *cut.points, None)
        return [KeyRange(low, high) for low, high in itertools.pairwise(edges)]

    def _source_frame(self, ranges: list[KeyRange], view: View | None = None) -> DataFrame:
        """Return source rows for ``verify`` in lake types, hashed and masked as in the lake."""
        query = self._source.snapshot_query(self._table, self._schema, ranges, view=view)
        rows = self._services.spark.read.jdbc(
            query.url, query.table, predicates=list(query.predicates), properties=query.properties
        ).selectExpr(*query.select[-len(self._schema.columns) :])
        return hidden(rows, self._schema, self._services.config.lake)

    def _round(self, pending: tuple[Suspect, ...], number: int) -> Mapping[Key, Sighting]:
        """Sample the suspects at the source while the lake catches up; return their sightings."""
        keys = [suspect.key for suspect in pending]
        task = self._services.progress.start(
            f"compare {self._id} again, round {number}", len(keys), "keys"
        )
        try:
            start = self._source.current_position()
            with Sampler(self._source, self._table, self._schema, keys) as sampler:
                self._capture.wait_until_captured(start, timeout_s=WAIT_S)
                self._following.advance()
                lake = as_table(self._lake.read(), self._schema)
                wanted = with_keys(self._services.spark, lake, self._schema, keys)
                in_lake = digests(wanted, self._schema)
            sampled = source_rows(self._services.spark, sampler.rows, self._schema)
            at_source = digests(
                hidden(sampled, self._schema, self._services.config.lake), self._schema
            )
            task.advance(len(keys))
        finally:
            task.done()
        return sightings(keys, at_source, sampler.absent, in_lake)

    def _difference(self, suspect: Suspect) -> Difference:
        sighting = suspect.last
        if sighting is None:
            raise AssertionError("a difference was seen at least once")
        names = tuple(column.name for column in self._schema.columns)
        columns = sighting.columns(names) if sighting.kind == "different" else ()
        return Difference(sighting.kind, self._named(suspect.key), columns)

    def _named(self, key: Key) -> dict[str, object]:
        """Return a differing key's values by the names of the key columns."""
        return dict(zip(self._schema.key, key, strict=True))
