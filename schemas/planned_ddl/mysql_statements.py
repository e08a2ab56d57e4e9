"""Parses planned statements of MySQL and MariaDB, and finds their effects on a table.

When an operator executes the planned statements, they appear in the binlog.
`schemas.ddl.mysql_statements` judges planned statements and statements in the binlog by the same
rules. For planned statements, this module also finds the effects on the catalog. A statement whose
effect is unknown raises an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from schemas.ddl.mysql_partitions import keeps_rows
from schemas.ddl.mysql_secrets import EXECUTED_COMMENT
from schemas.ddl.mysql_statements import (
    DROP_INDEX,
    read_statements,
    whole_columns,
)
from schemas.errors import DdlError
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.planned_ddl.mysql_clauses import (
    Add,
    AddUnique,
    Clause,
    Definition,
    DropIndex,
    Redefine,
    RenameIndex,
    SetDefault,
    Statement,
)
from schemas.table import TableId

_DIALECT = "mysql"
_QUIET_VERBS = frozenset(
    {"INSERT", "REPLACE", "UPDATE", "DELETE", "TRUNCATE", "START", "BEGIN", "COMMIT"}
    | {"ROLLBACK", "OPTIMIZE", "ANALYZE"}
)
"""The first words of planned statements that change no definition of a table.

Some of these statements change rows. Changes of rows arrive as events.
"""
_QUIET_SETTINGS = frozenset(
    {"NAMES", "LOCK_WAIT_TIMEOUT", "INNODB_LOCK_WAIT_TIMEOUT", "FOREIGN_KEY_CHECKS"}
    | {"UNIQUE_CHECKS"}
)
"""Variables that SET can set without changing the meaning of later statements."""
_PARTITIONS = (
    *("ADD", "DROP", "TRUNCATE", "COALESCE", "REORGANIZE", "EXCHANGE", "REBUILD", "DISCARD"),
    *("IMPORT", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR"),
)
_GRAVE = frozenset(
    {
        *((verb, "PARTITION") for verb in _PARTITIONS),
        ("REMOVE", "PARTITIONING"),
        ("PARTITION", "BY"),
        ("CONVERT", "TO"),
        ("DROP", "PRIMARY"),
        ("ORDER", "BY"),
        ("DISCARD", "TABLESPACE"),
        ("IMPORT", "TABLESPACE"),
        ("ENABLE", "KEYS"),
        ("DISABLE", "KEYS"),
        ("ADD", "SYSTEM"),
        ("DROP", "SYSTEM"),
        ("CHARACTER", "SET"),
        ("DEFAULT", "CHARACTER"),
        ("DEFAULT", "CHARSET"),
        ("DEFAULT", "COLLATE"),
    }
)
"""The first words of clauses after which the table needs a new copy."""
_OF_COLUMN = frozenset({"COLUMN", "INDEX", "KEY"})
_OF_INDEX = frozenset({"INDEX", "KEY", "CONSTRAINT"})
_OTHER_WORDS = re.compile(r"INT[1-8]|FLOAT[48]|REAL|NCHAR|NVARCHAR|LONG", re.IGNORECASE)
"""Names of types that mean other types to the SQL parser than to the servers."""
_ASKED = (
    exp.NotNullColumnConstraint,
    exp.DefaultColumnConstraint,
    exp.OnUpdateColumnConstraint,
    exp.CharacterSetColumnConstraint,
    exp.CollateColumnConstraint,
    exp.ZeroFillColumnConstraint,
    exp.BinaryColumnConstraint,
)
"""The parts of a column's definition that change how the catalog shows the column."""
_UNASKED = (
    exp.CommentColumnConstraint,
    exp.CheckColumnConstraint,
    exp.InvisibleColumnConstraint,
    exp.Reference,
)


