"""The effects of statements of MySQL and MariaDB on a table, as the log reports them.

These servers do not number columns, and a table may be another one under the old name. The log has
each statement. A statement that is not understood is reported verbatim; nothing is guessed.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from schemas.catalog import CatalogColumn
from schemas.changes import Verdict
from schemas.widening import loses_letters

_DIALECT = "mysql"
EXECUTED_COMMENT = re.compile(r"/\*M?!")
"""The start of a comment that the servers run and the parser skips."""
_ZERO_DATE = re.compile(r"\b(?:0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00)\b")
"""Dates that no calendar has; the lake has NULL for them."""
_CASCADES = re.compile(r"\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)\b", re.IGNORECASE)
"""With such a foreign key, changes of another table change rows of this one."""
_CONSTANT = (exp.Literal, exp.Neg, exp.Boolean, exp.HexString, exp.BitString)
_QUIET_ACTIONS = (exp.AddConstraint, exp.ForceProperty, exp.AlterIndex, exp.RenameIndex)
_INDEX_KINDS = frozenset({"INDEX", "KEY", "CONSTRAINT"})
_QUIET_KINDS = _INDEX_KINDS | {"FOREIGN KEY", "CHECK"}
_QUIET_PROPERTIES = (
    exp.SchemaCommentProperty,
    exp.AutoIncrementProperty,
    exp.RowFormatProperty,
    exp.AlgorithmProperty,
    exp.LockProperty,
)


@dataclass(frozen=True)
class Default:
    """The value of a new column in the rows that are older than it.

    Args:
        constant: Whether the value is the column's default, and that is a constant.
        null: Whether the value is NULL.
    """

    constant: bool
    null: bool


@dataclass
class Told:
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
    added: dict[str, Default] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    defined: Counter[str] = field(default_factory=Counter)
    defaulted: set[str] = field(default_factory=set)
    cascades: list[str] = field(default_factory=list)
    grave: list[str] = field(default_factory=list)

    def old_rows_of(self, column: str) -> Default | None:
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
            why = "no statement tells what old rows show: it may be another one, renamed"
            return Verdict.BOOTSTRAP, why, None
        if older.null and column.nullable and column.default is None:
            return Verdict.EVOLVE, "old rows are NULL, as in the source", None
        if not older.constant or column.default is None or hidden:
            return Verdict.BOOTSTRAP, "old rows get values that are no constant to tell", None
        return Verdict.FILL, f"old rows get its default, {column.default[:60]}", column.default

    def and_then(self, later: Told) -> Told:
        """The total effect of these statements and later ones."""
        return Told(
            count=self.count + later.count,
            added={**self.added, **later.added},
            gone=self.gone | later.gone,
            defined=self.defined + later.defined,
            defaulted=self.defaulted | later.defaulted,
            cascades=[*self.cascades, *later.cascades],
            grave=[*self.grave, *later.grave],
        )

    def without_events_of_cascades(self) -> Told:
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


def read_statements(statements: Iterable[str]) -> Told:
    """Read the effects of statements on a table.

    Args:
        statements: Those that changed the table, in order.
    """
    # The parser logs what it does not know; here that is grave.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    told = Told()
    for text in statements:
        told.count += 1
        if not _understood(text, told):
            told.grave.append(_shown(text))
    return told


def _understood(text: str, told: Told) -> bool:
    if EXECUTED_COMMENT.search(text):
        return False
    try:
        parsed = sqlglot.parse_one(text, read=_DIALECT)
    except SqlglotError:
        return False
    if isinstance(parsed, (exp.Create, exp.Drop)):
        return parsed.args.get("kind") == "INDEX" and not _drops_key(parsed)
    if not isinstance(parsed, exp.Alter) or parsed.args.get("kind") != "TABLE":
        return False
    actions = parsed.args.get("actions") or ()
    if not all(_harmless_option(one) for one in parsed.args.get("options") or ()):
        return False
    if any(_CASCADES.search(action.sql(_DIALECT, comments=False)) for action in actions):
        told.cascades.append(_shown(text))
    understood = [_action(action, told) for action in actions]
    return all(understood)


def _shown(text: str) -> str:
    return " ".join(text.split())[:200]


def _drops_key(drop: exp.Expr) -> bool:
    """Whether the primary key is dropped under the name that servers give it.

    Until it is back, the key of events differs from that of the lake's rows, or is missing.
    """
    named = [drop.this] if drop.args.get("this") else drop.args.get("tables") or []
    return (
        isinstance(drop, exp.Drop)
        and drop.args.get("kind") in _INDEX_KINDS
        and any(one.name.upper() == "PRIMARY" for one in named)
    )


def _harmless_option(option: exp.Expr) -> bool:
    if isinstance(option, exp.EngineProperty):
        # Another engine may keep other rows, or none, and no event reports it.
        return option.name.upper() == "INNODB"
    return isinstance(option, _QUIET_PROPERTIES)


def _action(action: exp.Expr, told: Told) -> bool:
    """Record the effect of one action; return whether it is understood."""
    if isinstance(action, exp.ColumnDef):
        told.added[action.name.lower()] = _older_rows(action)
        return True
    if isinstance(action, exp.Drop):
        kind = action.args.get("kind")
        if kind == "COLUMN":
            told.gone.add((action.args.get("this") or action.args["tables"][0]).name.lower())
        return kind == "COLUMN" or (kind in _QUIET_KINDS and not _drops_key(action))
    if isinstance(action, exp.ModifyColumn):
        defined = action.find(exp.ColumnDef)
        former = action.args.get("rename_from")
        if defined is None:
            return False
        name = defined.name.lower()
        if former is not None and former.name.lower() != name:
            told.gone.add(former.name.lower())
            told.gone.add(name)
        told.defined[name] += 1
        return True
    if isinstance(action, exp.RenameColumn):
        told.gone.update((action.this.name.lower(), action.args["to"].name.lower()))
        return True
    if isinstance(action, exp.AlterColumn):
        told.defaulted.add(action.this.name.lower())
        return True
    return isinstance(action, (*_QUIET_ACTIONS, *_QUIET_PROPERTIES))


def _older_rows(column: exp.ColumnDef) -> Default:
    kinds = [one.args.get("kind") for one in column.args.get("constraints") or ()]
    nullable, default = True, None
    for rule in kinds:
        if isinstance(rule, exp.NotNullColumnConstraint):
            nullable = bool(rule.args.get("allow_null"))
        elif isinstance(rule, exp.DefaultColumnConstraint):
            default = rule.this
        elif isinstance(rule, (exp.ComputedColumnConstraint, exp.AutoIncrementColumnConstraint)):
            return Default(constant=False, null=False)
    if default is None or isinstance(default, exp.Null):
        return Default(constant=False, null=nullable)
    constant = isinstance(default, _CONSTANT) and not _ZERO_DATE.search(default.sql(_DIALECT))
    return Default(constant=constant, null=False)
