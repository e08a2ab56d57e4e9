"""SQL and JDBC options with which Spark reads key ranges of a table.

The sessions of a copy read within a view: a consistent image of the source. Other sessions read
without a view.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from psycopg import sql

from cdc.config import Endpoint
from cdc.errors import PermanentError, ReplicaError, SourceError
from cdc.rows.columns import ROW
from cdc.sources.postgres.connection import Connections, unfit_value
from cdc.sources.postgres.replica import one_server
from cdc.sources.selection import rules
from cdc.sources.servers import APPLICATION, CONNECT_TIMEOUT_S
from cdc.sources.source_facts import KeyRange, SnapshotQuery, SourceTable
from cdc.sources.views import View
from schemas.table import TableId, TableSchema
from schemas.types_postgres import PRINTED, ZONED

LOCK_TIMEOUT_S = 30
# Bound of a session's wait for the server's next bytes. By default, pgjdbc waits for ever, and a
# single hanging task would block the whole copy. Rows are read by the key's index in batches, so
# even a first batch after many dead rows arrives within this time. After this time, the copy fails
# with an error that names the table, and the same command continues the copy.
SOCKET_TIMEOUT_S = 900
# Only PostgreSQL 17 and later have this setting, and SET would fail on earlier servers. The block
# hides the query from the parser: pgjdbc lets the server parse all statements before the first is
# executed, and after a query is parsed, a transaction cannot change its isolation level.
_NO_TRANSACTION_TIMEOUT = sql.SQL(
    "DO $tributary$ BEGIN PERFORM set_config(name, '0', true) FROM pg_catalog.pg_settings"
    " WHERE name = 'transaction_timeout'; END $tributary$"
)
_DENIED = re.compile(r"permission denied .+|query would be affected by row-level security .+")

# Options that both libpq and pgjdbc have: libpq's name and pgjdbc's name.
_JDBC_OPTIONS = {
    "target_session_attrs": "targetServerType",
    "gssencmode": "gssEncMode",
    "channel_binding": "channelBinding",
    "sslpassword": "sslpassword",
}


def snapshot_query(
    connections: Connections,
    table: SourceTable,
    schema: TableSchema,
    ranges: Sequence[KeyRange],
    *,
    view: View | None,
    fetch_size: int,
) -> SnapshotQuery:
    """Return the query with which Spark reads ranges of a PostgreSQL table.

    Each range is one partition in Spark. Columns get generated names, since Spark does not escape
    quotes in names; `SnapshotQuery.select` restores the source's names. The generated names come
    from a subquery. The server flattens the subquery, so predicates use the key's index. A table
    without a key is read by the ``ctid`` of its rows. For such a table, column `ROW` has the id of
    the table or partition, and then the row's ``ctid``. This value is unique within one view.
    """
    on_replica = view is None or view.on_replica
    endpoint = connections.endpoint(on_replica=on_replica)
    rule = rules(table, schema)
    outputs = [
        sql.SQL("{} AS {}").format(
            sql.SQL(rule[column.name].read(identifier(column.name))), sql.Identifier(f"c{number}")
        )
        for number, column in enumerate(schema.columns)
    ]
    keys: list[sql.Composable] = [
        sql.SQL("{} AS {}").format(sql.Identifier(name), sql.Identifier(f"k{number}"))
        for number, name in enumerate(schema.key)
    ]
    types = [f"c{n} {rule[column.name].read_type}" for n, column in enumerate(schema.columns)]
    select = [
        f"{rule[column.name].from_jdbc(f'c{number}')} AS {spark_name(column.name)}"
        for number, column in enumerate(schema.columns)
    ]
    if not schema.key:
        keys = [sql.SQL("ctid AS k0"), sql.SQL("tableoid::oid::text || ctid::text AS place")]
        types.append("place string")
        select.insert(0, f"place AS {ROW}")
    subquery = sql.SQL("(SELECT {} FROM {}) AS source_rows").format(
        sql.SQL(", ").join(outputs + keys + _time_column(ranges)), relation(table)
    )
    # the key columns are there for the predicates only: their JDBC types do not matter
    width = len(schema.key) or 1
    types += [f"k{n} string" for n in range(width)]
    properties = jdbc_properties(connections, endpoint)
    if connections.is_pooled(on_replica=on_replica):
        properties["prepareThreshold"] = "0"
    properties |= {
        "fetchsize": str(fetch_size),
        "sessionInitStatement": session_init(view),
        "customSchema": ", ".join(types),
    }
    return SnapshotQuery(
        url=jdbc_url(endpoint),
        table=subquery.as_string(None),
        predicates=tuple(predicate(key_range, width) for key_range in ranges),
        select=tuple(select),
        properties=properties,
    )


def _time_column(ranges: Sequence[KeyRange]) -> list[sql.Composable]:
    """Return SQL of the PostgreSQL column for the ranges' time limit; empty without a limit."""
    timed = ranges[0].within if ranges else None
    return [] if timed is None else [sql.SQL("{} AS w0").format(sql.Identifier(timed.column))]


