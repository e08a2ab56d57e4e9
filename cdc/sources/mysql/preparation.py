"""Creates Tributary's tables on the primary, and checks that the binlog has all changes."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.sources.mysql.accounts import Account, grant
from cdc.sources.mysql.catalog import OWN
from cdc.sources.mysql.connection import Connections, Session, quoted
from cdc.sources.mysql.grants import ROLES, accounts, own_rights
from cdc.sources.mysql.innodb import read_cascades
from cdc.sources.mysql.primary import binlog_filter, has_gtids
from cdc.sources.mysql.replicated_changes import unlogged
from cdc.sources.mysql.rights import prepared_branches
from cdc.sources.mysql.server_settings import WANTED, losing_settings
from cdc.sources.mysql.table_rules import former_formats, hidden_columns
from cdc.sources.servers import Role
from cdc.sources.source_facts import SourceTable
from schemas.table import TableId

_DATABASE = f"CREATE DATABASE IF NOT EXISTS {OWN} CHARACTER SET utf8mb4"

# Both carry the server's identity, so that a switch to another server shows in the log.
_TABLES = {
    "heartbeat": f"""
CREATE TABLE IF NOT EXISTS {OWN}.heartbeat (
    source varchar(255) NOT NULL PRIMARY KEY, server varchar(255),
    beat_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), beats bigint NOT NULL DEFAULT 0)
    ENGINE = InnoDB CHARACTER SET utf8mb4
""",
    "marker": f"""
CREATE TABLE IF NOT EXISTS {OWN}.marker (
    id char(36) NOT NULL PRIMARY KEY, server varchar(255),
    written_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), KEY (written_at))
    ENGINE = InnoDB CHARACTER SET utf8mb4
""",
}

# MySQL has its own id, which is copied together with the data (see `cdc.sources.mysql.primary`).
_IDENTITY = f"{OWN}.source_identity"
_IDENTITY_TABLE = f"""
CREATE TABLE IF NOT EXISTS {_IDENTITY} (
    one tinyint NOT NULL PRIMARY KEY, id char(36) NOT NULL)
    ENGINE = InnoDB CHARACTER SET utf8mb4
"""
# The row is written once. A later process keeps the first process's row.
_IDENTITY_ROW = f"INSERT IGNORE INTO {_IDENTITY} (one, id) VALUES (1, uuid())"  # noqa: S608

# The rights that a session sees of its own login: on the server, one database and one table.
_HELD = """
SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = %s
UNION SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
      WHERE GRANTEE = %s AND TABLE_SCHEMA = %s
UNION SELECT PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
      WHERE GRANTEE = %s AND TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""

_READ = (
    *WANTED,
    "binlog_transaction_compression",
    "log_slave_updates",
    "log_replica_updates",
    "wsrep_on",
)


def prepare(connections: Connections) -> None:
    """Create what MySQL or MariaDB lacks: database ``tributary``, its tables, rights on them."""
    statements = planned(connections)
    if statements:
        with connections.open("admin") as session:
            for statement in statements:
                session.rows(statement)


def planned(connections: Connections, tables: Sequence[TableId] = ()) -> list[str]:
    """Return the statements that prepare MySQL or MariaDB for the capture of these tables.

    No statement is executed. No table needs a statement of its own, since the binlog contains the
    changes of all tables.
    """
    with connections.open("admin") as session:
        databases = session.rows(
            "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (OWN,)
        )
        there = {
            str(row[0])
            for row in session.rows(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (OWN,)
            )
        }
        named = "source_identity" in there and session.rows(
            f"SELECT 1 FROM {_IDENTITY} WHERE one = 1"  # noqa: S608 - a fixed name
        )
    statements = [] if databases else [_DATABASE]
    statements += [text for name, text in _TABLES.items() if name not in there]
    if connections.config.kind == "mariadb" and not named:
        statements += [_IDENTITY_TABLE, _IDENTITY_ROW]
    known = accounts(connections)
    for role in ROLES:
        statements += _grants(connections, role, known)
    return [" ".join(statement.split()) for statement in statements]


def _grants(connections: Connections, role: Role, known: dict[Role, Account]) -> list[str]:
    """Return the MySQL or MariaDB statements that grant a login rights on Tributary's tables.

    The result leaves out a table on which the login already has all rights that it needs. A right
    that the login has only by a role does not count.
    """
    account = known[role]
    rights_of = own_rights(connections.config.kind)
    wanted = [(table, rights) for who, table, rights in rights_of if who == role]
    if account == known["admin"] or not wanted:
        return []
    statements = []
    grantee = "'{}'@'{}'".format(*account)
    with connections.open(role) as session:
        for table, rights in wanted:
            places = (grantee, grantee, OWN, grantee, OWN, table)
            held = {str(row[0]).upper() for row in session.rows(_HELD, places)}
            if not held.issuperset(rights):
                place = f"{quoted(OWN)}.{quoted(table)}"
                statements.append(grant(", ".join(rights), place, account))
    return statements


