"""One Hudi table with the rows of several source tables.

Each source table is a shard. A shard is copied, followed and committed like a separate table. The
shard's rows have the shard's name in the shard column. Each commit's metadata repeats the last
CommitRecord of every shard, so the newest commit has every shard's offsets.

Hudi lets one writer commit at a time. So shards that are ready together share a commit: the first
thread commits for all threads that wait. If the shared commit fails for another reason than a lease
of another process, each shard's request is committed alone. So only a shard whose rows cannot be
written stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import FencedError, LakeError, LeaseHeldError
from cdc.lake.commit import CommitRecord, SharedState
from cdc.lake.layout import LakeLayout, column
from cdc.lake.options import check_overrides
from cdc.lake.publish import (
    attempt_path,
    current_path,
    delete_path,
    folder_exists,
    read_pointer,
)
from cdc.lake.restored_files import WholeCommits
from cdc.lake.shard_timeline import ShardTimeline
from cdc.lake.shard_write import (
    ShardWrite,
    carried,
    not_there,
    record_of,
    require_one_key,
    require_one_layout,
    require_whole,
    schema_before,
    schema_of,
    settings_of,
    types_before,
    types_of,
)
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable, layout_of, live_rows, read_table
from cdc.rows.columns import OFFSET, OP, is_reserved
from cdc.runtime.waiting import wait_while
from schemas.table import Shard, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import TableSettings
    from cdc.lake.guard import Guard
    from cdc.lake.ownership import Ownership
    from cdc.store.lease import Lease, Leases

_log = logging.getLogger(__name__)
TURN_S = 900.0
"""Bound of the wait for another process that commits to the same table, in seconds."""
TRY_S = 10.0
"""Bound of one try to get the lease, in seconds: the time of several usual commits. The wait of
`TURN_S` consists of several tries. Between two tries, other shards have a turn."""
_LAST_OFFSET = 2**63 - 1
"""The offset of a delete that must sort after every other event of its row."""


def shared_path(spark: SparkSession, shard: Shard, owner: Ownership) -> str:
    """Return the base path of a shard's shared Hudi table.

    Once the shared table exists, its path never changes. If another installation has published a
    shared table in the same folder, the result is the path of this installation's own shared table.
    """
    there = read_pointer(spark, shard.base_path)
    if there is not None and not owner.is_other(there.attempt):
        return there.path
    return attempt_path(shard.base_path, owner.installation.shared_table(shard.base_path))


class SharedTable:
    """The writer of one shared Hudi table in this process.

    Safe to share among threads.

    Args:
        spark: Returns the session of the calling thread.
        leases: Leases that let one process commit at a time.
        path: Base path of the Hudi table.
        whole: The commits whose files the process has checked; None if there is none yet.
        stop: Once it is set, a request that waits for another process fails after its present try.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        leases: Leases,
        path: str,
        whole: WholeCommits | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._stop = stop
        self._whole = WholeCommits() if whole is None else whole
        self._spark = spark
        self._leases = leases
        self.path = path
        self._resource = f"lake table {path}"
        self._waiting: list[ShardWrite] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def hold_lease(self, *, wait_s: float = TURN_S) -> Iterator[Lease]:
        """Hold the lease of the shared table, so that no other shard or process changes the table.

        Args:
            wait_s: Bound of the wait for another process, in seconds.

        Raises:
            LeaseHeldError: Another process holds the lease for longer than ``wait_s``.
        """
        with self._leases.hold(self._resource, wait_s=wait_s) as lease:
            yield lease

    def held_by_other(self) -> LeaseHeldError | None:
        """Return an error that names the process which holds the shared table's lease.

        None if no other process holds the lease.
        """
        return self._leases.held_by_other(self._resource)

    def write(self, wanted: ShardWrite, *, wait_s: float = TURN_S) -> str:
        """Commit a shard's request, together with the waiting requests of other shards.

        Args:
            wanted: The request.
            wait_s: Bound of the wait for the shared table's lease, in seconds. At least one try is
                made, which waits for up to `TRY_S` seconds.

        Returns:
            The commit's instant.

        Raises:
            ConfigError: The shard's settings do not fit the table.
            SchemaError: The shard's columns or key do not fit those of the other shards.
            FencedError: The guard refused the commit, or another writer has taken the table over.
            LakeError: The rows cannot be written. No row of the shard was committed.
            LeaseHeldError: Another process holds the table's lease for longer than ``wait_s``, or
                until the command is stopped.
        """

        def held() -> bool:
            wanted.error = None
            self._try_to_write(wanted)
            return isinstance(wanted.error, LeaseHeldError)

        # Each try pauses in its own wait for the lease, which shows its progress.
        wait_while(held, timeout_s=wait_s, poll_s=0.0, stop=self._stop)
        if wanted.error is not None:
            raise wanted.error
        return wanted.instant or ""

    def _try_to_write(self, wanted: ShardWrite) -> None:
        """Commit a request. If this fails, set ``wanted.error``."""
        with self._lock:
            self._waiting.append(wanted)
        with self._turn:
            if not wanted.done:
                with self._lock:
                    together, self._waiting = self._waiting, []
                try:
                    self._commit_all(together)
                finally:
                    for one in together:
                        if not one.done:  # an interrupt ends this thread
                            one.error = _ended_lake_commit_error(self.path)

    def remove(
        self, shard: Shard, settings: TableSettings, guard: Guard, *, known: str | None = None
    ) -> None:
        """Remove a shard and its rows from the shared table, if the table has the shard.

        The partition columns and the delete mode in ``settings`` are ignored. The partition columns
        and the delete mode of the existing table apply. `ShardWrite` describes the arguments.
        """
        spark = self._spark()
        timeline = Timeline(spark, self.path)
        entries = carried(timeline.latest())
        if shard.name not in entries:
            return
        schema = schema_before(entries[shard.name], shard)
        partition_by = entries[shard.name].record.require_handoff().partition_fields
        deletes = "hard" if timeline.deletes_rows else "soft"
        settings = settings.model_copy(
            update={"partition_by": partition_by, "delete_mode": deletes}
        )
        columns = LakeLayout(schema).input_columns
        none = spark.range(0).select(*(F.lit(None).cast(k).alias(n) for n, k in columns))
        self.write(
            ShardWrite(shard, schema, settings, none, None, guard, replaces=True, known=known)
        )

    def _commit_all(self, wanted: Sequence[ShardWrite]) -> None:
        """Commit the shards' requests.

        A request that replaces a shard's rows gets a commit of its own. All other requests share
        one commit. If this shared commit fails because another process holds the lease, all of its
        requests fail. If the commit fails for another reason, each request gets its own commit.
        """
        joint = [one for one in wanted if not one.replaces]
        if len(joint) > 1:
            error = self._try(joint)
            if isinstance(error, LeaseHeldError):
                for one in joint:
                    one.error = error  # alone, each would wait as long again
            elif error is not None:
                _log.warning("%d shards of %s are written alone: %s", len(joint), self.path, error)
        for one in wanted:
            if not one.done:
                one.error = self._try([one])

    def _try(self, wanted: Sequence[ShardWrite]) -> Exception | None:
        """Commit shards' requests together; return the error if nothing was committed.

        An error after the commit is only logged.
        """
        try:
            self._commit(wanted)
        except Exception as error:  # noqa: BLE001 - raised where the shards wait for it
            if (instant := wanted[0].instant) is None:
                return error
            what = "commit %s of %s is complete; a step after it failed: %s"
            _log.warning(what, instant, self.path, error)
        return None

    def _commit(self, wanted: Sequence[ShardWrite]) -> None:
        """Commit shards' requests in one commit, and set the commit's instant in each request.

        If a column's type changes, another commit first rewrites all rows, under the same lease.
        """
        spark = self._spark()
        with self.hold_lease(wait_s=TRY_S) as lease, ExitStack() as held:
            timeline = Timeline(spark, self.path)
            if not timeline.exists:
                if current_path(wanted[0].shard.base_path, spark) is not None:
                    raise not_there(wanted[0], self.path)
                if folder_exists(spark, self.path):  # a killed process began the first commit
                    lease.check()  # while this process slept, another one can have made the table
                    delete_path(spark, self.path)
            latest = timeline.latest()
            entries = carried(latest)
            require_whole(self._whole, spark, timeline, wanted, entries)
            before = types_before(latest)
            types = types_of(before, wanted)
            require_one_layout(wanted)
            settings = settings_of(wanted, entries)
            lake = LakeTable(spark, self.path, schema_of(wanted[0], types), settings, self._whole)
            require_one_key(wanted, entries)

            def only_ours(now: Timeline) -> None:
                lease.check()
                newest = now.latest()
                if (newest and newest.instant) != (latest and latest.instant):
                    raise _lake_moved_on_error(self.path)

            def guard(now: Timeline) -> None:
                only_ours(now)
                for one in wanted:
                    one.guard(ShardTimeline.within(now, one.shard.name))

            if any(types[name] != kind for name, kind in before.items()):
                # A column has one type in all files, so all rows are rewritten. Rows to write that
                # come from these files are read first, since the rewrite can clean the files up.
                for one in wanted:
                    if one.rows is not None:
                        one.rows = held.enter_context(_persisted_shard_rows(one.rows))
                alone = replace(
                    record_of(wanted, entries, types), shared=SharedState(types, entries)
                )
                lake.overwrite(_filled(lake.read(), lake), alone, only_ours)
                latest = Timeline(spark, self.path).latest()
            instant = self._write(
                lake, wanted, record_of(wanted, entries, types), guard, latest is None
            )
            for one in wanted:
                one.instant = instant
            lake.keep_up(lease.check)

    def _write(
        self,
        lake: LakeTable,
        wanted: Sequence[ShardWrite],
        commit: CommitRecord,
        guard: Guard,
        new: bool,
    ) -> str:
        """Write the rows of shards' requests and a commit record in one commit.

        Return the commit's instant.
        """
        frames = [_shared_table_rows(one, lake) for one in wanted if one.rows is not None]
        if not frames:
            return lake.empty_commit(commit, guard)
        rows = reduce(lambda one, other: one.unionByName(other), frames)
        first = wanted[0]
        if new:
            if first.size is None:
                raise not_there(first, self.path)
            return lake.fill(rows, commit, guard, first.size)
        if not first.replaces:
            return lake.upsert(rows, commit, guard)
        # Do not upsert these rows: a copied row sorts before every change, so it would lose against
        # the lake's row of an earlier change.
        mine = column(first.shard.column) == F.lit(first.shard.name)
        there = lake.read()
        if lake.layout.partition_columns == (first.shard.column,):
            if not rows.isEmpty():
                return lake.overwrite_partitions(rows, commit, guard)
            if not lake.layout.soft_delete:
                key = (column(name) for name in lake.layout.schema.key)
                last = F.lit(_LAST_OFFSET).alias(OFFSET)
                gone = there.where(mine).select(*key, F.lit("d").alias(OP), last)
                return lake.upsert(_filled(gone, lake), commit, guard)
        return lake.overwrite(_filled(there.where(~mine), lake).unionByName(rows), commit, guard)


