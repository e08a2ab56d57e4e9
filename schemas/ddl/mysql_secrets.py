"""Removes passwords from the DDL statements of MySQL and MariaDB.

Engines that read another server take its password from an option of the table: CONNECTION of
FEDERATED and CONNECT, OPTION_LIST of CONNECT, COMMENT of SPIDER.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

_OPTIONS = frozenset({"COMMENT", "CONNECTION", "OPTION_LIST", "PASSWORD"})
_MAY_HAVE = re.compile("|".join(_OPTIONS), re.IGNORECASE)


def without_passwords(statement: str) -> str:
    """Return a DDL statement in which ``***`` replaces each text that can have a password.

    No such text has an effect on rows. A statement that cannot be tokenized is returned unchanged,
    and so are comments, also those that only the server executes.
    """
    if not _MAY_HAVE.search(statement):
        return statement
    try:
        tokens = sqlglot.tokenize(statement, read="mysql")
    except SqlglotError:
        return statement
    parts, done, before = [], 0, ""
    for token in tokens:
        if token.token_type is TokenType.STRING and before in _OPTIONS:
            parts += [statement[done : token.start], "'***'"]
            done = token.end + 1
        if token.token_type is not TokenType.EQ:
            before = token.text.upper()
    return "".join((*parts, statement[done:]))
