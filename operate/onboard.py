"""Brings tables onto the plan: checks, capture, registration, bootstrap, each repeatable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.config.tables import configured_tier
from cdc.config.templates import overlapping
from cdc.errors import CaptureError, ConfigError, SourceError, StateError
from cdc.failpoints import crash
from cdc.sources.selection import require_named
from cdc.sources.views import wants_exact_view
from cdc.state import State, TableRecord, transition
from operate import capture
from operate.generations import clean
from operate.lifecycle import forget_build, require
from operate.lost_capture import is_copying
from operate.outcome import Outcome, for_each
from operate.render import seconds
from operate.shards import is_beside, refuse_shard_column
from operate.undo import look, undo
from operate.verdict import DEFAULT_MESSAGE_BYTES, judge, too_large
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from bootstrap.handoff import BootstrapResult
    from cdc.config import TableSettings
    from cdc.sources.base import Source
    from cdc.sources.values import SourceTable
    from operate.context import Services
    from schemas.table import TableSchema


_CONTINUED = frozenset(
    {State.REGISTERED, State.BOOTSTRAPPING, State.CATCHING_UP, State.FAILED, State.INCREMENTAL}
)
"""States in which `onboard` goes on. What was paused, or needs a new copy, waits to be told."""


@dataclass(frozen=True)
class Candidate:
    """A table that passed every check that needs no change anywhere."""

    table: SourceTable
    schema: TableSchema
    notes: tuple[str, ...]


def examine(services: Services, table: TableId) -> Candidate:
    """Decide whether a table can travel as it is, touching nothing.

    Raises:
        CaptureError: It cannot; the remedy names the choices.
        UnsupportedTypeError: A column's type has no rule.
        SchemaError: Its key or a column's name cannot be carried, or the settings name a column
            that it has not.
        SourceError: There is no such table, or the source cannot be reached.
        ConfigError: Its path in the lake is another table's, or lies in one another.
    """
    settings = services.config.table_settings(table)
    record = services.store.get(table)
    if record is not None and record.state is not State.RETIRED:
        services.config.settings_on_plan(table, record.tier)
        _refuse_other_tier(record, settings.tier)
        services.config.require_shard(table, record.shard)
    _free_path(services, table)
    source = services.source(table.source)
    found = source.table(table)
    keeps = services.config.connect.keeps_nulls
    verdict = judge(found, settings, nulls_are_kept=keeps)
    verdict.require(table)
    require_exact_view(source, table, settings)
    notes = (*verdict.notes, *_size(services, found))
    require_named(found, settings)
    schema = source.schema(found, settings)
    refuse_shard_column(schema, services.config.shard(table))
    return Candidate(found, schema, (*notes, *_key(source, found, schema.key)))


def _size(services: Services, table: SourceTable) -> Iterator[str]:
    limit = services.config.kafka.topic.max_message_bytes
    try:
        largest = services.source(table.table.source).largest_row(table)
    except SourceError as error:
        yield f"no rows were sampled for their size: {error.message}"
        return
    if large := too_large(table, largest, limit or DEFAULT_MESSAGE_BYTES):
        asks = "raise" if limit else "set, unless the brokers allow more"
        yield f"{large} ({asks} kafka.topic.max_message_bytes)"


def _key(source: Source, table: SourceTable, key: Sequence[str]) -> Iterator[str]:
    """Refuse a table with rows that its key cannot find; a look that takes too long is told."""
    if not key:
        return
    try:
        obstacle = source.key_obstacle(table, key)
    except SourceError as error:
        yield f"its key was not looked at: {error.message}"
        return
    if obstacle is not None:
        problem, remedy = obstacle
        raise CaptureError(
            f"table {table.table} cannot be copied: {problem}",
            remedy=remedy,
            table=table.table,
            refused=True,
        )


def require_exact_view(source: Source, table: TableId, settings: TableSettings) -> None:
    """Refuse a log whose copy could not be told apart from its stream, and the like.

    Raises:
        CaptureError: No view of a known position can be opened; names the choices.
    """
    if not wants_exact_view(source, settings):
        return
    from_primary = settings.snapshot_from == "primary"
    obstacle = source.exact_view_obstacle(from_primary=from_primary)
    if obstacle is not None:
        problem, remedy = obstacle
        raise CaptureError(
            f"table {table} cannot be copied as its settings ask ("
            f"{'mode: append' if settings.appends else 'one_view: true'}): {problem}",
            remedy=remedy,
            table=table,
            refused=True,
        )


def onboard(
    services: Services, tables: Sequence[TableId], *, with_bootstrap: bool = True
) -> list[Outcome]:
    """Onboard the tables; what was done before is left as it is.

    Args:
        services: What to work with.
        tables: The tables.
        with_bootstrap: Whether to copy the tables at once.

    Returns:
        One outcome per table, in the order given.
    """
    outcomes: dict[TableId, Outcome] = {}
    notes: dict[TableId, list[str]] = {}
    fit = []
    for outcome in for_each(tables, lambda table: _examined(services, table), action="check"):
        if outcome.failed:
            outcomes[outcome.table] = outcome
        else:
            fit.append(outcome.table)
            notes[outcome.table] = outcome.details["notes"]
    registered: list[TableId] = []
    for group in capture.groups(services, fit):
        refused = capture.refuse_shared_topics(services, group)
        outcomes.update(
            (table, Outcome(table, "check", error=error)) for table, error in refused.items()
        )
        members = tuple(table for table in group.tables if table not in refused)
        if not members:
            continue
        begun = _begun(services, members)
        for outcome in _capture(services, capture.Group(group.capture, members)):
            outcomes[outcome.table] = outcome
            if not outcome.failed and (outcome.state in _CONTINUED or outcome.table in begun):
                registered.append(outcome.table)
    crash("onboard.after_register")
    if with_bootstrap and registered:
        for outcome in copy(services, registered):
            outcomes[outcome.table] = outcome
    return [_with_notes(outcomes[table], notes.get(table)) for table in tables]


def _begun(services: Services, tables: Sequence[TableId]) -> frozenset[TableId]:
    """Tables whose copy is gone on with, from its beginning if the slot was lost meanwhile."""
    records = [record for table in tables if (record := services.store.get(table)) is not None]
    return frozenset(
        record.table
        for record in records
        if is_copying(record) and record.state is not State.PAUSED
    )


def _capture(services: Services, group: capture.Group) -> list[Outcome]:
    """Capture the tables of one source and tier, and put them on the plan."""
    try:
        with capture.changing(services, group.capture):
            before = look(services, group.capture)
            try:
                capture.prepare(services, group)
            except TributaryError as error:
                left = undo(services, group, before)
                error.remedy = f"{error.remedy} {left}".strip()
                raise
            outcomes = for_each(
                group.tables, lambda table: register(services, table), action="register"
            )
            for outcome in outcomes:
                if outcome.failed:
                    withdraw(services, group, outcome.table)
            undo(services, group, before)
    except TributaryError as error:
        return [Outcome(table, "capture", error=error) for table in group.tables]
    return outcomes


def withdraw(services: Services, group: capture.Group, table: TableId) -> None:
    """Take a table that could not be put on the plan out of the capture again."""
    record = services.store.get(table)
    if record is None or record.state is State.RETIRED:
        capture.leave(services, group.capture, table)


def _with_notes(outcome: Outcome, notes: list[str] | None) -> Outcome:
    return replace(outcome, details={**outcome.details, "notes": notes}) if notes else outcome


def register(services: Services, table: TableId) -> Outcome:
    """Put a table on the plan, or leave it where it is on it."""
    names = services.capture(table)
    now = datetime.now(timezone.utc)
    record = services.store.get(table)
    if record is None:
        record = services.store.put(
            TableRecord(
                table=table,
                state=State.REGISTERED,
                base_path=_free_path(services, table),
                tier=names.tier,
                topic=names.topic(table),
                publication=names.publication,
                updated_at=now,
                shard=services.config.shard(table),
            )
        )
    elif record.state is State.RETIRED:
        again = replace(
            transition(record, State.REGISTERED, at=now),
            base_path=_free_path(services, table),
            tier=names.tier,
            topic=names.topic(table),
            publication=names.publication,
            shard=services.config.shard(table),
        )
        record = services.store.put(again)
    else:
        return Outcome(table, f"already on the plan, {record.state.value}", record.state)
    return Outcome(table, "registered", record.state)


def _free_path(services: Services, table: TableId) -> str:
    """The table's path in the lake, if no other table was ever given it or one around it."""
    path, shard = services.config.table_path(table), services.config.shard(table)
    others = [record for record in services.store.tables() if record.table != table]
    taken = {record.base_path: record.table for record in others}
    # The whole table lies around its shards' copies.
    strangers = [one for one in others if shard is None or not is_beside(one, shard)]
    taken |= {one.shard.base_path: one.table for one in strangers if one.shard is not None}
    other = overlapping(path, taken)
    if shard is not None:
        other = other or overlapping(
            shard.base_path, {one.base_path: one.table for one in strangers}
        )
    if other is not None:
        raise ConfigError(
            f"table {table} would be written to {path}, which table {other} has or lies in",
            remedy=f"Give it a path of its own: tables, {table.relation}, name.",
            table=table,
            field="name",
        )
    return path