class ShardTable:
    """A shard's part of a shared Hudi table, with the operations of a `FollowedTable`.

    `SharedTable.write` makes the commits of all these operations, under the lease of the shared
    table.

    Args:
        spark: The session.
        path: Base path of the shared table.
        schema: The shard's columns, without the shard column.
        settings: The settings of the shard's source table.
        shard: The shard.
        write: `SharedTable.write` of the shared table's writer.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        schema: TableSchema,
        settings: TableSettings,
        *,
        shard: Shard,
        write: Callable[[ShardWrite], str],
    ) -> None:
        self.path = path
        self.layout = layout_of(schema, settings)
        check_overrides(schema.table, settings.hudi)
        self._spark = spark
        self._settings = settings
        self._shard = shard
        self._commit = write

    def read(self, instant: str | None = None) -> DataFrame:
        """Return the shard's rows, in the shard's types, as of the last commit or of an instant."""
        rows = read_table(self._spark, self.path, instant).where(
            column(self._shard.column) == F.lit(self._shard.name)
        )
        latest = self.timeline().latest_offsets()
        handoff = latest.record.handoff if latest is not None else None
        types = handoff.lake_columns.types if handoff is not None else {}
        return rows.select(
            *(
                column(name).cast(types[name]).alias(name) if name in types else column(name)
                for name in rows.columns
                if name in types or is_reserved(name) or name in self.layout.partition_columns
            )
        )

    def keep_up(self, check: Callable[[], None]) -> bool:
        """Do no upkeep for a shard, and return False.

        `SharedTable` does the upkeep after its commits, for all shards.
        """
        return False

    def timeline(self) -> Timeline:
        """Return the shard's own commits in the shared lake table, as of now."""
        return ShardTimeline(self._spark, self.path, self._shard.name)

    def upsert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Apply a shard's changes in one commit; the arguments are those of `LakeTable.upsert`."""
        return self._write(rows, commit, guard)

    def insert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Add a shard's rows in one commit, by an upsert.

        Hudi's insert is not used, since the commit can have changes of other shards.
        """
        return self._write(rows, commit, guard)

    def overwrite(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Replace the shard's rows in one commit; rows of other shards stay."""
        return self._write(live_rows(rows, self.layout), commit, guard, replaces=True)

    def empty_commit(self, commit: CommitRecord, guard: Guard) -> str:
        """Commit a record without rows of the shard; see `LakeTable.empty_commit`."""
        return self._write(None, commit, guard)

    def _write(
        self,
        rows: DataFrame | None,
        commit: CommitRecord,
        guard: Guard,
        *,
        replaces: bool = False,
    ) -> str:
        schema, settings = self.layout.schema, self._settings
        write = ShardWrite(self._shard, schema, settings, rows, commit, guard, replaces=replaces)
        return self._commit(write)


