"""SQL and JDBC options with which Spark reads key ranges of a table, with or without views."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cdc.config import MysqlEndpoint
from cdc.errors import PermanentError, ReplicaError, SnapshotLostError, SourceError
from cdc.rows.columns import ROW
from cdc.sources.mysql.connection import Connections, quoted
from cdc.sources.mysql.keys import key_types, predicate, range_key, relation, zero_date
from cdc.sources.mysql.lock_gate import BEGIN, Gate
from cdc.sources.mysql.primary import identity_test
from cdc.sources.selection import rules
from cdc.sources.servers import APPLICATION, CONNECT_TIMEOUT_S
from cdc.sources.source_facts import KeyRange, SnapshotQuery, SourceTable
from cdc.sources.views import View
from schemas.table import TableId, TableSchema
from schemas.type_rule import TypeRule

LOCK_TIMEOUT_S = 30
# Bound of a session's wait for the server's next bytes, and of the server's wait for the reader.
# Spark writes files between reads, and the server's default is only a minute.
SOCKET_TIMEOUT_S = 900

_SSL_MODES = {
    "disabled": "disable",
    "required": "trust",
    "verify_ca": "verify-ca",
    "verify_identity": "verify-full",
}
_FROM_SERVER = re.compile(r"\(conn=\d+\) ([^\n]+)")
_ZERO_DATE = "zero date in key column number"
_NOT_THERE = "Subquery returns more than 1 row"
# A wrong password is no lack of rights: it can be one that is being changed.
_DENIED = re.compile(r"(?:\w+ command denied|Access denied(?![^\n]*using password))[^\n]*")
_CHANGED = re.compile(
    r"Table definition has changed|doesn't exist|Record has changed since|needs to be re-prepared"
)
_UNFIT = re.compile(r"(?:value '[^\n]*'|[^\n]*) (?:cannot be decoded as|is out of range)[^\n]*")


def snapshot_query(
    connections: Connections,
    table: SourceTable,
    schema: TableSchema,
    ranges: Sequence[KeyRange],
    *,
    view: View | None,
    fetch_size: int,
) -> SnapshotQuery:
    """Return the query with which Spark reads ranges of a MySQL or MariaDB table.

    Each range is one partition in Spark. Columns get generated names, since Spark does not escape
    quotes in names; `SnapshotQuery.select` restores the source's names. The generated names come
    from a subquery. The servers merge the subquery into Spark's query, so predicates use the key's
    index. An append table is read by its primary key, if it has one.

    Raises:
        SourceError: Values of a key column cannot be cut into ranges, or the JDBC driver cannot
            connect with the configured settings.
    """
    kind = connections.config.kind
    on_replica = view is None or view.on_replica
    key = range_key(table, schema.key)
    types = key_types(table, key) if key else ()
    rule = rules(table, schema)
    outputs = [
        f"{rule[column.name].read(quoted(column.name))} AS c{number}"
        for number, column in enumerate(schema.columns)
    ]
    keys = [f"{quoted(name)} AS k{number}" for number, name in enumerate(key)]
    shown = [f"c{n} {rule[column.name].read_type}" for n, column in enumerate(schema.columns)]
    # The key columns are there for the predicates only: their JDBC types do not matter.
    shown += [f"k{number} string" for number in range(len(keys))]
    names = [f"k{number}" for number in range(len(keys))]
    if (timed := ranges[0].within if ranges else None) is not None:
        keys.append(f"{quoted(timed.column)} AS w0")
        shown.append("w0 string")
    select = [
        f"{_checked(rule[column.name], number, column.name, schema.key)}"
        f" AS {_spark_name(column.name)}"
        for number, column in enumerate(schema.columns)
    ]
    if not schema.key:
        # MySQL has no id of a row without a key. One task reads each row once.
        select.insert(0, f"cast(monotonically_increasing_id() as string) AS {ROW}")
    return SnapshotQuery(
        url=jdbc_url(connections.endpoint(on_replica=on_replica)),
        table=f"(SELECT {', '.join(outputs + keys)} FROM {relation(table)}) AS source_rows",  # noqa: S608 - quoted
        predicates=tuple(predicate(one, names, types) for one in ranges),
        select=tuple(select),
        properties={
            **jdbc_properties(connections, on_replica=on_replica),
            "fetchsize": str(fetch_size),
            "sessionInitStatement": session_init(view, kind),
            "customSchema": ", ".join(shown),
        },
    )


def _checked(rule: TypeRule, number: int, name: str, key: Sequence[str]) -> str:
    """Return a Spark SQL expression that converts a MySQL or MariaDB column to its lake type.

    For a key column, the expression fails if the value is a date such as 2024-00-00.
    """
    value = rule.from_jdbc(f"c{number}")
    if name not in key or rule.lake_type not in ("date", "timestamp", "timestamp_ntz"):
        return value
    return f"coalesce({value}, raise_error('{_ZERO_DATE} {number}.'))"


def session_init(view: View | None, kind: str) -> str:
    """Return the statements that each JDBC session of MySQL or MariaDB runs first.

    The session runs these statements in the transaction in which it then reads.

    A session cannot import another session's view, so each session opens a view of its own. The
    statements check that the session sees the marker, so its view was opened after the marker was
    replicated. They also compare the server's id, since a load balancer can send the session to
    another server. If the session does not see the marker, or the server is another one, a subquery
    returns two rows, so the statement fails (see :func:`explain_failure`). For an exact view, the
    session waits at the `Gate` before and after it opens its view.
    """
    if view is None:
        return BEGIN
    begin = Gate(view.snapshot_id).take_view if view.snapshot_id else BEGIN
    marker = f"NOT EXISTS (SELECT 1 FROM tributary.marker WHERE id = '{view.marker.id}')"  # noqa: S608 - a UUID
    wrong = [marker]
    if view.identity.system_identifier is not None:
        wrong.append(f"NOT ({identity_test(kind, view.identity.system_identifier)})")
    check = f"SELECT (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE {' OR '.join(wrong)}) AS here"  # noqa: S608
    return f"{begin}; {check}"


def is_from_server(text: str) -> bool:
    """Whether a failed Spark job's message reports that a read of MySQL or MariaDB failed."""
    known = "org.mariadb.jdbc" in text or _ZERO_DATE in text
    return known or bool(_FROM_SERVER.search(text))


