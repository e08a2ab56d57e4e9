"""Judges whether a table can be replicated, and what to change if it cannot. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import CaptureError
from cdc.sources.source_facts import SourceTable
from operate.unlogged_changes import not_logged, refused_changes
from schemas.table import TableId, quote_name

if TYPE_CHECKING:
    from cdc.config import TableSettings


_FUNCTION = re.compile(r"[\w.\"]+\(.*\)$|CURRENT_|LOCALTIME", re.DOTALL)
"""A default that is a function call."""


@dataclass(frozen=True)
class Readiness:
    """The obstacle to onboarding a table, if there is one.

    Args:
        problem: The problem, as a predicate of the table's name; empty if there is none.
        remedy: What to do about the problem.
        notes: Notes for the reader of a table that can be replicated.
    """

    problem: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the table can be onboarded."""
        return not self.problem

    def require(self, table: TableId) -> None:
        """Refuse the table when there is a problem.

        Raises:
            CaptureError: There is a problem.
        """
        if self.problem:
            raise CaptureError(
                f"table {table} {self.problem}", remedy=self.remedy, table=table, refused=True
            )


def judge(
    table: SourceTable, settings: TableSettings, *, nulls_are_kept: bool = False
) -> Readiness:
    """Judge whether every change of the table can be applied: by key, or appended once per row.

    Args:
        table: The table in the source's catalog.
        settings: The table's settings.
        nulls_are_kept: Whether the converter sends the NULL of a column with a default as NULL.
    """
    kind = _kind(table)
    if not kind.ok:
        return kind
    if unlogged := not_logged(table):
        return Readiness(*unlogged)
    if settings.appends:
        return _log(table, settings, nulls_are_kept=nulls_are_kept)
    key = settings.key_columns or table.primary_key
    if not key:
        return _no_key(table, _usable_keys(table))
    if settings.key_columns:
        unusable = _key_columns(table, settings.key_columns)
        if not unusable.ok:
            return unusable
    if table.replica_identity == "nothing":
        return _identity_nothing(table.table)
    if table.source_kind == "postgres" and (refused := refused_changes(table, key)):
        return Readiness(*refused)
    missing = [name for name in key if name not in table.identity_columns]
    if missing and not table.logs_whole_rows:
        columns, relation = ", ".join(table.identity_columns), table.table.relation
        identity = "DEFAULT" if set(key) <= set(table.primary_key) else "FULL"
        choice = (
            f"; or set key_columns: [{columns}] for the table" if table.identity_columns else ""
        )
        return Readiness(
            f"has the key ({', '.join(key)}), but its log identifies deleted rows by"
            f" {columns or 'no column'}",
            f"Run ALTER TABLE {relation} REPLICA IDENTITY {identity}{choice}.",
        )
    return Readiness(
        notes=(
            *_notes(table),
            *_generated(table),
            *_read_by_key(settings),
            *_hidden(settings),
            *_null_defaults(table),
            *table.hazards,
        )
    )


DEFAULT_MESSAGE_BYTES = 1_048_588
"""Kafka's default limit for a message, in bytes."""


def too_large(table: SourceTable, largest: int | None, limit: int) -> str | None:
    """Return why a row's events may not fit into a message; None if they fit.

    Args:
        table: The table.
        largest: Size of the largest row in the sample, in bytes.
        limit: Largest allowed message, in bytes.
    """
    # With the whole old row in the log, an update carries both the old and the new row.
    event = (largest or 0) * (2 if table.logs_whole_rows else 1)
    if event <= limit:
        return None
    return (
        f"a row has {largest:,} bytes, and its events may exceed the limit of {limit:,} bytes for a"
        " message: such an event stops the connector and all tables of its tier"
    )


def _log(table: SourceTable, settings: TableSettings, *, nulls_are_kept: bool) -> Readiness:
    unclear = [] if nulls_are_kept else _null_or_default(table, settings)
    if unclear:
        names = ", ".join(quote_name(name) for name in unclear)
        change = (
            f"ALTER TABLE {table.table.relation} ALTER COLUMN ... SET NOT NULL, or DROP"
            if table.source_kind == "postgres"
            else f"ALTER TABLE {_of_mysql(table)} MODIFY ... NOT NULL, or ALTER COLUMN ... DROP"
        )
        return Readiness(
            f"has columns that allow NULL and have a default ({names}), and Apicurio's converter"
            " sends the default for a NULL; without a key the two cannot be distinguished",
            f"Choose: 1. {change} DEFAULT; 2. connect.converter: confluent; 3. columns:"
            " {exclude: [...]}.",
        )
    notes = (*_log_notes(table), *_generated(table), *_hidden(settings), *table.hazards)
    return Readiness(notes=notes)


