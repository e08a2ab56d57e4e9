"""The next generation of a table: built beside the serving one, which it then replaces.

Each of the two has a record, a lease and a path of its own, so runs continue to apply changes to
the serving generation while the next one is copied. The table's own lease is taken only after the
next generation has caught up. Under that lease no run writes to the table until the next generation
takes over, and it holds at least as much as the former.
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
    """Whether runs keep the table up to date, so its next generation is built beside it."""
    return State.INCREMENTAL in (record.state, record.resume_to)


def resync_table(
    context: RunContext,
    connect: ConnectClient,
    record: TableRecord,
    *,
    limits: Limits | None = None,
) -> BootstrapResult:
    """Make a new generation of a table, from the last step of an earlier try, and publish it.

    If runs follow the table, they continue, and the table serves, until the new generation takes
    over. A table with a broken stream is not updated meanwhile, and is copied as by a bootstrap.

    Args:
        context: The runs' context.
        connect: Kafka Connect.
        record: The table as the state store has it.
        limits: Bounds of waits and retries.

    Raises:
        TributaryError: It cannot continue; the former generation serves, and the same command
            continues.
    """
    limits = limits or Limits()
    if not is_followed(record):
        _forget_given_up(context, record)
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


def _forget_given_up(context: RunContext, record: TableRecord) -> None:
    """Drop the record of a generation that lacks changes: the table's own copy replaces it."""
    build = context.store.get(record.table, beside=True)
    if build is not None and build.state is State.NEEDS_BOOTSTRAP:
        with context.leases.hold(build.resource):
            context.store.delete(record.table, beside=True)


def _begin(context: RunContext, record: TableRecord) -> TableRecord:
    build = TableRecord(
        table=record.table,
        state=State.REGISTERED,
        base_path=record.base_path,
        shard=record.shard,
        tier=record.tier,
        topic=record.topic,
        updated_at=datetime.now(timezone.utc),
        generation=record.generation + 1,
        beside=True,
    )
    build = context.store.put(build)
    crash("resync.after_begin")
    return build


def _take_place(context: RunContext, build: TableRecord, limits: Limits) -> TableRecord:
    """Make the generation the table's own, once it holds everything that the former one holds.

    Returns:
        The table's record: CATCHING_UP until it is published.
    """
    # Most of the remaining changes are applied while runs still follow the former generation.
    build = catch_up(context, build)
    with context.leases.hold(build.table, wait_s=limits.lease_s) as lease:
        former = context.store.get(build.table)
        if former is None or former.state in _LEFT_ALONE:
            raise _left_alone(former or build)
        # The former one has read no further than the topic's stable end, and does not move now. A
        # loss that stopped it is counted, so this run sees it if it came after the build's O.
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