def predicate(key_range: KeyRange, width: int) -> str:
    """Return the SQL condition that the key of a PostgreSQL row is in a range.

    The bounds are untyped literals. So the server reads each bound as a value of the key column's
    type, and compares it in the column's collation.

    Args:
        key_range: The range.
        width: The number of key columns. Their generated names are ``k0``, ``k1`` and so on.
    """
    keys = sql.SQL(", ").join(sql.Identifier(f"k{number}") for number in range(width))
    clauses = [
        sql.SQL("({}) {} ({})").format(
            keys, sql.SQL(operator), sql.SQL(", ").join(sql.Literal(value) for value in bound)
        )
        for operator, bound in ((">=", key_range.lower), ("<", key_range.upper))
        if bound is not None
    ]
    if (timed := key_range.within) is not None:
        # A column without a zone ignores the zone of a literal.
        clauses += [
            sql.SQL("w0 {} {}").format(sql.SQL(operator), sql.Literal(f"{bound}+00"))
            for operator, bound in ((">=", timed.begin), ("<", timed.end))
        ]
    return sql.SQL(" AND ").join(clauses).as_string(None) if clauses else "true"


def session_init(view: View | None) -> str:
    """Return the statements that each JDBC session of PostgreSQL runs first.

    The session runs these statements in the transaction in which it then reads.

    If a fetch size is set, Spark turns autocommit off, so the first statement begins this
    transaction. If there is a view, all statements of the transaction use one snapshot: the view's
    snapshot or, if the view has none, the transaction's own snapshot. The statements fail if the
    session does not see the view's marker row, for example because a pooler or a load balancer has
    sent the session to another server.
    """
    begin = [sql.SQL("SET TRANSACTION READ ONLY")]
    if view is not None:
        begin = [sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")]
    shared = view.snapshot_id if view is not None else ""
    importing = [sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(shared))]
    settings = [
        sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in (
            ("lock_timeout", f"{LOCK_TIMEOUT_S}s"),
            ("statement_timeout", "0"),
            ("idle_in_transaction_session_timeout", "0"),
            *PRINTED.items(),
            *ZONED.items(),
            ("jit", "off"),  # compiling costs more than it saves on expressions as short as ours
            ("row_security", "off"),  # a policy must make the copy fail, not hide rows from it
        )
    ]
    checks = [_view_checks(view)] if view is not None else []
    statements = [*begin, *(importing if shared else []), *settings, _NO_TRANSACTION_TIMEOUT]
    return sql.SQL("; ").join([*statements, *checks]).as_string(None)


def _view_checks(view: View) -> sql.Composed:
    """Return a statement that fails if a PostgreSQL session does not fit the view.

    The session must see the view's marker row, and the session's server must be a standby if the
    view is on the replica. The server must belong to the view's cluster.
    """
    tests = [
        (
            sql.SQL("NOT EXISTS (SELECT FROM tributary.marker WHERE id = {})").format(
                sql.Literal(str(view.marker.id))
            ),
            "the marker is not visible in this session",
        )
    ]
    if view.on_replica:
        tests.append(
            (sql.Composed([sql.SQL("NOT pg_is_in_recovery()")]), "the server is not in recovery")
        )
    if view.identity.system_identifier is not None:
        tests.append(
            (
                sql.SQL("(SELECT system_identifier::text FROM pg_control_system()) <> {}").format(
                    sql.Literal(view.identity.system_identifier)
                ),
                "the server belongs to another cluster",
            )
        )
    body = sql.SQL(" ").join(
        sql.SQL("IF {} THEN RAISE EXCEPTION {}; END IF;").format(
            test, sql.Literal(f"{APPLICATION}: {message}")
        )
        for test, message in tests
    )
    return sql.SQL("DO $tributary$ BEGIN {} END $tributary$").format(body)