def _null_or_default(table: SourceTable, settings: TableSettings) -> list[str]:
    """Return replicated columns whose NULL arrives as a default that rows may also have as a value.

    A default that is a function call is not a constant, so it is not considered.
    """
    rules = settings.columns
    return [
        column.name
        for column in table.columns
        if column.nullable
        and not column.generated
        and column.default_sql is not None
        and not _FUNCTION.match(column.default_sql)
        and column.name not in rules.exclude
        and (not rules.include or column.name in rules.include)
    ]


def _log_notes(table: SourceTable) -> tuple[str, ...]:
    note = "mode append: updates and deletes are not captured"
    if table.kind == "partitioned" and table.source_kind == "postgres":
        note += (
            ", except that an UPDATE that moves a row to another partition adds the row as a new"
            " one: PostgreSQL publishes it as an insert"
        )
    if not (table.updated or table.deleted):
        return (note,)
    return (
        f"{note}, but the server has counted {table.updated:,} updated and {table.deleted:,}"
        " deleted rows so far",
    )


_NOT_LOGGED = {
    "unlogged": (
        "is UNLOGGED, so its changes are not in the log",
        "Run ALTER TABLE ... SET LOGGED, which rewrites the table.",
    ),
    "foreign": (
        "is a foreign table, so its changes are in another server's log",
        "Add the other server as a source, and onboard the table that holds the rows.",
    ),
    "other": (
        "is not an ordinary table, so its changes are not in the log",
        "Onboard the table that holds the rows.",
    ),
}


def _kind(table: SourceTable) -> Readiness:
    if table.kind == "hypertable":
        return Readiness(
            "is a hypertable of TimescaleDB: its rows lie in chunks, so none of its changes is in"
            " the log under its name",
            "Hypertables cannot be replicated. Keep the rows to replicate in an ordinary or a"
            " partitioned table (PARTITION BY).",
        )
    if table.kind == "chunk":
        return Readiness(
            "is in the schema of TimescaleDB's chunks, which TimescaleDB creates, drops and"
            " rewrites",
            "Onboard ordinary or partitioned tables.",
        )
    if table.kind not in ("table", "partitioned"):
        if table.source_kind != "postgres":
            return Readiness(
                "is not an ordinary InnoDB table, so a copy cannot read it under writes",
                f"Run ALTER TABLE {_of_mysql(table)} ENGINE = InnoDB, or DROP SYSTEM VERSIONING.",
            )
        return Readiness(*_NOT_LOGGED[table.kind])
    if table.partition_root is not None:
        root = table.partition_root
        return Readiness(
            f"is a partition of {root}; a partitioned table is replicated as a whole",
            f"Onboard the root: `tributary onboard {root}`.",
        )
    if table.children:
        return Readiness(
            f"has tables that inherit from it ({', '.join(table.children)}): queries of it return"
            " their rows, but the log has the changes of these rows under the other tables",
            "Onboard those tables by themselves, and leave this one out; or make it a partitioned"
            " table (PARTITION BY), which is replicated as a whole.",
        )
    return Readiness()


def _no_key(table: SourceTable, usable: tuple[tuple[str, ...], ...]) -> Readiness:
    relation = table.table.relation
    if table.source_kind != "postgres":
        return Readiness(
            "has no key, so a change cannot be applied to exactly one row",
            f"Choose: 1. give it a primary key: ALTER TABLE {_of_mysql(table)} ADD PRIMARY KEY"
            " (...); 2. set key_columns: [...] for the table, to the columns of a unique index that"
            " are NOT NULL" + (f", for example ({', '.join(usable[0])})." if usable else "."),
        )
    choices = [f"1. give it a primary key: ALTER TABLE {relation} ADD PRIMARY KEY (...)"]
    if usable:
        columns = ", ".join(usable[0])
        choices.append(
            f"2. use its unique index on ({columns}): ALTER TABLE {relation} REPLICA IDENTITY"
            f" USING INDEX <name of that index>, and key_columns: [{columns}] for the table"
        )
    else:
        choices.append(
            f"2. add a unique index on columns that are NOT NULL, then ALTER TABLE {relation}"
            " REPLICA IDENTITY USING INDEX <index>, and key_columns: [...]"
        )
    choices.append(
        f"3. with such an index, ALTER TABLE {relation} REPLICA IDENTITY FULL and key_columns:"
        " [...] (each UPDATE and DELETE then logs the whole old row)"
    )
    choices.append(
        "4. if rows are only inserted, mode: append for the table: the lake then holds each"
        " inserted row, and updates and deletes are not captured"
    )
    harm = (
        ""
        if table.replica_identity == "full"
        else "; once it is published, PostgreSQL refuses its UPDATE and DELETE"
    )
    return Readiness(
        f"has no key, so a change cannot be applied to exactly one row{harm}",
        "Choose: " + "; ".join(choices) + ".",
    )


