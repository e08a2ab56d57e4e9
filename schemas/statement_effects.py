"""The effects of DDL statements on a table, for servers whose catalog does not show all of them.

MySQL and MariaDB do not number columns, so their catalog does not show whether a column or a table
was replaced by another one of the same name. Their log has each statement.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from schemas.catalog import CatalogColumn
from schemas.changes import Verdict
from schemas.widening import loses_letters


@dataclass(frozen=True)
class OldValue:
    """The value of a new column in the rows that are older than it.

    Args:
        constant: Whether the value is the column's default, and that is a constant.
        null: Whether the value is NULL.
    """

    constant: bool
    null: bool


@dataclass
class StatementEffects:
    """The total effect of a table's statements; columns' names are folded, as on the server.

    Args:
        count: Number of statements.
        added: The columns that were added, each with the value of older rows.
        gone: Columns that were dropped or renamed.
        defined: By column, the number of new definitions.
        defaulted: Columns whose default was changed or dropped.
        cascades: Statements with foreign keys due to which changes of another table may have
            changed rows of this table.
        grave: Statements that cannot be parsed, or after which the table's rows are unknown.
    """

    count: int = 0
    added: dict[str, OldValue] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    defined: Counter[str] = field(default_factory=Counter)
    defaulted: set[str] = field(default_factory=set)
    cascades: list[str] = field(default_factory=list)
    grave: list[str] = field(default_factory=list)

    def old_rows_of(self, column: str) -> OldValue | None:
        """Return the value of a new column in older rows; None if it is unknown."""
        name = column.lower()
        if name in self.gone or name in self.defaulted or self.defined[name]:
            return None
        return self.added.get(name)

    def verdict(self, column: CatalogColumn, *, hidden: bool) -> tuple[Verdict, str, str | None]:
        """Return whether the lake can follow a new column, why, and the default for old rows.

        Args:
            column: The column in the current catalog.
            hidden: Whether the lake hides the column's values.
        """
        older = self.old_rows_of(column.name)
        if older is None:
            why = "no statement shows the values of old rows: it may be another column, renamed"
            return Verdict.BOOTSTRAP, why, None
        if older.null and column.nullable and column.default is None:
            return Verdict.EVOLVE, "old rows are NULL, as in the source", None
        if not older.constant or column.default is None or hidden:
            return Verdict.BOOTSTRAP, "old rows get values that are not one known constant", None
        return Verdict.FILL, f"old rows get its default, {column.default[:60]}", column.default

    def and_then(self, later: StatementEffects) -> StatementEffects:
        """Return the total effect of these statements and of later ones."""
        return StatementEffects(
            count=self.count + later.count,
            added={**self.added, **later.added},
            gone=self.gone | later.gone,
            defined=self.defined + later.defined,
            defaulted=self.defaulted | later.defaulted,
            cascades=[*self.cascades, *later.cascades],
            grave=[*self.grave, *later.grave],
        )

    def without_events_of_cascades(self) -> StatementEffects:
        """Return these effects for a log without events of changes by foreign keys."""
        return replace(self, grave=[*self.grave, *self.cascades])

    def redefined(self, old: CatalogColumn, new: CatalogColumn) -> bool:
        """Whether definitions of a column may have changed rows without a trace in the catalog."""
        times = self.defined[new.name.lower()]
        stricter = (old.nullable and not new.nullable) or loses_letters(old, new)
        return times > 1 or (times == 1 and stricter)

    def is_another(self, column: str) -> bool:
        """Whether a column of that name replaced a former one of the same name."""
        return column.lower() in self.gone
