"""Copies the chunks of one attempt in waves, under views of the source, with retries.

Before a view is opened, the replica must show a marker row that the copy has written on the
primary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bootstrap.chunks import (
    SINGLE_WAVE_BYTES,
    at_most,
    chunk_count,
    cut_chunks,
    default_chunk_rows,
    waves,
)
from bootstrap.commit import chunk_commit
from bootstrap.copy_report import ReportedCopy, forget_report
from bootstrap.errors import AttemptSpoiledError, CopyError
from bootstrap.snapshot import SnapshotCopy, wait_to_retry
from bootstrap.spoiling_checks import require_same_order, require_same_server, unspoiled
from cdc.errors import (
    FencedError,
    LakeError,
    PermanentError,
    SnapshotLostError,
    StateError,
    onboard_again,
)
from cdc.lake.index import SnapshotSize
from cdc.lake.publish import attempt_path, delete_path
from cdc.runtime.failpoints import crash
from cdc.runtime.progress import shown_as, stopped
from cdc.sources.replay_pause import resuming
from cdc.sources.selection import require_named
from cdc.sources.views import wants_exact_view
from cdc.store.attempt import Chunk, CopyView
from schemas.errors import SchemaError, TributaryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cdc.config import TableSettings
    from cdc.lake.timeline import Timeline
    from cdc.run import RunContext
    from cdc.runtime.copy_sessions import CopyRate
    from cdc.runtime.progress import Task
    from cdc.sources.base import Marker, Source, SourceTable, View
    from cdc.store.attempt import Attempt
    from cdc.store.lease import Lease
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)


@dataclass
class Copying:
    """The copy of one attempt, which continues after its committed chunks.

    Args:
        context: The runs' context.
        source: The source database.
        settings: The table's settings.
        record: The table's record, with the attempt.
        save: Stores a changed attempt, and returns the table's record.
        lease: The table's lease.
        replica_s: Maximum wait for the replica to show the marker, in seconds.
        failures: Maximum number of failures in a row after which the copy is tried again.
        rows: Number of rows read so far.
    """

    context: RunContext
    source: Source
    settings: TableSettings
    record: TableRecord
    save: Callable[[Attempt], TableRecord]
    lease: Lease
    replica_s: float
    failures: int
    rows: int = field(default=0, init=False)

    def run(self) -> None:
        """Copy the remaining chunks; record an upper bound of the views' log positions.

        Raises:
            AttemptSpoiledError: A change of the table spoils the copy, the primary is another
                server, or the single view of the copy was lost.
            PermanentError: The table's rows cannot be read, and a retry would not help.
            CopyError: The copy failed too often in a row. The error names the last failure and the
                replica's lag.
            ReplicaError: The replica does not show the marker in time.
        """
        marker = self.source.write_marker()
        require_same_server(self.record, marker)
        self._note_facts(marker_id=marker.id)
        crash("bootstrap.after_marker")
        if not self.context.timeline(self._attempt).exists:
            # A process that died while it created the Hudi table could have left some of its files.
            delete_path(self.context.spark, self._attempt.path)
        # With a rate, each wave gets a view of its own, which is opened once the wave may be read.
        failed, one_view = 0, self._one_view or self._rate is None
        while True:
            # An error of these steps is raised at once, since another view cannot mend its cause.
            self.source.wait_for_marker_on_replica(
                marker, timeout_s=self.replica_s, progress=self.context.progress, go_on=True
            )
            self._require_fingerprint()
            self._leave_cut_short()
            before = self._committed()
            try:
                with self.context.cpu.beside():
                    done = self._copy_under_view(marker, failed=failed, one_view=one_view)
                if done:
                    break
                failed = 0
            except (AttemptSpoiledError, SchemaError, FencedError, StateError, PermanentError):
                raise
            except TributaryError as error:
                if self.context.ending:
                    raise  # another try would only hold up the command's end
                self._require_fingerprint()
                failed = 1 if self._committed() > before else failed + 1
                lost = isinstance(error, SnapshotLostError) and not self._one_view
                one_view = one_view and not lost
                if failed > self.failures:
                    raise self._given_up(error, failed) from error
                _log.warning("copy of %s failed and is tried again: %s", self._name, error)
                wait_to_retry(self.record.table, failed, self.context.progress)
        forget_report(self.context.store, self.record)
        crash("bootstrap.after_copy")

    def _copy_under_view(self, marker: Marker, *, failed: int, one_view: bool) -> bool:
        """Copy remaining chunks in a new view; return whether all chunks are copied now.

        If the argument ``one_view`` is true, this call copies all remaining chunks. If it is false,
        this call copies only the next wave. It is false in two cases: the rate of copies has a
        limit; or a view was lost, and the shorter a view is open, the less likely it is to be lost.

        A copy under several views is exact, too, since the stream is applied from the offsets O on,
        which were read before the first view was opened. But an append table, or a table with the
        setting ``one_view``, needs one view for all chunks, so the argument is true for it.

        Raises:
            AttemptSpoiledError: The table needs one view for all chunks, and the view under which
                some chunks were copied is lost.
        """
        if self._one_view and self._committed():
            raise self._view_lost()
        table = self.source.table(self.record.table)
        copy = self._open_snapshot_copy(table)
        chunks = self._planned(copy)
        done = self._committed()
        left = self._waves(chunks, done=done)
        now = left if one_view else left[:1]
        self._wait_for_rate(now)
        # If all sessions must open together, the view waits for them. For MySQL, the replica does
        # not go on meanwhile, so they are taken first.
        first = self._taken(len(chunks), together=True) if self._at_once else nullcontext()
        with first, self._opened(marker, sessions=len(chunks)) as view:
            if not view.on_replica:
                _log.warning("the primary of %s is read, not a replica", self.source.name)
            for warning in view.warnings:
                _log.warning("%s: %s", self._name, warning)
            self._note_plan(chunks, view, copy)
            crash("bootstrap.after_view")
            # A label that the view's rows have is in this catalog. So if it is renamed while chunks
            # are read, the next check knows its former name.
            self._require_fingerprint()
            shown = self.context.progress.start(
                f"copy {self._name}", sum(chunk.rows_estimate for wave in now for chunk in wave)
            )
            begin, store = ReportedCopy.begin, self.context.store
            task = begin(shown, store, self.record, self._attempt, done, left)
            try:
                for wave in now:
                    task.begin_wave(wave)
                    self._copy_wave(copy, wave, chunks, view, task, failed=failed)
                    task.end_wave()
            finally:
                task.done()
            self.source.assert_view_alive(view)
        self._require_fingerprint()
        if len(now) < len(left):
            return False
        # From here on, the record shows that the copy is complete. R is found later, with the
        # second marker.
        known = self._attempt.view
        if view.split is not None and known is not None:
            known = replace(known, split=str(view.split.known()))
        self._note_facts(reads_upto=str(view.upper_bound), view=known)
        return True

    def _leave_cut_short(self) -> None:
        """Give the attempt a new folder if the first commit in its folder was interrupted.

        The interrupted writer or one of its tasks can still add files to the old folder. Readers
        must never open that folder, since Hudi includes such files if they are older than the
        folder's first completed commit.
        """
        timeline = self.context.timeline(self._attempt)
        if not timeline.exists or timeline.newest_instant() is not None:
            return
        left, identity = self._attempt.path, self.context.store.installation.new_attempt()
        self._note_facts(id=identity, path=attempt_path(self.record.base_path, identity))
        delete_path(self.context.spark, left)
        _log.info(
            "the first commit under %s was cut short: %s is copied into a new folder",
            left,
            self._name,
        )

    @property
    def _one_view(self) -> bool:
        """Whether one view serves the whole copy: for append tables, or if ``one_view`` is set."""
        return self.settings.appends or self.settings.one_view

    @property
    def _on_replica(self) -> bool:
        """Whether the copy's views are on the replica."""
        exact = wants_exact_view(self.source, self.settings)
        from_primary = exact and self.settings.snapshot_from == "primary"
        return self.source.has_replica and not from_primary

    @property
    def _at_once(self) -> bool:
        """Whether all sessions of the copy open at the same time.

        This is necessary if two conditions hold: all rows must be read under one view, and a
        session that opens later than the others cannot share their view.
        """
        return self._one_view and not self.source.shares_views

    def _opened(self, marker: Marker, *, sessions: int) -> AbstractContextManager[View]:
        """Open the copy's view, which contains the marker row.

        If the table needs an exact view (:func:`cdc.sources.views.wants_exact_view`), the view is
        opened at a known position S.
        """
        context = self.context
        if not wants_exact_view(self.source, self.settings):
            return self.source.open_view(
                marker,
                one_moment=self._one_view,
                timeout_s=self.replica_s,
                progress=context.progress,
            )
        return self.source.open_exact_view(
            marker,
            sessions=sessions,
            from_primary=self.settings.snapshot_from == "primary",
            resuming=lambda: resuming(self.source, context.store, context.leases),
            timeout_s=self.replica_s,
            progress=context.progress,
        )

    def _view_lost(self) -> AttemptSpoiledError:
        """Return the error for a copy that lost its only view before all chunks were copied."""
        return AttemptSpoiledError(
            f"the copy of table {self._name} was interrupted, and its one view cannot be opened"
            " again",
            remedy="Nothing to do: the copy begins again.",
            table=self.record.table,
        )

    def _copy_wave(
        self,
        copy: SnapshotCopy,
        wave: Sequence[Chunk],
        chunks: Sequence[Chunk],
        view: View,
        task: Task,
        *,
        failed: int,
    ) -> None:
        commit = chunk_commit(self.record, self._attempt, wave, self.context.run_id)
        size = SnapshotSize(
            rows=sum(chunk.rows_estimate for chunk in chunks),
            bytes=sum(chunk.bytes_estimate for chunk in chunks),
            commits=len(self._waves(chunks)),
        )
        wanted = min(len(wave), self._parallel)
        taken = nullcontext(wanted) if self._at_once else self._taken(wanted)
        try:
            with taken as sessions:
                self.lease.check()
                crash("bootstrap.before_chunk_commit")
                bounded = replace(copy, parallel=self._most_tasks(len(wave), sessions))
                self.rows += bounded.copy(wave, view, commit, size, task=task, failures=failed)
        except LakeError as error:
            failure = self.source.read_failure(self.record.table, error.message, view)
            if failure is None:
                raise
            raise failure from error
        crash("bootstrap.after_chunk_commit")

    def _wait_for_rate(self, parts: Sequence[Sequence[Chunk]]) -> None:
        """Wait until the source's ``copy_mb_per_s`` allows the copy to read the waves ``parts``.

        Raises:
            StoppedError: The command ends.
        """
        size = sum(chunk.bytes_estimate for wave in parts for chunk in wave)
        if self._rate is None or size == 0:
            return
        what = f"wait to copy {self._name}"
        waits: list[Task] = []
        with ExitStack() as shown:

            def check(why: str) -> None:
                if self.context.ending:
                    raise stopped(what)
                if not waits:
                    waits.append(shown.enter_context(shown_as(what, self.context.progress)))
                waits[0].note(why)

            self._rate.begin(size, check)

    @contextmanager
    def _taken(self, wanted: int, *, together: bool = False) -> Iterator[int]:
        """Wait until this process's other copies leave sessions free; hold them for a block.

        Yields:
            Number of sessions that this copy may have open at the same time.
        """
        sessions = self.context.copy_sessions(self.source.name)
        with ExitStack() as held:
            what = f"wait for sessions to copy {self._name}"
            with shown_as(what, self.context.progress) as task:
                shown = partial(task.note, f"other copies use the {sessions.most} sessions")
                got = held.enter_context(sessions.taken(wanted, check=shown, together=together))
            yield got

    def _guard_chunks(self, _timeline: Timeline) -> None:
        """Raise an error before a commit of chunks if this process has lost the lease."""
        self.lease.check()

    def _planned(self, copy: SnapshotCopy) -> tuple[Chunk, ...]:
        """Return all chunks of the attempt, planned now or earlier.

        The chunks are planned once and recorded, so that a resumed copy has the same chunks. But if
        all chunks must be read under one view, they are planned again with each new view, since no
        chunk that was read under an earlier view can be used.
        """
        if self._attempt.chunks and not self._one_view:
            return self._attempt.chunks
        size = self.source.size(copy.table)
        count = chunk_count(
            size,
            chunk_rows=self.settings.chunk_rows
            or default_chunk_rows(size, appends=self.settings.appends),
            chunk_bytes=int(self.settings.chunk_bytes),
            parallel=self._parallel,
        )
        if self._at_once:
            count = min(count, self._parallel)
        boundaries = self.source.sample_boundaries(copy.table, copy.schema.key, count, size=size)
        return cut_chunks(at_most(boundaries, count) if self._at_once else boundaries)

    def _note_plan(self, chunks: Sequence[Chunk], view: View, copy: SnapshotCopy) -> None:
        """Record the planned chunks, and the view with which the copy of these chunks begins.

        Raises:
            AttemptSpoiledError: The source sorts the key in another way than when the chunks were
                planned.
        """
        order = self.source.key_order(copy.table, copy.schema.key) if len(chunks) > 1 else ""
        known = bool(self._attempt.chunks) and not self._one_view
        planned = self._attempt
        if not known:
            opened = CopyView(
                snapshot=view.snapshot_id,
                upper_bound=str(view.upper_bound),
                opened_at=view.opened_at,
                on_replica=view.on_replica,
                system_identifier=view.marker.system_identifier,
                timeline=view.marker.timeline,
            )
            planned = replace(planned, chunks=tuple(chunks), key_order=order or "", view=opened)
        require_same_order(self.record, planned, order)
        if not known:
            self.record = self.save(planned)

    def _waves(
        self, chunks: Sequence[Chunk], done: Collection[int] = ()
    ) -> tuple[tuple[Chunk, ...], ...]:
        """Return the copy's remaining waves.

        All remaining chunks are a single wave if the table has a bucket index, or if all sessions
        must open at the same time.
        """
        single = SINGLE_WAVE_BYTES
        if self.settings.index == "bucket" or self._at_once:
            single = max(single, sum(chunk.bytes_estimate for chunk in chunks))
        return waves(
            chunks,
            parallel=self._parallel,
            done=done,
            single_wave_bytes=single,
            wave_bytes=None if self._rate is None else self._rate.wave_bytes,
        )

    def _require_fingerprint(self) -> None:
        """Check that no change of the table since the attempt's first fingerprint spoils the copy.

        The fingerprint is read in fresh transactions: before a view opens, before the view's first
        chunk is read, and after the view closes. If the replica replays a rewrite between two of
        these checks, the view reads no rows, without an error. If an enum's label is renamed
        between two checks, later chunks have the new label, even if they are read in the same view
        as earlier chunks.

        Raises:
            AttemptSpoiledError: A change spoils the copy. The error names the change.
        """
        capture = self.source.capture(self.context.capture(self.record))
        now = capture.fingerprint(self.record.table, on_replica=self._on_replica)
        attempt = unspoiled(self.source, self.settings, self.record, self._attempt, now)
        if attempt is not self._attempt:
            self.record = self.save(attempt)

    def _open_snapshot_copy(self, table: SourceTable) -> SnapshotCopy:
        """Return the attempt's `SnapshotCopy`, with the source table's current columns."""
        require_named(table, self.settings)
        schema = self.source.schema(table, self.settings)
        return SnapshotCopy(
            spark=self.context.spark,
            source=self.source,
            table=table,
            schema=schema,
            lake=self.context.copied(self.record, schema, self.settings),
            lake_config=self.context.config.lake,
            guard=self._guard_chunks,
            taken_at=self._attempt.started_at,
        )

    def _given_up(self, error: TributaryError, failed: int) -> CopyError:
        position = self.source.replica_position() if self.source.has_replica else None
        lag = ""
        if position is not None:
            lag = (
                f" (replica {position.lag_bytes} bytes and {position.lag_seconds} s behind"
                f"{', replay paused' if position.paused else ''})"
            )
        return CopyError(
            f"the copy of table {self._name} failed {failed} times in a row{lag}: {error}",
            remedy=f"{error.remedy} Then run the command again: chunks that are committed are not"
            " read again.",
            table=self.record.table,
        )

    def _committed(self) -> frozenset[int]:
        timeline = self.context.timeline(self._attempt)
        return timeline.chunks(str(self._attempt.id))

    def _note_facts(self, **facts: Any) -> None:
        self.record = self.save(replace(self._attempt, **facts))

    @property
    def _parallel(self) -> int:
        most = self.context.copy_sessions(self.source.name).most
        return min(self.settings.parallel_chunks or self._cores, most)

    @property
    def _rate(self) -> CopyRate | None:
        return self.context.copy_rate(self.source.name)

    @property
    def _cores(self) -> int:
        return self.context.spark.sparkContext.defaultParallelism

    def _most_tasks(self, chunks: int, sessions: int) -> int | None:
        """Return the maximum number of tasks that read a wave; None for no maximum.

        The maximum is the number of sessions if there are more chunks and more cores than sessions.
        Otherwise, it is the setting ``parallel_chunks``. If there are fewer tasks than chunks, a
        task reads several chunks, one after the other.
        """
        return sessions if sessions < min(chunks, self._cores) else self.settings.parallel_chunks

    @property
    def _name(self) -> str:
        return str(self.record.table)

    @property
    def _attempt(self) -> Attempt:
        attempt = self.record.attempt
        if attempt is None:
            raise StateError(
                f"table {self.record.table} has no attempt",
                remedy=f"The state store was altered: {onboard_again(self.record.table)}.",
                table=self.record.table,
            )
        return attempt
