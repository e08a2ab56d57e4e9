"""Builds the next generation of a table while runs still update the serving generation.

Each of the two generations has its own record, lease and path. So runs continue to apply changes to
the serving generation while the next generation is copied. After the next generation has caught up,
the resync takes the lease of the table's record, so that no run writes to the serving generation.
The next generation then catches up again. It now has all changes that the serving generation has,
and replaces the serving generation.

The next generation can follow the topic of another tier's capture. Offsets of two topics cannot be
compared. So after the last commit to the serving generation, the resync writes a marker row on the
primary. The next generation replaces the serving one only after it has applied all changes of its
own topic up to the marker.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from bootstrap.capture_proof import Capture
from bootstrap.catchup import catch_up
from bootstrap.errors import BootstrapError
from bootstrap.handoff import BootstrapResult, Limits, bootstrap_table
from cdc.runtime.failpoints import crash
from cdc.store.table_state import State, TableRecord, TierCapture

if TYPE_CHECKING:
    from cdc.connect import ConnectClient
    from cdc.run import RunContext

_LEFT_ALONE = frozenset({State.PAUSED, State.RETIRED})


def is_followed(record: TableRecord) -> bool:
    """Whether runs apply the table's changes; if so, a resync builds a second generation."""
    return State.INCREMENTAL in (record.state, record.resume_to)


def resync_table(
    context: RunContext,
    connect: ConnectClient,
    record: TableRecord,
    *,
    to: TierCapture | None = None,
    limits: Limits | None = None,
) -> BootstrapResult:
    """Build and publish a new generation of a table; continue a resync that was interrupted.

    If runs apply the table's changes, these runs continue to update the serving generation until
    the new generation replaces it. A table whose stream is broken is copied as in a bootstrap, and
    is not updated meanwhile.

    Args:
        context: The runs' context.
        connect: Kafka Connect.
        record: The table's record in the state store.
        to: The capture that the next generation follows, already prepared for the table; None for
            the table's present capture. If a generation is already being built for a different
            capture, that generation is given up.
        limits: Bounds of waits and retries.

    Raises:
        TributaryError: The resync cannot continue. The former generation still serves, and the same
            command continues the resync.
    """
    limits = limits or Limits()
    _require_newest_settings(context, record)
    if not is_followed(record):
        _forget_given_up_generation(context, record)
        return bootstrap_table(context, connect, record, limits=limits)
    if record.state is State.PAUSED:
        raise _left_alone_error(record)
    to = to or record.captured
    build = _begun_generation(context, record, to) or _begin_next_generation(context, record, to)
    built = bootstrap_table(context, connect, build, limits=limits)
    crash("resync.after_build")
    swapped = _replace_serving_generation(context, connect, built.record, limits)
    crash("resync.after_swap")
    published = bootstrap_table(context, connect, swapped, limits=limits)
    return replace(
        built,
        record=published.record,
        seconds=built.seconds + published.seconds,
        warnings=published.warnings,
    )


def _forget_given_up_generation(context: RunContext, record: TableRecord) -> None:
    """Delete, for a resync, the record of a next generation that is NEEDS_BOOTSTRAP.

    That generation cannot be completed. The caller then copies the table again, as in a bootstrap.
    """
    build = context.store.get(record.table, beside=True)
    if build is not None and build.state is State.NEEDS_BOOTSTRAP:
        with context.leases.hold(build.resource):
            context.store.delete(record.table, beside=True)


def _begun_generation(
    context: RunContext, record: TableRecord, to: TierCapture
) -> TableRecord | None:
    """Return the record of the next generation that a resync already builds for a capture.

    The result is None if no next generation is being built for this capture. A next generation
    that is being built for another capture is given up.
    """
    build = context.store.get(record.table, beside=True)
    if build is None or build.captured == to:
        return build
    with context.leases.hold(build.resource):
        context.store.delete(record.table, beside=True)
    return None


