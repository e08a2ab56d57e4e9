"""Builds a table's next generation beside the one that serves, and lets it take that one's place.

The two have a record, a lease and a path each, so that runs go on applying changes to the serving
generation while the next one is copied. Only when the next one has caught up is the table's own
lease taken: nothing moves then until the next generation, which holds at least as much as the
former, is the table's.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from bootstrap.catchup import catch_up
from bootstrap.errors import BootstrapError
from bootstrap.handoff import BootstrapResult, Limits, bootstrap_table
from cdc.runtime.failpoints import crash
from cdc.store.table_state import State, TableRecord

if TYPE_CHECKING:
    from cdc.connect import ConnectClient
    from cdc.run import RunContext

_LEFT_ALONE = frozenset({State.PAUSED, State.RETIRED})


def is_followed(record: TableRecord) -> bool:
    """Whether runs keep the table up to date, so that its next generation is built beside it."""
    return State.INCREMENTAL in (record.state, record.resume_to)


def resync_table(
    context: RunContext,
    connect: ConnectClient,
    record: TableRecord,
    *,
    limits: Limits | None = None,
) -> BootstrapResult:
    """Make a new generation of a table, from wherever the last try was left, and publish it.

    A table that is followed serves, and is followed, until the new generation takes its place.
    One whose stream is broken stands still meanwhile, and is copied as by a bootstrap.

    Args:
        context: What runs work with.
        connect: Kafka Connect.
        record: The table as the state store has it.
        limits: Bounds of waits and retries.

    Raises:
        TributaryError: It cannot go on; the former generation serves, and the same command
            continues.
    """
    limits = limits or Limits()
    if not is_followed(record):
        return bootstrap_table(context, connect, record, limits=limits)
    if record.state is State.PAUSED:
        raise _left_alone(record)
    build = context.store.get(record.table, beside=True) or _begin(context, record)
    built = bootstrap_table(context, connect, build, limits=limits)
    crash("resync.after_build")
    swapped = _take_place(context, built.record, limits)
    crash("resync.after_swap")
    published = bootstrap_table(context, connect, swapped, limits=limits)
    return replace(built, record=published.record, seconds=built.seconds + published.seconds)


def _begin(context: RunContext, record: TableRecord) -> TableRecord:
    build = TableRecord(
        table=record.table,
        state=State.REGISTERED,
        base_path=record.base_path,
        shard=record.shard,
        tier=record.tier,
        topic=record.topic,
        publication=record.publication,
        updated_at=datetime.now(timezone.utc),
        generation=record.generation + 1,
        beside=True,
    )
    build = context.store.put(build)
    crash("resync.after_begin")
    return build


def _take_place(context: RunContext, build: TableRecord, limits: Limits) -> TableRecord:
    """Make the generation the table's own, once it holds all that the former one does.

    Returns:
        The table's record: CATCHING_UP until it is published.
    """
    # Most of what is left is applied while runs still follow the former generation.
    build = catch_up(context, build)
    with context.leases.hold(build.table, wait_s=limits.lease_s) as lease:
        former = context.store.get(build.table)
        if former is None or former.state in _LEFT_ALONE:
            raise _left_alone(former or build)
        # The former one has read no further than the topic's stable end, and stands still now.
        build = catch_up(context, build)
        lease.check()
        crash("resync.before_swap")
        return context.store.promote(build, former)


def _left_alone(record: TableRecord) -> BootstrapError:
    return BootstrapError(
        f"table {record.table} is {record.state.name}, and its generations are left as they are",
        remedy=f"Run `tributary resume {record.table}`, then this command again; it goes on.",
        table=record.table,
        state=record.state.name,
    )