def read_planned(text: str, table: TableId) -> tuple[Statement, ...]:
    """Parse planned MySQL statements; return those that change the table's definition, in order.

    Args:
        text: One or more SQL statements of MySQL or MariaDB.
        table: The table that the statements change.

    Raises:
        DdlError: A statement cannot be parsed, has an unknown effect, or is about another table.
    """
    # The parser logs a warning for text that it does not know. This module raises an error instead.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    if EXECUTED_COMMENT.search(text):
        raise _refused_statement(table, text, "the server executes the text of such comments (/*!)")
    try:
        tokens = sqlglot.tokenize(text, read=_DIALECT)
    except SqlglotError as error:
        raise _refused_statement(
            table, text, f"the statement cannot be parsed ({str(error).splitlines()[0]})"
        ) from error
    found = []
    for part in _split(tokens, TokenType.SEMICOLON):
        words = _words(part)
        if words[0] in _QUIET_VERBS:
            continue
        if words[0] == "SET":
            named = [word for word in words[1:3] if word not in ("SESSION", "LOCAL")][:1]
            if not _QUIET_SETTINGS.issuperset(named) or "," in words:
                raise _refused_statement(
                    table, text, "the setting may change the meaning of the other statements"
                )
            continue
        statement = text[part[0].start : part[-1].end + 1]
        found.append(Statement(statement, tuple(_read_statement(statement, part, table))))
    return tuple(found)


def _read_statement(text: str, tokens: Sequence[Token], table: TableId) -> Iterator[Clause]:
    """Yield the parsed clauses of a planned MySQL statement."""
    words = _words(tokens)
    if other := next((one for one in tokens if _is_other_word(one)), None):
        raise _refused_statement(table, text, f"write type {other.text} with another of its names")
    if words[0] == "RENAME":  # the parser keeps the rest of it as one text
        rest = sqlglot.tokenize(text.partition(tokens[0].text)[2], read=_DIALECT)
        tokens = [tokens[0], *rest]
        words = _words(tokens)
    if words[:2] in (["RENAME", "TABLE"], ["RENAME", "TABLES"], ["DROP", "TABLE"]):
        _require_among(tokens[2:], text, table)
        return
    effects = read_statements([text])
    if effects.grave:
        _require_grave(text, tokens, table)
        return
    if keeps_rows(text):
        _require_named_table(_altered_table(tokens)[0], text, table)
        return
    drop = DROP_INDEX.match(text)
    parsed = sqlglot.parse_one(drop[0] if drop else text, read=_DIALECT)
    if isinstance(parsed, exp.Alter):
        _require_parsed_table(parsed.this, text, table)
        yield from _clauses_of_alter(parsed, text, table)
    elif isinstance(parsed, exp.Create):
        index = parsed.this
        _require_parsed_table(index.args.get("table"), text, table)
        if parsed.args.get("unique"):
            yield AddUnique(
                index.name, whole_columns(index.args["params"].args.get("columns") or ())
            )
    elif isinstance(parsed, exp.Drop):
        place = parsed.args.get("cluster")
        _require_parsed_table(None if place is None else place.this, text, table)
        yield DropIndex(_only_name(parsed, text, table))
    else:
        raise _refused_statement(table, text, "the statement is not understood")


def _require_grave(text: str, tokens: Sequence[Token], table: TableId) -> None:
    """Raise an error unless a MySQL statement of unknown effect surely requires a new copy."""
    words = _words(tokens)
    if words[:2] != ["ALTER", "TABLE"]:
        raise _refused_statement(table, text, "only ALTER TABLE is understood")
    named, after = _altered_table(tokens)
    clauses = list(_split(tokens[after:], TokenType.COMMA))
    for clause in clauses:
        if _words(clause)[:2] == ["EXCHANGE", "PARTITION"] and "TABLE" in _words(clause):
            # The table's rows and the partition's are swapped.
            other, _ = _table_at(clause, [one.text.upper() for one in clause].index("TABLE") + 1)
            named = other if _names_table(other, table) else named
    _require_named_table(named, text, table)
    if not any(_is_grave(_words(clause)) or _is_of_table(clause) for clause in clauses):
        raise _refused_statement(table, text, "the statement is not understood")


def _is_grave(words: Sequence[str]) -> bool:
    """Whether a MySQL clause that begins with ``words`` surely requires a new copy of the table."""
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first == "RENAME":
        return second not in _OF_COLUMN
    several = first == "ADD" and "(" in (second, words[2] if second == "COLUMN" else "")
    return several or first in ("CHARSET", "COLLATE") or (first, second) in _GRAVE


