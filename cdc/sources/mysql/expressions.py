"""Splits the expressions of generated columns, as MySQL and MariaDB print them, into tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_TOKEN = re.compile(
    r"`(?P<name>(?:[^`]|``)*)`"
    r"|'(?P<text>(?:[^'\\]|''|\\.)*)'"
    r"|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<sign>\S)",
    re.DOTALL,
)

_RESERVED = frozenset(
    {"interval", "case", "when", "then", "else", "in", "is", "like", "between", "regexp", "rlike"}
    | {"and", "or", "xor", "not", "div", "mod", "as", "from"}
)
"""Words of the SQL language: in an expression, they name a column only if they are in quotes."""


def tokens_of(expression: str) -> list[re.Match[str]]:
    """Return the tokens of an expression that the catalog of MySQL or MariaDB has printed.

    MySQL's catalog writes a backslash before each quote, also where a string literal begins. The
    tokens have no such backslash.
    """
    if expression.partition("'")[0].endswith("\\"):
        expression = re.sub(r"\\(.)", r"\1", expression, flags=re.DOTALL)
    return list(_TOKEN.finditer(expression))


def column_of(tokens: Sequence[re.Match[str]], kinds: Mapping[str, str]) -> str | None:
    """Return, in lower case, the MySQL or MariaDB column that an expression's first token names.

    The result is None if the first token names no column.

    Args:
        tokens: The first token, and the second token, if any. If the second token is an opening
            parenthesis, the first token names a function.
        kinds: The type of each column, by its name in lower case.
    """
    token = tokens[0]
    if token["name"] is not None:
        name = token["name"].replace("``", "`").lower()
    else:
        name = "" if opens(tokens[1:]) else (token["word"] or "").lower()
        name = "" if name in _RESERVED else name
    return name if name in kinds else None


def opens(tokens: Sequence[re.Match[str]]) -> bool:
    """Whether the first token of a MySQL or MariaDB expression is an opening parenthesis."""
    return bool(tokens) and tokens[0]["sign"] == "("
