"""Readers of MySQL in Python, for Spark's ``mapInArrow``: what a Python worker of a task runs.

Each reads one chunk in a session of its own, a batch at a time, and gives Arrow. Their libraries
are imported where they are used, since not every machine has all of them. Spark starts this module
as its daemon, whose children the workers are.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    # It is linked with an OpenSSL of its own, and cannot be loaded once another one is, or Arrow.
    import _mysql_connector  # noqa: F401

import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa

BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Chunks:
    """The chunks to read, and how to reach the server.

    Args:
        host: Host of the server.
        port: Port of the server.
        user: The user that logs in.
        password: The password of the user.
        tls: Whether the session is encrypted; the certificate is not checked, as in the stack.
        init: The statements that each session runs first.
        queries: The queries, one per chunk.
        schema: The Arrow schema of the rows.
        timeout_s: Seconds for which the server may be silent.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: bool
    init: tuple[str, ...]
    queries: tuple[str, ...]
    schema: pa.Schema
    timeout_s: int


Read = Callable[[Chunks, str], Iterator[pa.RecordBatch]]


def reading(
    chunks: Chunks, read: Read
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` over a frame with the numbers of the chunks."""

    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(chunks, chunks.queries[number])

    return rows


def pymysql_text(chunks: Chunks, query: str) -> Iterator[pa.RecordBatch]:
    """Read a chunk with pymysql as the server's own text, which Arrow converts to values."""
    return _pymysql(chunks, query, _from_text, conv={}, use_unicode=False)


def pymysql_values(chunks: Chunks, query: str) -> Iterator[pa.RecordBatch]:
    """Read a chunk with pymysql, as the Python values that pymysql returns."""
    return _pymysql(chunks, query, _from_values)


def _pymysql(
    chunks: Chunks, query: str, column: Callable[..., pa.Array], **how: Any
) -> Iterator[pa.RecordBatch]:
    import pymysql
    from pymysql.cursors import SSCursor

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = pymysql.connect(
        host=chunks.host,
        port=chunks.port,
        user=chunks.user,
        password=chunks.password.encode(),
        charset="utf8mb4",
        autocommit=None,
        read_timeout=chunks.timeout_s,
        cursorclass=SSCursor,
        **({"ssl": context} if chunks.tls else {"ssl_disabled": True}),
        **how,
    )
    with connection, connection.cursor() as cursor:
        for statement in chunks.init:
            cursor.execute(statement)
        cursor.execute(query)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield _batch(rows, chunks.schema, column)


def mysql_c_extension(chunks: Chunks, query: str) -> Iterator[pa.RecordBatch]:
    """Read a chunk with MySQL's C client in mysql-connector-python, as text and unbuffered."""
    import mysql.connector

    connection = mysql.connector.connect(
        host=chunks.host,
        port=chunks.port,
        user=chunks.user,
        password=chunks.password,
        charset="utf8mb4",
        use_pure=False,
        ssl_disabled=not chunks.tls,
        read_timeout=chunks.timeout_s,
    )
    try:
        cursor = connection.cursor(raw=True, buffered=False)
        for statement in chunks.init:
            cursor.execute(statement)
        cursor.execute(query)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield _batch(rows, chunks.schema, _from_text)
    finally:
        connection.close()


def connectorx_text(chunks: Chunks, query: str) -> Iterator[pa.RecordBatch]:
    """Read a chunk with ConnectorX by the text protocol.

    ConnectorX cannot run statements before the query.
    """
    return _connectorx(chunks, query, "text")


def connectorx_binary(chunks: Chunks, query: str) -> Iterator[pa.RecordBatch]:
    """Read a chunk with ConnectorX by the binary protocol."""
    return _connectorx(chunks, query, "binary")


def _connectorx(chunks: Chunks, query: str, protocol: str) -> Iterator[pa.RecordBatch]:
    import connectorx

    if chunks.tls:
        raise NotImplementedError("no TLS here for MySQL; it runs with --ssl-mode disabled")
    login = f"{quote(chunks.user)}:{quote(chunks.password, safe='')}"
    url = f"mysql://{login}@{chunks.host}:{chunks.port}/"
    stream = connectorx.read_sql(
        url, query, protocol=protocol, return_type="arrow_stream", batch_size=BATCH_ROWS
    )
    for batch in stream:
        columns = [
            column.cast(kind.type)
            for column, kind in zip(batch.columns, chunks.schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=chunks.schema)


def _batch(
    rows: Iterable[Sequence[Any]], schema: pa.Schema, column: Callable[..., pa.Array]
) -> pa.RecordBatch:
    columns = [
        column(values, kind.type)
        for values, kind in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_text(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    text = pa.array(values, pa.string())
    return text if kind == pa.string() else text.cast(kind)


def _from_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


if __name__ == "__main__":
    from pyspark import daemon

    daemon.manager()  # type: ignore[no-untyped-call]
