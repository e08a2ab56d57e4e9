"""Recognizes the SQL clauses at which Debezium 3.5's connector of MariaDB stops.

The connector parses each DDL statement in the binlog, also statements on tables that it does not
capture. It stops at a statement that its grammar lacks, and cannot skip this statement. It skips
comments such as ``/*M! ... */``, whose content only the server executes.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from schemas.errors import DdlError
from schemas.table import TableId

_EXISTS = r"IF (?:NOT )?EXISTS "
_CLAUSE = re.compile(
    r"(?<!\S)(?:"
    + "|".join(
        (
            r"(?:ADD|DROP|WITHOUT) SYSTEM VERSIONING",
            rf"(?:ADD|DROP) PERIOD (?:{_EXISTS})?FOR",
            r"WITHOUT OVERLAPS",
            r"CONVERT (?:PARTITION|TABLE)",
            rf"ADD PARTITION (?:{_EXISTS})?PARTITIONS",
            r"PARTITION \S+ (?:HISTORY|CURRENT)",
            r"REORGANIZE PARTITION(?= ;| ?$)",
            r"ADD CONSTRAINT IF NOT EXISTS",
            r"ALTER (?:COLUMN )?IF EXISTS",
            r"RENAME (?:INDEX|KEY) IF EXISTS",
            r"(?<!ROW_FORMAT )(?<!ROW_FORMAT = )COMPRESSED",
            r"NEXT VALUE FOR",
            r"REF_SYSTEM_ID",
            r"VECTOR (?:INDEX|KEY)",
            r"INET[46]",
        )
    )
    + r")(?!\S)"
)
"""Matches a clause at which MariaDB's connector stops, in the words of a statement.

In these words, ``?`` replaces each quoted name and each string.
"""


def unreadable_clause(text: str) -> str | None:
    """Return the first clause of SQL text at which MariaDB's connector stops, or None.

    Args:
        text: One or more SQL statements. The result is None if the connector stops at none of
            them, or if they cannot be tokenized.
    """
    try:
        tokens = sqlglot.tokenize(text, read="mysql")
    except SqlglotError:
        return None
    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    words = ("?" if one.token_type in quoted else one.text.upper() or "?" for one in tokens)
    found = _CLAUSE.search(" ".join(words))
    return None if found is None else found[0]


def require_readable(text: str, table: TableId) -> None:
    """Raise an error if MariaDB's connector would stop at a planned DDL statement.

    Raises:
        DdlError: The connector would stop at a clause of a statement.
    """
    clause = unreadable_clause(text)
    if clause is None:
        return
    raise DdlError(
        f"MariaDB's connector cannot read {clause}: the statement would stop the capture of all"
        f" tables of the server's connectors, not only of {table}",
        remedy="Write the clause in a comment that only the server executes, for example ALTER"
        f" TABLE ... /*M! ADD SYSTEM VERSIONING */; table {table} then asks for a copy. To recreate"
        " a connector that such a statement has stopped, offboard all of its tables, then onboard"
        " them again.",
        table=table,
        statement=" ".join(text.split()),
    )
