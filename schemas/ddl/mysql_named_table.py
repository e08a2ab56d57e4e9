"""Finds the table that a DDL statement changes, if the connector's record does not name it.

Debezium's connectors of MySQL and MariaDB write the DDL statements of the binlog to a topic. For
some kinds of statements, the record in the topic names no table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_MAY_CHANGE = re.compile(
    r"\b(?:index|replace|exchange)\b|\bcreate\b.*\btable\b|/\*M?!", re.IGNORECASE | re.DOTALL
)
"""Matches text that is in every statement for which `unreported_table` returns a table."""
_EXCHANGE = ("EXCHANGE", "PARTITION")


@dataclass(frozen=True)
class NamedTable:
    """A table as a MySQL statement names it.

    Args:
        name: The table; empty if its name was not understood.
        database: The database in the statement; None if the statement names the table without a
            database. The table is then in the session's database.
        beside: True if this is the table after WITH TABLE in an EXCHANGE PARTITION, and if the
            statement names the altered table without a database. The altered table is then in the
            session's database.
    """

    name: str
    database: str | None = None
    beside: bool = False


def unreported_table(statement: str) -> NamedTable | None:
    """Return the table that a DDL statement changes, if the connector's record names no table.

    The connectors write such a record for these statements:

    - DROP INDEX and CREATE OR REPLACE INDEX (the record of an ALTER TABLE with the same effect
      names the table);
    - CREATE TABLE and CREATE OR REPLACE TABLE of a table that the connector knows. If such a CREATE
      TABLE succeeds, the former table was dropped by a statement that the connector could not
      parse;
    - EXCHANGE PARTITION of a table that the connector does not know;
    - ALTER, DROP, RENAME or TRUNCATE TABLE inside a comment that only the server executes.

    The result is None for all other statements.
    """
    if not _MAY_CHANGE.search(statement):
        return None
    tokens = _tokens(statement)
    return (
        _index_table(tokens)
        or _replaced_table(tokens)
        or _swapped_table(tokens)
        or (None if _without_comments(statement) else _hidden_table(tokens))
    )


def swapped_table(statement: str) -> NamedTable | None:
    """Return the table that EXCHANGE PARTITION names after WITH TABLE.

    The altered table gets the rows of the returned table. The result is None if the statement has
    no such clause.
    """
    return _swapped_table(_tokens(statement)) if "exchange" in statement.lower() else None


def _index_table(tokens: Sequence[Token]) -> NamedTable | None:
    """Return the table whose index a statement drops or replaces; None for other statements."""
    words = _words(tokens[:5])
    if words[:1] != ["DROP"] and words[:3] != ["CREATE", "OR", "REPLACE"]:
        return None
    # Between these words and INDEX is at most the kind of the index.
    kind = 1 if words[0] == "DROP" else 3
    if "INDEX" not in words[kind : kind + 2]:
        return None
    at = next((n for n, one in enumerate(tokens) if one.token_type is TokenType.ON), len(tokens))
    return _named(tokens[at + 1 :])


def _replaced_table(tokens: Sequence[Token]) -> NamedTable | None:
    """Return the table that a CREATE TABLE or CREATE OR REPLACE TABLE creates.

    The result is None for any other statement. It is also None for a temporary table, which only
    its session sees, and for CREATE TABLE IF NOT EXISTS, which does not replace a table.
    """
    words = _words(tokens[:4])
    if words[:2] == ["CREATE", "TABLE"] and words[2:3] != ["IF"]:
        return _named(tokens[2:])
    if words != ["CREATE", "OR", "REPLACE", "TABLE"]:
        return None
    at = 4
    while _words(tokens[at : at + 1]) in (["IF"], ["NOT"], ["EXISTS"]):
        at += 1
    return _named(tokens[at:])


def _swapped_table(tokens: Sequence[Token]) -> NamedTable | None:
    """Return the table that the tokens of EXCHANGE PARTITION name after WITH TABLE."""
    words = _words(tokens)
    places = (n for n in range(len(words)) if tuple(words[n : n + 2]) == _EXCHANGE)
    if words[:1] != ["ALTER"] or (at := next(places, None)) is None:
        return None
    other = next((n for n in range(at, len(words)) if words[n : n + 2] == ["WITH", "TABLE"]), at)
    found = _named(tokens[other + 2 :])
    altered = (one.token_type is TokenType.DOT for one in tokens[:at])
    return NamedTable(found.name, found.database, beside=not any(altered))


def _hidden_table(tokens: Sequence[Token]) -> NamedTable | None:
    """Return the table that a statement alters, drops, renames or truncates, or None.

    The result is None for any other statement, and for DISABLE KEYS and ENABLE KEYS. These two
    clauses do not change an InnoDB table; dumps contain them in comments that only the server
    executes. The returned table's ``name`` is empty for RENAME, and for DROP of several tables.
    """
    words = _words(tokens)
    if words[:1] == ["RENAME"]:  # the rest is one token, and a string
        return None if tokens[-1].text.upper().split()[:1] == ["USER"] else NamedTable("")
    at = next((n + 1 for n, word in enumerate(words[:3]) if word in ("TABLE", "TABLES")), None)
    if words[:1] == ["DROP"] and at is not None and "," in words:
        return NamedTable("")
    if " ".join(words).endswith(("DISABLE KEYS", "ENABLE KEYS")):
        return None
    if words[:1] == ["TRUNCATE"]:
        return _named(tokens[2 if words[1:2] == ["TABLE"] else 1 :])
    if words[:1] not in (["ALTER"], ["DROP"]) or at is None:
        return None
    return _named(tokens[at + 2 if words[at : at + 2] == ["IF", "EXISTS"] else at :])


def _without_comments(statement: str) -> list[Token]:
    """Return a statement's tokens outside comments; an empty list if sqlglot fails."""
    try:
        tokens = sqlglot.tokenize(statement, read="mysql")
    except SqlglotError:
        return []
    return [one for one in tokens if one.token_type is not TokenType.SEMICOLON]


def _tokens(statement: str) -> list[Token]:
    """Return a statement's tokens, without MariaDB's prefix SET STATEMENT ... FOR.

    The tokens of comments that only the server executes are included. The list is empty if the
    statement cannot be tokenized.
    """
    tokens = _without_comments(_EXECUTED.sub(r" \1 ", statement))
    while _words(tokens[:2]) == ["SET", "STATEMENT"]:
        tokens = tokens[_after_settings(tokens) :]
    return tokens


def _after_settings(tokens: Sequence[Token]) -> int:
    """Return the index of the token after the FOR that ends the settings of SET STATEMENT."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.FOR and not depth:
            return place + 1
    return len(tokens)


def _words(tokens: Iterable[Token]) -> list[str]:
    """Return tokens in upper case; quoted names and strings become empty strings."""
    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    return ["" if one.token_type in quoted else one.text.upper() for one in tokens]


def _named(tokens: Sequence[Token]) -> NamedTable:
    """Return the table that the first tokens name; ``name`` is empty if these name no table."""
    if len(tokens) > 2 and tokens[1].token_type is TokenType.DOT:
        return NamedTable(tokens[2].text, tokens[0].text)
    known = tokens and tokens[0].token_type is not TokenType.DOT
    return NamedTable(tokens[0].text if known else "")
