"""Checks tables without new events for changes that send no event, such as DDL and losses."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.judgement import of_capture, of_table, stopping
from cdc.capture.remembered_losses import check_losses
from cdc.errors import (
    CaptureError,
    LostHistoryError,
    PositionError,
    SecretError,
    UnreachableError,
)
from cdc.run.comparison import settings_digest
from cdc.run.context import Unchecked
from cdc.run.ddl_events import statements_since
from cdc.runtime.daemon_threads import map_in_daemon_threads
from schemas.errors import TributaryError
from schemas.fingerprint import READ_AT

if TYPE_CHECKING:
    from cdc.capture.gathering import Captures
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)

_LOOKS_AT_ONCE = 8
"""Number of captures whose idle tables are checked at a time."""


def idle_tables_that_changed(
    context: RunContext, captures: Captures, idle: Iterable[TableRecord]
) -> set[TableId]:
    """Return the idle tables whose capture, catalog or settings have changed.

    Such a change sends no event. An unreachable source does not stop an idle table, since the lake
    already has all readable events of the table. `RunContext.unchecked` lists the tables that could
    not be checked.
    """
    groups: dict[tuple[str, str], list[TableRecord]] = {}
    for record in idle:
        groups.setdefault((record.table.source, record.tier), []).append(record)
    context.unchecked.clear()
    found: set[TableId] = set()
    look = partial(_look_at_capture, context, captures)
    # A server that does not answer delays the looks at its own tables only.
    looks = map_in_daemon_threads(look, groups.values(), at_once=_LOOKS_AT_ONCE, name="look")
    for ((source, tier), records), (changed, failures) in zip(groups.items(), looks, strict=True):
        found |= changed
        found |= {record.table for record in records if has_edited_settings(context, record)}
        left = tuple(one.table for one in records if one.table not in found)
        if failures and left:
            unchecked = Unchecked(source, tier, left, str(failures[0]), failures[0].remedy)
            context.unchecked.append(unchecked)
            _log.warning("%s", unchecked.message)
    return found


def _look_at_capture(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> tuple[set[TableId], list[TributaryError]]:
    """Return a capture's idle tables that changed, and the errors of the looks that failed."""
    found: set[TableId] = set()
    failures: list[TributaryError] = []
    # The result of one look is kept even if another look is not possible.
    for look in (
        _tables_with_broken_capture,
        _tables_changed_in_catalog,
        _tables_with_statements,
    ):
        try:
            found |= look(context, captures, records)
        except UnreachableError as error:
            failures.append(error)
            break
        except TributaryError as error:
            failures.append(error)
    return found, failures


def _tables_changed_in_catalog(
    context: RunContext, _: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return a capture's idle tables whose fingerprint differs from their record's fingerprint.

    A table whose fingerprint cannot be read is also returned: the table does not exist, or it
    changed at each try to read the fingerprint. The table's run reports which of the two is true.
    """
    source = context.sources[records[0].table.source]
    capture = source.capture(context.capture(records[0]))
    now = capture.fingerprints([record.table for record in records])
    found: set[TableId] = set()
    for record in records:
        known = record.attempt.fingerprint if record.attempt is not None else None
        seen = now.get(record.table)
        if seen is None or (known is not None and known.digest != seen.digest):
            found.add(record.table)
    return found


def _tables_with_statements(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the idle tables with a DDL statement since the catalog was read for their record."""
    found: set[TableId] = set()
    for record in records:
        compared = record.attempt.fingerprint if record.attempt is not None else None
        read_at = None if compared is None else compared.facts.get(READ_AT)
        source = context.sources[record.table.source]
        if read_at and any(statements_since(source, str(read_at), captures.statements(record))):
            found.add(record.table)
    return found


def has_edited_settings(context: RunContext, record: TableRecord) -> bool:
    """Whether an idle table's settings are invalid, or did not make the rows in the lake."""
    known = record.attempt.settings_digest if record.attempt is not None else None
    try:
        settings = context.settings_of_idle(record)
        return known not in (None, settings_digest(settings, context.config.lake))
    except SecretError as error:
        _log.warning("the settings of idle table %s were not checked: %s", record.table, error)
        return False
    except TributaryError:
        return True  # the table's run reports what is wrong with them


def _tables_with_broken_capture(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the idle tables whose changes are not captured, or for which a loss is recorded."""
    found: set[TableId] = set()
    for record in records:
        evidence, source = captures.evidence(record), context.sources[record.table.source]
        rests = position_check.Rests.of(record)
        try:
            position_check.check_stream(record.table, rests, evidence, source)
            # No audit is needed: what an audit reads changes only with the fingerprint of the table
            # or by a DDL statement, and this module looks for both.
            findings = [*of_capture(evidence), *of_table(evidence, record.table, (), record)]
            position_check.check_capture(record.table, stopping(findings))
            check_losses(captures.losses(record), evidence.names, record)
        except (LostHistoryError, CaptureError, PositionError):
            found.add(record.table)  # the table's run reports it
    return found
