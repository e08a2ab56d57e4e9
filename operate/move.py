"""``move``: takes tables to the tiers that their settings name.

Each tier of a source has its own capture, and so its own topics. Offsets of two topics cannot be
compared, and the rows of a lake table are ordered by the offsets of their events. So a table moves
by a resync: its next generation follows the topic of the new tier. Until this generation is
published, runs follow the former topic.

Before the table joins the new tier's capture, ``move`` records that the table is in two captures.
This entry stays until the table has left one of the two captures. So after an interruption, the
same command can continue, and no capture keeps a table that nothing follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING

from cdc.capture.onboarded_names import captured_by, names_of
from cdc.config.tables import configured_tier
from cdc.errors import StateError
from cdc.runtime.failpoints import crash
from cdc.store.table_state import Cause, State, TableRecord, TierCapture, transition
from operate import tier_capture
from operate.capture_removal import depart
from operate.generations import clean
from operate.lifecycle import LEASE_WAIT_S, forget_build, require
from operate.onboard import copied
from operate.readiness_check import Examined, examine, examine_group, on_record
from operate.table_outcome import Outcome, for_each
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from schemas.table import TableId


_STOPPED = frozenset({State.PAUSED, State.FAILED, State.NEEDS_BOOTSTRAP})
"""States in which runs no longer apply changes to a table that they followed."""


class Next(str, Enum):
    """What a command does next to take a table to the tier in its settings."""

    NOTHING = "nothing: the table is in this tier, and in no other capture"
    LEAVE = "leave the other capture"
    COMPLETE = "complete the copy in this tier, then leave the former capture"
    MOVE = "join the new tier's capture, build the next generation, then leave the former capture"


def next_of(record: TableRecord, tier: str) -> Next:
    """Return the next step of ``move``, which takes a table to the tier of its settings.

    Args:
        record: The table's record.
        tier: The tier of the capture to which the settings assign the table.
    """
    if record.tier != tier:
        return Next.MOVE
    if record.other is None:
        return Next.NOTHING
    return Next.LEAVE if _is_followed(record) else Next.COMPLETE


def joining(record: TableRecord, to: TierCapture, *, at: datetime) -> TableRecord:
    """Return, for ``move``, the record of a table that is about to join another tier's capture.

    If runs follow the table, the result keeps the table's tier, and names the new capture in
    ``other``. If not, the result has the new tier, and the copy begins in this tier from the start.

    Args:
        record: The table's record.
        to: The capture to join.
        at: Now, in UTC.

    Raises:
        StateError: The table is paused.
    """
    if record.state is State.PAUSED:
        raise StateError(
            f"table {record.table} is paused, and stays in tier {configured_tier(record.tier)}",
            remedy=f"Run `tributary resume {record.table}`, then `tributary move {record.table}`.",
            table=record.table,
        )
    if _is_followed(record):
        return replace(record, other=to, updated_at=at)
    if record.state not in (State.REGISTERED, State.NEEDS_BOOTSTRAP):
        cause = Cause(
            reason=f"it moves to tier {configured_tier(to.tier)} before its copy is published",
            remedy=f"Run `tributary move {record.table}`.",
        )
        record = transition(record, State.NEEDS_BOOTSTRAP, at=at, cause=cause)
    return replace(
        record,
        tier=to.tier,
        topic=to.topic,
        capture=to.capture,
        other=record.captured,
        updated_at=at,
    )


def not_moved(before: TableRecord, now: TableRecord | None, tier: str) -> StateError | None:
    """Return ``move``'s error for a table that is not in its new tier, or has stopped meanwhile.

    Runs and other commands go on during a move, and can stop the table. The result is None if the
    table has moved.

    Args:
        before: The table's record when the command began.
        now: The table's record now; None if there is none.
        tier: The tier of the capture to which the settings assign the table.
    """
    table, step = before.table, next_of(before, tier)
    if step is Next.NOTHING:
        return None
    if now is None or now.state is State.RETIRED:
        return StateError(
            f"table {table} was taken off the plan while it moved to tier {configured_tier(tier)}",
            remedy=f"Run `tributary onboard {table}` if the table is to be replicated.",
            table=table,
        )
    if now.tier != tier or now.other is not None:
        return _unfinished_move_error(now, tier)
    if now.state not in _STOPPED or (step is Next.LEAVE and now.state is before.state):
        return None
    return StateError(
        f"table {table} is in tier {configured_tier(tier)}, but {_why_stopped(now)}",
        remedy=now.remedy or f"See `tributary status {table}` for what it needs.",
        table=table,
        state=now.state.value,
    )


def _unfinished_move_error(record: TableRecord, tier: str) -> StateError:
    """Return the error of a table whose move to a tier has not ended."""
    table, there = record.table, configured_tier(record.tier)
    what = f"has not moved to tier {configured_tier(tier)}: it is in tier {there}"
    if record.tier == tier and record.other is not None:
        what = f"has not left the capture of tier {configured_tier(record.other.tier)}"
    resume = f"`tributary resume {table}`, then " if record.state is State.PAUSED else ""
    return StateError(
        f"table {table} {what}" + (f", {_why_stopped(record)}" if record.state in _STOPPED else ""),
        remedy=f"Run {resume}`tributary move {table}` again.",
        table=table,
        state=record.state.value,
    )


def _why_stopped(record: TableRecord) -> str:
    """Return, for an error of ``move``, a stopped table's state and why it has stopped."""
    why = record.error.message if record.error is not None else record.reason
    return f"{record.state.value} since {record.updated_at:%Y-%m-%d %H:%M:%S} UTC: {why}"