def _usable_keys(table: SourceTable) -> tuple[tuple[str, ...], ...]:
    nullable = {column.name for column in table.columns if column.nullable}
    return tuple(index for index in table.unique_indexes if not nullable & set(index))


def _key_columns(table: SourceTable, key: tuple[str, ...]) -> Readiness:
    names = {column.name for column in table.columns}
    unknown = [name for name in key if name not in names]
    if unknown:
        return Readiness(
            f"has no column {', '.join(quote_name(name) for name in unknown)}, which key_columns"
            " names",
            "Set key_columns to columns that the table has.",
        )
    if any(set(index) <= set(key) for index in _usable_keys(table)):
        return Readiness()
    columns = ", ".join(key)
    # Every index of MySQL has a name, and MySQL builds each one while the table is written to.
    index = (
        f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.table.relation} ({columns})"
        if table.source_kind == "postgres"
        else f"CREATE UNIQUE INDEX <name> ON {_of_mysql(table)} ({columns})"
    )
    return Readiness(
        f"has no unique index on NOT NULL columns among ({columns}), so key_columns may not"
        " identify a row",
        f"Run {index}, with the columns NOT NULL; or set other key_columns.",
    )


def _of_mysql(table: SourceTable) -> str:
    """A table as statements of MySQL name it, for any characters in its name."""
    return ".".join(
        "`" + name.replace("`", "``") + "`" for name in (table.table.schema, table.table.name)
    )


def _identity_nothing(table: TableId) -> Readiness:
    return Readiness(
        "has REPLICA IDENTITY NOTHING: once it is published, PostgreSQL refuses its UPDATE and"
        " DELETE",
        f"Run ALTER TABLE {table.relation} REPLICA IDENTITY DEFAULT (by primary key), or USING"
        " INDEX <unique index>, or FULL; or set mode: append for the table, if its rows are only"
        " inserted.",
    )


def _notes(table: SourceTable) -> tuple[str, ...]:
    if table.replica_identity == "full":
        return ("replica identity FULL: each UPDATE and DELETE logs the whole old row",)
    return ()


def _generated(table: SourceTable) -> tuple[str, ...]:
    names = [column.name for column in table.columns if column.generated]
    if not names:
        return ()
    return (f"the lake leaves out generated columns, which the log does not have: {some(names)}",)


def _read_by_key(settings: TableSettings) -> tuple[str, ...]:
    rules = settings.columns
    names = ", ".join(quote_name(one) for one in rules.as_ if rules.is_read_by_key(one))
    if not names:
        return ()
    return (f"{names}: read from the primary by key for each changed row (columns.as)",)


def _hidden(settings: TableSettings) -> tuple[str, ...]:
    effects = {
        "hash": "the lake has the HMAC-SHA-256 of each value",
        "mask": "the lake has *** for each value",
    }
    columns = {rule: getattr(settings.columns, rule) for rule in effects}
    return tuple(
        f"{', '.join(map(quote_name, columns[rule]))}: {what} (columns.{rule})"
        for rule, what in effects.items()
        if columns[rule]
    )


_SHOWN = 8


def some(names: Sequence[str]) -> str:
    """Return the first names and the number of the others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _null_defaults(table: SourceTable) -> tuple[str, ...]:
    """Return the columns whose NULL Apicurio Registry 2.6's converter treats as "not given"."""
    names = [
        quote_name(column.name)
        for column in table.columns
        if column.nullable and column.default_sql is not None and not column.generated
    ]
    if not names:
        return ()
    return (
        f"{some(names)}: the converter apicurio sends the default of a column for its NULL, so runs"
        " read rows with that value from the primary; SET NOT NULL or DROP DEFAULT avoids this",
    )
