"""``onboard`` and ``bootstrap``: check tables, capture them, put them on the plan, copy them.

Each step can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.onboarded_names import capture_record
from cdc.errors import LakeError, LeaseHeldError, MissingTableError, SourceError, StateError
from cdc.runtime.failpoints import crash
from cdc.store.table_state import State, TableRecord, transition
from operate import tier_capture
from operate.capture_undo import (
    Found,
    look,
    undo,
    undone_if_interrupted,
    withdraw_new,
    withdrawn,
)
from operate.captured_tables import prepare_each
from operate.copy_order import copies
from operate.generations import clean
from operate.lifecycle import forget_build, require
from operate.lost_capture import users_of
from operate.other_installations import refuse_other_lakes, take_over_folders
from operate.readiness_check import Examined, examine, examine_all, on_record
from operate.render import seconds
from operate.table_outcome import Outcome, UnexpectedError, for_each
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from bootstrap.handoff import BootstrapResult
    from operate.context import Services
    from operate.tables_on_record import TablesOnRecord


_CONTINUED = frozenset(
    {State.REGISTERED, State.BOOTSTRAPPING, State.CATCHING_UP, State.FAILED, State.INCREMENTAL}
)
"""States in which `onboard` goes on to the copy.

In another state, a table waits for a command: a paused table for `resume`, and a table that needs a
new copy for `bootstrap`. But `onboard` goes on with a copy that has begun, even if the copy was
discarded with its lost capture (`TableRecord.copy_discarded`).
"""


def onboard(
    services: Services,
    tables: Sequence[TableId],
    *,
    with_bootstrap: bool = True,
    by_wildcard: Collection[TableId] = (),
    in_bulk: Collection[TableId] = (),
    again: bool = False,
) -> list[Outcome]:
    """Onboard tables. Steps that an earlier call has completed are skipped.

    Args:
        services: The services of the command.
        tables: The tables.
        with_bootstrap: Whether the same command also copies the tables.
        by_wildcard: The tables that only wildcards select (`SelectedTables.by_wildcard`). Such a
            table is left out if it cannot be replicated.
        in_bulk: The tables that no argument names (`SelectedTables.in_bulk`). Such a table is left
            out if it was offboarded, without ``again``. If it has a complete copy, the source is
            not asked about the table again, and a failed one is left to `run`, which tries it
            again.
        again: Whether to onboard also tables that were offboarded and that no argument names.

    Returns:
        One outcome per table, in the order given.
    """
    before = _records_of(services, tables)
    retired = frozenset(one.table for one in before if one.state is State.RETIRED)
    followed = frozenset(one.table for one in before if one.state is State.INCREMENTAL)
    only_settings = frozenset(one.table for one in before if has_complete_copy(one)) & {*in_bulk}
    not_again = () if again else in_bulk
    examined = examine_all(services, tables, only_settings=only_settings, not_again=not_again)
    if not services.take_over:
        new = examined.replicable
        examined.refuse(refuse_other_lakes(services, new, with_spark=with_bootstrap))
    outcomes = {outcome.table: outcome for outcome in refusals(services, examined, by_wildcard)}
    if with_bootstrap and not (followed | only_settings).issuperset(examined.replicable):
        services.require_cluster()
    registered: list[TableId] = []
    for group in tier_capture.groups(services, examined.replicable):
        begun = _tables_in_copy(services, group.tables)
        for outcome in _capture_group(services, group, retired):
            outcomes[outcome.table] = outcome
            left_to_run = outcome.state is State.FAILED and outcome.table in only_settings
            goes_on = outcome.state in _CONTINUED or outcome.table in begun
            if goes_on and not (outcome.failed or left_to_run):
                registered.append(outcome.table)
        _add_left_behind(services, group, examined.notes)
    crash("onboard.after_register")
    if services.take_over:
        theirs = [one.table for one in outcomes.values() if one.error is None]
        failed = {one.table: one for one in take_over_folders(services, theirs) if one.failed}
        outcomes |= failed
        registered = [table for table in registered if table not in failed]
    if with_bootstrap and registered:
        for outcome in copy(services, registered):
            outcomes[outcome.table] = _left_to_other_process(outcome, in_bulk)
    return [_with_notes(outcomes[table], examined.notes.get(table)) for table in tables]


def _left_to_other_process(outcome: Outcome, in_bulk: Collection[TableId]) -> Outcome:
    """Return the outcome of a copy; leave a table to another process if that process works on it.

    Two onboardings of many tables can overlap, for example if a schedule starts them. If an
    argument names the table, the outcome stays a failure, since the operator asked for this copy.
    It also stays a failure if the process holds another lease, for example of the shared lake table
    or of the capture: then that process need not copy this table.
    """
    if not isinstance(outcome.error, LeaseHeldError) or outcome.table not in in_bulk:
        return outcome
    if outcome.error.context.get("table") != outcome.table:
        return outcome
    return Outcome(
        outcome.table,
        f"is left to another process: {outcome.error.message}",
        outcome.state,
        counted_as="left to another process",
        unchanged=True,
    )


def refusals(
    services: Services, examined: Examined, by_wildcard: Collection[TableId]
) -> list[Outcome]:
    """Return the outcomes of tables that ``onboard`` refuses: each is left out or has failed.

    A table is left out if it was offboarded and nobody asked for it again. It is also left out if
    only wildcards select it, it is not on the plan, and the error is about the table itself. Every
    other table has failed. An error of the source or the lake, or an unexpected error, is not about
    the table itself. But an error that the source does not have the table is about the table
    itself.
    """
    known = {
        record.table for record in services.store.tables() if record.state is not State.RETIRED
    }
    return [
        Outcome(
            table,
            "check",
            error=error,
            offboarded=table in examined.offboarded,
            left_out=table in examined.offboarded
            or (
                table in by_wildcard
                and table not in known
                and (
                    isinstance(error, MissingTableError)
                    or not isinstance(error, (SourceError, LakeError, UnexpectedError))
                )
            ),
        )
        for table, error in examined.refused.items()
    ]


def _records_of(services: Services, tables: Sequence[TableId]) -> list[TableRecord]:
    """Return the records of a command's tables, as far as the tables have a record."""
    wanted = frozenset(tables)
    return [record for record in services.store.tables() if record.table in wanted]


