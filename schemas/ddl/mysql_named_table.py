"""Finds a table that a statement changes but the connectors of MySQL and MariaDB leave out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_EXCHANGE = ("EXCHANGE", "PARTITION")


@dataclass(frozen=True)
class NamedTable:
    """A table as a MySQL statement names it.

    Args:
        name: The table; empty if its name was not understood.
        database: The database that the statement names; None if the statement leaves it to the
            session.
        beside: Whether the statement also alters another table, which it names without a database.
            If ``database`` is None, both tables are in one database.
    """

    name: str
    database: str | None = None
    beside: bool = False


def index_table(statement: str) -> NamedTable | None:
    """Return the table whose index a MySQL statement drops or replaces, else None.

    This does not include ALTER TABLE, which the connectors report with its table.
    """
    if "index" not in statement.lower():
        return None
    tokens = _tokens(statement)
    words = _words(tokens[:5])
    if words[:1] != ["DROP"] and words[:3] != ["CREATE", "OR", "REPLACE"]:
        return None
    # Between these words and INDEX is at most the kind of the index.
    kind = 1 if words[0] == "DROP" else 3
    if "INDEX" not in words[kind : kind + 2]:
        return None
    at = next((n for n, one in enumerate(tokens) if one.token_type is TokenType.ON), len(tokens))
    return _named(tokens[at + 1 :])


def swapped_table(statement: str) -> NamedTable | None:
    """Return the table whose rows MySQL's EXCHANGE PARTITION puts into the altered one."""
    if "exchange" not in statement.lower():
        return None
    tokens = _tokens(statement)
    words = _words(tokens)
    places = (n for n in range(len(words)) if tuple(words[n : n + 2]) == _EXCHANGE)
    if words[:1] != ["ALTER"] or (at := next(places, None)) is None:
        return None
    other = next((n for n in range(at, len(words)) if words[n : n + 2] == ["WITH", "TABLE"]), at)
    found = _named(tokens[other + 2 :])
    altered = (one.token_type is TokenType.DOT for one in tokens[:at])
    return NamedTable(found.name, found.database, beside=not any(altered))


def _tokens(statement: str) -> list[Token]:
    """Return a MySQL statement's tokens without comments; none if it cannot be read."""
    try:
        return sqlglot.tokenize(_EXECUTED.sub(r" \1 ", statement), read="mysql")
    except SqlglotError:
        return []


def _words(tokens: Iterable[Token]) -> list[str]:
    """Return a MySQL statement's tokens in upper case, and empty texts for quoted names."""
    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    return ["" if one.token_type in quoted else one.text.upper() for one in tokens]


def _named(tokens: Sequence[Token]) -> NamedTable:
    """Return the table whose name begins the MySQL statement's tokens."""
    if len(tokens) > 2 and tokens[1].token_type is TokenType.DOT:
        return NamedTable(tokens[2].text, tokens[0].text)
    known = tokens and tokens[0].token_type is not TokenType.DOT
    return NamedTable(tokens[0].text if known else "")
