"""The privileges that each login needs, as statements to run or to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.config import MysqlSourceConfig
from cdc.sources.mysql.catalog import OWN
from cdc.sources.mysql.connection import Connections, quoted
from cdc.sources.servers import Role
from cdc.sources.source_facts import SourceTable

Account = tuple[str, str]
"""Name and host."""

_OWN_RIGHTS: tuple[tuple[Role, str, tuple[str, ...]], ...] = (
    # The connector reads the definitions of both tables, and writes to one.
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
    """Return the rights on this product's tables for the logins other than the admin."""
    return _OWN_RIGHTS + _IDENTITY_RIGHTS if kind == "mariadb" else _OWN_RIGHTS


def accounts(connections: Connections) -> dict[Role, Account]:
    """Each login's account on the primary, where one name may have several accounts, by host.

    Raises:
        SourceError: A login cannot log in.
    """
    found: dict[Role, Account] = {}
    for role in ROLES:
        with connections.open(role) as session:
            name, _, host = str(session.value("SELECT current_user()")).rpartition("@")
            found[role] = (name, host)
    return found


def configured_accounts(config: MysqlSourceConfig) -> dict[Role, Account]:
    """Each login's account for any host, to print grants before the logins exist."""
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
    """The statements, for a superuser, that give each login exactly what it needs.

    Args:
        config: The source.
        tables: Tables to replicate. Without tables, the rights are for the source's databases.
        known: The accounts. By default, accounts of the configured names at any host.
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
        places = [f"{_pattern(database)}.*" for database in config.databases]
    for role in ("admin", "capture", "snapshot"):
        statements += [grant("SELECT", place, users[role]) for place in places]
    statements += own_grants(config.kind, users)
    return [f"{statement};" for statement in dict.fromkeys(statements)]


def watch(kind: str) -> tuple[str, ...]:
    """Return the rights for reading positions of the binlog and a replica's state."""
    return (
        ("REPLICATION CLIENT", "REPLICA MONITOR") if kind == "mariadb" else ("REPLICATION CLIENT",)
    )


def audit(kind: str) -> tuple[str, ...]:
    """Return the rights of the admin login on the server.

    On MySQL, XA_RECOVER_ADMIN shows the prepared branches of XA transactions. MariaDB shows them
    to every login.
    """
    return ("PROCESS", "REPLICATION CLIENT", *(("XA_RECOVER_ADMIN",) if kind == "mysql" else ()))


def own_grants(kind: str, users: Mapping[Role, Account]) -> list[str]:
    """Statements for `own_rights`; none for logins with the account of the admin, who owns them."""
    return [
        grant(", ".join(rights), f"{quoted(OWN)}.{quoted(table)}", users[role])
        for role, table, rights in own_rights(kind)
        if users[role] != users["admin"]
    ]


def grant(rights: str, place: str, account: Account) -> str:
    """One GRANT statement."""
    return f"GRANT {rights} ON {place} TO {account_sql(account)}"


def account_sql(account: Account) -> str:
    """An account as statements name it."""
    name, host = (part.replace("'", "''") for part in account)
    return f"'{name}'@'{host}'"


def _pattern(database: str) -> str:
    """A database pattern of the configuration, in the syntax of GRANT."""
    if database == "*":
        return "*"
    escaped = database.replace("_", r"\_").replace("%", r"\%")
    return quoted(escaped.replace("*", "%").replace("?", "_"))
