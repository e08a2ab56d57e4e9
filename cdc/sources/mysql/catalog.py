"""Tables and their keys from the catalog of MySQL and MariaDB."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from cdc.sources.mysql.connection import Session
from cdc.sources.values import TableKind, TableStats
from schemas.table import TableId

OWN = "tributary"
"""Database of our own tables on the source."""

_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys", OWN)

_TABLES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, TABLE_TYPE AS kind, ENGINE AS engine,
       TABLE_ROWS AS estimate, coalesce(DATA_LENGTH, 0) + coalesce(INDEX_LENGTH, 0) AS bytes,
       coalesce(CREATE_OPTIONS, '') AS options
FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN {_SYSTEM}
ORDER BY TABLE_SCHEMA, TABLE_NAME
"""  # noqa: S608 - names of our own

_KEYS = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, COLUMN_NAME AS part
FROM information_schema.STATISTICS
WHERE INDEX_NAME = 'PRIMARY' AND TABLE_SCHEMA NOT IN {_SYSTEM}
ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX
"""  # noqa: S608


def read_tables(session: Session, source: str, databases: Sequence[str]) -> list[TableStats]:
    """All tables of the databases that the patterns name, without the server's and our own."""
    keys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in session.named(_KEYS):
        keys[row["db"], row["name"]].append(row["part"])
    return [
        TableStats(
            table=TableId(source, row["db"], row["name"]),
            kind=_kind(row),
            rows_estimate=None if row["estimate"] is None else int(row["estimate"]),
            total_bytes=int(row["bytes"]),
            primary_key=tuple(keys[row["db"], row["name"]]),
            # `check` refuses a server that logs less than whole rows.
            replica_identity="full",
            partition_root=None,
        )
        for row in session.named(_TABLES)
        if any(fnmatchcase(row["db"], pattern) for pattern in databases)
    ]


def _kind(row: dict[str, Any]) -> TableKind:
    """Only InnoDB's tables can be read under a view, while they are written to."""
    if row["engine"] != "InnoDB" or row["kind"] != "BASE TABLE":
        return "other"
    return "partitioned" if "partitioned" in row["options"] else "table"
