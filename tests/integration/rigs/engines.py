"""Query engines that read a lake's tables by name, and their cells in one form for all.

A cell's form is the same for equal values only: a number by its value, bytes as hex, a moment as
UTC with six digits, a float by its 32 bits.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Protocol

import trino
from pyspark.sql import SparkSession

Types = Mapping[str, str]
"""The lake type of each column."""
Row = dict[str, Any]


class UnreadableError(Exception):
    """An engine that gives no answer; the text is its reason without what differs between runs."""


class Engine(Protocol):
    """A query engine."""

    name: str

    def rows(self, table: str, types: Types) -> list[Row]:
        """The cells of these columns, of all rows of ``database.table``."""

    def shown(self, table: str, types: Types) -> dict[str, str]:
        """The engine's own type of each of these columns."""


@dataclass
class Spark:
    """Spark, in a session that knows the metastore."""

    session: SparkSession
    name: str = "Spark"

    def rows(self, table: str, types: Types) -> list[Row]:
        # What a session has read of a name before stays in its cache.
        self.session.sql(f"REFRESH TABLE {table}")
        columns = [
            # Moments come to Python in its local zone, which the year 1 does not survive.
            f"date_format(`{name}`, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS `{name}`"
            if kind.startswith("timestamp")
            else f"`{name}`"
            for name, kind in types.items()
        ]
        found = self.session.table(table).selectExpr(*columns).collect()
        return [
            {name: cell(value, types[name]) for name, value in row.asDict().items()}
            for row in found
        ]

    def shown(self, table: str, types: Types) -> dict[str, str]:
        self.session.sql(f"REFRESH TABLE {table}")
        return {name: kind for name, kind in self.session.table(table).dtypes if name in types}


@dataclass
class Trino:
    """Trino, through one of its catalogs.

    Args:
        host: Its host.
        port: Its HTTP port.
        catalog: The catalog of the queries.
        name: The engine's name.
    """

    host: str
    port: int
    catalog: str
    name: str

    def rows(self, table: str, types: Types) -> list[Row]:
        listed = ", ".join(_quoted(name) for name in types)
        answer = self.ask(f"SELECT {listed} FROM {self._place(table)}")
        return [
            {
                name: cell(_of_trino(value, kind), kind)
                for (name, kind), value in zip(types.items(), row, strict=True)
            }
            for row in answer
        ]

    def shown(self, table: str, types: Types) -> dict[str, str]:
        lower = {name.lower(): name for name in types}
        described = self.ask(f"DESCRIBE {self._place(table)}")
        return {lower[name]: kind for name, kind, *_ in described if name in lower}

    def ask(self, query: str) -> list[list[Any]]:
        """The rows of an answer, with values as the server writes them."""
        with trino.dbapi.connect(
            host=self.host,
            port=self.port,
            user="tributary",
            catalog=self.catalog,
            legacy_primitive_types=True,
        ) as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(query)
                return [list(row) for row in cursor.fetchall()]
            except trino.exceptions.TrinoQueryError as error:
                raise UnreadableError(f"{error.error_name}: {error.message}") from error

    def _place(self, table: str) -> str:
        return ".".join(_quoted(part) for part in (self.catalog, *table.split(".")))


def cell(value: Any, kind: str) -> Any:
    """The form of a lake type's value, which may be a Python value or already of that form."""
    if value is None:
        return None
    if kind.startswith("array<"):
        return [cell(item, kind[len("array<") : -1]) for item in value]
    if kind in ("float", "double"):
        number = float(value)
        if kind == "float" and math.isfinite(number):
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        return "NaN" if math.isnan(number) else repr(number)
    if kind.startswith("decimal"):
        return str(Decimal(value).normalize())
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(timezone.utc)
        return utc.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value.isoformat() if isinstance(value, date) else value


def _of_trino(value: Any, kind: str) -> Any:
    """A value of Trino's protocol as a value of the lake's type."""
    if isinstance(value, list):
        return [_of_trino(item, kind[len("array<") : -1]) for item in value]
    if value is not None and kind == "binary":
        return base64.b64decode(value)
    if value is not None and kind.startswith("timestamp"):
        whole, _, fraction = str(value).partition(".")
        assert not fraction[6:].strip("0"), value
        return f"{whole}.{fraction[:6].ljust(6, '0')}"
    return value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
