"""The effects of statements on a table, for servers whose catalog does not show them.

MySQL and MariaDB do not number columns, and a table may be another one under the old name. Their
log has each statement.
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
        gone: Columns that were dropped or lost their name.
        defined: How often each column got another definition.
        defaulted: Columns that got another default, or lost theirs.
        cascades: Statements with foreign keys through which another table's changes changed rows of
            this one, perhaps only for a moment.
        grave: Statements after which the rows are unknown, or that are not understood.
    """

    count: int = 0
    added: dict[str, OldValue] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    defined: Counter[str] = field(default_factory=Counter)
    defaulted: set[str] = field(default_factory=set)
    cascades: list[str] = field(default_factory=list)
    grave: list[str] = field(default_factory=list)

    def old_rows_of(self, column: str) -> OldValue | None:
        """The value of older rows in a new column; None when it is unknown."""
        name = column.lower()
        if name in self.gone or name in self.defaulted or self.defined[name]:
            return None
        return self.added.get(name)

    def verdict(self, column: CatalogColumn, *, hidden: bool) -> tuple[Verdict, str, str | None]:
        """Return whether the lake can follow a new column, why, and the default for old rows.

        Args:
            column: The column as the catalog has it now.
            hidden: Whether the lake hides its values.
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
        """The total effect of these statements and later ones."""
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
        """The same for a log that lacks the changes made by foreign keys."""
        return replace(self, grave=[*self.grave, *self.cascades])

    def redefined(self, old: CatalogColumn, new: CatalogColumn) -> bool:
        """Whether definitions of a column may have changed rows without a trace in the catalog."""
        times = self.defined[new.name.lower()]
        stricter = (old.nullable and not new.nullable) or loses_letters(old, new)
        return times > 1 or (times == 1 and stricter)

    def is_another(self, column: str) -> bool:
        """Whether a column of that name replaced a former one of the same name."""
        return column.lower() in self.gone