def _refuse_other_tier(record: TableRecord, tier: str) -> None:
    now = configured_tier(record.tier)
    if now != tier:
        raise StateError(
            f"table {record.table} is on the plan in tier {now}, and its settings say {tier}",
            remedy=f"Set tier: {now} for it; or offboard the table and onboard it again.",
            table=record.table,
            field="tier",
        )


def _examined(services: Services, table: TableId) -> Outcome:
    candidate = examine(services, table)
    return Outcome(table, "checked", details={"notes": list(candidate.notes)})


def bootstrap(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Copy tables that are not on their stream, and hand them over to it."""
    return recaptured(services, tables, copy)


def recaptured(
    services: Services,
    tables: Sequence[TableId],
    work: Callable[[Services, Sequence[TableId]], list[Outcome]],
) -> list[Outcome]:
    """Copy tables on the plan whose capture was prepared again, so that a lost slot is made anew.

    Args:
        services: What to work with.
        tables: The tables.
        work: Copies the tables that can travel and are captured.

    Returns:
        One outcome per table, in the order given.
    """
    outcomes: dict[TableId, Outcome] = {}
    fit = []
    for outcome in for_each(tables, lambda table: _due(services, table), action="check"):
        if outcome.failed:
            outcomes[outcome.table] = outcome
        else:
            fit.append(outcome.table)
    ready: list[TableId] = []
    for group in capture.groups(services, fit):
        try:
            with capture.changing(services, group.capture):
                capture.prepare(services, group)
        except TributaryError as error:
            outcomes.update(
                (table, Outcome(table, "capture", error=error)) for table in group.tables
            )
        else:
            ready.extend(group.tables)
    outcomes.update((outcome.table, outcome) for outcome in work(services, ready))
    return [outcomes[table] for table in tables]


def copy(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Run the bootstrap of tables whose changes are captured, several at a time."""
    if not tables:
        return []
    from bootstrap.handoff import bootstrap_table

    context = services.run_context

    def one(table: TableId) -> Outcome:
        before = require(services, table)
        if before.state is State.INCREMENTAL:
            return Outcome(
                table,
                "is kept up to date already; `tributary resync` would copy it again",
                before.state,
            )
        done = bootstrap_table(context, services.connect, before)
        clean(services, table)
        return copied(done, "handed over to the stream")

    parallel = min(services.config.spark.parallel_tables, len(tables))
    return for_each(tables, one, action="bootstrap", parallel=parallel)


def copied(done: BootstrapResult, then: str) -> Outcome:
    """The outcome of a copy, and of what it was for."""
    return Outcome(
        done.record.table,
        f"copied {done.rows:,} rows in {seconds(done.seconds)} and {then}",
        done.record.state,
        details={
            "rows": done.rows,
            "attempts": done.attempts,
            "seconds": done.seconds,
            "generation": done.record.generation,
        },
    )


def _due(services: Services, table: TableId) -> Outcome:
    record = require(services, table)
    examine(services, table)
    if record.state is State.NEEDS_BOOTSTRAP:
        # What was being built beside it follows the same broken stream.
        forget_build(services, table)
    return Outcome(table, "checked", record.state)