def _is_of_table(clause: Sequence[Token]) -> bool:
    """Whether a MySQL clause sets another engine than InnoDB, or drops the index named PRIMARY."""
    said = [one.text.upper() for one in clause]
    if said[0] == "ENGINE":
        return said[-1] != "INNODB"
    return said[0] == "DROP" and said[1] in _OF_INDEX and said[-1] == "PRIMARY"


def _clauses_of_alter(alter: exp.Alter, text: str, table: TableId) -> Iterator[Clause]:
    """Yield the clauses of a planned ALTER TABLE of MySQL."""
    for action in alter.args.get("actions") or ():
        if isinstance(action, exp.ColumnDef):
            exists = bool(action.args.get("exists"))
            yield Add(_column_definition(action, text, table), _column_before(action), exists)
        elif isinstance(action, exp.ModifyColumn) and isinstance(action.this, exp.ColumnDef):
            column = _column_definition(action.this, text, table)
            former = action.args.get("rename_from")
            yield Redefine(
                former.name if former else column.name, column, _column_before(action.this)
            )
        elif isinstance(action, exp.Drop):
            name = _only_name(action, text, table)
            kind = action.args.get("kind")
            if kind == "COLUMN":
                yield Drop(name, bool(action.args.get("exists")))
            elif kind in ("INDEX", "KEY", "CONSTRAINT"):
                yield DropIndex(name)
        elif isinstance(action, exp.RenameColumn):
            yield Rename(action.this.name, action.args["to"].name)
        elif isinstance(action, exp.RenameIndex):
            yield RenameIndex(action.this.name, action.args["to"].name)
        elif isinstance(action, exp.AlterColumn):
            default = action.args.get("default")
            if default is not None or action.args.get("drop"):
                yield SetDefault(action.this.name, None if default is None else _node_sql(default))
        elif isinstance(action, exp.AddConstraint):
            yield from _added_keys(action)


def _column_definition(column: exp.ColumnDef, text: str, table: TableId) -> Definition:
    """Return the definition of a column in a planned MySQL statement."""
    if column.args.get("kind") is None:
        raise _refused_statement(table, text, f"column {column.name!r} has no type")
    plain = column.copy()
    plain.set("position", None)
    plain.set("exists", None)
    asked, expression = [], None
    not_null = primary = unique = stored = False
    for constraint in plain.args.get("constraints") or ():
        rule = constraint.args.get("kind")
        if isinstance(rule, _ASKED):
            asked.append(constraint)
        elif isinstance(rule, exp.AutoIncrementColumnConstraint):
            not_null = True
        elif isinstance(rule, exp.PrimaryKeyColumnConstraint):
            primary = not_null = True
        elif isinstance(rule, exp.UniqueColumnConstraint):
            unique = True
        elif isinstance(rule, exp.ComputedColumnConstraint):
            expression, stored = _node_sql(rule.this), bool(rule.args.get("persisted"))
        elif not isinstance(rule, _UNASKED):
            raise _refused_statement(table, text, f"{_node_sql(constraint)} is not understood")
    plain.set("constraints", asked)
    # Without quotes the parser's writer might take the name for a keyword.
    plain.set("this", exp.to_identifier(column.name, quoted=True))
    return Definition(column.name, _node_sql(plain), expression, not_null, primary, unique, stored)


def _added_keys(action: exp.AddConstraint) -> Iterator[AddUnique]:
    """Yield the primary key and the unique indexes that an action of ALTER TABLE adds."""
    for key in action.find_all(exp.PrimaryKey):
        yield AddUnique("PRIMARY", whole_columns(key.expressions), primary=True)
    for index in action.find_all(exp.UniqueColumnConstraint):
        schema = index.this
        columns = whole_columns(schema.expressions)
        constraint = index.find_ancestor(exp.Constraint)
        # The server names an unnamed index after its first column.
        name = schema.name or (constraint.name if constraint else "") or "".join(columns[:1])
        yield AddUnique(name, columns)


