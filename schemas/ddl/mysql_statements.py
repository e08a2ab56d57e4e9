"""Derives effects on a table from the DDL statements in a binlog of MySQL or MariaDB.

A statement whose effect is unknown requires a new copy, and the beginning of its text is recorded
as the reason. Nothing is guessed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from schemas.ddl.mysql_partitions import keeps_rows
from schemas.ddl.mysql_secrets import without_passwords
from schemas.statement_effects import DroppedIndex, OldValue, StatementEffects

_DIALECT = "mysql"
_ZERO_DATE = re.compile(r"\b(?:0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00)\b")
"""Literals of dates that no calendar has.

The lake stores NULL in place of such a date.
"""
_NAME = r"(?:`[^`]+`|[\w$]+)"
_COMMENTS = r"(?:\s|/\*.*?\*/|(?:--\s|#)[^\n]*\n)*"
DROP_INDEX = re.compile(
    rf"{_COMMENTS}DROP\s+INDEX\s+(?:IF\s+EXISTS\s+)?(?P<name>{_NAME})\s+ON\s+"
    rf"(?:{_NAME}\s*\.\s*)?{_NAME}",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a DROP INDEX up to its options; the parser cannot parse these options."""
_CASCADES = re.compile(r"\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)\b", re.IGNORECASE)
"""Matches foreign keys through which a change of another table can change rows of this table."""
_CONSTANT = (exp.Literal, exp.Neg, exp.Boolean, exp.HexString, exp.BitString)
_COMPUTED = (
    exp.AutoIncrementColumnConstraint,
    exp.ComputedColumnConstraint,
    exp.GeneratedAsIdentityColumnConstraint,  # the parser's class for AS (...) without a storage
    exp.GeneratedAsRowColumnConstraint,
)
"""The rules in a column's definition by which the server computes the column's values in older
rows."""
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


def read_statements(statements: Iterable[str]) -> StatementEffects:
    """Parse DDL statements of the binlog; return the total effect that they have on a table.

    Args:
        statements: The SQL statements that changed the table, in order.
    """
    # The parser logs a warning for text that it does not know. Here such a statement is grave.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    effects = StatementEffects()
    for statement in statements:
        effects.count += 1
        # The state store keeps statements in this form. So each process derives the same effects.
        text = without_passwords(statement)
        if not _note_statement(text, effects):
            effects.grave.append(_shown_statement(text))
    return effects


def _note_statement(text: str, effects: StatementEffects) -> bool:
    """Add a MySQL statement's effects to ``effects``; return whether all are known."""
    if keeps_rows(text):
        return True
    if drop := DROP_INDEX.match(text):
        if drop["name"].strip("`").upper() == "PRIMARY":
            return False
        effects.dropped_indexes.append(DroppedIndex(_shown_statement(text)))
        return True
    try:
        parsed = sqlglot.parse_one(text, read=_DIALECT)
    except SqlglotError:
        return False
    if isinstance(parsed, (exp.Create, exp.Drop)):
        if parsed.args.get("kind") != "INDEX" or _drops_key(parsed):
            return False
        _note_dropped(text, [parsed], effects)
        return True
    if not isinstance(parsed, exp.Alter) or parsed.args.get("kind") != "TABLE":
        return False
    actions = parsed.args.get("actions") or ()
    if not all(_harmless_option(one) for one in parsed.args.get("options") or ()):
        return False
    if any(_CASCADES.search(action.sql(_DIALECT, comments=False)) for action in actions):
        effects.cascades.append(_shown_statement(text))
    _note_dropped(text, actions, effects)
    understood = [_note_action(action, effects) for action in actions]
    return all(understood)


def _note_dropped(text: str, actions: Sequence[exp.Expr], effects: StatementEffects) -> None:
    """Add a statement to ``effects`` if the statement drops an index.

    The unique indexes that the statement creates are added, too.
    """
    if any(_drops_index(action) for action in actions):
        unique = tuple(
            frozenset(found)
            for action in actions
            for found in _unique_index_columns(action)
            if found
        )
        effects.dropped_indexes.append(DroppedIndex(_shown_statement(text), unique))


def _drops_index(action: exp.Expr) -> bool:
    """Whether an action drops an index, or replaces it by an index of the same name."""
    if isinstance(action, exp.Create):
        return bool(action.args.get("replace"))
    return isinstance(action, exp.Drop) and action.args.get("kind") in _INDEX_KINDS


