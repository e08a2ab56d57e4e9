"""Whether the login of copies may read a table, asked before it is captured."""

from __future__ import annotations

from cdc.errors import SourceError
from cdc.sources.mysql.connection import DENIED, Connections, quoted
from cdc.sources.mysql.grants import account_sql, grant
from cdc.sources.values import SourceTable


def missing(connections: Connections, table: SourceTable) -> tuple[str, str] | None:
    """What the login lacks, and the statement that gives it; None when nothing."""
    place = f"{quoted(table.table.schema)}.{quoted(table.table.name)}"
    columns = ", ".join(quoted(column.name) for column in table.columns)
    user = connections.credential("snapshot").user
    try:
        with connections.open("snapshot") as session:
            session.rows(f"SELECT {columns} FROM {place} LIMIT 0")  # noqa: S608 - quoted names
    except SourceError as error:
        if error.context.get("code") not in DENIED:
            raise
        return (
            f"cannot be read as {user}: {error.message}",
            f"Run as a superuser: {grant('SELECT', place, (user, '%'))}; for"
            f" {account_sql((user, '%'))} put the account as the server has it.",
        )
    return None
