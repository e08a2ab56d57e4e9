"""Finds sessions of other programs that import snapshots on a PostgreSQL standby.

A snapshot that a standby exports can lack its list of transactions in progress. A session that
imports such a snapshot marks rows of these transactions as rolled back, for all sessions of the
standby.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc.sources.postgres.connection import NOT_OFFERED, Session
from cdc.sources.servers import APPLICATION

HIDDEN = "<insufficient privilege>"
"""What PostgreSQL shows in place of another user's statement that the login may not see."""
REMEDY = (
    "Run `pg_dump -j` on the primary, or on a standby that is not copied from. Then compare tables"
    " that were copied with `tributary verify --from primary`."
)
_NAMED = 5
_QUERY = """
SELECT pid::bigint, coalesce(usename::text, ''), coalesce(application_name, ''), coalesce(query, '')
FROM pg_catalog.pg_stat_activity
WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid()
  AND backend_type = 'client backend' ORDER BY pid
"""


def importing(session: Session) -> tuple[str | None, bool]:
    """Return a sentence about PostgreSQL sessions that import snapshots, and whether any is hidden.

    The sentence is None if no session that imports a snapshot is visible now. A session is hidden
    if the server does not show the session's statement to the login.
    """
    try:
        with session.transaction():
            rows = session.execute(_QUERY).fetchall()
    except NOT_OFFERED:
        return None, True
    return described(rows), any(query == HIDDEN for _, _, _, query in rows)


def described(sessions: Iterable[tuple[int, str, str, str]]) -> str | None:
    """Return a sentence about PostgreSQL sessions that import snapshots; None if no session does.

    A single session of pg_dump imports no snapshot. Several sessions of pg_dump are taken for one
    ``pg_dump -j``, whose sessions import a snapshot.

    Args:
        sessions: Process id, user, application and newest statement of each session.
    """
    others = [one for one in sessions if one[2] != APPLICATION]
    dumps = [one for one in others if one[2] == "pg_dump"]
    found = [
        one
        for one in others
        if "SET TRANSACTION SNAPSHOT" in one[3].upper() or (one in dumps and len(dumps) > 1)
    ]
    if not found:
        return None
    names = [f"{application or user} (process {pid})" for pid, user, application, _ in found]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"other programs import snapshots on the replica: {', '.join(names[:_NAMED])}{more};"
        " copies can lack rows that such a session marks as rolled back"
    )
