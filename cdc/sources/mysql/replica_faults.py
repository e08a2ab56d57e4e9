"""Finds reasons why a replica's rows could differ from the primary's without an error.

The command `check` uses this module, and so does each copy or verification that reads a replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc.log.gtid import MysqlGtidSet, mariadb_numbers
from cdc.runtime.waiting import wait_while
from cdc.sources.mysql.catalog import SYSTEM
from cdc.sources.mysql.connection import Connections, Session

WITHOUT_FILTERS = "Use a replica without filters."
STRICT = (
    "Set slave_skip_errors = OFF and slave_exec_mode = STRICT (MySQL: replica_skip_errors,"
    " replica_exec_mode), and MariaDB's slave_run_triggers_for_rbr = NO, in the replica's option"
    " file, restart it, and recreate the replica from the primary: its rows may differ already."
)
RECREATE = (
    "Recreate the replica from this primary, read-only: it belongs to another primary, or an"
    " application wrote to it. If these transactions changed no row (ANALYZE TABLE, for one), an"
    " empty transaction with the same GTID on the primary is enough."
)

_FILTERS = (
    *("do_db", "ignore_db", "do_table", "ignore_table", "wild_do_table", "wild_ignore_table"),
    *("rewrite_db", "ignore_server_ids", "do_domain_ids", "ignore_domain_ids"),
)
# Filters that list tables as ``database.table``. Managed services leave out system tables on all of
# their replicas, for example mysql.rds_history on Amazon RDS.
_IGNORED_TABLES = ("replicate_ignore_table", "replicate_wild_ignore_table")
# The values of each setting with which the applier stops at each error, and changes only the rows
# that the primary changed. MySQL also has the settings by MariaDB's names.
_STRICT = {
    "slave_skip_errors": ("", "OFF"),
    "replica_skip_errors": ("", "OFF"),
    "slave_exec_mode": ("STRICT",),
    "replica_exec_mode": ("STRICT",),
    "slave_run_triggers_for_rbr": ("NO",),
}
_SETTINGS = (*_STRICT, "replicate_rewrite_db")

_UNCONFIRMED_S = {"mysql": 15.0, "mariadb": 0.0}
"""How long a replica can have a transaction that its primary does not yet count as executed.

This is a mapping from the kind of the servers to seconds. A MySQL primary sends a transaction,
waits for an acknowledgement (by default 10 s at most), and then counts the transaction. A MariaDB
primary counts a transaction before it sends the transaction.
"""
_POLL_S = (0.02, 0.5)


@dataclass(frozen=True)
class Applying:
    """The settings and the state with which a MySQL or MariaDB replica applies changes.

    Args:
        channels: The state of each replication channel, as `by_current_names` returns it.
        settings: The replica's settings by name.
    """

    channels: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Executed:
    """The transactions that a MySQL or MariaDB server has executed, from its system variables.

    Args:
        logged: MySQL's ``gtid_executed``, MariaDB's ``gtid_binlog_state``.
        replicated: MariaDB's ``gtid_slave_pos``; empty on MySQL.
        server: MariaDB's ``server_id``; 0 on MySQL.
    """

    logged: str
    replicated: str = ""
    server: int = 0


def applying(session: Session, kind: str) -> Applying:
    """Return the settings and the state with which a MySQL or MariaDB replica applies changes."""
    names = ", ".join(f"'{name}'" for name in _SETTINGS)
    settings = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return Applying(
        tuple(channels(session, kind)),
        {str(name).lower(): str(value) for name, value in settings},
    )


def channels(session: Session, kind: str) -> Iterator[dict[str, Any]]:
    """Return the state of each channel of a MySQL or MariaDB replica.

    The columns have the names that `by_current_names` gives them.
    """
    # MariaDB shows the default channel alone, unless it is asked for all channels.
    shown = "SHOW ALL REPLICAS STATUS" if kind == "mariadb" else "SHOW REPLICA STATUS"
    return map(by_current_names, session.named(shown))


def by_current_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the replication status with the column names of new MySQL versions.

    The names are in lower case. For example, ``Slave_IO_Running`` becomes ``replica_io_running``.
    """
    return {
        name.lower().replace("slave", "replica").replace("master", "source"): value
        for name, value in row.items()
    }


