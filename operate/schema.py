"""``schema``: compares a table's columns in source, registry and lake, and judges changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdc.errors import LakeError, StateError, copy_lost
from cdc.run.comparison import Comparison, compare
from cdc.run.ddl_events import statement_effects
from cdc.run.truncates import Truncates
from cdc.sources.source_facts import Look
from operate.lifecycle import require
from schemas.avro import DebeziumSchema
from schemas.changes import Change, Verdict
from schemas.statement_effects import StatementEffects
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.lake.handoff import Handoff
    from cdc.store.history import SchemaEntry
    from operate.context import Services


@dataclass(frozen=True)
class Side:
    """One column in the result of ``schema diff``: its type in source, registry and lake.

    A type is None where the column does not exist.

    Args:
        name: The column's name.
        source: The column's type at the source.
        registry: The column's type in the newest schema of the topic.
        lake: The column's type in the lake, followed by ``, NULL`` if the source has dropped the
            column.
    """

    name: str
    source: str | None
    registry: str | None
    lake: str | None


@dataclass(frozen=True)
class SchemaDifference:
    """The result of ``schema diff``: a table's columns, and the changes that the lake lacks.

    Args:
        table: The table.
        columns: The table's columns.
        schema_id: Id of the newest schema in the registry; None if there is no schema.
        changes: The schema changes since the lake's last commit.
    """

    table: TableId
    columns: tuple[Side, ...]
    schema_id: int | None
    changes: tuple[Change, ...]

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict (ignore, evolve, fill, bootstrap) on the changes of the schema."""
        return Verdict.gravest(change.verdict for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """The result of ``schema diff`` as plain values."""
        return {
            "table": str(self.table),
            "verdict": self.verdict.value,
            "changes": [change.to_json() for change in self.changes],
            "schema_id": self.schema_id,
            "columns": [vars(side) for side in self.columns],
        }


@dataclass(frozen=True)
class Answer:
    """The answer of ``schema check``: the effect of planned statements on a table."""

    table: TableId
    changes: tuple[Change, ...]

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict (ignore, evolve, fill, bootstrap) on the planned changes."""
        return Verdict.gravest(change.verdict for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """The answer of ``schema check`` as plain values."""
        return {
            "table": str(self.table),
            "verdict": self.verdict.value,
            "changes": [change.to_json() for change in self.changes],
        }


def difference(services: Services, table: TableId) -> SchemaDifference:
    """Return, for ``schema diff``, a table's columns and the changes that the lake lacks.

    Raises:
        StateError: The table is not on the plan, or was not copied yet.
        UnsupportedTypeError: No rule converts the type of a new column.
    """
    handoff, compared, _, _ = _compare_now(services, table)
    record = require(services, table)
    registered = services.registry.newest(f"{record.topic}-value")
    writer = None if registered is None else DebeziumSchema.parse(registered.text)
    source = {column.name: str(column.type) for column in compared.source_table.columns}
    lake = handoff.lake_columns
    sides = []
    for name in dict.fromkeys([*source, *lake.types]):
        field = None if writer is None else writer.field(name)
        kept = lake.types.get(name)
        if kept is not None and name in lake.dropped:
            kept = f"{kept}, NULL"
        written = None if field is None else field.connect_name or field.avro_type
        sides.append(Side(name, source.get(name), written, kept))
    schema_id = None if registered is None else registered.id
    return SchemaDifference(table, tuple(sides), schema_id, compared.changes)


def check(services: Services, table: TableId, ddl: str) -> Answer:
    """Return, for ``schema check``, the effect of DDL statements, which are not executed.

    Raises:
        DdlError: A statement cannot be parsed, or does not fit the table.
        StateError: The table is not on the plan, or was not copied yet.
        SchemaError: The key in the settings would not be unique, or would allow NULL.
        UnsupportedTypeError: No rule converts the type of a new column.
    """
    handoff, compared, before, truncates = _compare_now(services, table)
    source = services.source(table.source)
    planned = source.planned(compared.source_table, compared.fingerprint, ddl)
    settings = services.config.table_settings(table)
    lake = services.config.lake
    # The next run will read these statements together with those that were executed already.
    log = planned.statements and (before or StatementEffects()).and_then(planned.statements)
    look = Look(planned.table, planned.fingerprint, log)
    then = compare(source, look, settings, handoff, lake, truncates=truncates)
    answer = Answer(table, (*planned.beyond_catalog, *then.changes))
    if answer.verdict is not Verdict.BOOTSTRAP:
        source.schema(planned.table, then.settings)  # as the run after the statements does
    return answer


def history(services: Services, table: TableId) -> Sequence[SchemaEntry]:
    """Return, for ``schema history``, the recorded changes of the table's schema, oldest first."""
    require(services, table)
    return services.store.schema_history(table)


def _compare_now(
    services: Services, table: TableId
) -> tuple[Handoff, Comparison, StatementEffects | None, Truncates]:
    """Compare, for commands of ``schema``, the table at the source with the lake's newest commit.

    Returns:
        The handoff document in the lake's newest commit; the comparison; the effects of the DDL
        statements after this commit, or None if the source's catalog shows every change (as in
        PostgreSQL); and the TRUNCATEs after this commit.
    """
    from cdc.lake.shard_timeline import timeline_of
    from cdc.run.published_generation import require_folder
    from cdc.run.stopping import RUN_STATES

    record = require(services, table)
    if record.attempt is None:
        raise _not_copied_error(table)
    latest = timeline_of(services.spark, record.attempt).latest_offsets()
    if latest is None:
        if RUN_STATES & {record.state, record.resume_to}:
            require_folder(services.spark, record)
        raise LakeError(
            f"no commit under {record.attempt.path} has the offsets of table {table}",
            remedy=f"If its copy is running, wait for its end; otherwise {copy_lost(table)}.",
            table=table,
            path=record.attempt.path,
        )
    handoff = latest.record.handoff
    if handoff is None:
        raise LakeError(
            f"the newest commit of table {table} has no handoff",
            remedy=f"To copy the table again, {copy_lost(table)}.",
            table=table,
        )
    source = services.source(table.source)
    source_table, fingerprint = source.capture(services.capture_of(record)).described(table)
    settings = services.config.table_settings(table)
    lake = services.config.lake
    look = Look(source_table, fingerprint)
    statements = statement_effects(services.run_context, record, handoff, look)
    look = replace(look, statements=statements)
    truncates = Truncates(services.run_context, record, latest.record.offsets)
    compared = compare(source, look, settings, handoff, lake, truncates=truncates)
    return handoff, compared, statements, truncates


def _not_copied_error(table: TableId) -> StateError:
    """Return the error of ``schema diff`` and ``schema check`` for a table without a copy."""
    return StateError(
        f"table {table} has no copy in the lake yet, so it cannot be compared",
        remedy=f"Run `tributary bootstrap {table}`.",
        table=table,
    )