def _column_before(column: exp.ColumnDef) -> str | None:
    """Return the column that AFTER names; an empty string for FIRST; None without either word."""
    position = column.args.get("position")
    if position is None:
        return None
    return "" if position.this is None else str(position.this.name)


def _only_name(drop: exp.Drop, text: str, table: TableId) -> str:
    """Return the name of the object that DROP names; raise an error unless it names exactly one."""
    names = [drop.this] if drop.args.get("this") else drop.args.get("tables") or []
    if len(names) != 1:
        raise _refused_statement(table, text, "the statement is not understood")
    return str(names[0].name)


def _require_parsed_table(found: exp.Expr | None, text: str, table: TableId) -> None:
    """Raise an error if a parsed name in a planned MySQL statement is not ``table``.

    ``found`` can lack the database.
    """
    named = (found.db or None, found.name) if isinstance(found, exp.Table) else (None, "")
    _require_named_table(named, text, table)


def _require_named_table(named: tuple[str | None, str], text: str, table: TableId) -> None:
    """Raise an error if a planned MySQL statement names another table than ``table``."""
    if not _names_table(named, table):
        raise _refused_statement(table, text, "the statement changes another table")


def _require_among(tokens: Sequence[Token], text: str, table: TableId) -> None:
    """Raise an error if no name in a MySQL statement is the table's name."""
    named = [_table_at(tokens, at)[0] for at in range(len(tokens)) if _begins_name(tokens, at)]
    if not any(_names_table(one, table) for one in named):
        raise _refused_statement(table, text, "the statement changes another table")


def _begins_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether no dot precedes a token, so that a ``schema.table`` or ``table`` can begin there."""
    return at == 0 or tokens[at - 1].token_type is not TokenType.DOT


def _altered_table(tokens: Sequence[Token]) -> tuple[tuple[str | None, str], int]:
    """Return the altered table as (database or None, name), and the index of the next token."""
    return _table_at(tokens, 4 if _words(tokens)[2:4] == ["IF", "EXISTS"] else 2)


def _table_at(tokens: Sequence[Token], at: int) -> tuple[tuple[str | None, str], int]:
    """Return the table as (database or None, name), and the index of the token after its name.

    Args:
        tokens: The statement.
        at: Index of the first token of the table's name.
    """
    names = [token.text for token in tokens[at : at + 3]]
    if len(names) == 3 and tokens[at + 1].token_type is TokenType.DOT:
        return (names[0], names[2]), at + 3
    return (None, names[0] if names else ""), at + 1


def _names_table(named: tuple[str | None, str], table: TableId) -> bool:
    """Whether a name in a MySQL statement is the table's; the name can lack the database."""
    database, name = named
    return name == table.name and database in (None, table.schema)


def _is_other_word(token: Token) -> bool:
    """Whether the token names a column type that means another type to sqlglot than to MySQL."""
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return not quoted and bool(_OTHER_WORDS.fullmatch(token.text))


def _words(tokens: Sequence[Token]) -> list[str]:
    """Return tokens as words in upper case; a quoted name becomes an empty string."""
    return [
        word
        for one in tokens
        # Some keywords of two words are one token.
        for word in (
            [""] if one.token_type is TokenType.IDENTIFIER else one.text.upper().split() or [""]
        )
    ]


def _split(tokens: Sequence[Token], at: TokenType) -> Iterator[list[Token]]:
    """Split a MySQL statement's tokens at separators outside parentheses."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is at and not depth:
            if part:
                yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _node_sql(node: exp.Expr) -> str:
    """Return a parsed part of a MySQL statement as SQL text."""
    return node.sql(dialect=_DIALECT, comments=False)


def _refused_statement(table: TableId, text: str, why: str) -> DdlError:
    """Return the error for a planned MySQL statement without a verdict; ``why`` says why."""
    shown = " ".join(text.split())
    return DdlError(
        f"no verdict on table {table} for {shown[:200]!r}: {why}",
        remedy="Give only ALTER TABLE statements of this table, as MySQL accepts them.",
        table=table,
        statement=shown,
    )