def has_complete_copy(record: TableRecord) -> bool:
    """Whether a table follows its stream, or will again once it is resumed or tried again."""
    return State.INCREMENTAL in (record.state, record.resume_to)


def is_to_copy(record: TableRecord | None) -> bool:
    """Whether ``onboard`` copies a table of this record, or without a record, for a dry run."""
    if record is None or record.state is State.RETIRED:
        return True
    if has_complete_copy(record):
        return False
    return _is_in_copy(record) or record.state in _CONTINUED


def _tables_in_copy(services: Services, tables: Sequence[TableId]) -> frozenset[TableId]:
    """Return the tables whose copy has begun and is not published yet; leave out paused tables."""
    return frozenset(one.table for one in _records_of(services, tables) if _is_in_copy(one))


def _is_in_copy(record: TableRecord) -> bool:
    """Whether ``onboard`` goes on with a copy, which may have been discarded with its capture."""
    return record.copy_discarded or (record.is_copying and record.state is not State.PAUSED)


def _capture_group(
    services: Services, group: tier_capture.Group, retired: Collection[TableId]
) -> list[Outcome]:
    """Capture the tables of one tier for ``onboard``, and put them on the plan.

    ``retired`` are the tables that were offboarded when the command began.

    A table that the capture cannot take, or that cannot be put on the plan, is removed from the
    capture. If the capture then has no table on the plan, everything that this call created is
    removed, too, except topics.
    """
    try:
        with tier_capture.hold_for_change(services, group.capture):
            before = look(services, group.capture)
            captured_before = tier_capture.members(services, group.capture)

            def undo_all() -> str:
                if before is not None and not users_of(services, group.capture):
                    return undo(services, group, before)
                theirs = captured_before if before is None else before.tables
                return withdraw_new(services, group, theirs)

            with undone_if_interrupted(group.capture, undo_all):
                try:
                    refused = prepare_each(services, group)
                except TributaryError as error:
                    if left := undo_all():
                        raise error.advising(left) from error
                    raise
                known = on_record(services)
                captured = [table for table in group.tables if table not in refused]
                outcomes = for_each(
                    captured,
                    lambda table: register(services, table, known, retired),
                    action="register",
                )
                outcomes += [Outcome(one, "capture", error=why) for one, why in refused.items()]
                theirs = frozenset() if before is None else captured_before
                outcomes = withdrawn(services, group, outcomes, theirs)
                outcomes = _undone(services, group, before, outcomes)
    except TributaryError as error:
        return [Outcome(table, "capture", error=error) for table in group.tables]
    return outcomes