def _begin_next_generation(
    context: RunContext, record: TableRecord, to: TierCapture
) -> TableRecord:
    """Store the record of the next generation, which a resync then builds."""
    build = TableRecord(
        table=record.table,
        state=State.REGISTERED,
        base_path=record.base_path,
        shard=record.shard,
        tier=to.tier,
        topic=to.topic,
        capture=to.capture,
        updated_at=datetime.now(timezone.utc),
        generation=record.generation + 1,
        beside=True,
        taken_over=record.taken_over,
    )
    build = context.store.put(build)
    crash("resync.after_begin")
    return build


def _replace_serving_generation(
    context: RunContext, connect: ConnectClient, build: TableRecord, limits: Limits
) -> TableRecord:
    """Apply a resync's remaining changes, then replace the serving generation by the next one.

    Returns:
        The table's new record, which stays CATCHING_UP until the next generation is published.
    """
    # Most of the remaining changes are applied while runs still follow the former generation.
    build = _level_generations(context, connect, build, context.store.get(build.table), limits)
    with context.leases.hold(build.table, wait_s=limits.lease_s) as lease:
        former = context.store.get(build.table)
        if former is None or former.state in _LEFT_ALONE:
            raise _left_alone_error(former or build)
        _require_newest_settings(context, former)
        # The former generation has read at most up to the topic's stable end, and no run writes to
        # it now. A loss that stopped it is counted, so this run sees a loss from after the build's
        # O.
        build = _level_generations(context, connect, build, former, limits)
        lease.check()
        crash("resync.before_swap")
        other = former.captured if build.topic != former.topic else former.other
        build = replace(
            _continuing_generation(build, former),
            shown_as=former.shown_as,
            other=other,
            taken_over=former.taken_over,
        )
        return context.store.promote(build, former)


def _level_generations(
    context: RunContext,
    connect: ConnectClient,
    build: TableRecord,
    serving: TableRecord | None,
    limits: Limits,
) -> TableRecord:
    """Apply to a resync's next generation all changes that the serving generation can have.

    If both generations follow the same topic, these are the changes up to the topic's end.
    Otherwise, this function writes a marker row, and applies the changes up to this marker.

    Returns:
        The next generation's current record.
    """
    if serving is None or serving.topic == build.topic:
        return catch_up(context, build)
    capture = Capture.of(context, connect, build)
    marker = capture.source.write_marker()
    capture.wait_until_captured(marker.position, timeout_s=limits.captured_s)
    high = context.kafka.high_watermarks(build.topic)
    capture.wait_until_readable(high, timeout_s=limits.readable_s)
    return catch_up(context, build, high)


def _continuing_generation(build: TableRecord, former: TableRecord) -> TableRecord:
    """Return the next generation; set its `Attempt.continues` if readers can go over to it.

    Readers of the former generation can go over to the next generation if all of these hold: the
    former generation is INCREMENTAL, no loss of changes was counted between the two copies, and the
    settings and the topic are the same for both generations. A loss after the next generation's
    start offset O is not checked here, since a generation with such a loss is not published.
    """
    made, by = build.attempt, former.attempt
    if build.topic != former.topic:
        return build
    if made is None or by is None or former.state is not State.INCREMENTAL:
        return build
    if (made.losses, made.settings_digest) != (by.losses, by.settings_digest):
        return build
    return replace(build, attempt=replace(made, continues=by.id))


def _require_newest_settings(context: RunContext, record: TableRecord) -> None:
    """Refuse a resync if the table's settings in this process are outdated."""
    context.newest_settings(record)


def _left_alone_error(record: TableRecord) -> BootstrapError:
    """Return the error for a resync of a table whose state, such as PAUSED, forbids a resync."""
    return BootstrapError(
        f"table {record.table} is {record.state.name}, and its generations are left as they are",
        remedy=f"Run `tributary resume {record.table}`, then this command again; it goes on.",
        table=record.table,
        state=record.state.name,
    )