def filters(found: Applying) -> list[str]:
    """Return the names of a MySQL or MariaDB replica's filters that leave out or redirect changes.

    A filter that ignores tables is not returned if it names only tables of the system databases.
    """
    names = [f"replicate_{name}" for name in _FILTERS]
    return [
        name
        for name in names
        if any(
            _affects_user_tables(name, str(one.get(name) or ""))
            for one in (found.settings, *found.channels)
        )
    ]


def _affects_user_tables(name: str, value: str) -> bool:
    """Whether a replication filter of MySQL or MariaDB affects tables outside system databases."""
    if name not in _IGNORED_TABLES:
        return bool(value)
    listed = (one.strip() for one in value.split(",") if one.strip())
    return any(one.partition(".")[0].replace("\\", "") not in SYSTEM for one in listed)


def lenient(found: Applying) -> list[str]:
    """Return settings by which a MySQL or MariaDB replica's rows can differ from the primary's.

    With such a setting, the applier continues after a change that it cannot apply, or it runs
    triggers, which change further rows.
    """
    return [
        f"{name} = {found.settings[name]}"
        for name, wanted in _STRICT.items()
        if name in found.settings
        and found.settings[name].upper() not in wanted
        and name.replace("slave", "replica") not in found.settings.keys() - {name}
    ]


def executed(session: Session, kind: str) -> Executed:
    """Return the transactions that a MySQL or MariaDB server has executed."""
    if kind == "mysql":
        return Executed(str(session.value("SELECT @@global.gtid_executed") or ""))
    ((logged, replicated, server),) = session.rows(
        "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos, @@global.server_id"
    )
    return Executed(str(logged or ""), str(replicated or ""), int(str(server)))


def errant_transactions(
    connections: Connections, login: Literal["admin", "marker"] = "marker"
) -> str:
    """Return the GTIDs that the replica has executed and the primary has not; empty if none.

    With semi-synchronous replication, a MySQL primary sends a transaction to the replica, waits for
    the replica's acknowledgement, and only then counts the transaction as executed. So the function
    queries the primary repeatedly. It stops when the primary has executed all transactions of the
    replica, or after the longest time that a wait for an acknowledgement takes.

    Args:
        connections: Opens sessions.
        login: The role that queries the primary.
    """
    kind = connections.config.kind
    with connections.open("snapshot", on_replica=True) as session:
        theirs = executed(session, kind)

    def lacking() -> str:
        with connections.open(login) as session:
            return errant(theirs, executed(session, kind), kind)

    return wait_while(lacking, timeout_s=_UNCONFIRMED_S[kind], poll_s=_POLL_S)


def errant(replica: Executed, primary: Executed, kind: str) -> str:
    """Return a MySQL or MariaDB replica's GTIDs that the primary has not executed; empty if none.

    The caller must read the replica before the primary. Otherwise the replica's set could have
    transactions that the primary executed between the two reads, and the primary's set would lack
    them.

    A MariaDB primary has executed a transaction if the primary's log has a GTID of the same domain
    and server with the same or a higher number. The log can lack transactions that the server
    replicated before it became the primary. ``gtid_slave_pos`` has the last such transaction of
    each domain.

    A MariaDB replica can follow several primaries. So if this primary lacks a transaction's domain,
    the result has the transaction only if the replica itself wrote the transaction.
    """
    if kind == "mysql":
        return str(MysqlGtidSet.parse(replica.logged).without(MysqlGtidSet.parse(primary.logged)))
    logged = _highest_executed(mariadb_numbers(primary.logged))
    before = {domain: number for domain, _, number in mariadb_numbers(primary.replicated)}
    domains = {*before, *(domain for domain, _ in logged)}
    theirs = _highest_executed(
        [*mariadb_numbers(replica.logged), *mariadb_numbers(replica.replicated)]
    )
    return ",".join(
        f"{domain}-{server}-{number}"
        for (domain, server), number in sorted(theirs.items())
        if (domain in domains or server == replica.server)
        and number > max(logged.get((domain, server), 0), before.get(domain, 0))
    )


def _highest_executed(found: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Return the highest GTID number that a MariaDB server has executed, by domain and server."""
    result: dict[tuple[int, int], int] = {}
    for domain, server, number in found:
        result[domain, server] = max(number, result.get((domain, server), 0))
    return result
