"""The checks of one PostgreSQL source: logins, settings, rights, and the replica."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from psycopg import sql

from cdc.errors import ReplicaError
from cdc.sources.postgres import importers, key_order, letter_case, other_publications, version
from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.postgres.primary import identity
from cdc.sources.postgres.replica import check_standby, describe_lag, replica_position
from cdc.sources.servers import Role, check_logins
from cdc.sources.source_facts import Check

_LAG_WARNING_S = 60.0
_NAMED = 5

_SETTINGS = """
SELECT current_setting('wal_level'),
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots)::int,
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication)::int,
       current_setting('max_slot_wal_keep_size')
"""


# Tables that a role cannot replicate: it may not read them, or is not a member of their owner.
_USER_TABLES = """
SELECT n.nspname::text, c.relname::text, pg_catalog.pg_get_userbyid(c.relowner)::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'tributary')
  AND NOT {} ORDER BY 1, 2
"""
_LACKING: dict[Role, sql.Composed] = {
    "admin": sql.SQL(_USER_TABLES).format(sql.SQL("pg_catalog.pg_has_role(c.relowner, 'USAGE')")),
    "snapshot": sql.SQL(_USER_TABLES).format(
        sql.SQL(
            "(pg_catalog.has_schema_privilege(n.oid, 'USAGE') "
            "AND pg_catalog.has_table_privilege(c.oid, 'SELECT'))"
        )
    ),
}


def run(connections: Connections) -> list[Check]:
    """Return all lines of ``check`` for a PostgreSQL source.

    The line of a check that cannot run gives the reason.
    """
    found, reachable = check_logins(connections.config, partial(_login_check, connections))
    if ("admin", False) in reachable:
        with connections.open("admin") as session:
            found += _primary_checks(session, connections)
            if stops := letter_case.obstacle(session):
                found.append(Check("names of columns", "error", *stops))
            found += other_publications.check(session, connections.credential("admin").user)
            if old := key_order.outdated_collations(session):
                found.append(
                    Check(
                        "order of text",
                        "warning",
                        "libraries that compare text have other versions than those that the"
                        f" database recorded for its indexes: {', '.join(old)}. Tables with such a"
                        " column in the key are copied as one chunk, and an index that was not"
                        " rebuilt can hide rows from lookups by key",
                        key_order.REBUILD,
                    )
                )
            found += _missing_on_tables(session, connections, "admin")
    if ("snapshot", False) in reachable:
        with connections.open("snapshot") as session:
            found += _missing_on_tables(session, connections, "snapshot")
    if ("capture", False) in reachable:
        with connections.open("capture") as session:
            found.append(_may_replicate(session, connections))
    if connections.config.replica is None:
        found.append(
            Check(
                "replica",
                "warning",
                "none is configured: snapshots read the primary",
                "Set `replica` to a physical standby, so that a bootstrap does not load the"
                " primary.",
            )
        )
    elif {("snapshot", True), ("admin", False)} <= reachable:
        found += _replica_checks(connections)
    return found


def _login_check(connections: Connections, role: Role, on_replica: bool) -> Check:
    """Return the line of ``check`` about a login to PostgreSQL, with the server's version."""
    where = connections.where(on_replica=on_replica)
    with connections.open(role, on_replica=on_replica, new_login=True) as session:
        row = session.execute("SHOW server_version").fetchone()
        number, pooled = session.info.server_version, session.is_pooled
    detail = f"{connections.credential(role).user} on {where}, PostgreSQL {row[0] if row else ''}"
    if pooled:
        detail += ", through a pooler"
    # A replica decodes nothing, so it can be older.
    stops = None if on_replica else version.obstacle(number)
    if stops is not None:
        return Check(f"login {role}", "error", f"{detail}: {stops[0]}", stops[1])
    return Check(f"login {role}", "ok", detail)