def _undone(
    services: Services,
    group: tier_capture.Group,
    before: Found | None,
    outcomes: list[Outcome],
) -> list[Outcome]:
    """Undo the capture if no table needs it; name in failed outcomes what could not be removed."""
    try:
        left = undo(services, group, before)
    except TributaryError as error:
        left = f"What this command created of the capture could not be removed: {error.message}"
    if not left:
        return outcomes
    return [
        one if one.error is None else replace(one, error=one.error.advising(left))
        for one in outcomes
    ]


def _add_left_behind(
    services: Services, group: tier_capture.Group, notes: dict[TableId, list[str]]
) -> None:
    """If the capture has left a slot on a former server, note this for the group's first table."""
    if left := services.left_behind.pop(group.capture.resource, None):
        notes.setdefault(group.tables[0], []).append(left)


def _with_notes(outcome: Outcome, notes: list[str] | None) -> Outcome:
    """Return a table's outcome with ``notes`` added to the outcome's notes."""
    if not notes:
        return outcome
    notes = [*outcome.details.get("notes", ()), *notes]
    return replace(outcome, details={**outcome.details, "notes": notes})


def register(
    services: Services,
    table: TableId,
    known: TablesOnRecord | None = None,
    retired: Collection[TableId] | None = None,
) -> Outcome:
    """Put a table on the plan, in state REGISTERED, unless it is on the plan already.

    Args:
        services: The services of the command.
        table: The table.
        known: The tables on record, to which the new record is added; None to read them.
        retired: The tables that were offboarded when the command began. None to register also a
            table that was offboarded later.

    Raises:
        StateError: The table was offboarded since the command began.
    """
    names = services.capture(table)
    now = datetime.now(timezone.utc)
    known = known or on_record(services)
    record = known.get(table)
    if record is not None and record.state is not State.RETIRED:
        return Outcome(
            table,
            f"is already on the plan, {record.state.value}",
            record.state,
            counted_as="on the plan already",
            unchanged=True,
        )
    if record is not None and retired is not None and table not in retired:
        raise StateError(
            f"table {table} was offboarded by another command while this one onboarded it",
            remedy=f"Run `tributary onboard {table}` if it is to be replicated nevertheless.",
            table=table,
        )
    path, shard = known.unused_path(table), services.config.shard(table)
    if record is None:
        new = TableRecord(
            table=table,
            state=State.REGISTERED,
            base_path=path,
            tier=names.tier,
            topic=names.topic(table),
            capture=capture_record(names),
            updated_at=now,
            shard=shard,
        )
    else:
        new = replace(
            transition(record, State.REGISTERED, at=now),
            base_path=path,
            tier=names.tier,
            topic=names.topic(table),
            capture=capture_record(names),
            shard=shard,
        )
    known.note(services.store.put(new))
    return Outcome(table, "registered", State.REGISTERED, counted_as="registered")


