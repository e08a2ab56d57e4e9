"""Parses planned statements of PostgreSQL, and finds their effects on a table.

The statements are not executed. An action whose effect is unknown raises an error that names the
action. Nothing is guessed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from schemas.errors import DdlError
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.table import TableId

_DIALECT = "postgres"
_NAME = r'(?:"[^"]+"|\w+)'
_HARMLESS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"owner to {_NAME}",
        rf"(enable|disable) (replica |always )?(trigger|rule) {_NAME}",
        rf"alter (column )?{_NAME} set (statistics|storage|compression) -?\w+",
        rf"validate constraint {_NAME}",
        rf"rename constraint {_NAME} to {_NAME}",
        rf"cluster on {_NAME}",
        r"set without cluster",
        r"(enable|disable|force|no force) row level security",
    )
)
"""Actions that change neither rows nor columns, and that the SQL parser cannot parse."""
_IDENTITY = re.compile(
    rf"replica identity (default|full|nothing|using index {_NAME})", re.IGNORECASE
)
_MOVES = re.compile(rf"set schema {_NAME}", re.IGNORECASE)
_SERIAL = {"SMALLSERIAL": "smallint", "SERIAL": "integer", "BIGSERIAL": "bigint"}
_QUIET = (exp.Insert, exp.Update, exp.Delete, exp.TruncateTable, exp.Comment, exp.Set)
_TRANSACTION = (exp.Transaction, exp.Commit)
_CONSTANT = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Cast, exp.Array)


@dataclass(frozen=True)
class Default:
    """A column's default in a PostgreSQL statement.

    Args:
        sql: The default's SQL expression.
        functions: Names of the functions that the default calls. Whether these functions are
            volatile is known only from the server's catalog.
    """

    sql: str
    functions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Add:
    """The action ADD COLUMN in a planned ALTER TABLE of PostgreSQL.

    If the column is an identity or a serial, ``rewrites`` is true, since the server writes a number
    into each existing row.
    """

    name: str
    type: str
    nullable: bool = True
    default: Default | None = None
    generated: bool = False
    rewrites: bool = False
    if_missing: bool = False


@dataclass(frozen=True)
class Retype:
    """The action ALTER COLUMN TYPE in a planned ALTER TABLE of PostgreSQL.

    ``using`` is the SQL expression of USING. It is None without USING, and also if USING only casts
    the column to the new type.
    """

    name: str
    type: str
    using: str | None = None


@dataclass(frozen=True)
class SetNullable:
    """The action SET NOT NULL or DROP NOT NULL in a planned ALTER TABLE of PostgreSQL."""

    name: str
    nullable: bool


@dataclass(frozen=True)
class SetDefault:
    """The action SET DEFAULT or DROP DEFAULT in a planned ALTER TABLE of PostgreSQL."""

    name: str
    default: str | None


@dataclass(frozen=True)
class AddKey:
    """The action ADD PRIMARY KEY in a planned ALTER TABLE of PostgreSQL."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class DropConstraint:
    """The action DROP CONSTRAINT in a planned ALTER TABLE of PostgreSQL.

    Only the catalog shows whether the constraint is the primary key.
    """

    name: str


@dataclass(frozen=True)
class SetIdentity:
    """PostgreSQL's REPLICA IDENTITY: ``default``, ``full``, ``nothing`` or ``index``."""

    identity: str


@dataclass(frozen=True)
class Leave:
    """A PostgreSQL statement that renames, moves or drops the table.

    ``RENAME a TO b``, which renames a column, counts as such a statement, too: the parser does not
    distinguish it from a rename of the table.
    """

    how: str


Action = (
    Add
    | Drop
    | Rename
    | Retype
    | SetNullable
    | SetDefault
    | AddKey
    | DropConstraint
    | SetIdentity
    | Leave
)


def read_ddl(text: str, table: TableId) -> tuple[Action, ...]:
    """Return the effects of planned PostgreSQL statements on a table, in order.

    Args:
        text: One or more SQL statements of PostgreSQL.
        table: The table that the statements change.

    Raises:
        DdlError: A statement cannot be parsed, has an unknown effect, or is about another table.
    """
    # The parser logs a warning for text that it does not know. This module raises an error instead.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        statements = sqlglot.parse(text, read=_DIALECT)
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise _refused_statement(
            table, text, f"the statement cannot be parsed ({first})"
        ) from error
    found: list[Action] = []
    for statement in statements:
        if statement is not None:
            found.extend(_statement_effects(statement, table))
    return tuple(found)