def explain_failure(table: TableId, text: str, *, together: bool = False) -> SourceError:
    """Return the typed error of a Spark task that failed to read the MySQL or MariaDB table.

    Args:
        table: The table.
        text: The message of Spark's exception.
        together: Whether the view is exact. Only the sessions that opened an exact view together
            can read under this view.
    """
    said = _FROM_SERVER.findall(text)
    reason = said[-1].strip() if said else text.strip()[:500]
    if _NOT_THERE in text and together:
        return SnapshotLostError(
            f"a session that read table {table} ended, and no other session can take over its view",
            remedy="Nothing to do: the copy starts again by itself. If this repeats, look at the"
            " logs of the Spark tasks and of the replica; spark.speculation must be off.",
            table=table,
        )
    if _NOT_THERE in text:
        return ReplicaError(
            f"a snapshot session of table {table} is not on the expected server: the marker is"
            " not visible there, or the server has another identity",
            remedy="Point `replica` at one server: a load balancer over several, or a failover"
            " during the copy, sends sessions to another server.",
            table=table,
        )
    if denied := _DENIED.search(text):
        return PermanentError(
            f"table {table} could not be read: {denied[0].strip()}",
            remedy="Give credentials.snapshot SELECT on the table and on tributary.marker.",
            table=table,
        )
    if _ZERO_DATE in text:
        problem, remedy = zero_date("in its key")
        return PermanentError(f"table {table}: {problem}", remedy=remedy, table=table)
    if unfit := _UNFIT.search(text):
        return PermanentError(
            f"table {table}: {unfit[0].strip()}",
            remedy="Correct the value on the source; or set columns.as: {column: string} for the"
            " table, or leave the column out with columns.exclude. Then run the command again.",
            table=table,
        )
    if _CHANGED.search(reason):
        return SnapshotLostError(
            f"table {table} was altered while it was read: {reason}",
            remedy="Nothing to do: its rows are read under a new view.",
            table=table,
        )
    return SourceError(
        f"table {table} could not be read: {reason}",
        remedy="Look at the server's log at this time; then run the command again.",
        table=table,
    )