def _primary_checks(session: Session, connections: Connections) -> Iterator[Check]:
    """Yield the lines that the command ``check`` prints about the PostgreSQL primary."""
    row = session.execute("SELECT pg_is_in_recovery()").fetchone()
    if row and row[0]:
        yield Check(
            "primary",
            "error",
            f"{connections.where(on_replica=False)} is in recovery: it is a standby",
            "Point `primary` at the server that takes writes.",
        )
        return
    settings = session.execute(_SETTINGS).fetchone()
    if settings is not None:
        yield from _log_settings(settings)
    yield _identity_readable(session)
    user, database = connections.credential("admin").user, connections.config.primary.database
    may = session.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'), "
        "to_regnamespace('tributary') IS NOT NULL"
    ).fetchone()
    if may and not any(may):
        yield Check(
            "privileges admin",
            "error",
            f"{user} may not create the publication and schema tributary",
            _as_superuser(sql.SQL("GRANT CONNECT, CREATE ON DATABASE {} TO {};"), database, user),
        )
    else:
        yield Check("privileges admin", "ok", f"{user} may create the publication")


def _missing_on_tables(session: Session, connections: Connections, role: Role) -> Iterator[Check]:
    """Yield a note with the tables for which the PostgreSQL role lacks rights.

    The result is a note and no error, since not every table has to be replicated.
    """
    lacking = [
        (sql.Identifier(schema, name).as_string(None), sql.Identifier(owner).as_string(None))
        for schema, name, owner in session.execute(_LACKING[role]).fetchall()
    ]
    if not lacking:
        return
    user = sql.Identifier(connections.credential(role).user).as_string(None)
    tables = sorted({table for table, _ in lacking})
    if role == "admin":
        detail = f"{user} may not publish {_first_names(tables)}: only their owners may"
        grants = sorted({f"GRANT {owner} TO {user};" for _, owner in lacking})
    else:
        detail = f"{user} may not read {_first_names(tables)}"
        schemas = sorted({table.split(".")[0] for table in tables})
        grants = [f"GRANT USAGE ON SCHEMA {', '.join(schemas)} TO {user};"]
        grants += [f"GRANT SELECT ON {table} TO {user};" for table in tables[:_NAMED]]
    yield Check(
        f"tables {role}",
        "note",
        detail,
        "To replicate these tables, run as a superuser: " + " ".join(grants),
    )


def _first_names(names: list[str]) -> str:
    """Return the names of the first PostgreSQL tables and the number of the remaining ones.

    The result is text for a message.
    """
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _as_superuser(statement: sql.SQL, *names: str) -> str:
    """Return a remedy with a statement that a PostgreSQL superuser must run.

    Args:
        statement: The statement, with a placeholder for each name.
        names: The names, for example of roles and tables.
    """
    text = statement.format(*map(sql.Identifier, names)).as_string(None)
    return f"Run as a superuser: {text}"


def _log_settings(settings: tuple[Any, ...]) -> Iterator[Check]:
    """Yield the lines that ``check`` prints about PostgreSQL's settings for log and slots."""
    wal_level, slots, used_slots, senders, used_senders, keep = settings
    logical = wal_level == "logical"
    yield Check(
        "wal_level",
        "ok" if logical else "error",
        str(wal_level),
        "" if logical else "Set wal_level = logical on the primary and restart it.",
    )
    for name, limit, used in (
        ("max_replication_slots", slots, used_slots),
        ("max_wal_senders", senders, used_senders),
    ):
        free = limit > used
        yield Check(
            name,
            "ok" if free else "error",
            f"{used} of {limit} in use",
            "" if free else f"Raise {name} on the primary and restart it.",
        )
    bounded = keep != "-1"
    yield Check(
        "max_slot_wal_keep_size",
        "ok" if bounded else "warning",
        str(keep) if bounded else "unlimited: a stopped connector can fill the primary's disk",
        "" if bounded else "Set max_slot_wal_keep_size to what the disk can spare.",
    )