def _unique_index_columns(action: exp.Expr) -> Iterator[set[str]]:
    """Yield the columns, in lower case, of each unique index that an action creates."""
    if isinstance(action, exp.Create) and action.args.get("unique"):
        parts = action.this.args["params"].args.get("columns") or ()
        yield {name.lower() for name in whole_columns(parts)}
    elif isinstance(action, exp.AddConstraint):
        for rule in action.find_all(exp.UniqueColumnConstraint):
            if rule.this is None:  # the parser takes the index's name for a word of its own
                continue
            yield {name.lower() for name in whole_columns(rule.this.expressions)}


def whole_columns(parts: Sequence[exp.Expr]) -> tuple[str, ...]:
    """Return the columns of a MySQL index; empty if a part is a prefix or an expression."""
    columns = []
    for part in parts:
        inner = part.this if isinstance(part, exp.Ordered) else part
        if not isinstance(inner, (exp.Column, exp.Identifier)):
            return ()
        columns.append(inner.name)
    return tuple(columns)


def _shown_statement(text: str) -> str:
    """Return a MySQL statement in one line, shortened for messages."""
    return " ".join(text.split())[:200]


def _drops_key(drop: exp.Expr) -> bool:
    """Whether an action drops the index PRIMARY, which is the primary key.

    After such an action, events have no key, or a key that differs from the lake table's key. This
    ends when the table has a primary key again.
    """
    named = [drop.this] if drop.args.get("this") else drop.args.get("tables") or []
    return (
        isinstance(drop, exp.Drop)
        and drop.args.get("kind") in _INDEX_KINDS
        and any(one.name.upper() == "PRIMARY" for one in named)
    )


def _harmless_option(option: exp.Expr) -> bool:
    """Whether an option of MySQL's ALTER TABLE changes no row and no column."""
    if isinstance(option, exp.EngineProperty):
        # Another engine can have other rows, or none, without an event.
        return option.name.upper() == "INNODB"
    return isinstance(option, _QUIET_PROPERTIES)


def _note_action(action: exp.Expr, effects: StatementEffects) -> bool:
    """Add an ALTER TABLE action's effect to ``effects``; return whether the effect is known."""
    if isinstance(action, exp.ColumnDef):
        effects.added[action.name.lower()] = _value_in_older_rows(action)
        return True
    if isinstance(action, exp.Drop):
        kind = action.args.get("kind")
        if kind == "COLUMN":
            effects.gone.add((action.args.get("this") or action.args["tables"][0]).name.lower())
        return kind == "COLUMN" or (kind in _QUIET_KINDS and not _drops_key(action))
    if isinstance(action, exp.ModifyColumn):
        defined = action.find(exp.ColumnDef)
        former = action.args.get("rename_from")
        if defined is None:
            return False
        name = defined.name.lower()
        if former is not None and former.name.lower() != name:
            effects.gone.add(former.name.lower())
            effects.gone.add(name)
        effects.defined[name] += 1
        if _is_numbered(defined):
            effects.numbered.add(name)
        return True
    if isinstance(action, exp.RenameColumn):
        effects.gone.update((action.this.name.lower(), action.args["to"].name.lower()))
        return True
    if isinstance(action, exp.AlterColumn):
        effects.defaulted.add(action.this.name.lower())
        return True
    return isinstance(action, (*_QUIET_ACTIONS, *_QUIET_PROPERTIES))


def _is_numbered(column: exp.ColumnDef) -> bool:
    """Whether a column's MySQL definition has AUTO_INCREMENT, which the type SERIAL implies."""
    kind = column.args.get("kind")
    return column.find(exp.AutoIncrementColumnConstraint) is not None or (
        isinstance(kind, exp.DataType) and kind.this is exp.DataType.Type.SERIAL
    )


def _value_in_older_rows(column: exp.ColumnDef) -> OldValue:
    """Return the value that ADD COLUMN gives the new column in older rows."""
    kinds = [one.args.get("kind") for one in column.args.get("constraints") or ()]
    nullable, default = True, None
    for rule in kinds:
        if isinstance(rule, exp.NotNullColumnConstraint):
            nullable = bool(rule.args.get("allow_null"))
        elif isinstance(rule, exp.DefaultColumnConstraint):
            default = rule.this
        elif isinstance(rule, _COMPUTED):
            return OldValue(constant=False, null=False)
    if default is None or isinstance(default, exp.Null):
        return OldValue(constant=False, null=nullable)
    constant = isinstance(default, _CONSTANT) and not _ZERO_DATE.search(default.sql(_DIALECT))
    return OldValue(constant=constant, null=False)