def jdbc_url(endpoint: MysqlEndpoint) -> str:
    """Return a MySQL or MariaDB server's URL for MariaDB Connector/J, without a login."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"jdbc:mariadb://{host}:{endpoint.port}/"


def jdbc_properties(connections: Connections, *, on_replica: bool) -> dict[str, str]:
    """Return MariaDB Connector/J's properties: the login to a server, and a session's settings.

    Raises:
        SecretError: The password's reference does not resolve.
        SourceError: The server cannot be reached, or requires a client's certificate.
    """
    endpoint = connections.endpoint(on_replica=on_replica)
    credential = connections.credential("snapshot")
    if endpoint.ssl_cert is not None:
        raise SourceError(
            f"snapshots cannot present the certificate {endpoint.ssl_cert} to the"
            f" {connections.where(on_replica=on_replica)}: the JDBC driver cannot read PEM keys",
            remedy="Allow the login of credentials.snapshot without a certificate (ALTER USER ..."
            " REQUIRE SSL), and remove ssl_cert and ssl_key from this server's settings.",
            field="ssl_cert",
        )
    limit = "max_statement_time" if connections.config.kind == "mariadb" else "max_execution_time"
    settings = {
        # Spark quotes names as standard SQL does. Dates that no calendar has are valid values here.
        # `Connections` says why backslashes must be escapes.
        "sql_mode": "'ANSI_QUOTES,ALLOW_INVALID_DATES'",
        "time_zone": "'+00:00'",
        limit: "0",
        "lock_wait_timeout": str(LOCK_TIMEOUT_S),
        "net_write_timeout": str(SOCKET_TIMEOUT_S),
    }
    ssl_mode = _ssl_mode(connections, endpoint, on_replica=on_replica)
    properties = {
        "driver": "org.mariadb.jdbc.Driver",
        "user": credential.user,
        "sslMode": ssl_mode,
        "sessionVariables": ",".join(f"{name}={value}" for name, value in settings.items()),
        "connectionAttributes": f"program_name:{APPLICATION}",
        "connectTimeout": str(CONNECT_TIMEOUT_S * 1000),
        "socketTimeout": str(SOCKET_TIMEOUT_S * 1000),
        "tcpKeepAlive": "true",
        # Values in the server's binary form instead of text: 1.5 times as fast, measured by
        # benchmarks/mysql_readers.py.
        "useServerPrepStmts": "true",
        "tinyInt1isBit": "false",
        "yearIsDateType": "false",
        # For `session_init`, whose statements are all our own.
        "allowMultiQueries": "true",
    }
    if ssl_mode == "disable":
        # MySQL's logins then encrypt the password with the server's key, as its clients do.
        properties["allowPublicKeyRetrieval"] = "true"
    if endpoint.ssl_ca is not None:
        properties["serverSslCert"] = str(endpoint.ssl_ca)
    if credential.password is not None:
        properties["password"] = credential.password.resolve()
    return properties


def _ssl_mode(connections: Connections, endpoint: MysqlEndpoint, *, on_replica: bool) -> str:
    """Return MariaDB Connector/J's value for ``ssl_mode``.

    The driver has no value for "TLS if the server offers it". So for ``preferred``, this function
    opens a session to find out whether the server offers TLS.
    """
    if endpoint.ssl_mode != "preferred":
        return _SSL_MODES[endpoint.ssl_mode]
    with connections.open("snapshot", on_replica=on_replica) as session:
        rows = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    return "trust" if rows and rows[0][1] else "disable"


def _spark_name(name: str) -> str:
    """Return a MySQL or MariaDB name quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
