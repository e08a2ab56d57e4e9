"""Checks whether tables can be replicated, for `discover`, dry runs and onboarding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.capture.onboarded_names import require_as_onboarded
from cdc.debezium import keeps_nulls
from cdc.errors import CaptureError, SourceError, StateError, UnreachableError
from cdc.lake.partition_columns import partition_columns
from cdc.sources.selection import require_named
from cdc.sources.views import wants_exact_view
from cdc.store.table_state import State
from operate import tier_capture
from operate.capture_names import other_tier, refuse_edited_names, refuse_shared_topics
from operate.readiness import DEFAULT_MESSAGE_BYTES, judge, too_large
from operate.shards import refuse_shard_column
from operate.table_outcome import Outcome, for_each
from operate.tables_on_record import TablesOnRecord
from schemas.errors import TributaryError
from schemas.table import TableSchema

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.sources.base import SnapshotReader, Source
    from cdc.sources.source_facts import SourceTable
    from cdc.sources.table_reader import TableReader
    from operate.context import Services
    from schemas.table import TableId

_PARALLEL = 4


@dataclass
class Examined:
    """The tables that onboarding examined: the accepted tables and the refused tables.

    Args:
        notes: The tables that can be replicated, each with its remarks; a table can have none.
        refused: The tables that cannot be replicated, each with the error.
        offboarded: Those of ``refused`` that were offboarded, and that nobody asked for again.
    """

    notes: dict[TableId, list[str]] = field(default_factory=dict)
    refused: dict[TableId, TributaryError] = field(default_factory=dict)
    offboarded: frozenset[TableId] = frozenset()

    @property
    def replicable(self) -> list[TableId]:
        """The tables that onboarding accepted, in the order in which they were examined."""
        return list(self.notes)

    def refuse(self, tables: Mapping[TableId, TributaryError]) -> None:
        """Record tables as refused, each with its error. A refused table keeps its first error."""
        for table, error in tables.items():
            self.notes.pop(table, None)
            self.refused.setdefault(table, error)


def examine_all(
    services: Services,
    tables: Sequence[TableId],
    *,
    with_rows: bool = True,
    only_settings: Collection[TableId] = (),
    not_again: Collection[TableId] = (),
) -> Examined:
    """Check which tables can be onboarded, without changing anything.

    Each table is examined alone. Then the accepted tables are examined together: their sources must
    allow a capture, and no new table may share its topic with another table.

    Args:
        services: The services of the command.
        tables: The tables.
        with_rows: Whether to read rows in addition to the catalogs.
        only_settings: Onboarded tables, of which only the settings are examined.
        not_again: The tables that are refused if they were offboarded: a schedule that repeats the
            command must not bring them back.
    """
    found, known = Examined(), on_record(services)
    found.refuse(_offboarded(known, [table for table in tables if table in not_again]))
    found.offboarded = frozenset(found.refused)
    tables = [table for table in tables if table not in found.refused]
    away: dict[str, UnreachableError] = {}
    task = services.progress.start("examine tables", len(tables), "tables")

    def one(table: TableId) -> Outcome:
        try:
            if table in only_settings:
                require_settings(services, known, table)
                return Outcome(table, "checked", details={"notes": []})
            with _once_if_away(away, table.source):
                notes = examine(services, table, with_rows=with_rows, known=known)
            return Outcome(table, "checked", details={"notes": list(notes)})
        finally:
            task.advance()

    try:
        with services.reused_sessions(table.source for table in tables):
            outcomes = for_each(tables, one, action="check", parallel=_PARALLEL)
    finally:
        task.done()
    for outcome in outcomes:
        if outcome.error is None:
            found.notes[outcome.table] = outcome.details["notes"]
        else:
            found.refused[outcome.table] = outcome.error
    for group in tier_capture.groups(services, found.replicable):
        if (error := away.get(group.capture.source)) is not None:
            found.refuse(dict.fromkeys(group.tables, error))
        else:
            examine_group(services, group, found)
    return found


@contextmanager
def _once_if_away(away: dict[str, UnreachableError], source: str) -> Iterator[None]:
    """Let the examination of a table fail at once if its source's primary does not answer.

    Each connection to a server that is away takes its whole time-out, so the wait for a thousand
    tables would take hours, and would hold up the tables of the other sources.

    Args:
        away: The sources that do not answer, each with its error. A source is added if the ``with``
            block finds that its primary does not answer.
        source: The table's source.

    Raises:
        UnreachableError: The source's primary does not answer.
    """
    if (known := away.get(source)) is not None:
        raise known
    try:
        yield
    except UnreachableError as error:
        if error.context.get("role") == "admin":  # this login is for the primary only
            away.setdefault(source, error)
        raise


def _offboarded(known: TablesOnRecord, tables: Sequence[TableId]) -> dict[TableId, TributaryError]:
    """Return an error for each of the tables that was offboarded."""
    return {
        table: StateError(
            f"table {table} was offboarded, and no argument of this command is its name",
            remedy=f"Run `tributary onboard {table}` if it is to be replicated again. With"
            " --again, a command onboards all offboarded tables that it selects.",
            table=table,
        )
        for table in tables
        if (record := known.get(table)) is not None and record.state is State.RETIRED
    }


def examine_group(services: Services, group: tier_capture.Group, found: Examined) -> None:
    """Refuse to onboard a tier's tables that the tier's capture cannot take.

    The source must allow a capture. The capture must still have the names with which its tables
    were onboarded. No new table may share its topic with another table.
    """
    found.refuse(_uncapturable_tables(services, group))
    found.refuse(refuse_edited_names(services, group))
    found.refuse(refuse_shared_topics(services, group))


def _uncapturable_tables(
    services: Services, group: tier_capture.Group
) -> dict[TableId, TributaryError]:
    """Return an error for each table of a group if the group's source cannot be captured.

    If the source can be captured, the result is empty.
    """
    try:
        obstacle = services.source(group.capture.source).capture_obstacle()
    except TributaryError as error:
        # Only this source's tables must fail: the command can have tables of other sources.
        return dict.fromkeys(group.tables, error)
    if obstacle is None:
        return {}
    problem, remedy = obstacle
    return {
        table: CaptureError(
            f"table {table} cannot be captured, since source {table.source} cannot: {problem}",
            remedy=remedy,
            table=table,
            source=table.source,
        )
        for table in group.tables
    }


def examine(
    services: Services,
    table: TableId,
    *,
    with_rows: bool = True,
    known: TablesOnRecord | None = None,
    moves: bool = False,
) -> tuple[str, ...]:
    """Check that a table can be onboarded as it is. The check changes nothing.

    Args:
        services: The services of the command.
        table: The table.
        with_rows: Whether to read rows in addition to the catalogs. The rows show how large rows
            are, and whether the key identifies each row.
        known: The records of all tables; None to read the records from the state store.
        moves: Whether the table moves to the tier that its settings name.

    Returns:
        Remarks that do not prevent the replication of the table.

    Raises:
        CaptureError: The table cannot be replicated, or several checks failed. The remedy names
            the possible changes.
        UnsupportedTypeError: No rule converts the type of a column.
        SchemaError: The lake does not support the table's key or a column's name, or the settings
            name a column that the table lacks.
        SourceError: There is no such table, or the source cannot be reached.
        ConfigError: The table's path in the lake overlaps with another table's path.
        StateError: The settings name another tier than the table's record, and the table does not
            move.
    """
    settings = services.config.table_settings(table)
    known = known or on_record(services)
    require_settings(services, known, table, moves=moves)
    known.unused_path(table)
    source = services.source(table.source)
    found = source.table(table)
    kept = nulls_are_kept(services, table, settings)
    verdict = judge(found, settings, nulls_are_kept=kept)
    _raise_failed_checks(
        table,
        lambda: verdict.require(table),
        lambda: require_exact_view(source, table, settings),
        lambda: _require_capture_rights(services, source, found),
        lambda: require_named(found, settings),
        lambda: _require_schema(services, source, found, settings, has_key=verdict.ok),
    )
    if not with_rows:
        return tuple(verdict.notes)
    key = source.schema(found, settings).key
    return (
        *verdict.notes,
        *_row_size_notes(services, found),
        *_require_unique_key(source, found, key),
    )


def require_settings(
    services: Services, known: TablesOnRecord, table: TableId, *, moves: bool = False
) -> None:
    """Raise an error if a table's changed setting is one that must not change after onboarding.

    Tables that are not onboarded yet, or are retired, pass the check.

    Args:
        services: The services of the command.
        known: The records of all tables.
        table: The table.
        moves: Whether the table moves to the tier that its settings name.

    Raises:
        ConfigError: A setting that must not change after onboarding has changed.
        StateError: The settings name another tier than the table's record, and the table does not
            move.
    """
    record = known.get(table)
    if record is not None and record.state is not State.RETIRED:
        services.config.settings_on_plan(table, record.tier)
        if not moves and (error := other_tier(services.config, record)) is not None:
            raise error
        services.config.require_shard(table, record.shard)
        require_as_onboarded(services.config, record)


def on_record(services: Services) -> TablesOnRecord:
    """Read the records of all tables, for the examination of tables to onboard."""
    return TablesOnRecord(services.config, services.store.tables())


def nulls_are_kept(services: Services, table: TableId, settings: TableSettings) -> bool:
    """Return whether a table's connector sends a NULL as NULL, and not as the column's default.

    The setting ``connect.converter`` decides this. But an existing connector can still have another
    converter. So for an append table, the connector's converter must keep NULL, too.

    Raises:
        ConnectError: The table is an append table, and Connect does not answer.
    """
    wanted = services.config.connect.keeps_nulls
    if not (wanted and settings.appends):
        return wanted
    running = services.connect.connector(services.capture(table).connector)
    return running is None or keeps_nulls(running)


def _raise_failed_checks(table: TableId, *looks: Callable[[], object]) -> None:
    """Make all onboarding checks, even after a failure; then raise one error if one or more failed.

    Raises:
        UnreachableError: The source does not answer, so that the other checks cannot be made.
        TributaryError: The error of the only check that failed.
        CaptureError: Several checks failed. The message has the reasons of all of them.
    """
    errors: list[TributaryError] = []
    for look in looks:
        try:
            look()
        except UnreachableError:
            raise
        except TributaryError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = [without_table_name(table, error.message) for error in errors]
        reasons = _numbered_reasons(problems)
        raise CaptureError(
            f"table {table} cannot be onboarded for {len(errors)} reasons: {reasons}",
            remedy=_numbered_reasons([error.remedy for error in errors]),
            table=table,
            refused=True,
        )


def _numbered_reasons(texts: Sequence[str]) -> str:
    """Return the reasons against onboarding a table, or their remedies, as one numbered text."""
    return " ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))


def without_table_name(table: TableId, message: str) -> str:
    """Return an onboarding error's message without the name of its table."""
    for name in (f"table {table}", str(table)):
        if message.startswith((f"{name}: ", f"{name} ")):
            return message[len(name) :].lstrip(": ")
    return message.replace(f" of table {table}", "", 1)