def _identity_readable(session: Session) -> Check:
    """Check that the login may read the PostgreSQL server's system identifier and timeline."""
    found = identity(session)
    if found.system_identifier is not None and found.timeline is not None:
        detail = f"system {found.system_identifier}, timeline {found.timeline}"
        return Check("server identity", "ok", detail)
    return Check(
        "server identity",
        "warning",
        "pg_control_system() or pg_walfile_name() is not permitted: a switch to another server"
        " cannot be detected",
        "GRANT EXECUTE ON FUNCTION pg_control_system(), pg_control_checkpoint(), "
        "pg_control_recovery() to the roles of this source.",
    )


def _may_replicate(session: Session, connections: Connections) -> Check:
    """Check whether PostgreSQL's capture login may replicate; return the result line."""
    user = connections.credential("capture").user
    row = session.execute(
        "SELECT bool_or(rolname = current_user AND (rolreplication OR rolsuper) "
        "OR rolname = 'rds_replication' AND pg_has_role(oid, 'MEMBER')) FROM pg_catalog.pg_roles"
    ).fetchone()
    if row and row[0]:
        return Check("privileges capture", "ok", f"{user} may replicate")
    return Check(
        "privileges capture",
        "error",
        f"{user} lacks REPLICATION",
        _as_superuser(sql.SQL("ALTER ROLE {} LOGIN REPLICATION;"), user)
        + " (Managed servers have a role to grant instead.)",
    )


def _importers_check(others: str | None, *, hidden: bool) -> Check:
    """Return the line that ``check`` prints about importers of snapshots on PostgreSQL's replica.

    Args:
        others: A sentence about programs that import snapshots; None if none is visible.
        hidden: Whether the server hides statements of other users' sessions from the login.
    """
    if others is not None:
        return Check("replica snapshots", "warning", others, importers.REMEDY)
    if hidden:
        return Check(
            "replica snapshots",
            "note",
            "the snapshot login does not see what other users' sessions run on the replica, so one"
            " that imports a snapshot shows only if it is a pg_dump with several sessions",
            "GRANT pg_read_all_stats TO that login shows them to `check` and copies.",
        )
    return Check(
        "replica snapshots", "ok", "no session on the replica is seen to import a snapshot"
    )


def _replica_checks(connections: Connections) -> Iterator[Check]:
    """Yield the lines that the command ``check`` prints about the PostgreSQL replica."""
    where = connections.where(on_replica=True)
    try:
        with connections.open("admin") as session:
            ours = identity(session)
        with connections.open("snapshot", on_replica=True) as session:
            theirs = identity(session)
            delay = session.execute(
                "SELECT current_setting('max_standby_streaming_delay'), "
                "current_setting('hot_standby_feedback')"
            ).fetchone()
            others, hidden = importers.importing(session)
        position = replica_position(connections)
        warnings = check_standby(theirs, ours, where)
    except ReplicaError as error:
        yield Check("replica", "error", error.message, error.remedy)
        return
    if warnings:
        yield Check(
            "replica",
            "note",
            "; ".join(warnings),
            "Nothing to do: the marker row is compared in any case.",
        )
    else:
        yield Check("replica", "ok", f"{where} is a standby of the primary")
    yield _importers_check(others, hidden=hidden)
    late = position.paused or (position.lag_seconds or 0) > _LAG_WARNING_S
    yield Check(
        "replica lag",
        "warning" if late else "ok",
        describe_lag(position),
        "Resume replay, or wait until the replica has caught up." if late else "",
    )
    if delay is not None:
        risky = delay[0] not in ("-1",) and delay[1] != "on"
        yield Check(
            "replica conflicts",
            "warning" if risky else "ok",
            f"max_standby_streaming_delay = {delay[0]}, hot_standby_feedback = {delay[1]}",
            "Set hot_standby_feedback = on, or raise the delay: the replica may cancel a copy"
            " that takes longer."
            if risky
            else "",
        )