def move(
    services: Services, tables: Sequence[TableId], *, delete_topics: bool = False
) -> list[Outcome]:
    """Take tables to the tiers that their settings name, or continue interrupted moves.

    Args:
        services: The services of the command.
        tables: The tables.
        delete_topics: Whether to delete the topics that the tables leave. If True, and if the last
            table leaves a capture, `CaptureNames.own_topics` are deleted, too.

    Returns:
        One outcome per table, in the order given.
    """
    return _Move(services, delete_topics=delete_topics).run(tables)


class _Move:
    """The moves of one command.

    Args:
        services: The services of the command.
        delete_topics: Whether to delete the topics that the tables leave.
    """

    def __init__(self, services: Services, *, delete_topics: bool) -> None:
        self._services = services
        self._delete_topics = delete_topics
        self._outcomes: dict[TableId, Outcome] = {}
        self._before: dict[TableId, TableRecord] = {}

    def run(self, tables: Sequence[TableId]) -> list[Outcome]:
        ahead = self._ahead(tables)
        copies = [table for table, step in ahead.items() if step in (Next.COMPLETE, Next.MOVE)]
        if copies:
            self._services.require_cluster()
        fit = self._fit(copies)
        # A table whose tier was edited again, before it had moved, leaves that tier first.
        self._leave(table for table in fit if self._joined_in_vain(table))
        fit = self._kept(fit, for_each(self._going_on(fit), self._note, action="move"))
        crash("move.after_note")
        ready = self._captured(fit)
        crash("move.after_join")
        if any(require(self._services, table).state is not State.REGISTERED for table in ready):
            _ = self._services.run_context  # before the threads, which share it
        parallel = min(self._services.config.spark.parallel_tables, max(len(ready), 1))
        moved = self._kept(ready, for_each(ready, self._copy, action="move", parallel=parallel))
        self._leave([*moved, *(table for table, step in ahead.items() if step is Next.LEAVE)])
        return [self._ended(table) for table in tables]

    def _ended(self, table: TableId) -> Outcome:
        """Return a table's final outcome, with an error if the table has not moved."""
        outcome, before = self._outcomes[table], self._before.get(table)
        if outcome.failed or before is None:
            return outcome
        now = self._services.store.get(table)
        error = not_moved(before, now, self._services.capture(table).tier)
        return replace(outcome, state=None if now is None else now.state, error=error)

    def _ahead(self, tables: Sequence[TableId]) -> dict[TableId, Next]:
        """Return the next step of each table; leave out tables that need no step."""
        ahead: dict[TableId, Next] = {}

        def one(table: TableId) -> Outcome:
            record, tier = require(self._services, table), self._services.capture(table).tier
            self._before[table], ahead[table] = record, next_of(record, tier)
            return Outcome(table, f"is in tier {configured_tier(tier)} already", record.state)

        self._kept(tables, for_each(tables, one, action="move"))
        return {table: step for table, step in ahead.items() if step is not Next.NOTHING}

    def _kept(self, tables: Iterable[TableId], outcomes: Iterable[Outcome]) -> list[TableId]:
        """Keep the newest outcome of each table; return the tables that have not failed."""
        self._outcomes.update((one.table, one) for one in outcomes)
        return self._going_on(tables)

    def _going_on(self, tables: Iterable[TableId]) -> list[TableId]:
        return [table for table in tables if not self._outcomes[table].failed]

    def _fit(self, tables: Sequence[TableId]) -> list[TableId]:
        """Return the tables that can be captured and copied in their new tiers."""
        known = on_record(self._services)

        def one(table: TableId) -> Outcome:
            notes = examine(self._services, table, known=known, moves=True)
            return Outcome(table, "checked", details={"notes": list(notes)} if notes else {})

        found = Examined()
        with self._services.reused_sessions(table.source for table in tables):
            fit = self._kept(tables, for_each(tables, one, action="move"))
        for group in tier_capture.groups(self._services, fit):
            examine_group(self._services, group, found)
        return self._kept(
            fit, [Outcome(table, "move", error=error) for table, error in found.refused.items()]
        )

    def _joined_in_vain(self, table: TableId) -> bool:
        """Whether a table has joined a capture that its settings no longer name."""
        record, tier = require(self._services, table), self._services.capture(table).tier
        return record.other is not None and tier not in (record.tier, record.other.tier)

    def _note(self, table: TableId) -> Outcome:
        """Record the new capture before the table joins it."""
        to = captured_by(self._services.capture(table), table)
        with self._services.leases.hold(table, wait_s=LEASE_WAIT_S):
            record = require(self._services, table)
            if record.tier == to.tier:
                return Outcome(table, "moves", record.state)
            if record.other is not None and record.other.tier != to.tier:
                raise StateError(
                    f"another command has begun to move table {table} meanwhile",
                    remedy=f"Run `tributary move {table}` again, once that command has ended.",
                    table=table,
                )
            noted = joining(record, to, at=datetime.now(timezone.utc))
            if not _is_followed(record):
                # It follows the same stream, from which the table could not continue.
                forget_build(self._services, table)
            record = self._services.store.put(noted)
        return Outcome(table, "moves", record.state)

    def _captured(self, tables: Sequence[TableId]) -> list[TableId]:
        """Add tables to the captures of their new tiers; return the tables that were added."""
        ready: list[TableId] = []
        for group in tier_capture.groups(self._services, tables):
            try:
                with tier_capture.hold_for_change(self._services, group.capture):
                    tier_capture.prepare(self._services, group)
            except TributaryError as error:
                self._kept((), [Outcome(table, "capture", error=error) for table in group.tables])
            else:
                ready += group.tables
        return ready

    def _copy(self, table: TableId) -> Outcome:
        """Build the table's next generation in its new tier, and publish it."""
        from bootstrap.resync import resync_table

        services, record = self._services, require(self._services, table)
        to = captured_by(services.capture(table), table)
        where = f"moved to tier {configured_tier(to.tier)}"
        if record.state is State.REGISTERED:
            return Outcome(table, where, record.state)
        if record.tier != to.tier and not _is_followed(record):
            # A run has marked the table since the plan. A copy would follow the former capture.
            raise _unfinished_move_error(record, to.tier)
        done = resync_table(services.run_context, services.connect, record, to=to)
        clean(services, table)
        return copied(done, where)

    def _leave(self, tables: Iterable[TableId]) -> None:
        """Remove tables, one capture at a time, from captures whose topics they do not follow."""
        groups: dict[str, tuple[CaptureNames, list[TableId]]] = {}
        for table in tables:
            record = require(self._services, table)
            if record.other is not None:
                names = names_of(self._services.config, table.source, record.other)
                groups.setdefault(names.resource, (names, []))[1].append(table)
        for names, members in groups.values():
            try:
                self._leave_one(names, members)
            except TributaryError as error:
                for table in members:
                    advice = f"Then run `tributary move {table}` again: {names.resource}, still has"
                    advised = error.advising(f"{advice} the table, which does not need it.")
                    state = require(self._services, table).state
                    self._outcomes[table] = Outcome(table, "leave", state, error=advised)

    def _leave_one(self, names: CaptureNames, tables: Sequence[TableId]) -> None:
        """Remove tables from one capture whose topics they do not follow."""
        services = self._services
        with ExitStack() as held:
            records = []
            for table in sorted(tables):
                held.enter_context(services.leases.hold(table, wait_s=LEASE_WAIT_S))
                record, build = require(services, table), services.store.get(table, beside=True)
                if record.other is None or record.other.tier != names.tier:
                    continue  # another command has done it meanwhile
                if build is not None and build.tier == names.tier:
                    forget_build(services, table)
                records.append(record)
            held.enter_context(tier_capture.hold_for_change(services, names))
            crash("move.before_leave")
            leaving = [record.table for record in records]
            gone = depart(services, names, leaving, delete_topics=self._delete_topics)
            crash("move.after_leave")
            for record in records:
                self._left(record, names, gone)

    def _left(self, record: TableRecord, names: CaptureNames, gone: Sequence[str]) -> None:
        """Record that a table has left a capture, and say so in the table's outcome."""
        services, topic = self._services, names.topic(record.table)
        done = [f"left {names.resource}", *(f"dropped {what}" for what in gone)]
        if self._delete_topics and services.kafka.delete_topic(topic):
            done.append(f"deleted topic {topic}")
        services.store.put(replace(record, other=None, updated_at=datetime.now(timezone.utc)))
        known = self._outcomes[record.table]
        action = "; ".join([known.action, *done])
        self._outcomes[record.table] = replace(known, action=action, state=record.state)


def _is_followed(record: TableRecord) -> bool:
    """Whether runs follow a table, so that ``move`` builds its next generation in the new tier."""
    return State.INCREMENTAL in (record.state, record.resume_to)