def _require_capture_rights(services: Services, source: Source, table: SourceTable) -> None:
    """Raise an error if a login of Tributary lacks a right that the table's capture needs."""
    missing = source.capture(services.capture(table.table)).missing_rights(table)
    if missing is not None:
        problem, remedy = missing
        raise CaptureError(
            f"table {table.table} {problem}", remedy=remedy, table=table.table, refused=True
        )


def _require_schema(
    services: Services,
    source: TableReader,
    table: SourceTable,
    settings: TableSettings,
    *,
    has_key: bool,
) -> None:
    """Raise an error if a column cannot be replicated, or if a partition column is missing."""
    columns = source.schema(table, settings).columns if has_key else source.columns(table, settings)
    refuse_shard_column(table.table, columns, services.config.shard(table.table))
    partition_columns(TableSchema(table.table, tuple(columns), ()), settings.partition_by)


def _row_size_notes(services: Services, table: SourceTable) -> Iterator[str]:
    """Yield an onboarding note if an event could be too large, or if rows could not be sampled."""
    limit = services.config.kafka.topic.max_message_bytes
    try:
        largest = services.source(table.table.source).largest_row(table)
    except SourceError as error:
        yield f"the size of its rows could not be sampled: {error.message}"
        return
    if large := too_large(table, largest, limit or DEFAULT_MESSAGE_BYTES):
        advice = "raise" if limit else "set, unless the brokers allow more,"
        yield f"{large} ({advice} kafka.topic.max_message_bytes)"


