"""Checks the rights of logins with statements that need these rights.

The grants of a login do not suffice to find its rights: a login can have a right by a role or by a
pattern of names, and a right can be limited to some columns of a table. The statement that tests
the rights on a table is SHOW CREATE TABLE. It needs the right to read all columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
from pymysql.constants import ER

from cdc.errors import SourceError
from cdc.sources.mysql import catalog
from cdc.sources.mysql.accounts import account_sql, current_account, grant
from cdc.sources.mysql.connection import DENIED, Connections, Session, quoted
from cdc.sources.mysql.grants import watch
from cdc.sources.mysql.keys import relation_of
from cdc.sources.mysql.primary import NO_TABLE
from cdc.sources.servers import Role
from cdc.sources.source_facts import Check
from schemas.table import TableId

_READERS: tuple[tuple[Role, bool], ...] = (
    ("admin", False),
    ("capture", False),
    # From the primary, the snapshot login reads values that events lack.
    ("snapshot", False),
    ("snapshot", True),
)
_SHOWN = 5
# Both statements print an identifier as text, whatever its bytes.
_PREPARED = {"mysql": "XA RECOVER CONVERT XID", "mariadb": "XA RECOVER FORMAT='SQL'"}
_PREPARED_DENIED = 1401
"""MySQL's error code for a login without XA_RECOVER_ADMIN, ``ER_XAER_RMERR``."""
# Errors for an object that is missing. Other checks report that it is missing.
_NOTHING_THERE = NO_TABLE | {ER.NO_BINARY_LOGGING}


def missing(connections: Connections, table: TableId) -> tuple[str, str] | None:
    """Return problem and remedy if a MySQL or MariaDB login cannot read some column of a table.

    Problem and remedy are parts of a message. The problem names each such login, and the remedy has
    the GRANT statements. The result is None if each login that reads tables may read all columns of
    the table, or if there is no such table.

    The check must come before the capture: the catalog silently leaves out columns and tables that
    a login may not read. If the capture login could not read a table when the connector first
    started, the connector never gets the definition of the table.
    """
    lacking: dict[str, str] = {}
    for role, on_replica in _logins(connections):
        with connections.look(role, on_replica=on_replica) as session:
            if not _allowed(session, f"SHOW CREATE TABLE {relation_of(table)}"):
                who = f"{role} ({connections.where(on_replica=on_replica)})"
                lacking[who] = grant("SELECT", relation_of(table), current_account(session))
    if not lacking:
        return None
    statements = "; ".join(dict.fromkeys(lacking.values()))
    return (
        f"cannot be read in full by the login of {', '.join(lacking)}",
        f"Run {statements}; on the primary, which replicates the grants.",
    )


def of_server(connections: Connections, only: Role | None = None) -> Iterator[Check]:
    """Yield a check for each MySQL or MariaDB right that the admin or snapshot login lacks.

    Args:
        connections: Opens sessions.
        only: The login whose rights are checked; None for both.
    """
    binlog, *replica = watch(connections.config.kind)
    probes: list[tuple[Role, bool, str, str]] = [
        ("admin", False, "SELECT 1 FROM information_schema.INNODB_METRICS LIMIT 1", "PROCESS"),
        ("admin", False, "SHOW BINARY LOGS", binlog),
        ("admin", False, _PREPARED[connections.config.kind], "XA_RECOVER_ADMIN"),
    ]
    if connections.config.replica is not None:
        probes.append(("snapshot", True, "SHOW REPLICA STATUS", replica[0] if replica else binlog))
    for role, on_replica, statement, right in probes:
        if only not in (None, role):
            continue
        name, account = f"privileges {role}", None
        try:
            with connections.open(role, on_replica=on_replica) as session:
                if not _allowed(session, statement):
                    account = current_account(session)
        except SourceError as error:
            yield Check(name, "error", error.message, error.remedy)
            continue
        if account is not None:
            what = f"{account_sql(account)} lacks {right}"
            yield Check(name, "error", what, f"Run {grant(right, '*.*', account)};")


def of_tables(connections: Connections) -> Iterator[Check]:
    """Yield a check for each MySQL or MariaDB login that sees fewer tables than the admin login."""
    patterns = connections.config.databases
    with connections.open("admin") as session:
        known = catalog.read_names(session, patterns)
    for role, on_replica in _logins(connections):
        with connections.open(role, on_replica=on_replica) as session:
            seen = catalog.read_names(session, patterns)
            account = current_account(session)
        hidden = sorted(known - seen)
        if not hidden:
            continue
        # A login that sees no table of a database lacks a grant by mistake. A grant on some tables
        # of a database, and not on others, can be intended.
        whole = {database for database, _ in hidden} - {database for database, _ in seen}
        names = ", ".join(".".join(name) for name in hidden[:_SHOWN])
        more = f" and {len(hidden) - _SHOWN} more" if len(hidden) > _SHOWN else ""
        grants = "; ".join(
            grant("SELECT", f"{quoted(database)}.*", account)
            for database in sorted({database for database, _ in hidden})
        )
        yield Check(
            f"privileges {role}",
            "error" if whole else "warning",
            f"{account_sql(account)} cannot see {names}{more} on the"
            f" {connections.where(on_replica=on_replica)}",
            f"Run {grants}; or grant SELECT on each table that is to be replicated, before it is"
            " onboarded.",
        )


def prepared_branches(session: Session) -> list[str]:
    """Return the prepared branches of XA transactions, also those from before a server restart.

    Returns:
        The identifier of each branch in the syntax of XA COMMIT and XA ROLLBACK.

    Raises:
        SourceError: The login lacks XA_RECOVER_ADMIN, which only MySQL requires.
    """
    try:
        return [_branch(*row) for row in session.rows(_PREPARED[session.kind])]
    except pymysql.MySQLError as error:
        if error.args and error.args[0] == _PREPARED_DENIED:
            account = current_account(session)
            raise SourceError(
                f"{account_sql(account)} may not read which XA transactions are prepared",
                remedy=f"GRANT XA_RECOVER_ADMIN ON *.* TO {account_sql(account)};",
                field="credentials.admin",
            ) from error
        raise


def _branch(form: object, length: object, _: object, data: object) -> str:
    """Return the identifier of a branch from a row of MySQL's or MariaDB's XA RECOVER.

    The result is in the syntax of XA COMMIT. MariaDB prints the identifier in this syntax. MySQL
    prints the identifier's two parts in one hex string.
    """
    text = str(data)
    if not text.startswith("0x"):
        return text
    parts, end = text[2:], 2 * int(str(length))
    return f"X'{parts[:end]}',X'{parts[end:]}',{form}"


def _logins(connections: Connections) -> Iterator[tuple[Role, bool]]:
    """Yield each MySQL or MariaDB role that reads tables, and whether it reads on the replica."""
    has_replica = connections.config.replica is not None
    return ((role, on_replica) for role, on_replica in _READERS if has_replica or not on_replica)


def _allowed(session: Session, statement: str) -> bool:
    """Whether a MySQL or MariaDB login may run a statement.

    The result is also True if the table or log in the statement does not exist.
    """
    try:
        session.rows(statement)
    except pymysql.MySQLError as error:
        code = error.args[0] if error.args else None
        denied = code in DENIED or (code == _PREPARED_DENIED and statement in _PREPARED.values())
        if not denied and code not in _NOTHING_THERE:
            raise
        return code in _NOTHING_THERE
    return True
