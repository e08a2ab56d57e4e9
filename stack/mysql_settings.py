"""The settings, roles and logins of MySQL and MariaDB in the stack, as plain values."""

from __future__ import annotations

from collections.abc import Mapping

from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import ADMIN, CAPTURE, DATABASE, MARKER, REPLICATOR, SNAPSHOT
from stack.secrets import Passwords, write_private

SUPERUSER = "root"
ROLES = (SUPERUSER, REPLICATOR, ADMIN, CAPTURE, SNAPSHOT, MARKER)

SETTINGS: Mapping[str, str] = {
    # Required for capture: every change as whole rows, kept for longer than an outage and a copy.
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_expire_logs_seconds": "2592000",
    "relay_log": "relay",
    "relay_log_recovery": "ON",
    "max_connections": "200",
    "max_allowed_packet": "64M",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+00:00",
    "skip_name_resolve": "ON",
    "innodb_buffer_pool_size": "128M",
    # With these, a crash of the server loses nothing, since the system has the writes. A crash of
    # the whole machine would, but this data is made to be thrown away.
    "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0",
}
"""The settings of every MySQL and MariaDB server."""

SETTINGS_BY_KIND: Mapping[str, Mapping[str, str]] = {
    MYSQL: {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "log_replica_updates": "ON",
        "mysqlx": "OFF",
    },
    MARIADB: {"gtid_strict_mode": "ON", "log_slave_updates": "ON"},
}

REPLICA_SETTINGS: Mapping[str, Mapping[str, str]] = {
    MYSQL: {"super_read_only": "ON"},
    MARIADB: {"read_only": "ON"},
}
"""By kind of server, the additional settings of a replica, which make the replica read-only."""


def roles_sql(kind: str, host: str) -> list[str]:
    """Return statements that create the database and the roles of the stack's MySQL.

    The roles get the rights that docs/mysql.md lists. The statements have placeholders for the
    passwords, for example ``{tributary_admin}``. The role ``admin`` later creates the tables in the
    schema ``tributary``, and then grants the other roles the rights on these tables.

    Args:
        kind: ``mysql`` or ``mariadb``.
        host: The host from which the roles log in.
    """
    # MariaDB has one right for binlog positions and another for a replica's state.
    watch = "REPLICATION CLIENT" + (", REPLICA MONITOR" if kind == MARIADB else "")
    audit = "PROCESS, REPLICATION CLIENT" + (", XA_RECOVER_ADMIN" if kind == MYSQL else "")
    roles = (REPLICATOR, ADMIN, CAPTURE, SNAPSHOT, MARKER)
    return [
        f"CREATE DATABASE {DATABASE}",
        *(f"CREATE USER '{role}'@'{host}' IDENTIFIED BY '{{{role}}}'" for role in roles),
        f"GRANT REPLICATION SLAVE ON *.* TO '{REPLICATOR}'@'{host}'",
        f"GRANT {audit} ON *.* TO '{ADMIN}'@'{host}'",
        f"GRANT ALL PRIVILEGES ON {DATABASE}.* TO '{ADMIN}'@'{host}'",
        f"GRANT ALL PRIVILEGES ON tributary.* TO '{ADMIN}'@'{host}' WITH GRANT OPTION",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{CAPTURE}'@'{host}'",
        f"GRANT SELECT ON {DATABASE}.* TO '{CAPTURE}'@'{host}'",
        f"GRANT {watch} ON *.* TO '{SNAPSHOT}'@'{host}'",
        f"GRANT SELECT ON {DATABASE}.* TO '{SNAPSHOT}'@'{host}'",
    ]


def write_option_file(kind: str, ports: Mapping[str, int], passwords: Passwords) -> None:
    """Write an option file for MySQL's clients into the folder of the stack's passwords.

    The section ``[client]`` has the login ``admin`` to the primary. ``[client_replica]`` has the
    login ``snapshot`` to the replica. With `mysql --defaults-extra-file=FILE`, no password is
    needed on the command line. For the replica, add `--defaults-group-suffix=_replica`.

    Args:
        kind: ``mysql`` or ``mariadb``.
        ports: Ports of the stack's servers by name.
        passwords: Passwords of the roles.
    """
    logins = (
        ("client", ADMIN, ports[kind]),
        ("client_replica", SNAPSHOT, ports[f"{kind}_replica"]),
    )
    text = "".join(
        f"[{group}]\nhost = {HOST}\nport = {port}\nprotocol = tcp\n"
        f"user = {role}\npassword = {passwords.get(role)}\n"
        for group, role, port in logins
    )
    write_private(passwords.folder / f"{kind}.cnf", text)
