"""Publishes a copy that has caught up, as a table of its own or as a shard of a shared table."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap.errors import BootstrapError
from cdc.errors import StateError, onboard_again
from cdc.lake.index import SnapshotSize
from cdc.lake.late_files import delete_unnamed
from cdc.lake.ownership import Ownership
from cdc.lake.pointer import Published
from cdc.lake.publish import read_pointer, write_pointer
from cdc.lake.shard_timeline import ShardTimeline
from cdc.lake.shard_write import ShardWrite
from cdc.lake.shards import shared_path
from cdc.run import keep_name
from cdc.run.published_generation import known_commit, require_no_shards
from cdc.runtime.failpoints import crash
from cdc.store.quarantine import Quarantine
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.run import RunContext
    from cdc.store.attempt import Attempt
    from cdc.store.lease import Lease
    from cdc.store.table_state import TableRecord
    from schemas.table import Shard

_log = logging.getLogger(__name__)


def require_own_folder(context: RunContext, record: TableRecord) -> None:
    """Check before a copy that no other installation has published in the table's folder.

    Raises:
        OtherInstallationError: Another installation has published its own generation.
        LakeError: The pointer cannot be read.
    """
    base = record.base_path if record.shard is None else record.shard.base_path
    owner = Ownership.of(record, context.store.installation)
    owner.require(read_pointer(context.spark, base), base)


def publish(
    context: RunContext, record: TableRecord, settings: TableSettings, lease: Lease
) -> Attempt:
    """Publish the attempt of a bootstrapped table.

    A repeated call skips the steps that an earlier call has completed.

    Args:
        context: The runs' context.
        record: The table's record, with an attempt that has caught up.
        settings: The table's settings.
        lease: The table's lease.

    Returns:
        The published attempt.

    Raises:
        SchemaError: The table is a shard, and its columns or key differ from the other shards'.
        ReplacedGenerationError: Another generation has replaced the attempt's generation.
        OtherInstallationError: Another installation has published its own generation.
        MissingFolderError: The folder of the shared table is missing, although other shards have
            rows in it.
        LakeError: The lake cannot be written.
        FencedError: Another process has taken the table over.
    """
    attempt = _attempt_to_publish(record)
    delete_unnamed(context.spark, context.timeline(attempt))
    crash("bootstrap.before_publish")
    if record.shard is not None:
        attempt = _join_shard_copy(context, record, record.shard, settings, lease)
    else:
        continues = None if attempt.continues is None else str(attempt.continues)
        shown = Published(attempt.path, record.generation, str(attempt.id), continues=continues)
        owner = Ownership.of(record, context.store.installation)
        write_pointer(
            context.spark,
            record.base_path,
            shown,
            check=lease.check,
            replaces=lambda pointer: owner.require(pointer, record.base_path),
        )
    crash("bootstrap.after_publish")
    return attempt


def after_publication(
    context: RunContext, record: TableRecord, lease: Lease
) -> tuple[TableRecord, tuple[str, ...]]:
    """Execute the two steps that follow a copy's publication; return their errors as warnings.

    The first step deletes the quarantined records of former copies. If this step fails, the next
    publication repeats it. The second step sets the table's name in the Hive Metastore. If this
    step fails, the next run repeats it. Neither step is needed by runs or by readers that follow
    the pointer.

    Args:
        context: The runs' context.
        record: The table's record after the publication.
        lease: The table's lease.

    Returns:
        The table's current record, and the warnings.
    """
    warnings = []
    try:
        Quarantine(context.store).forget(record.table, but=str(_attempt_to_publish(record).id))
    except StateError as error:
        warnings.append(
            f"the records that former copies of table {record.table} left out are kept:"
            f" {error.message}"
        )
    try:
        record = keep_name(context, record, lease.check)
    except TributaryError as error:
        warnings.append(
            f"the name of table {record.table} in the catalog does not point at this generation"
            f" yet, and the next run sets it: {error.message}"
        )
    for warning in warnings:
        _log.warning("%s", warning)
    return record, tuple(warnings)


def _join_shard_copy(
    context: RunContext, record: TableRecord, shard: Shard, settings: TableSettings, lease: Lease
) -> Attempt:
    """Replace a shard's rows in the shared table by the rows of the shard's copy.

    One commit replaces both the rows and the offsets. So readers see either all old rows of the
    shard or all new rows, never both.

    Returns:
        The attempt, whose path is now the shared table's path.
    """
    attempt, owner = _attempt_to_publish(record), Ownership.of(record, context.store.installation)
    # Read first: once the rows are joined, readers see them, so no fault must stop the rest.
    pointer = read_pointer(context.spark, shard.base_path)
    owner.require(pointer, shard.base_path)
    path = shared_path(context.spark, shard, owner)
    if pointer is None:
        require_no_shards(context.store, shard)
    there = ShardTimeline(context.spark, path, shard.name).latest_offsets()
    if there is None or there.record.attempt != str(attempt.id):
        latest = context.timeline(attempt).latest_offsets()
        handoff = latest.record.handoff if latest is not None else None
        if latest is None or handoff is None:
            raise BootstrapError(
                f"the copy of shard {shard.name} under {attempt.path} carries no offsets",
                remedy=f"Run `tributary resync {record.table}`.",
                table=record.table,
                path=attempt.path,
            )
        schema = handoff.lake_schema(record.table)
        copied = context.copied(record, schema, settings)
        context.shared(path).write(
            ShardWrite(
                shard,
                schema,
                settings,
                copied.read(),
                replace(latest.record, kind="run"),
                lambda _: lease.check(),
                replaces=True,
                size=_shard_copy_size(attempt),
                known=known_commit(context.store.get(record.table)),
            )
        )
    crash("shards.after_join")
    if pointer is not None:
        return replace(attempt, path=path, shard=shard.name)
    with context.shared(path).hold_lease():
        pointer = read_pointer(context.spark, shard.base_path)
        owner.require(pointer, shard.base_path)
        if pointer is None:
            identity = str(owner.installation.shared_table(shard.base_path))
            write_pointer(context.spark, shard.base_path, Published(path, 1, identity))
    return replace(attempt, path=path, shard=shard.name)


def _shard_copy_size(attempt: Attempt) -> SnapshotSize:
    """Return the planned size of a shard's copy.

    If the shared table is new, this size determines the table's index.
    """
    rows = sum(chunk.rows_estimate for chunk in attempt.chunks)
    size = sum(chunk.bytes_estimate for chunk in attempt.chunks)
    # Other shards add rows in later commits, so the index must support several bulk commits.
    return SnapshotSize(rows=rows, bytes=size, commits=2)


def _attempt_to_publish(record: TableRecord) -> Attempt:
    """Return the attempt of a bootstrapped table; refuse a record without an attempt."""
    if record.attempt is None:
        raise BootstrapError(
            f"table {record.table} has no attempt",
            remedy=f"The state store was altered: {onboard_again(record.table)}.",
            table=record.table,
        )
    return record.attempt
