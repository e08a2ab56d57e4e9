"""The checks of one MySQL or MariaDB source: logins, settings, rights, and the replica."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from cdc.sources.mysql import compressed_columns, replica_faults, replicated_changes, rights
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.preparation import xa_used
from cdc.sources.mysql.server_settings import END_OLDER, WANTED
from cdc.sources.servers import Role, check_logins
from cdc.sources.source_facts import Check

OLDEST = {"mysql": (8, 0, 23), "mariadb": (10, 6, 1)}
"""The oldest supported version for each kind of server.

In older versions, statements and settings have other names.
"""

_TITLE = {"mysql": "MySQL", "mariadb": "MariaDB"}
_DAY_S = 86_400
_SHORT_S = 3 * _DAY_S
_LAG_WARNING_S = 60
_RDS = "/rdsdbbin/"
"""Folder of the installed servers of Amazon RDS and Aurora, as ``basedir`` shows the folder."""

_SET_MEANWHILE = {
    "mysql": "SELECT VARIABLE_NAME FROM performance_schema.variables_info"
    " WHERE VARIABLE_SOURCE = 'DYNAMIC'",
    "mariadb": "SELECT VARIABLE_NAME FROM information_schema.SYSTEM_VARIABLES"
    " WHERE GLOBAL_VALUE_ORIGIN = 'SQL'",
}
"""Queries, which any login may run, for the settings that were changed after the server's start."""
_WITHOUT_XA = (
    "Stop the use of XA transactions by applications. End each branch that is prepared, also one"
    " from before a restart: XA RECOVER CONVERT XID (MariaDB: XA RECOVER FORMAT='SQL') lists them,"
    " and XA COMMIT or XA ROLLBACK ends one. The server counts XA transactions from its start:"
    " if it still counts some, restart it once no application uses them."
)
DIRECT = (
    "Without GTIDs `replica` must follow the primary itself, and no other replica; or set"
    " gtid_mode = ON on all servers."
)
"""The remedy for a replica whose position in the primary's binlog is unknown."""


def run(connections: Connections) -> list[Check]:
    """Return all lines of ``check`` for a MySQL or MariaDB source.

    The line of a check that cannot run gives the reason.
    """
    logins, reachable = check_logins(connections.config, partial(_login_check, connections))
    found = list(logins)
    if ("admin", False) in reachable:
        with connections.open("admin") as session:
            found += _primary_checks(session, connections)
    if ("capture", False) in reachable:
        with connections.open("capture") as session:
            found.append(_replication_right_check(session, connections))
    lacking: list[Check] = []
    if all(line.status == "ok" for line in logins):
        lacking = list(rights.of_server(connections))
        found += [*lacking, *rights.of_tables(connections)]
    if ("admin", False) in reachable and not lacking:
        with connections.open("admin") as session:
            if used := xa_used(session):
                found.append(Check("XA transactions", "error", used, _WITHOUT_XA))
    if connections.config.replica is None:
        found.append(
            Check(
                "replica",
                "warning",
                "none is configured: snapshots read the primary",
                "Set `replica` to a replica of the primary, so that a bootstrap does not load the"
                " primary.",
            )
        )
    elif {("snapshot", True), ("admin", False)} <= reachable and not lacking:
        found += _replica_checks(connections)
    return found


def _login_check(connections: Connections, role: Role, on_replica: bool) -> Check:
    """Log in, and return the line of ``check`` with the version of MySQL or MariaDB."""
    name, kind = f"login {role}", connections.config.kind
    where = connections.where(on_replica=on_replica)
    with connections.open(role, on_replica=on_replica) as session:
        version = str(session.value("SELECT version()"))
    detail = f"{connections.credential(role).user} on {where}, {_TITLE[kind]} {version}"
    if _version_numbers(version) < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        return Check(name, "error", detail, f"Upgrade the server to {oldest} or later.")
    return Check(name, "ok", detail)