def explain_failure(table: TableId, text: str, *, on_replica: bool) -> SourceError:
    """Return the typed error of a Spark task that failed to read the PostgreSQL table.

    Args:
        table: The table.
        text: The message of Spark's exception.
        on_replica: Whether the task read the replica.
    """
    refused = re.search(r"ERROR: tributary: ([^\n]+)", text)
    if refused:
        return ReplicaError(
            f"a snapshot session of table {table} is not on the expected server:"
            f" {refused[1].strip()}",
            remedy=one_server(on_replica=on_replica),
            table=table,
        )
    if unfit := unfit_value(text, table=table):
        return unfit
    lines = [line.strip() for line in text.splitlines() if "PSQLException" in line]
    if lines and (denied := _DENIED.search(lines[-1])):
        return PermanentError(
            f"table {table} could not be read: {denied[0]}",
            remedy="Give credentials.snapshot what `tributary check` names. Row-level security"
            " must not apply to that login (ALTER ROLE ... BYPASSRLS): rows that a policy hides"
            " would count as deleted.",
            table=table,
        )
    return SourceError(
        f"table {table} could not be read: {lines[-1] if lines else text.strip()[:500]}",
        remedy="Look at the server's log at this time; then run the command again.",
        table=table,
    )


def jdbc_url(endpoint: Endpoint) -> str:
    """Return the URL of a PostgreSQL server for pgjdbc, without a login.

    Raises:
        SourceError: The host is a directory of Unix sockets, which pgjdbc cannot use.
    """
    if endpoint.host.startswith("/"):
        raise SourceError(
            f"snapshots need a TCP host, not the socket directory {endpoint.host}",
            remedy="Set `host` of the replica (or the primary) to a name or an address.",
            field="host",
        )
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"jdbc:postgresql://{host}:{endpoint.port}/{quote(endpoint.database, safe='')}"


def jdbc_properties(connections: Connections, endpoint: Endpoint) -> dict[str, str]:
    """Return pgjdbc's login and time-outs for a PostgreSQL server.

    Raises:
        SecretError: The password's reference does not resolve.
    """
    credential = connections.credential("snapshot")
    certificates = {
        "sslrootcert": endpoint.sslrootcert,
        "sslcert": endpoint.sslcert,
        "sslkey": endpoint.sslkey,
    }
    properties = {
        "driver": "org.postgresql.Driver",
        "user": credential.user,
        "ApplicationName": APPLICATION,
        "sslmode": endpoint.sslmode,
        "readOnly": "true",
        "tcpKeepAlive": "true",
        "connectTimeout": str(CONNECT_TIMEOUT_S),
        "socketTimeout": str(SOCKET_TIMEOUT_S),
        # Values in binary from the first row on; a query that runs once would get text, which
        # takes almost twice the CPU to read. The server keeps the statements of such a session by
        # name. Through a pooler they would stay for the next client, so there the value is 0.
        "prepareThreshold": "-1",
    }
    properties |= {name: str(path) for name, path in certificates.items() if path is not None}
    properties |= {
        _JDBC_OPTIONS[name]: value
        for name, value in endpoint.options.items()
        if name in _JDBC_OPTIONS
    }
    if credential.password is not None:
        properties["password"] = credential.password.resolve()
    return properties


def relation(table: SourceTable) -> sql.Composable:
    """Return the PostgreSQL table for a FROM clause, quoted and qualified.

    ONLY leaves out rows of tables that inherit from the table, since the topics of those tables
    have the events of the rows. A partitioned table is read without ONLY, since all its rows are in
    its partitions.
    """
    name = sql.Identifier(table.table.schema, table.table.name)
    return name if table.kind == "partitioned" else sql.SQL("ONLY {}").format(name)


def identifier(name: str) -> str:
    """Return a column's name quoted for PostgreSQL."""
    return sql.Identifier(name).as_string(None)


def spark_name(name: str) -> str:
    """Return a PostgreSQL name quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