def _statement_effects(statement: exp.Expr, table: TableId) -> Iterator[Action]:
    """Yield the effects of one planned PostgreSQL statement on the table, if there are any."""
    if isinstance(statement, (*_QUIET, *_TRANSACTION)):
        return  # changes of rows have events, and the other statements change no column
    if isinstance(statement, exp.Create) and statement.args.get("kind") == "INDEX":
        return
    if isinstance(statement, exp.Command):
        yield from _unparsed_statement_effect(statement, table)
        return
    if isinstance(statement, exp.Drop) and statement.args.get("kind") == "TABLE":
        for dropped in statement.find_all(exp.Table):
            _require_same_table(dropped, table, statement)
        yield Leave("is dropped")
        return
    if not isinstance(statement, exp.Alter) or statement.args.get("kind") != "TABLE":
        raise _refused_statement(table, _printed_ddl(statement), "only ALTER TABLE is understood")
    _require_same_table(statement.this, table, statement)
    for action in statement.args.get("actions") or ():
        yield from _alter_action_effects(action, table)


def _unparsed_statement_effect(statement: exp.Command, table: TableId) -> Iterator[Action]:
    """Yield the effect of a PostgreSQL statement that sqlglot does not parse."""
    text = " ".join(f"{statement.this} {statement.expression}".split())
    match = re.fullmatch(
        rf"alter table (?:if exists )?(?:only )?({_NAME}(?:\.{_NAME})?) (.+)", text, re.IGNORECASE
    )
    if match is None:
        raise _refused_statement(table, text, "only ALTER TABLE is understood")
    _require_same_table(exp.to_table(match[1], dialect=_DIALECT), table, statement)
    action = match[2].rstrip(";").strip()
    identity = _IDENTITY.fullmatch(action)
    if identity is not None:
        kind = identity[1].lower().split()[0]
        yield SetIdentity("index" if kind == "using" else kind)
    elif _MOVES.fullmatch(action):
        yield Leave("is moved to another schema")
    elif not any(pattern.fullmatch(action) for pattern in _HARMLESS):
        raise _refused_statement(table, text, f"the action {action!r} is not understood")


def _alter_action_effects(action: exp.Expr, table: TableId) -> Iterator[Action]:
    """Yield the effects of one action of a planned ALTER TABLE of PostgreSQL."""
    if isinstance(action, exp.ColumnDef):
        yield _added_column(action, table)
    elif isinstance(action, exp.Drop) and action.args.get("kind") in ("COLUMN", "CONSTRAINT"):
        # The parser returns the names of dropped columns and constraints as tables.
        name = _dropped_name(action)
        if action.args["kind"] == "COLUMN":
            yield Drop(name, if_there=bool(action.args.get("exists")))
        else:
            yield DropConstraint(name)
    elif isinstance(action, exp.RenameColumn):
        yield Rename(_stored_name(action.this), _stored_name(action.args["to"]))
    elif isinstance(action, exp.AlterRename):
        yield Leave("or one of its columns is renamed")  # RENAME a TO b has the same parse tree
    elif isinstance(action, exp.AlterColumn):
        yield from _altered_column(action, table)
    elif isinstance(action, exp.AddConstraint):
        yield from _added_keys(action)
    elif isinstance(action, exp.AlterSet):
        raise _refused_statement(
            table, _printed_ddl(action), "the server refuses the statement for a published table"
        )
    else:
        raise _refused_statement(table, _printed_ddl(action), "the statement is not understood")


def _added_column(action: exp.ColumnDef, table: TableId) -> Add:
    """Return the effect of a planned ADD COLUMN of PostgreSQL."""
    kind = action.args.get("kind")
    if kind is None:
        raise _refused_statement(table, _printed_ddl(action), "the column has no type")
    shown = _printed_ddl(kind)
    nullable, default = True, None
    generated = False
    rewrites = shown.upper() in _SERIAL
    for constraint in action.args.get("constraints") or ():
        rule = constraint.args.get("kind")
        if isinstance(rule, exp.NotNullColumnConstraint):
            nullable = bool(rule.args.get("allow_null"))
        elif isinstance(rule, exp.DefaultColumnConstraint):
            default = _added_default(rule.this)
        elif isinstance(rule, exp.GeneratedAsIdentityColumnConstraint):
            # The parser reads both kinds as this one; an identity has no expression.
            generated = rule.args.get("expression") is not None
            rewrites = not generated
        elif isinstance(rule, exp.ComputedColumnConstraint):
            generated = True
        elif isinstance(rule, exp.PrimaryKeyColumnConstraint):
            raise _refused_statement(
                table, _printed_ddl(action), "a new column that is the key makes a new key"
            )
    return Add(
        name=_stored_name(action.this),
        type=_SERIAL.get(shown.upper(), shown),
        nullable=nullable and not rewrites,
        default=default,
        generated=generated,
        rewrites=rewrites,
        if_missing=bool(action.args.get("exists")),
    )


