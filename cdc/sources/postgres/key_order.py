"""Whether a replica, whose indexes are the primary's, sorts text as the primary does."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from psycopg import sql

from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.values import SourceTable

_log = logging.getLogger(__name__)

# Versions of the libraries that compare text on this server; C and POSIX have none. The version for
# the database's own collation is looked up by name if the server has no function for it (before
# version 15).
_VERSIONS = """
SELECT a.attname::text,
       CASE WHEN o.collprovider <> 'd' THEN pg_catalog.pg_collation_actual_version(o.oid)
            ELSE (SELECT {own} FROM pg_catalog.pg_database d
                  WHERE d.datname = pg_catalog.current_database()) END
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
WHERE a.attrelid = %s AND a.attname = ANY(%s)
"""
_OWN = sql.SQL("pg_catalog.pg_database_collation_actual_version(d.oid)")
_OWN_BY_NAME = sql.SQL(
    "(SELECT max(pg_catalog.pg_collation_actual_version(n.oid)) FROM pg_catalog.pg_collation n"
    " WHERE n.collprovider = 'c' AND n.collcollate = d.datcollate)"
)


def differs(connections: Connections, table: SourceTable, key: Sequence[str]) -> bool:
    """Whether primary and replica compare a key by different versions of libraries; logs that.

    The replica's index is the primary's. With different versions, ranges that are read by it on the
    replica could lack rows or contain some twice.
    """
    with connections.open("snapshot", on_replica=True) as session:
        theirs = versions(session, table, key)
    if not theirs:
        return False
    with connections.open("snapshot") as session:
        ours = versions(session, table, key)
    apart = [
        f"{name} ({ours.get(name)}, {one})" for name, one in theirs.items() if one != ours.get(name)
    ]
    if apart:
        _log.warning(
            "table %s is read as one chunk: primary and replica compare %s by other versions of"
            " their libraries; run both on the same libc and ICU",
            table.table,
            ", ".join(apart),
        )
    return bool(apart)


def versions(session: Session, table: SourceTable, key: Sequence[str]) -> dict[str, str | None]:
    """For each text column of the key, the version of the library that compares it here."""
    own = _OWN if session.info.server_version >= 150000 else _OWN_BY_NAME
    rows = session.execute(sql.SQL(_VERSIONS).format(own=own), (table.oid, list(key))).fetchall()
    return {str(name): version for name, version in rows}