def _require_unique_key(
    source: TableReader, table: SourceTable, key: Sequence[str]
) -> Iterator[str]:
    """Refuse to onboard a table whose key does not identify each of its rows.

    Yields:
        A note if the key could not be checked.
    """
    if not key:
        return
    try:
        obstacle = source.key_obstacle(table, key)
    except SourceError as error:
        yield f"its key could not be checked: {error.message}"
        return
    if obstacle is not None:
        problem, remedy = obstacle
        raise CaptureError(
            f"table {table.table} cannot be copied: {problem}",
            remedy=remedy,
            table=table.table,
            refused=True,
        )


def require_exact_view(source: SnapshotReader, table: TableId, settings: TableSettings) -> None:
    """Refuse to onboard a table that needs an exact view, if its source cannot open one.

    An exact view shows the source at a known position of the source's log. An append table needs
    such a view: only this position separates the rows to copy from the rows to stream. The setting
    ``one_view`` needs an exact view, too.

    Raises:
        CaptureError: The source cannot open an exact view. The remedy names the alternatives.
    """
    if not wants_exact_view(source, settings):
        return
    from_primary = settings.snapshot_from == "primary"
    obstacle = source.exact_view_obstacle(from_primary=from_primary)
    if obstacle is not None:
        problem, remedy = obstacle
        raise CaptureError(
            f"table {table} cannot be copied with"
            f" {'mode: append' if settings.appends else 'one_view: true'}: {problem}",
            remedy=remedy,
            table=table,
            refused=True,
        )
