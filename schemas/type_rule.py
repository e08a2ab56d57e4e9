"""The rule of a type: how a column's values are converted from the source to the lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from schemas.errors import UnsupportedTypeError
from schemas.table import TableId

MAX_DIGITS = 38
"""Number of digits of the lake's widest decimal."""

COLUMN = "{column}"
"""The placeholder for the column in the templates of a rule."""


WALL_CLOCK, IN_UTC = "timestamp_ntz", "timestamp"
"""The two lake types for a date and time without a zone: stored as it is, or taken as a time in
UTC."""


@dataclass(frozen=True)
class TypeRule:
    """How the values of one type are converted from the source to the lake.

    ``read_sql`` and ``jdbc_cast`` are templates with the placeholder ``{column}``.

    Args:
        lake_type: Spark SQL type of the lake column.
        read_sql: SQL expression that the snapshot selects at the source.
        read_type: Spark SQL type that Spark gets for ``read_sql`` over JDBC.
        jdbc_cast: Spark SQL expression that converts a value of ``read_type`` to the lake's value.
        looked_up: Converts the value that a Python driver returns for ``read_sql`` to the lake's
            value; None if `lake_type` determines this conversion.
        one_to_one: Whether different values in the source are always different in the lake. A key
            column needs such a rule.
        doubtful: A regular expression. If it matches an event's string for the column, the string
            can stand for several values of the source. Empty if each string stands for one value.
    """

    lake_type: str
    read_sql: str
    read_type: str
    jdbc_cast: str
    looked_up: Callable[[Any], Any] | None = None
    one_to_one: bool = True
    doubtful: str = ""

    def stored_as(self, lake_type: str) -> TypeRule:
        """Return this rule with the lake type that the settings choose for dates with times.

        Args:
            lake_type: The chosen lake type. Only a change from `WALL_CLOCK` to `IN_UTC` is
                possible. In every other case, the rule is returned unchanged.
        """
        if (self.lake_type, lake_type) != (WALL_CLOCK, IN_UTC):
            return self
        return replace(self, lake_type=IN_UTC, jdbc_cast=f"timestamp_micros({COLUMN})")

    def read(self, column: str) -> str:
        """Return ``read_sql`` for a column, given as a quoted name in the source's SQL."""
        return self.read_sql.replace(COLUMN, column)

    def from_jdbc(self, column: str) -> str:
        """Return the Spark SQL that applies ``jdbc_cast`` to the Spark SQL of a column."""
        return self.jdbc_cast.replace(COLUMN, column)


def without_rule(
    kind: object, why: str, *, table: TableId | str, column: str
) -> UnsupportedTypeError:
    """Return the error for a column whose source type has no type rule.

    The error's remedy names the operator's choices.

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
    """Return the error for a decimal in ``columns.as`` if the column's type is not ``numeric``."""
    return UnsupportedTypeError(
        f"column {column!r} of table {table} has type {kind}, but columns.as is {decimal}, which"
        " is only for columns of PostgreSQL's numeric",
        remedy=f"Take {column} out of columns.as, or set it to string: a run then reads the text"
        " of each changed row from the source by key.",
        table=table,
        field=column,
        short=f"{kind}: columns.as is {decimal}, which is only for PostgreSQL's numeric",
    )


def remedy_for_unfit_value(column: str) -> str:
    """Return the remedy for a value that the type rule's lake type cannot hold."""
    return (
        "Correct the value on the source; or, if the column is not in the key, set columns.as:"
        f" {{{column}: string}} for the table, which stores the text that the source prints, or"
        f" leave the column out with columns.exclude: [{column}]. Then run the same command"
        " again."
    )


class SourceType(Protocol):
    """The type of a source column, of any kind of source.

    ``str()`` of a type returns the type's name as the source prints it.
    """

    def rule(
        self,
        *,
        table: TableId | str,
        column: str,
        as_text: bool = False,
        decimal: str = "",
        hidden: bool = False,
    ) -> TypeRule:
        """Return the type rule of a column of this type.

        Args:
            table: The table, for messages.
            column: The column, for messages.
            as_text: Whether the lake stores each value as the string that the server prints. Many
                types have a rule only with this argument, and a few types have no rule at all.
            decimal: The decimal type that the settings choose, for ``numeric`` of PostgreSQL only;
                empty if the settings choose no decimal type.
            hidden: Whether errors must not show the column's values.

        Raises:
            UnsupportedTypeError: The type has no rule, since no test has shown that snapshot and
                stream give the same value.
        """