@contextmanager
def _persisted_shard_rows(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute a shard's rows before a lake commit; keep them persisted in the ``with`` block."""
    kept = rows.persist()
    try:
        kept.count()
        yield kept
    finally:
        kept.unpersist()


def _shared_table_rows(wanted: ShardWrite, lake: LakeTable) -> DataFrame:
    """Return the rows of a shard's request, with all input columns of the shared table."""
    if wanted.rows is None:
        raise AssertionError("a write without rows has no frame")
    name = F.lit(wanted.shard.name).alias(wanted.shard.column)
    return _filled(wanted.rows.select("*", name), lake)


def _filled(rows: DataFrame, lake: LakeTable) -> DataFrame:
    """Return ``rows`` with all input columns of the shared table; a missing column is NULL."""
    there = set(rows.columns)
    return rows.select(
        *(
            (column(name) if name in there else F.lit(None)).cast(kind).alias(name)
            for name, kind in lake.layout.input_columns
        )
    )


def _lake_moved_on_error(path: str) -> FencedError:
    """Return the error for a shared lake table to which another process has just committed."""
    return FencedError(
        f"the lake table at {path} was committed to by another process meanwhile",
        remedy="Nothing was committed. Run again; it starts from the newest commit.",
        path=path,
    )


def _ended_lake_commit_error(path: str) -> LakeError:
    return LakeError(
        f"the process was ended while it committed to the lake table at {path}",
        remedy="Run again; it starts from the newest commit.",
        path=path,
    )