def bootstrap(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Copy onboarded tables that do not follow their streams, and hand them over to the streams."""
    return recaptured(services, tables, copy)


def recaptured(
    services: Services,
    tables: Sequence[TableId],
    work: Callable[[Services, Sequence[TableId]], list[Outcome]],
) -> list[Outcome]:
    """Check tables on the plan, prepare their captures again, and let ``work`` copy the tables.

    If a capture's slot is lost, the preparation recreates the slot.

    Args:
        services: The services of the command.
        tables: The tables.
        work: Copies the tables whose check and preparation succeeded.

    Returns:
        One outcome per table, in the order given.
    """
    services.require_cluster()
    outcomes: dict[TableId, Outcome] = {}
    fit, known = [], on_record(services)
    with services.reused_sessions(table.source for table in tables):
        checked = for_each(
            tables, lambda table: _check_before_copy(services, table, known), action="check"
        )
    for outcome in checked:
        if outcome.failed:
            outcomes[outcome.table] = outcome
        else:
            fit.append(outcome.table)
    ready: list[TableId] = []
    notes: dict[TableId, list[str]] = {}
    for group in tier_capture.groups(services, fit):
        try:
            with tier_capture.hold_for_change(services, group.capture):
                refused = prepare_each(services, group)
        except TributaryError as error:
            refused = dict.fromkeys(group.tables, error)
        outcomes |= {one: Outcome(one, "capture", error=why) for one, why in refused.items()}
        if captured := [table for table in group.tables if table not in refused]:
            ready.extend(captured)
            _add_left_behind(services, group, notes)
    outcomes.update((outcome.table, outcome) for outcome in work(services, ready))
    return [_with_notes(outcomes[table], notes.get(table)) for table in tables]


def copy(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Bootstrap onboarded tables whose changes are captured, several at a time.

    If all these tables follow their streams already, Spark is not started.
    """
    records = _records_of(services, tables)
    followed = {one.table for one in records if one.state is State.INCREMENTAL}
    left = [table for table in tables if table not in followed]
    outcomes = {table: _up_to_date_outcome(table) for table in followed}
    if left:
        outcomes |= {one.table: one for one in _bootstrap_tables(services, left)}
    return [outcomes[table] for table in tables]


def _bootstrap_tables(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Bootstrap the tables of a command with Spark, several at a time."""
    from bootstrap.handoff import bootstrap_table

    context = services.run_context

    def one(table: TableId) -> Outcome:
        before = require(services, table)
        if before.state is State.INCREMENTAL:
            return _up_to_date_outcome(table)
        done = bootstrap_table(context, services.connect, before)
        clean(services, table)
        return copied(done, "handed over to the stream")

    return copies(services, tables, one, action="bootstrap")


def _up_to_date_outcome(table: TableId) -> Outcome:
    """Return a command's outcome for a table that follows its stream already."""
    return Outcome(
        table,
        "is already up to date; `tributary resync` copies it again",
        State.INCREMENTAL,
        counted_as="already up to date",
        unchanged=True,
    )


def copied(done: BootstrapResult, then: str) -> Outcome:
    """Return a command's outcome for a table that it has copied.

    Args:
        done: The result of the copy.
        then: What happened after the copy, for example ``published generation 2``. The text of the
            outcome ends with these words.
    """
    # A resumed copy shows no number of rows, since an earlier command copied some of them.
    copied = f"copied {done.rows:,} rows" if done.attempts else "continued its copy"
    return Outcome(
        done.record.table,
        f"{copied} in {seconds(done.seconds)} and {then}",
        done.record.state,
        details={
            "rows": done.rows,
            "attempts": done.attempts,
            "seconds": done.seconds,
            "generation": done.record.generation,
            **({"notes": list(done.warnings)} if done.warnings else {}),
        },
        counted_as="copied",
    )


def _check_before_copy(services: Services, table: TableId, known: TablesOnRecord) -> Outcome:
    """Examine a table on the plan before it is copied.

    If the table's state is NEEDS_BOOTSTRAP, the table cannot continue from its stream. The
    table's next generation follows the same stream, so this generation is given up.
    """
    record = require(services, table)
    examine(services, table, known=known)
    if record.state is State.NEEDS_BOOTSTRAP:
        # The table's next generation follows the same broken stream.
        forget_build(services, table)
    return Outcome(table, "checked", record.state)
