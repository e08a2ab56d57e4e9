"""The rules that convert a column's values from the source to the lake, for any source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from schemas.errors import UnsupportedTypeError
from schemas.table import TableId

MAX_DIGITS = 38
"""Digits of the lake's widest decimal."""

COLUMN = "{column}"
"""The placeholder for the column in the templates of a rule."""


WALL_CLOCK, IN_UTC = "timestamp_ntz", "timestamp"
"""Lake types of a date and time without a zone: as it is, or taken as a time in UTC."""


@dataclass(frozen=True)
class TypeRule:
    """The rule that converts one column's values. Its templates have the placeholder ``{column}``.

    Args:
        lake_type: Spark SQL type of the lake column.
        read_sql: Expression in the source's SQL that the snapshot path selects.
        read_type: Spark SQL type in which ``read_sql`` arrives over JDBC.
        jdbc_cast: Spark SQL expression that converts this type to the lake's value.
        looked_up: Conversion of a value from a Python driver, if `lake_type` alone does not define
            it.
        one_to_one: Whether values that differ in the source differ in the lake, as keys require.
        doubtful: Characters of an event's text that may be another character on the source, as the
            inside of a character class of a regular expression; empty if there are none.
    """

    lake_type: str
    read_sql: str
    read_type: str
    jdbc_cast: str
    looked_up: Callable[[Any], Any] | None = None
    one_to_one: bool = True
    doubtful: str = ""

    def stored_as(self, lake_type: str) -> TypeRule:
        """Return the rule for a lake type that the settings chose for a time without a zone.

        Args:
            lake_type: The lake type. The rule is returned unchanged unless it is `IN_UTC` and the
                rule's is `WALL_CLOCK`.
        """
        if (self.lake_type, lake_type) != (WALL_CLOCK, IN_UTC):
            return self
        return replace(self, lake_type=IN_UTC, jdbc_cast=f"timestamp_micros({COLUMN})")

    def read(self, column: str) -> str:
        """``read_sql`` of a column that is already quoted for the source."""
        return self.read_sql.replace(COLUMN, column)

    def from_jdbc(self, column: str) -> str:
        """``jdbc_cast`` of a Spark SQL expression."""
        return self.jdbc_cast.replace(COLUMN, column)


def without_rule(
    kind: object, why: str, *, table: TableId | str, column: str
) -> UnsupportedTypeError:
    """Return the error for a column whose type has no rule. Its remedy has the operator's choices.

    Args:
        kind: The type.
        why: Why the type has no rule.
        table: The table.
        column: The column.
    """
    return UnsupportedTypeError(
        f"column {column!r} of table {table} has type {kind}, which cannot be replicated: {why}",
        remedy=f"Set columns.as: {{{column}: string}} for the table: a run then reads the text of"
        " each changed row from the source by key; or leave the column out with columns.exclude:"
        f" [{column}].",
        table=table,
        field=column,
        short=f"{kind}: {why}",
        why=why,
    )


def not_numeric(
    kind: object, decimal: str, *, table: TableId | str, column: str
) -> UnsupportedTypeError:
    """The error for a decimal in the settings when the column is not an exact number."""
    return UnsupportedTypeError(
        f"column {column!r} of table {table} has type {kind}, but columns.as is {decimal}, which"
        " is only for columns of PostgreSQL's numeric",
        remedy=f"Take {column} out of columns.as, or set it to string: a run then reads the text"
        " of each changed row from the source by key.",
        table=table,
        field=column,
        short=f"{kind}: columns.as is {decimal}, which is only for PostgreSQL's numeric",
    )


def unfit_value(column: str) -> str:
    """The remedy for a value that the lake's type cannot hold."""
    return (
        "Correct the value on the source; or, if the column is not in the key, set columns.as:"
        f" {{{column}: string}} for the table, which stores the text that the source prints, or"
        f" leave the column out with columns.exclude: [{column}]. Then run the same command"
        " again."
    )


class SourceType(Protocol):
    """The type of a source column; its text is what the source itself prints."""

    def rule(
        self,
        *,
        table: TableId | str,
        column: str,
        as_text: bool = False,
        decimal: str = "",
        hidden: bool = False,
    ) -> TypeRule:
        """Return the rule of a column of this type.

        Args:
            table: Named in messages.
            column: Named in messages.
            as_text: Whether the lake gets the server's own text, for any type.
            decimal: The lake's type if the settings choose a decimal for a number without one.
            hidden: Whether errors must not show a value.

        Raises:
            UnsupportedTypeError: The type has no rule, since no test has shown that snapshot and
                stream give the same value.
        """
