"""Reads the DDL statements of a source whose catalog does not show every change.

The connector reads the statements in the binlog, and reports them in a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cdc.capture.known_definition import differences, newest, require_known
from cdc.debezium import stored_position
from cdc.errors import CaptureError, LostHistoryError, PositionError
from cdc.log.binlog_position import BinlogPosition
from cdc.log.position import shortfall
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while
from schemas.catalog import Catalog
from schemas.ddl.mysql_statements import read_statements

if TYPE_CHECKING:
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames, DefinitionChange
    from cdc.lake.handoff import Handoff
    from cdc.log.position import LogPosition
    from cdc.run.context import RunContext
    from cdc.runtime.progress import Progress
    from cdc.sources.base import SourceLog
    from cdc.sources.source_facts import Look
    from cdc.store.table_state import TableRecord
    from schemas.statement_effects import StatementEffects
    from schemas.table import TableId

_WAIT_S = 120.0
_POLL_S = 0.5


def statement_effects(
    context: RunContext,
    record: TableRecord,
    handoff: Handoff,
    look: Look,
    changes: Iterable[DefinitionChange] = (),
) -> StatementEffects | None:
    """Return the effects of a table's DDL statements since the lake's newest commit.

    Args:
        context: The runs' context.
        record: The table.
        handoff: The handoff document in the newest commit. Only statements that are newer than the
            fingerprint in this document count.
        look: The table in the source's catalog now, and its fingerprint.
        changes: The DDL statements of the table, as far as the connector has reported them.

    Returns:
        The effects of the statements; None for a source whose catalog shows every change.

    Raises:
        CaptureError: The connector takes too long to report the statements from before ``look``. Or
            the table changes while the connector's definition of the table is checked.
        LostHistoryError: The connector decodes the table's rows by a table definition that differs
            from the server's.
        DecodeError: A record of the topic of statements has no statement.
        RegistryError: The registry does not know the schema of a record of that topic.
        KafkaError: The topic of statements cannot be read in time.
    """
    before, after = handoff.catalog, Catalog.read(look.fingerprint.facts)
    if after.source_kind == "postgres":
        return None
    source, capture = context.sources[record.table.source], context.capture(record)
    found = list(statements_since(source, before.read_at, changes))
    same = handoff.fingerprint.digest == look.fingerprint.digest
    if (found or not same) and context.connect is not None:
        _wait_for_statements(
            context.connect, context.progress, record.table, source, capture, after.read_at
        )
        reported = context.definitions.of(capture)
        found = list(statements_since(source, before.read_at, reported.by_table.of(record.table)))
        if differences(newest(reported.changes).get(record.table, ()), look.table.columns):
            _require_known_definition(context, record, capture, context.connect)
    statements = read_statements(change.statement for change in found)
    # An append table takes only inserts, so cascades do not affect it.
    if statements.cascades and not capture.append and source.cascades_unseen():
        return statements.without_events_of_cascades()
    return statements


def _require_known_definition(
    context: RunContext, record: TableRecord, capture: CaptureNames, connect: ConnectClient
) -> None:
    """Check that the connector's definition of a table is the same as the server's.

    The definitions are compared once the connector has reported every DDL statement from before
    this call.

    Raises:
        CaptureError: The connector does not report the DDL statements in time, or the table changes
            during the check.
        LostHistoryError: The connector decodes the table's rows by a table definition that differs
            from the server's.
    """
    source, table = context.sources[record.table.source], record.table
    captured = source.capture(capture)
    described, before = captured.described(table)
    _wait_for_statements(
        connect, context.progress, table, source, capture, str(source.current_position())
    )
    changes = context.definitions.of(capture).changes
    now = captured.fingerprint(table, on_replica=False)
    if now.digest == before.digest:
        require_known(table, capture.connector, changes, described.columns, LostHistoryError)
    elif differences(newest(changes).get(table, ()), described.columns):
        raise CaptureError(
            f"table {table} changed while its definition was compared with that of connector"
            f" {capture.connector}",
            remedy="Nothing to do: the next run looks again.",
            table=table,
            connector=capture.connector,
        )


def statements_since(
    source: SourceLog, read_at: str, changes: Iterable[DefinitionChange]
) -> Iterator[DefinitionChange]:
    """Yield the DDL statements that were executed after a run's look at the catalog.

    If the place of a statement in the log cannot be compared with ``read_at``, the statement is
    yielded, too.

    Args:
        source: The table's source, which parses positions.
        read_at: The log position of the look, as a string.
        changes: The DDL statements of one table, as far as the connector has reported them.
    """
    known = source.position(read_at)
    for change in changes:
        if not _look_covers_statement(known, source, change):
            yield change


def _look_covers_statement(known: LogPosition, source: SourceLog, change: DefinitionChange) -> bool:
    """Whether a run read the catalog after a DDL statement; False if the order is unknown."""
    at = change.place if isinstance(known, BinlogPosition) else change.gtid
    try:
        return at is not None and known.reaches(source.position(at))
    except PositionError:
        return False


def _wait_for_statements(
    connect: ConnectClient,
    progress: Progress,
    table: TableId,
    source: SourceLog,
    capture: CaptureNames,
    read_at: str,
) -> None:
    """Wait in a run until the connector has reported all DDL statements up to ``read_at``.

    Raises:
        CaptureError: The connector does not report the statements in time.
        ConnectError: The connector has failed.
    """
    upto = source.position(read_at)

    def behind() -> str:
        lacking = shortfall(stored_position(connect, capture), upto)
        if lacking:
            connect.require_sound(capture.connector)
            source.nudge()
        return lacking

    with shown_as(f"wait for the statements on {table}", progress) as task:
        if lacking := wait_while(behind, timeout_s=_WAIT_S, poll_s=_POLL_S, task=task):
            raise CaptureError(
                f"table {table} changed, and connector {capture.connector} has not reported the"
                f" statement within {_WAIT_S:.0f} s: {lacking}",
                remedy="Check that the connector runs (`tributary status`); the next run looks"
                " again.",
                table=table,
                connector=capture.connector,
            )
