"""Checks whether a replica sorts text in the primary's order, as the copied indexes require."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from psycopg import sql

from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.source_facts import SourceTable

_log = logging.getLogger(__name__)

# Versions of the libraries that compare text on this server. C, C.UTF-8 and POSIX compare bytes:
# the server knows no version for them. Before version 15, the server has no function for the
# database's own collation. But all libc collations have libc's version, so any of them shows it.
# The name is no help: the database can have `en_US.UTF-8` where the catalog has `en_US.utf8`.
_VERSIONS = """
SELECT a.attname::text,
       CASE WHEN o.collprovider = 'd'
            THEN (SELECT CASE WHEN d.datcollate ~* {bytes} AND {provider} = 'c' THEN 'bytes'
                              ELSE {own} END
                  FROM pg_catalog.pg_database d
                  WHERE d.datname = pg_catalog.current_database())
            WHEN o.collprovider = 'c' AND o.collcollate ~* {bytes} THEN 'bytes'
            ELSE pg_catalog.pg_collation_actual_version(o.oid) END
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
WHERE a.attrelid = %s AND a.attname = ANY(%s)
"""
_BYTES = sql.Literal("^(C|POSIX|C[.].*)$")
_SINCE_15 = sql.SQL(_VERSIONS).format(
    bytes=_BYTES,
    provider=sql.SQL("d.datlocprovider"),
    own=sql.SQL("pg_catalog.pg_database_collation_actual_version(d.oid)"),
)
_BEFORE_15 = sql.SQL(_VERSIONS).format(
    bytes=_BYTES,
    provider=sql.SQL("'c'"),
    own=sql.SQL(
        "(SELECT max(pg_catalog.pg_collation_actual_version(n.oid)) FROM pg_catalog.pg_collation n"
        " WHERE n.collprovider = 'c' AND n.collcollate !~* {bytes})"
    ).format(bytes=_BYTES),
)


def differs(connections: Connections, table: SourceTable, key: Sequence[str]) -> bool:
    """Whether PostgreSQL's primary and replica can compare a key by different library versions.

    If so, the function logs a warning.

    The replica's indexes are copies of the primary's indexes. With different versions, ranges that
    the replica reads by an index could lack rows or have rows twice.
    """
    with connections.open("snapshot", on_replica=True) as session:
        theirs = versions(session, table, key)
    if not theirs:
        return False
    with connections.open("snapshot") as session:
        ours = versions(session, table, key)
    found = differing_versions(ours, theirs)
    if found:
        _log.warning(
            "table %s is read as one chunk: primary and replica compare %s with different or"
            " unknown versions of their libraries; run both on the same libc and ICU",
            table.table,
            ", ".join(found),
        )
    return bool(found)


def differing_versions(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> list[str]:
    """Return PostgreSQL columns whose library versions differ or are unknown, with the versions."""
    return [
        f"{name} ({ours.get(name) or 'unknown'}, {version or 'unknown'})"
        for name, version in theirs.items()
        if version is None or version != ours.get(name)
    ]


def versions(session: Session, table: SourceTable, key: Sequence[str]) -> dict[str, str | None]:
    """Return the library version by which a PostgreSQL server compares each text column of a key.

    The version is ``bytes`` if the server compares without a library, and None if the server does
    not know the version.
    """
    query = versions_query(session.info.server_version)
    rows = session.execute(query, (table.number, list(key))).fetchall()
    return {str(name): version for name, version in rows}


def versions_query(server_version: int) -> sql.Composed:
    """Return the query of `versions` for a PostgreSQL server with this ``server_version_num``."""
    return _SINCE_15 if server_version >= 150000 else _BEFORE_15
