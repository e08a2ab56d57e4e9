"""The effects of DDL statements on a table of MySQL or MariaDB.

MySQL and MariaDB do not number columns. So their catalog does not show whether a column or table
was dropped and replaced by another of the same name. The statements in the binlog show this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from schemas.catalog import CatalogColumn
from schemas.changes import Verdict
from schemas.widening import loses_letters


@dataclass(frozen=True)
class OldValue:
    """What DDL statements say about the value of a new column in older rows.

    Args:
        constant: Whether the value is the column's default, and this default is a constant.
        null: Whether the value is NULL.
    """

    constant: bool
    null: bool


@dataclass(frozen=True)
class DroppedIndex:
    """A DDL statement that dropped an index, or replaced it.

    Args:
        statement: The SQL statement.
        unique: The columns of each unique index that the same statement created, in lower case.
    """

    statement: str
    unique: tuple[frozenset[str], ...] = ()


@dataclass
class StatementEffects:
    """The total effect of several DDL statements on a table.

    Names of columns are in lower case.

    Args:
        count: Number of statements.
        added: The columns that were added, each with its value in older rows.
        gone: Columns that were dropped or renamed.
        defined: By column, how often MODIFY or CHANGE defined the column.
        numbered: Columns that MODIFY or CHANGE defined with AUTO_INCREMENT.
        defaulted: Columns whose default was changed or dropped.
        dropped_indexes: The statements that dropped an index other than the primary key.
        cascades: Statements that add foreign keys with ON DELETE or ON UPDATE actions. Through such
            a foreign key, changes of another table can have changed rows of this table.
        grave: Statements that Tributary cannot parse, or whose effect on the rows it cannot derive.
    """

    count: int = 0
    added: dict[str, OldValue] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    defined: Counter[str] = field(default_factory=Counter)
    numbered: set[str] = field(default_factory=set)
    defaulted: set[str] = field(default_factory=set)
    dropped_indexes: list[DroppedIndex] = field(default_factory=list)
    cascades: list[str] = field(default_factory=list)
    grave: list[str] = field(default_factory=list)

    def old_rows_of(self, column: str) -> OldValue | None:
        """Return a new column's value in older rows; None if DDL statements do not determine it."""
        name = column.lower()
        if name in self.gone or name in self.defaulted or self.defined[name]:
            return None
        return self.added.get(name)

    def verdict(self, column: CatalogColumn, *, hidden: bool) -> tuple[Verdict, str, str | None]:
        """Return the verdict on a column that DDL added, the verdict's reason, and a default.

        If the verdict is FILL, old rows of the lake must get the default, which is returned as the
        catalog prints it. For any other verdict, the returned default is None.

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
        """Return the total effect of these DDL statements and the statements that follow them."""
        return StatementEffects(
            count=self.count + later.count,
            added={**self.added, **later.added},
            gone=self.gone | later.gone,
            defined=self.defined + later.defined,
            numbered=self.numbered | later.numbered,
            defaulted=self.defaulted | later.defaulted,
            dropped_indexes=[*self.dropped_indexes, *later.dropped_indexes],
            cascades=[*self.cascades, *later.cascades],
            grave=[*self.grave, *later.grave],
        )

    def without_events_of_cascades(self) -> StatementEffects:
        """Return these effects for a binlog that lacks the events of cascading actions.

        In the result, each statement in ``cascades`` is also in ``grave``, so the table needs a new
        copy.
        """
        return replace(self, grave=[*self.grave, *self.cascades])

    def shares_keys(self, key: Collection[str], primary_key: Collection[str]) -> Iterator[str]:
        """Yield the DDL statements after which several rows could have had the same lake key.

        If the lake key contains the primary key, nothing is yielded: the lake key is unique while
        the primary key does not change, and the catalog shows each change of the primary key.

        Args:
            key: The lake table's key columns; empty for an append table.
            primary_key: The columns of the primary key; empty without a primary key.
        """
        if not key or (primary_key and set(key).issuperset(primary_key)):
            return
        folded = {name.lower() for name in key}
        for index in self.dropped_indexes:
            if not any(columns <= folded for columns in index.unique):
                yield index.statement

    def redefined(self, old: CatalogColumn, new: CatalogColumn) -> bool:
        """Whether MODIFY or CHANGE could have changed values, even if the type stayed the same.

        If a column becomes AUTO_INCREMENT, the server gives new numbers to the rows that have 0.
        """
        name = new.name.lower()
        times = self.defined[name]
        stricter = (old.nullable and not new.nullable) or loses_letters(old, new)
        renumbered = name in self.numbered and not old.numbered
        return times > 1 or (times == 1 and (stricter or renumbered))

    def is_another(self, column: str) -> bool:
        """Whether a DDL statement has dropped or renamed a column of this name.

        If True, the column that has this name now can be another column than before.
        """
        return column.lower() in self.gone
