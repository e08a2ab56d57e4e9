"""The readers that ``benchmarks.mysql_readers`` compares, each giving the product's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType, _parse_datatype_string

from bootstrap.chunks import chunk_count, cut_chunks, default_chunk_rows, key_range
from bootstrap.snapshot import fetch_rows
from cdc.sources.mysql.reader import SOCKET_TIMEOUT_S
from operate.context import Services
from schemas.table import TableId

PRODUCT = "a"
"""The side that all others are compared with."""


@dataclass
class Side:
    """One way to read the rows.

    Args:
        key: The letter of the side's group, and its number in the group.
        title: A short description of the side.
        frame: Returns the rows as the lake would get them, not read yet.
        lacks: Why the product could not read in this way, at any speed; empty for a candidate.
        seconds: Elapsed seconds, per counted round.
        cpu: CPU seconds of everything that took part, per counted round.
    """

    key: str
    title: str
    frame: Callable[[], DataFrame]
    lacks: str = ""
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Readers:
    """The sides of the comparison over one table, cut into chunks by the product's own code.

    Args:
        services: The product's services, with the source of the table.
        table: The table to read.
        cores: Number of cores of the Spark session.
    """

    def __init__(self, services: Services, table: TableId, cores: int) -> None:
        self.spark = services.spark
        source = services.source(table.source)
        settings = services.config.table_settings(table)
        described = source.table(table)
        schema = source.schema(described, settings)
        self.size = source.size(described)
        chunks = chunk_count(
            self.size,
            chunk_rows=settings.chunk_rows
            or default_chunk_rows(self.size, appends=settings.appends),
            chunk_bytes=int(settings.chunk_bytes),
            parallel=cores,
        )
        found = cut_chunks(source.sample_boundaries(described, schema.key, chunks, size=self.size))
        self.fetch_size = fetch_rows(self.size.rows, self.size.heap_bytes)
        self.query = source.snapshot_query(
            described,
            schema,
            [key_range(chunk) for chunk in found],
            view=None,
            fetch_size=self.fetch_size,
        )
        self.tls = self.query.properties["sslMode"] != "disable"

    def sides(self) -> list[Side]:
        a, c = self.mariadb, self.connector_j
        stream = str(-(2**31))  # the one fetch size at which this driver does not buffer
        no_view = "its sessions run nothing first, so they cannot prove their view"
        return [
            Side(PRODUCT, f"MariaDB Connector/J, {self.fetch_size} rows a fetch", a),
            Side("b1", "1,000 rows a fetch", partial(a, fetchsize="1000")),
            Side("b2", "100,000 rows a fetch", partial(a, fetchsize="100000")),
            Side("b3", "text protocol", partial(a, useServerPrepStmts="false")),
            Side("b4", "read-ahead of the socket", partial(a, useReadAheadInput="true")),
            Side("b5", "compressed", partial(a, useCompression="true")),
            Side("c1", "MySQL Connector/J, stream of text", partial(c, fetchsize=stream)),
            Side(
                "c2",
                "MySQL Connector/J, binary stream",
                partial(c, fetchsize=stream, useServerPrepStmts="true"),
            ),
            Side("c3", "MySQL Connector/J, server's cursor", partial(c, useCursorFetch="true")),
            Side("d1", "pymysql, text to Arrow", partial(self.python, "pymysql_text")),
            Side("d2", "pymysql, values to Arrow", partial(self.python, "pymysql_values")),
            Side(
                "e1",
                "C extension of mysql-connector-python",
                partial(self.python, "mysql_c_extension"),
            ),
            Side("e2", "ConnectorX, text", partial(self.python, "connectorx_text"), no_view),
            Side("e3", "ConnectorX, binary", partial(self.python, "connectorx_binary"), no_view),
        ]

    def mariadb(self, **changed: str) -> DataFrame:
        """The rows by the product's own driver, with its properties except for these changes."""
        return self._jdbc(self.query.url, {**self.query.properties, **changed})

    def connector_j(self, **changed: str) -> DataFrame:
        """The rows by MySQL's driver, in which the properties set here have the same names."""
        mysql = {
            "driver": "com.mysql.cj.jdbc.Driver",
            "sslMode": "REQUIRED" if self.tls else "DISABLED",
        }
        url = self.query.url.replace("jdbc:mariadb:", "jdbc:mysql:")
        return self._jdbc(url, {**self.query.properties, **mysql, **changed})

    def _jdbc(self, url: str, properties: dict[str, str]) -> DataFrame:
        predicates = list(self.query.predicates)
        rows = self.spark.read.jdbc(
            url, self.query.table, predicates=predicates, properties=properties
        )
        return rows.selectExpr(*self.query.select)

    def python(self, reader: str) -> DataFrame:
        """The rows by a function of ``benchmarks.python_readers`` in Python workers.

        Each Spark task reads one chunk.
        """
        # Both import Arrow, which only the peers' environment has.
        from pyspark.sql.pandas.types import to_arrow_schema

        from benchmarks import python_readers

        properties = self.query.properties
        columns = properties["customSchema"].partition(", k0 ")[0]
        parsed = _parse_datatype_string(columns)
        assert isinstance(parsed, StructType)
        names = ", ".join(parsed.names)
        host, port = self.query.url.removeprefix("jdbc:mariadb://").rstrip("/").rsplit(":", 1)
        chunks = python_readers.Chunks(
            host=host,
            port=int(port),
            user=properties["user"],
            password=properties["password"],
            tls=self.tls,
            init=(
                f"SET SESSION {properties['sessionVariables']}",
                *properties["sessionInitStatement"].split("; "),
            ),
            queries=tuple(
                f"SELECT {names} FROM {self.query.table} WHERE {where}"
                for where in self.query.predicates
            ),
            schema=to_arrow_schema(parsed),
            timeout_s=SOCKET_TIMEOUT_S,
        )
        numbers = self.spark.range(0, len(chunks.queries), 1, len(chunks.queries))
        read = python_readers.reading(chunks, getattr(python_readers, reader))
        return numbers.mapInArrow(read, columns).selectExpr(*self.query.select)