def _version_numbers(version: str) -> tuple[int, ...]:
    """Return the three numbers in the version string of a MySQL or MariaDB server."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0,)


def _primary_checks(session: Session, connections: Connections) -> Iterator[Check]:
    """Yield the lines of ``check`` about the settings of a MySQL or MariaDB primary."""
    variables = _global_variables(session)
    if variables["read_only"] == "ON":
        yield Check(
            "primary",
            "error",
            f"{connections.where(on_replica=False)} is read-only: it is a replica",
            "Point `primary` at the server that takes writes.",
        )
        return
    meanwhile = _set_meanwhile(session, connections.config.kind)
    for name, wanted in WANTED.items():
        seen = variables.get(name)
        if seen is None:
            continue
        if not wanted.fits(seen):
            severity: Literal["warning", "error"] = "warning" if wanted.at_crash else "error"
            yield Check(name, severity, seen or "empty", wanted.remedy)
        elif wanted.of_sessions and name in meanwhile:
            detail = (
                f"{seen or 'empty'}, set after the server started: older sessions may have"
                " another value"
            )
            yield Check(name, "warning", detail, f"Unless no older session is open, {END_OLDER}")
        else:
            yield Check(name, "ok", seen or "empty")
    if unlogged := replicated_changes.unlogged(session, connections.config.kind, variables):
        yield Check("log_slave_updates", "error", unlogged, replicated_changes.REMEDY)
    if connections.config.kind == "mysql":
        yield _gtid_mode_check(variables.get("gtid_mode", ""))
    on_rds = variables.get("basedir", "").startswith(_RDS)
    yield _retention_check(int(variables.get("binlog_expire_logs_seconds", 0)), on_rds=on_rds)
    if stops := compressed_columns.obstacle(session):
        yield Check("compressed columns", "error", *stops)


def _set_meanwhile(session: Session, kind: str) -> set[str]:
    """Return the settings whose old value an open MySQL or MariaDB session can still use.

    The result has all settings that were changed after the server started: a session that began
    before the change keeps the old value. The servers do not report when a session began. MySQL
    reports each session's values, but only to logins with rights that Tributary does not ask for.
    """
    return {str(row[0]).lower() for row in session.rows(_SET_MEANWHILE[kind])}


def _gtid_mode_check(mode: str) -> Check:
    """Return the line of ``check`` for MySQL's GTID mode; any mode except ON is a problem.

    With ON_PERMISSIVE, Debezium stores the GTIDs of its first start for ever. Once the server has
    purged them, the connector cannot start again, although the server has the stored file.
    """
    if mode == "ON":
        return Check("gtid_mode", "ok", mode)
    if mode == "ON_PERMISSIVE":
        return Check(
            "gtid_mode",
            "error",
            f"{mode}: the connector stores the GTIDs with which it first started, and cannot start"
            " again once the server has purged their binlogs",
            "Finish the change: SET GLOBAL gtid_mode = ON on all servers. If a connector has read"
            " the server meanwhile, offboard all tables of its source and tier, then onboard them"
            " again.",
        )
    return Check(
        "gtid_mode",
        "warning",
        f"{mode}: positions are files and offsets of the primary's binlog. Transactions that only"
        " the replica has are not detected, the replica must follow the primary itself, and"
        " tables need new copies if GTIDs are turned on later",
        "Set gtid_mode = ON and enforce_gtid_consistency = ON, preferably before the first copy.",
    )


def _retention_check(seconds: int, *, on_rds: bool = False) -> Check:
    """Return the line that the command ``check`` prints for the binlog's retention.

    The line is a warning if the retention is below three days. If ``on_rds`` is set, the line is
    always a warning.

    Args:
        seconds: The server's retention of the binlog, in seconds; 0 if it purges no binlog file.
        on_rds: Whether the server runs in Amazon RDS or Aurora. Such a server purges the binlog by
            a setting of Amazon's own, which no variable of the server shows.
    """
    name = "binlog_expire_logs_seconds"
    if on_rds:
        return Check(
            name,
            "warning",
            f"{seconds}, but Amazon RDS purges the binlog by its own setting `binlog retention"
            " hours`, by default as soon as it can",
            "Run CALL mysql.rds_show_configuration; and raise the setting above the longest outage"
            " plus the time of the largest copy: CALL mysql.rds_set_configuration('binlog retention"
            " hours', 168);",
        )
    if seconds == 0 or seconds >= _SHORT_S:
        shown = "never purged" if seconds == 0 else f"kept for {seconds / _DAY_S:.1f} days"
        return Check(name, "ok", shown)
    return Check(
        name,
        "warning",
        f"kept for {seconds / _DAY_S:.1f} days",
        "Raise it above the longest outage plus the time of the largest copy: if the position of"
        " a connector is purged, its tables need new copies.",
    )


def _replication_right_check(session: Session, connections: Connections) -> Check:
    """Check whether MySQL's or MariaDB's capture login may replicate; return the result line.

    The line of the command ``check`` is an error if the MySQL or MariaDB login lacks a right. If
    the login has a role, which may include the right, the line is only a warning.
    """
    user = connections.credential("capture").user
    grants = [str(row[0]).upper() for row in session.rows("SHOW GRANTS")]
    held = ",".join(
        grant.removeprefix("GRANT ").split(" ON *.*")[0] for grant in grants if " ON *.*" in grant
    )
    given = {part.strip() for part in held.split(",")}
    # MariaDB has its own name for the second right.
    names = (("REPLICATION SLAVE",), ("REPLICATION CLIENT", "BINLOG MONITOR"))
    lacking = [one[0] for one in names if not given & {*one, "ALL PRIVILEGES"}]
    if not lacking:
        return Check("privileges capture", "ok", f"{user} may replicate")
    by_role = any(" ON " not in grant for grant in grants)
    return Check(
        "privileges capture",
        "warning" if by_role else "error",
        f"{user} lacks {' and '.join(lacking)}"
        + (" itself; a role may grant it" if by_role else ""),
        f"GRANT {', '.join(lacking)} ON *.* TO the login {user}.",
    )


def _replica_checks(connections: Connections) -> Iterator[Check]:
    """Yield the lines that the command ``check`` prints about a MySQL or MariaDB replica."""
    kind, where = connections.config.kind, connections.where(on_replica=True)
    with connections.open("snapshot", on_replica=True) as session:
        theirs, status = _global_variables(session), replication_status(session)
        applying = replica_faults.applying(session, kind)
    with connections.open("admin") as session:
        ours = _global_variables(session)
    identity = "server_uuid" if kind == "mysql" else "server_id"
    if theirs[identity] == ours[identity]:
        yield Check(
            "replica",
            "error",
            f"{where} is the primary itself",
            "Point `replica` at a replica, or leave it out.",
        )
        return
    if status is None:
        yield Check(
            "replica",
            "error",
            f"{where} does not replicate from any server, or"
            f" {connections.credential('snapshot').user} may not see its replication",
            "Start replication there, by GTID if the primary has GTIDs, and grant the login"
            " REPLICATION CLIENT" + (" and REPLICA MONITOR." if kind == "mariadb" else "."),
        )
        return
    yield _follows_check(where, status)
    if ours.get("gtid_mode", "ON") == "ON":
        yield from _errant_check(where, replica_faults.errant_transactions(connections, "admin"))
        yield from _replica_gtid_mode_check(theirs)
    else:
        yield _transactions_without_gtids(where, follows_another(status, ours["server_uuid"]))
    yield from _replica_settings_check(theirs, applying)
    yield _lag_check(status)


def _replica_gtid_mode_check(theirs: dict[str, str]) -> Iterator[Check]:
    """Yield an error if a MySQL replica's GTID mode is not ON, although the primary's is ON."""
    if theirs.get("gtid_mode", "ON") != "ON":
        yield Check(
            "replica gtid_mode",
            "error",
            f"{theirs['gtid_mode']}, but the primary's is ON: the replica may execute"
            " transactions without a GTID",
            "Set gtid_mode = ON there, too.",
        )


def _transactions_without_gtids(where: str, other: str | None) -> Check:
    """Return the line that ``check`` prints about a MySQL replica's transactions without GTIDs.

    Without GTIDs, transactions that the replica has and the primary lacks cannot be found. So the
    line is a warning, or an error if the replica does not follow the primary directly.

    Args:
        where: The replica's name in messages.
        other: Why the replica does not follow the primary directly; None if it does.
    """
    if other:
        return Check("replica transactions", "error", f"{where} {other}", DIRECT)
    return Check(
        "replica transactions",
        "warning",
        "without GTIDs, transactions that did not come from the primary cannot be detected",
        "Keep super_read_only = ON there at all times, so that no session writes to the replica.",
    )


def _replica_settings_check(
    theirs: dict[str, str], applying: replica_faults.Applying
) -> Iterator[Check]:
    """Yield the lines of ``check`` about why a MySQL or MariaDB replica can have wrong rows."""
    if filters := replica_faults.filters(applying):
        yield Check(
            "replica filters",
            "error",
            "it leaves out changes: " + ", ".join(filters),
            replica_faults.WITHOUT_FILTERS,
        )
    if lenient := replica_faults.lenient(applying):
        yield Check(
            "replica errors",
            "error",
            "it may leave other rows than the primary has: " + ", ".join(lenient),
            replica_faults.STRICT,
        )
    if theirs["read_only"] != "ON":
        yield Check(
            "replica read_only",
            "warning",
            "applications can write to the replica, and no topic gets those changes",
            "SET GLOBAL read_only = ON (super_read_only in MySQL).",
        )


def _errant_check(where: str, errant: str) -> Iterator[Check]:
    """Yield the line of ``check`` about transactions that only a MySQL or MariaDB replica has.

    Args:
        where: The replica's name in messages.
        errant: The GTIDs of these transactions; empty if there are none.
    """
    yield (
        Check(
            "replica transactions",
            "error",
            f"{where} has executed transactions that the primary has not: {errant}",
            replica_faults.RECREATE,
        )
        if errant
        else Check("replica transactions", "ok", "all come from the primary")
    )


def follows_another(status: dict[str, Any], primary: str) -> str | None:
    """Return why a MySQL replica does not follow the primary directly; None if it does.

    Args:
        status: The result of :func:`replication_status`.
        primary: The primary's ``server_uuid``.
    """
    followed = str(status.get("source_uuid") or "")
    if followed.lower() == primary.lower():
        return None
    named = f"{status.get('source_host')}:{status.get('source_port')}"
    return (
        f"follows {named} ({followed or 'not connected yet'}), and not the primary ({primary}):"
        " without GTIDs its position in the primary's binlog is unknown"
    )


def _follows_check(where: str, status: dict[str, Any]) -> Check:
    """Check whether replication runs on a MySQL or MariaDB replica; return the result line."""
    stopped = [
        thread
        for thread in ("io", "sql")
        if str(status.get(f"replica_{thread}_running")).lower() != "yes"
    ]
    if stopped:
        why = str(status.get("last_sql_error") or status.get("last_io_error") or "").strip()
        return Check(
            "replica",
            "error",
            f"{where}: replication does not run (stopped threads: {', '.join(stopped)})"
            + (f": {why}" if why else ""),
            "Correct the error, then run START REPLICA there.",
        )
    source = f"{status.get('source_host')}:{status.get('source_port')}"
    return Check("replica", "ok", f"{where} follows {source}")


def _lag_check(status: dict[str, Any]) -> Check:
    """Return the line that ``check`` prints about the lag of a MySQL or MariaDB replica."""
    seconds = status.get("seconds_behind_source")
    late = seconds is None or int(seconds) > _LAG_WARNING_S
    return Check(
        "replica lag",
        "warning" if late else "ok",
        "not known" if seconds is None else f"{seconds} s",
        "Wait until the replica has caught up." if late else "",
    )


def _global_variables(session: Session) -> dict[str, str]:
    """Return a mapping from names, in lower case, to MySQL's or MariaDB's global settings."""
    return {str(name).lower(): str(value) for name, value in session.rows("SHOW GLOBAL VARIABLES")}


def replication_status(session: Session) -> dict[str, Any] | None:
    """Return the state of the first replication channel of a MySQL or MariaDB server.

    The keys are column names of SHOW REPLICA STATUS, in lower case. The result is None if the login
    sees no channel.
    """
    for row in session.named("SHOW REPLICA STATUS"):
        return replica_faults.by_current_names(row)
    return None
