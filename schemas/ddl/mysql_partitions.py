"""Recognizes statements of MySQL and MariaDB that maintain partitions and change no row.

The SQL parser cannot parse these statements, so this module examines their tokens.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

_NAME = r"(?:\S+ )"
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_LOCAL = r"(?:(?:NO_WRITE_TO_BINLOG|LOCAL) )?"
_LIST = r"\( (?P<list>.*)\) "
_CLAUSES = re.compile(
    "|".join(
        (
            rf"ADD PARTITION (?:IF NOT EXISTS )?{_LOCAL}(?:PARTITIONS \d+ |\( .*\) )",
            rf"COALESCE PARTITION {_LOCAL}\d+ ",
            rf"(?:REBUILD|ANALYZE|CHECK|OPTIMIZE) PARTITION {_LOCAL}{_NAMES}",
            rf"REORGANIZE PARTITION {_LOCAL}{_NAMES}INTO {_LIST}",
        )
    )
)
_TABLE = re.compile(rf"ALTER TABLE (?:IF EXISTS )?{_NAME}(?:\. {_NAME})?")
_RANGE = re.compile(rf"PARTITION {_NAME}VALUES LESS THAN ")


def keeps_rows(text: str) -> bool:
    """Whether a MySQL statement only maintains partitions, without changing or removing rows.

    A REORGANIZE of range partitions keeps all rows, since the server refuses new ranges that do not
    cover the former ranges. A REORGANIZE of list partitions can remove rows, namely the rows
    whose values are in none of the new lists.

    Args:
        text: The SQL statement. It must not have comments that the server executes (``/*! */``).
    """
    try:
        tokens = sqlglot.tokenize(text, read="mysql")
    except SqlglotError:
        return False
    words: list[str] = []
    depth = 0
    for token in tokens:
        if depth == 0 and words[-1:] == [")"]:
            return False  # something follows the list
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        # Some keywords of two words are one token.
        words += ["?"] if quoted else token.text.upper().split() or ["?"]
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
    shown = "".join(f"{word} " for word in words)
    table = _TABLE.match(shown)
    clause = _CLAUSES.fullmatch(shown, table.end()) if table else None
    if clause is None:
        return False
    parts = clause.group("list")
    return parts is None or len(_RANGE.findall(parts)) == parts.count("PARTITION ")
