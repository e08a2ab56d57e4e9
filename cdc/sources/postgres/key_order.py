"""Checks whether the servers sort text in the order in which the indexes of keys were built."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.source_facts import SourceTable

_log = logging.getLogger(__name__)

# Versions of the libraries that compare text on this server, and those that the database recorded
# when its indexes were built. C, C.UTF-8 and POSIX compare bytes:
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
            ELSE pg_catalog.pg_collation_actual_version(o.oid) END,
       CASE WHEN o.collprovider = 'd' THEN {recorded} ELSE o.collversion END
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
WHERE a.attrelid = %s AND a.attname = ANY(%s)
"""
_BYTES = sql.Literal("^(C|POSIX|C[.].*)$")
_SINCE_15 = sql.SQL(_VERSIONS).format(
    bytes=_BYTES,
    provider=sql.SQL("d.datlocprovider"),
    own=sql.SQL("pg_catalog.pg_database_collation_actual_version(d.oid)"),
    recorded=sql.SQL(
        "(SELECT d.datcollversion FROM pg_catalog.pg_database d"
        " WHERE d.datname = pg_catalog.current_database())"
    ),
)
_BEFORE_15 = sql.SQL(_VERSIONS).format(
    bytes=_BYTES,
    provider=sql.SQL("'c'"),
    own=sql.SQL(
        "(SELECT max(pg_catalog.pg_collation_actual_version(n.oid)) FROM pg_catalog.pg_collation n"
        " WHERE n.collprovider = 'c' AND n.collcollate !~* {bytes})"
    ).format(bytes=_BYTES),
    recorded=sql.SQL("NULL::text"),
)


class LibraryVersion(NamedTuple):
    """The version of the library by which a PostgreSQL server compares a column's text.

    Args:
        actual: The library's version on this server; ``bytes`` if the server compares without a
            library, and None if the server does not know the version.
        recorded: The version that the database recorded for its indexes; None if it has recorded
            none. PostgreSQL 14 records none for the database's own collation.
    """

    actual: str | None
    recorded: str | None


_STARTED = "SELECT pg_catalog.pg_postmaster_start_time()::text"
REBUILD = (
    "Rebuild the indexes of such columns with REINDEX, and then run ALTER DATABASE (or COLLATION)"
    " REFRESH VERSION."
)
"""What to do about indexes that are older than the library that compares their text."""

_OUTDATED = """
SELECT pg_catalog.format('collation %%I (%%s, recorded %%s)', collname, actual, collversion)
FROM (SELECT o.*, pg_catalog.pg_collation_actual_version(o.oid) AS actual
      FROM pg_catalog.pg_collation o
      WHERE o.collversion IS NOT NULL
        AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attcollation = o.oid
                    AND a.attrelid >= 16384)) used
WHERE actual IS DISTINCT FROM collversion
"""
_OUTDATED_DATABASE = """
UNION ALL
SELECT pg_catalog.format(
           'the collation of the database (%%s, recorded %%s)', actual, datcollversion)
FROM (SELECT d.*, pg_catalog.pg_database_collation_actual_version(d.oid) AS actual
      FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) own
WHERE actual IS DISTINCT FROM datcollversion AND datcollversion IS NOT NULL
"""


def outdated_collations(session: Session) -> list[str]:
    """Return the PostgreSQL collations whose library has changed, as texts for messages.

    Each text has the library's recorded version and its present version.

    The function checks the collations that columns of user tables have. From version 15 on, it also
    checks the database's own collation.
    """
    since_15 = session.info.server_version >= 150000
    query = _OUTDATED + (_OUTDATED_DATABASE if since_15 else "")
    return sorted(str(row[0]) for row in session.execute(query, ()).fetchall())


def key_order(
    connections: Connections, table: SourceTable, key: Sequence[str], *, has_replica: bool
) -> str | None:
    """Return the library versions by which a PostgreSQL source sorts a key's text.

    The result is empty if the key has no text. It is None if an index can order a key's values
    differently from the server. In that case the function logs a warning with the reason.

    There are two reasons. An index can be older than the server's library that compares text: the
    index is then sorted by an earlier version of the library. Or the replica, whose indexes are
    copies of the primary's, compares text with a different version of the library. In both cases,
    if ranges are read by an index, they could lack rows or contain rows twice.
    """
    with connections.open("snapshot") as session:
        ours = versions(session, table, key)
        row = session.execute(_STARTED).fetchone()
    if not ours:
        return ""
    reasons = []
    if old := outdated_versions(ours):
        reasons.append(
            f"the libraries that compare {', '.join(old)} have other versions than those that the"
            " database recorded for its indexes, as `tributary check` reports"
        )
    if has_replica:
        with connections.open("snapshot", on_replica=True) as session:
            found = differing_versions(ours, versions(session, table, key))
        if found:
            reasons.append(
                f"primary and replica compare {', '.join(found)} with different or unknown versions"
                " of their libraries; run both on the same libc and ICU"
            )
    if reasons:
        _log.warning("table %s can only be read as one chunk: %s", table.table, "; ".join(reasons))
        return None
    return described(ours, started=str(row[0]) if row else "")


def described(found: Mapping[str, LibraryVersion], *, started: str) -> str:
    """Return the library versions that sort PostgreSQL columns, as one text for comparisons.

    Args:
        found: The library versions on one server, as a mapping from the column's name.
        started: When the server started. The text has this time in place of an unknown version,
            since a server keeps its libraries until it stops.
    """
    return ", ".join(
        f"{name}: {version.actual or f'unknown, server started {started}'}"
        for name, version in sorted(found.items())
    )


def differing_versions(
    ours: Mapping[str, LibraryVersion], theirs: Mapping[str, LibraryVersion]
) -> list[str]:
    """Return PostgreSQL columns whose library versions on two servers differ or are unknown.

    Each string of the result has a column's name and, for messages, the two versions.

    Args:
        ours: The versions on the primary, by column.
        theirs: The versions on the replica, by column.
    """
    known = {name: version.actual for name, version in ours.items()}
    return [
        f"{name} ({known.get(name) or 'unknown'}, {version.actual or 'unknown'})"
        for name, version in theirs.items()
        if version.actual is None or version.actual != known.get(name)
    ]


def outdated_versions(found: Mapping[str, LibraryVersion]) -> list[str]:
    """Return PostgreSQL columns whose recorded library version differs from the actual one.

    Each string of the result has a column's name and, for messages, the two versions.

    Args:
        found: The versions on one server, by column.
    """
    return [
        f"{name} ({version.actual or 'unknown'}, recorded {version.recorded})"
        for name, version in found.items()
        if version.recorded is not None and version.actual not in ("bytes", version.recorded)
    ]


def versions(session: Session, table: SourceTable, key: Sequence[str]) -> dict[str, LibraryVersion]:
    """Return the library version by which a PostgreSQL server compares each text column of a key.

    Args:
        session: A session on the server.
        table: The table.
        key: The names of the key's columns.
    """
    query = versions_query(session.info.server_version)
    rows = session.execute(query, (table.number, list(key))).fetchall()
    return {str(name): LibraryVersion(*version) for name, *version in rows}


def versions_query(server_version: int) -> sql.Composed:
    """Return the query of `versions` for a PostgreSQL server with this ``server_version_num``."""
    return _SINCE_15 if server_version >= 150000 else _BEFORE_15
