"""Removes passwords from the DDL statements of MySQL and MariaDB.

An engine that reads another server takes that server's password from an option of the table:
CONNECTION (engines FEDERATED and CONNECT), OPTION_LIST (engine CONNECT) or COMMENT (engine SPIDER).
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from schemas.ddl.mysql_statements import EXECUTED_COMMENT

UNREADABLE = "(a statement with a text that can have a password)"
"""Replaces a statement in which texts with passwords cannot be found.

Its effect is unknown, like the effect of the statement that it replaces.
"""
_OPTIONS = frozenset({"COMMENT", "CONNECTION", "OPTION_LIST", "PASSWORD"})
_MAY_HAVE = re.compile("|".join(_OPTIONS), re.IGNORECASE)
_COMMENT = re.compile(r"\s*(?:/\*|--|#)")


def without_passwords(statement: str) -> str:
    """Return a DDL statement in which ``***`` replaces each text that can have a password.

    Comments of such a statement are removed, too. The replaced texts have no effect on rows. If the
    statement has a comment that the server executes, or cannot be tokenized, the result is
    `UNREADABLE`.
    """
    if not _MAY_HAVE.search(statement):
        return statement
    if EXECUTED_COMMENT.search(statement):
        return UNREADABLE
    try:
        tokens = sqlglot.tokenize(statement, read="mysql")
    except SqlglotError:
        return UNREADABLE
    parts, done, before = [], 0, ""
    for token in tokens:
        parts.append(_without_comment(statement[done : token.start]))
        hidden = token.token_type is TokenType.STRING and before in _OPTIONS
        parts.append("'***'" if hidden else statement[token.start : token.end + 1])
        done = token.end + 1
        if token.token_type is not TokenType.EQ:
            before = token.text.upper()
    return "".join((*parts, _without_comment(statement[done:])))


def _without_comment(gap: str) -> str:
    """Return the text between two tokens of a statement; a space if it is a comment."""
    return " " if _COMMENT.match(gap) else gap