def audit_table(session: Session, table: SourceTable, *, append: bool = False) -> list[str]:
    """Return the problems due to which a MySQL or MariaDB table cannot be copied or captured.

    For example, the binlog lacks the table's changes, or the connectors misread its values.

    Args:
        session: The admin's session on the primary.
        table: The table.
        append: Whether the table is an append table, of which only inserted rows are captured.
    """
    problems: list[str] = []
    if table.kind not in ("table", "partitioned"):
        problems.append("it is not a plain InnoDB table, so it cannot be read under a view")
    if table.kind in ("table", "partitioned") and not append:
        problems += _cascades(session, table)
    problems += [f"it {one}" for one in (former_formats(table), hidden_columns(table)) if one]
    # The fingerprint also has this fact, since a table that the filter leaves out has no events.
    filtered = binlog_filter(session, session.kind).leaves_out(table.table.schema)
    return [*problems, *([filtered] if filtered else [])]


def audit_server(session: Session, *, append: bool) -> list[str]:
    """Return the problems of a MySQL or MariaDB server that affect the capture of all tables.

    Due to such a problem, the binlog lacks changes, or the connectors misread changes. A
    table's run calls this function even if the table has no new events, since a change that is not
    logged causes no event.

    Args:
        session: The admin's session on the primary.
        append: Whether the captured tables are append tables, of which only inserted rows are
            captured.

    Raises:
        SourceError: The login lacks XA_RECOVER_ADMIN, which only MySQL requires.
    """
    marks = ", ".join(["%s"] * len(_READ))
    rows = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _READ)
    seen = {str(name).lower(): str(value) for name, value in rows}
    problems = list(losing_settings(seen))
    if append and seen.get("binlog_transaction_compression") == "ON":
        # A row's place in the binlog identifies the row if the connector sends it again.
        problems.append(
            "binlog_transaction_compression is ON: rows of a compressed transaction have no"
            " positions of their own, by which mode append distinguishes rows"
        )
    found = (xa_used(session), unlogged(session, session.kind, seen))
    return problems + [problem for problem in found if problem is not None]


def _cascades(session: Session, table: SourceTable) -> list[str]:
    """Return a problem for each foreign key by which InnoDB changes the table without events."""
    if not cascades_unseen(session):
        return []
    return [
        f"foreign key {name} changes its rows without an event (ON DELETE {delete}, ON UPDATE"
        f" {update}): only the parent's change is in the binlog"
        for name, delete, update in read_cascades(session, session.kind, table.table)
    ]


def cascades_unseen(session: Session) -> bool:
    """Whether MySQL's or MariaDB's binlog lacks the row changes that foreign keys cause.

    These changes are missing if InnoDB makes them. MySQL 9.6 and later versions make such changes
    in the server and log them, unless ``innodb_native_foreign_keys`` is on.
    """
    version = str(session.value("SELECT version()"))
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    if session.kind != "mysql" or numbers < (9, 6):
        return True
    native = session.rows("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return bool(native) and str(native[0][1]) not in ("OFF", "0")


def xa_used(session: Session) -> str | None:
    """Return evidence of XA transactions whose events can be wrong or missing.

    The result is None if there is no such evidence.

    The binlog has the rows of a prepared XA transaction before the transaction commits or rolls
    back. An XA transaction that commits without XA PREPARE is a problem only on servers without
    GTIDs (see `_xa_of_one_phase`).
    """
    if used := _xa_prepared(session):
        return f"{used}: the binlog contains their rows before they commit or roll back"
    if used := _xa_of_one_phase(session):
        return (
            f"{used}: without GTIDs, a connector that restarts between their rows skips some of"
            " these"
        )
    return None


def _xa_prepared(session: Session) -> str | None:
    """Return a text with evidence of prepared XA transactions; None if there is no evidence.

    The binlog has the rows of a prepared transaction before the transaction commits or rolls back.
    """
    # A prepared branch survives a restart of the server; the server's counters do not. InnoDB's
    # table of transactions also shows the server's own work, such as that of full-text indexes.
    if branches := prepared_branches(session):
        one = branches[0]
        return (
            f"XA transactions are used ({len(branches)} are prepared; XA COMMIT {one} or"
            f" XA ROLLBACK {one} ends the first)"
        )
    rows = session.rows("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")
    if prepared := int(rows[0][1]) if rows else 0:
        return f"XA transactions are used ({prepared} since the server started)"
    return None


def _xa_of_one_phase(session: Session) -> str | None:
    """Return a text with evidence of XA transactions on a server without GTIDs.

    The result is None if there is no evidence, or if the server has GTIDs.

    The connector detects the beginning of a transaction by BEGIN, but an XA transaction begins with
    XA START. So the connector does not count the events of an XA transaction: with each row, it
    stores the binlog offset at which the row's event ends. A restarted connector continues at this
    offset, and so can leave out the event's other rows. With GTIDs, a restarted connector reads the
    whole transaction again, since the stored GTIDs do not contain the transaction yet.
    """
    if has_gtids(session, session.kind):
        return None
    rows = session.rows("SHOW GLOBAL STATUS LIKE 'Com_xa_start'")
    begun = int(rows[0][1]) if rows else 0
    return f"XA transactions are used ({begun} since the server started)" if begun else None
