"""The privileges that each login needs, as statements to run or to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.config import MysqlSourceConfig
from cdc.sources.mysql.accounts import Account, current_account, grant
from cdc.sources.mysql.catalog import OWN
from cdc.sources.mysql.connection import Connections, quoted
from cdc.sources.servers import Role
from cdc.sources.source_facts import SourceTable

_OWN_RIGHTS: tuple[tuple[Role, str, tuple[str, ...]], ...] = (
    # The connector reads the definitions of both tables, and writes to the heartbeat table only.
    ("capture", "heartbeat", ("SELECT", "INSERT", "UPDATE")),
    ("capture", "marker", ("SELECT",)),
    ("marker", "marker", ("SELECT", "INSERT", "DELETE")),
    ("snapshot", "marker", ("SELECT",)),
)
_IDENTITY_RIGHTS: tuple[tuple[Role, str, tuple[str, ...]], ...] = (
    ("marker", "source_identity", ("SELECT",)),
    ("snapshot", "source_identity", ("SELECT",)),
)

ROLES: tuple[Role, ...] = ("admin", "capture", "snapshot", "marker")


def own_rights(kind: str) -> tuple[tuple[Role, str, tuple[str, ...]], ...]:
    """Return the rights that MySQL or MariaDB logins need on Tributary's tables.

    Each item is a role, a table, and the rights that the role needs on the table.
    """
    return _OWN_RIGHTS + _IDENTITY_RIGHTS if kind == "mariadb" else _OWN_RIGHTS


def accounts(connections: Connections) -> dict[Role, Account]:
    """Return each role's account on the MySQL or MariaDB primary.

    Raises:
        SourceError: A login cannot log in.
    """
    found: dict[Role, Account] = {}
    for role in ROLES:
        with connections.open(role) as session:
            found[role] = current_account(session)
    return found


def configured_accounts(config: MysqlSourceConfig) -> dict[Role, Account]:
    """Return each role's MySQL or MariaDB account: the configured user at any host.

    The account need not exist.
    """
    users = config.credentials
    return {
        "admin": (users.admin.user, "%"),
        "capture": (users.capture.user, "%"),
        "snapshot": (users.snapshot.user, "%"),
        "marker": (users.marker.user, "%"),
    }


def grants_sql(
    config: MysqlSourceConfig,
    tables: Sequence[SourceTable] = (),
    known: Mapping[Role, Account] | None = None,
) -> list[str]:
    """Return the MySQL or MariaDB statements that give each login exactly the rights it needs.

    A superuser must run these statements.

    Args:
        config: The source.
        tables: Tables to replicate. If there are none, the statements grant rights on all databases
            of the source.
        known: The account of each role; by default, the configured user at any host.
    """
    users = known or configured_accounts(config)
    statements = [
        # PROCESS shows a table's files, by which a replaced table is recognized, and its cascades.
        grant(", ".join(audit(config.kind)), "*.*", users["admin"]),
        grant("ALL PRIVILEGES", f"{quoted(OWN)}.*", users["admin"]) + " WITH GRANT OPTION",
        grant("REPLICATION SLAVE, REPLICATION CLIENT", "*.*", users["capture"]),
        grant(", ".join(watch(config.kind)), "*.*", users["snapshot"]),
    ]
    if tables:
        places = [f"{quoted(one.table.schema)}.{quoted(one.table.name)}" for one in tables]
    else:
        places = [f"{_database_pattern(database)}.*" for database in config.databases]
    for role in ("admin", "capture", "snapshot"):
        statements += [grant("SELECT", place, users[role]) for place in places]
    statements += own_grants(config.kind, users)
    return [f"{statement};" for statement in dict.fromkeys(statements)]


def watch(kind: str) -> tuple[str, ...]:
    """Return the server-wide rights to read the binlog's position and the replication state."""
    return (
        ("REPLICATION CLIENT", "REPLICA MONITOR") if kind == "mariadb" else ("REPLICATION CLIENT",)
    )


def audit(kind: str) -> tuple[str, ...]:
    """Return the rights on the whole MySQL or MariaDB server that the admin login needs.

    On MySQL, a login needs XA_RECOVER_ADMIN to read the prepared branches of XA transactions. On
    MariaDB, every login may read them.
    """
    return ("PROCESS", "REPLICATION CLIENT", *(("XA_RECOVER_ADMIN",) if kind == "mysql" else ()))


def own_grants(kind: str, users: Mapping[Role, Account]) -> list[str]:
    """Return the GRANT statements of MySQL or MariaDB for the rights of `own_rights`.

    The admin's account is left out, since it already has all rights on Tributary's tables.
    """
    return [
        grant(", ".join(rights), f"{quoted(OWN)}.{quoted(table)}", users[role])
        for role, table, rights in own_rights(kind)
        if users[role] != users["admin"]
    ]


def _database_pattern(database: str) -> str:
    """Convert a configured pattern of database names to the syntax of MySQL's GRANT."""
    if database == "*":
        return "*"
    escaped = database.replace("_", r"\_").replace("%", r"\%")
    return quoted(escaped.replace("*", "%").replace("?", "_"))