def _added_default(value: exp.Expr) -> Default | None:
    """Return the default in a planned ADD COLUMN of PostgreSQL; None for DEFAULT NULL."""
    if isinstance(value, exp.Null):
        return None
    functions = {
        _printed_ddl(node).partition("(")[0].lower()
        for node in value.find_all(exp.Func)
        if not isinstance(node, _CONSTANT)
    }
    return Default(_printed_ddl(value), frozenset(functions))


def _altered_column(action: exp.AlterColumn, table: TableId) -> Iterator[Action]:
    """Yield the effect of a planned ALTER COLUMN of PostgreSQL."""
    name, given = _stored_name(action.this), action.args
    if given.get("dtype") is not None:
        using = given.get("using") or None
        computed = (
            _printed_ddl(using) if using is not None and _using_computes(using, name) else None
        )
        yield Retype(name, _printed_ddl(given["dtype"]), computed)
    elif given.get("default") is not None:
        yield SetDefault(name, _printed_ddl(given["default"]))
    elif "allow_null" in given and given["allow_null"] is not None:
        yield SetNullable(name, nullable=bool(given["allow_null"]))
    elif given.get("drop"):
        yield SetDefault(name, None)
    else:
        raise _refused_statement(table, _printed_ddl(action), "the statement is not understood")


def _using_computes(using: exp.Expr, name: str) -> bool:
    """Whether USING in a planned ALTER COLUMN of PostgreSQL does more than cast the column."""
    while isinstance(using, (exp.Cast, exp.Paren)):
        using = using.this
    return not (isinstance(using, exp.Column) and using.name == name)


def _added_keys(action: exp.AddConstraint) -> Iterator[Action]:
    """Yield the primary keys that a planned ADD CONSTRAINT of PostgreSQL adds."""
    for key in action.find_all(exp.PrimaryKey):
        yield AddKey(tuple(one.name for one in key.expressions))


def _require_same_table(found: exp.Expr, table: TableId, statement: exp.Expr) -> None:
    """Raise an error if a planned PostgreSQL statement names another table than ``table``.

    ``found`` can lack the schema.
    """
    schema = found.args.get("db") if isinstance(found, exp.Table) else None
    if not isinstance(found, exp.Table) or _stored_name(found.this) != table.name:
        raise _refused_statement(
            table, _printed_ddl(statement), "the statement changes another table"
        )
    if schema is not None and _stored_name(schema) != table.schema:
        raise _refused_statement(
            table, _printed_ddl(statement), "the statement changes a table of another schema"
        )


def _dropped_name(action: exp.Drop) -> str:
    """Return the column's or constraint's name in a planned DROP of PostgreSQL."""
    dropped = action.args.get("this") or action.args["tables"][0]
    return _stored_name(dropped)


def _stored_name(node: exp.Expr) -> str:
    """Return a parsed name as PostgreSQL's catalog stores it, in lower case unless it is quoted."""
    inner = node.find(exp.Identifier)
    if inner is None:
        return node.name.lower()
    return str(inner.this) if inner.args.get("quoted") else str(inner.this).lower()


def _printed_ddl(node: exp.Expr) -> str:
    """Return the PostgreSQL text of a part of a planned DDL statement."""
    return node.sql(dialect=_DIALECT)


def _refused_statement(table: TableId, text: str, why: str) -> DdlError:
    """Return the error for a planned PostgreSQL statement without a verdict; ``why`` says why."""
    shown = " ".join(text.split())
    return DdlError(
        f"no verdict on table {table} for {shown[:200]!r}: {why}",
        remedy="Give only ALTER TABLE statements of this table, as PostgreSQL accepts them.",
        table=table,
        statement=shown,
    )
