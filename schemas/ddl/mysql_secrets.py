"""Removes passwords from the DDL statements of MySQL and MariaDB.

An engine that reads another server takes that server's password from an option of the table:
CONNECTION (engines FEDERATED and CONNECT), OPTION_LIST (engine CONNECT) or COMMENT (engine SPIDER).
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

    The replaced texts have no effect on rows. A statement that cannot be tokenized is returned
    unchanged. Comments stay unchanged, even comments that only the server executes.
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
