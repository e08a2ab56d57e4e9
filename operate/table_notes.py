"""The notes of ``status`` on single tables: generations, edited settings, left-out columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.capture.onboarded_names import require_as_onboarded
from cdc.lake.instants import clock_warnings
from cdc.store.history import FOLLOWED
from cdc.store.table_state import State, TableRecord
from operate.capture_names import unfinished_move
from operate.resync_candidates import why_not_copied
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config.tables import TableSettings
    from operate.context import Services


def generation_notes(record: TableRecord, build: TableRecord | None) -> Iterator[str]:
    """Yield the notes of ``status`` on a table's generations (complete copies in the lake).

    If there is a next generation, one note is about this generation. If the table's state is
    NEEDS_BOOTSTRAP, a note says that the generation that readers see gets no changes. If the newest
    commit's instant is later than this machine's clock, another note says so.

    Args:
        record: The record of the table.
        build: The record of the next generation; None if there is no next generation.
    """
    if build is not None:
        why = build.error.message if build.error is not None else build.reason
        again = f"`tributary resync {record.table}`"
        if build.tier != record.tier:
            again = f"`tributary move {record.table}`"
        yield (
            f"generation {build.generation} is being built: {build.state.value} since"
            f" {build.updated_at:%Y-%m-%d %H:%M:%S} UTC{f' ({why})' if why else ''}; {again}"
            " continues it"
        )
    if record.state is State.NEEDS_BOOTSTRAP:
        commit = record.last_commit
        until = f" up to {commit.committed_at:%Y-%m-%d %H:%M:%S} UTC" if commit else " so far"
        yield f"generation {record.generation} gets no changes; readers see the commits{until}"
    if record.last_commit is not None:
        yield from clock_warnings(record.table, record.last_commit.instant)


def queried_notes(
    services: Services, record: TableRecord, settings: TableSettings
) -> Iterator[str]:
    """Yield the notes of ``status`` that need a query for each table."""
    if (why := why_not_copied(services, record, settings, for_person=True)) is not None:
        yield f"on_incompatible is resync, but it waits: {why}"
    if settings.on_schema_change == "freeze":
        yield from _frozen_column_notes(services, record)


def edit_notes(services: Services, record: TableRecord) -> list[str]:
    """Return a note of ``status`` if settings contradict a table's recorded capture, tier or path.

    The result is empty if a run has already stopped the table for this reason, since the table's
    error then says the same.
    """
    if record.state is State.RETIRED:
        return []
    try:
        require_as_onboarded(services.config, record)
        move = unfinished_move(services.config, record)
    except TributaryError as error:
        known = record.error is not None and record.error.message == error.message
        return [] if known else [f"{error.message}. {error.remedy}"]
    return [] if move is None else [f"{move.message}. {move.remedy}"]


def _frozen_column_notes(services: Services, record: TableRecord) -> list[str]:
    """Return the note of ``status`` on columns that ``freeze`` keeps out of the lake table."""
    names: dict[str, None] = {}
    for entry in services.store.schema_history(record.table):
        if entry.generation != record.generation or entry.outcome != FOLLOWED:
            continue
        for change in entry.changes:
            if change.kind == "AddColumn" and change.facts["frozen"]:
                names[str(change.facts["name"])] = None
            elif change.kind == "DropColumn":
                names.pop(str(change.facts["name"]), None)
    if not names:
        return []
    return [f"the lake lacks the columns {', '.join(names)} (on_schema_change: freeze)"]
