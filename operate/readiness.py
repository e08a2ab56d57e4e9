"""Decides whether a table can be replicated, and what to change if it cannot.

The decision needs only the table's catalog entry and settings, and no query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import CaptureError
from cdc.sources import table_rules
from cdc.sources.selection import replicated
from cdc.sources.source_facts import SourceTable
from cdc.sources.table_rules import TableRules, usable_keys
from schemas.table import TableId, quote_name

if TYPE_CHECKING:
    from cdc.config import TableSettings


_FUNCTION = re.compile(r"[\w.\"]+\(.*\)$|CURRENT_|LOCALTIME", re.DOTALL)
"""Matches a column's default that is a function call."""


@dataclass(frozen=True)
class Readiness:
    """Whether a table can be onboarded, and if not, the obstacle.

    Args:
        problem: The problem, as the rest of a sentence that begins with the table's name; empty if
            there is none.
        remedy: What to do about the problem.
        notes: Remarks that do not prevent the onboarding of the table.
    """

    problem: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the table can be onboarded."""
        return not self.problem

    def require(self, table: TableId) -> None:
        """Raise an error if the table cannot be onboarded.

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
    """Check whether a table can be onboarded, that is, whether runs could apply all changes.

    Args:
        table: The table in the source's catalog.
        settings: The table's settings.
        nulls_are_kept: Whether the connector's converter sends a NULL as NULL. If False, the
            converter sends the column's default for a NULL.
    """
    rules = table_rules(table.source_kind)
    if obstacle := rules.not_in_log(table):
        return Readiness(*obstacle)
    if settings.appends:
        return _judge_append_table(table, settings, rules, nulls_are_kept=nulls_are_kept)
    key = settings.key_columns or table.primary_key
    if not key:
        return Readiness(*rules.without_key(table))
    if settings.key_columns:
        unusable = _judge_key_columns(table, settings.key_columns, rules)
        if not unusable.ok:
            return unusable
    if obstacle := rules.not_applicable(table, key):
        return Readiness(*obstacle)
    return Readiness(
        notes=(
            *rules.notes(table),
            *_generated_column_notes(table),
            *_read_by_key_notes(settings),
            *_hidden(settings),
            *(() if nulls_are_kept else _null_default_notes(table)),
            *table.hazards,
        )
    )


DEFAULT_MESSAGE_BYTES = 1_048_588
"""Kafka's default limit for a message, in bytes."""


def too_large(table: SourceTable, largest: int | None, limit: int) -> str | None:
    """Return why events of a table could exceed Kafka's limit for a message; None if they fit.

    Args:
        table: The table.
        largest: Size of the largest sampled row, in bytes; None if the table has no row.
        limit: Size of the largest Kafka message that is allowed, in bytes.
    """
    # If the source's log has whole old rows, the event of an update has both the old and the new
    # row.
    event = (largest or 0) * (2 if table.logs_whole_rows else 1)
    if event <= limit:
        return None
    return (
        f"a row has {largest:,} bytes, and its events may exceed the limit of {limit:,} bytes for a"
        " message: such an event stops the connector and all tables of its tier"
    )


def _judge_append_table(
    table: SourceTable, settings: TableSettings, rules: TableRules, *, nulls_are_kept: bool
) -> Readiness:
    """Check whether an append table, which has no key, can be onboarded."""
    unclear = [] if nulls_are_kept else _ambiguous_null_columns(table, settings)
    if unclear:
        names = ", ".join(quote_name(name) for name in unclear)
        return Readiness(
            f"has columns that allow NULL and have a default ({names}), and Apicurio's converter"
            " sends the default for a NULL; without a key the two cannot be distinguished",
            f"Choose: 1. {rules.without_null_or_default(table)}; 2. connect.converter: confluent,"
            " and a `tier` whose connector does not exist yet;"
            " 3. columns: {exclude: [...]}.",
        )
    if unproven := [one for one in replicated(table, settings) if one.not_validated]:
        names = ", ".join(quote_name(column.name) for column in unproven)
        return Readiness(
            f"has columns with a NOT NULL constraint that is NOT VALID ({names}): the connector"
            " sends 0 or an empty text for a NULL of an older row; without a key the two cannot be"
            " distinguished",
            "Choose: 1. ALTER TABLE ... VALIDATE CONSTRAINT ... for each; 2. columns: {exclude:"
            " [...]}.",
        )
    notes = (
        *_append_table_notes(table, rules),
        *_generated_column_notes(table),
        *_hidden(settings),
        *table.hazards,
    )
    return Readiness(notes=notes)


def _ambiguous_null_columns(table: SourceTable, settings: TableSettings) -> list[str]:
    """Return the replicated columns that allow NULL and have a constant default.

    For a NULL in such a column, Apicurio's converter sends the default. So the NULL cannot be
    distinguished from a value that equals the default. A default that is a function call is not
    constant.
    """
    return [
        column.name
        for column in replicated(table, settings)
        if column.nullable
        and column.default_sql is not None
        and not _FUNCTION.match(column.default_sql)
    ]


def _append_table_notes(table: SourceTable, rules: TableRules) -> tuple[str, ...]:
    """Return the onboarding note that updates and deletes of an append table are not captured.

    If the server's statistics count rows that were updated or deleted, the note has these numbers.
    """
    note = rules.log_note(table)
    if not (table.updated or table.deleted):
        return (note,)
    return (
        f"{note}, but the server has counted {table.updated:,} updated and {table.deleted:,}"
        " deleted rows so far",
    )


def _judge_key_columns(table: SourceTable, key: tuple[str, ...], rules: TableRules) -> Readiness:
    """Check whether the ``key_columns`` of a table to onboard exist and identify a row."""
    names = {column.name for column in table.columns}
    unknown = [name for name in key if name not in names]
    if unknown:
        return Readiness(
            f"has no column {', '.join(quote_name(name) for name in unknown)}, which key_columns"
            " names",
            "Set key_columns to columns that the table has.",
        )
    if any(set(index) <= set(key) for index in usable_keys(table)):
        return Readiness()
    columns = ", ".join(key)
    return Readiness(
        f"has no unique index on NOT NULL columns among ({columns}), so key_columns may not"
        " identify a row",
        f"Run {rules.unique_index(table, columns)}, with the columns NOT NULL; or set other"
        " key_columns.",
    )


def _generated_column_notes(table: SourceTable) -> tuple[str, ...]:
    """Return an onboarding note that the lake leaves out generated columns; empty if none."""
    names = [column.name for column in table.columns if column.generated]
    if not names:
        return ()
    return (f"the lake leaves out generated columns, which the log does not have: {some(names)}",)


def _read_by_key_notes(settings: TableSettings) -> tuple[str, ...]:
    """Return an onboarding note on columns that runs read from the primary by key, if any."""
    rules = settings.columns
    names = ", ".join(quote_name(one) for one in rules.as_ if rules.is_read_by_key(one))
    if not names:
        return ()
    return (f"{names}: read from the primary by key for each changed row (columns.as)",)


def _hidden(settings: TableSettings) -> tuple[str, ...]:
    """Return the onboarding notes on the hashed columns and on the masked columns, if any."""
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
    """Return column names for an onboarding note, shortened as in ``a, b, c and 4 more``."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _null_default_notes(table: SourceTable) -> tuple[str, ...]:
    """Return an onboarding note on the nullable columns that have a default; empty if none.

    For a NULL in such a column, Apicurio's converter sends the default.
    """
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
