"""Query engines that read a lake's tables by name; cells of all engines have one common form.

Two cells have the same form only if their values are equal. The form of a number is its value, of
bytes hex, of a moment UTC with six digits of the second, of a float the value of its 32 bits.
"""

from __future__ import annotations

import base64
import itertools
import math
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Protocol

import trino
from pyspark.sql import SparkSession

from tests.integration.rigs.at_work import at_work

Types = Mapping[str, str]
"""The lake type of each column."""
Row = dict[str, Any]
GENERATION = """regexp_extract("$path", '/(attempt=[^/]+)/', 1)"""
"""Trino's expression for the generation of the table from which a row was read."""


class UnreadableError(Exception):
    """An engine cannot answer a query; the message is a reason that is equal in every run."""


class Engine(Protocol):
    """A query engine."""

    name: str

    def rows(self, table: str, types: Types) -> list[Row]:
        """All rows of ``database.table`` with these columns, each cell in the common form."""

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
        """The rows of the answer to a query, with values as the server writes them."""
        try:
            with self.scan(query) as cursor:
                return [list(row) for row in cursor.fetchall()]
        except trino.exceptions.TrinoQueryError as error:
            raise UnreadableError(f"{error.error_name}: {error.message}") from error

    @contextmanager
    def scan(self, query: str) -> Iterator[Any]:
        """A cursor on a running query; the query advances only while its rows are fetched."""
        with trino.dbapi.connect(
            host=self.host,
            port=self.port,
            user="tributary",
            catalog=self.catalog,
            legacy_primitive_types=True,
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            yield cursor

    def _place(self, table: str) -> str:
        return ".".join(_quoted(part) for part in (self.catalog, *table.split(".")))


@dataclass
class Counted:
    """A table whose rows Trino counts again and again.

    Args:
        trino: The engine.
        table: The table's name.
        answers: For each count, in order: the number of rows, the least and the greatest
            generation that the rows were read from.
        failures: The reasons of counts without an answer.
    """

    trino: Trino
    table: str
    answers: list[tuple[int, str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs, and once after it."""
        with at_work(lambda _, stop: self._until(stop)):
            yield
        self._count()

    def generations(self) -> list[str]:
        """The generations in the order in which counts saw them.

        Asserts that no count saw rows of two generations.
        """
        seen = [(least, most) for rows, least, most in self.answers if rows]
        assert all(least == most for least, most in seen), seen
        return [generation for (generation, _), _ in itertools.groupby(seen)]

    def _until(self, stop: threading.Event) -> None:
        self._count()
        while not stop.is_set():
            self._count()

    def _count(self) -> None:
        query = f"SELECT count(*), min({GENERATION}), max({GENERATION}) FROM {self.table}"
        try:
            ((rows, least, most),) = self.trino.ask(query)
        except UnreadableError as error:
            self.failures.append(str(error))
        else:
            self.answers.append((rows, str(least), str(most)))


def cell(value: Any, kind: str) -> Any:
    """The common form of a value of a lake type; the value may already have this form."""
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
    """A value from Trino's protocol, converted for a column of this lake type."""
    if isinstance(value, list):
        return [_of_trino(item, kind[len("array<") : -1]) for item in value]
    if value is not None and kind == "binary":
        return base64.b64decode(value)
    return moment(value) if kind.startswith("timestamp") else value


def moment(text: Any) -> Any:
    """An engine's text of a moment, with six digits of the second; NULL stays NULL."""
    if text is None:
        return None
    whole, _, fraction = str(text).partition(".")
    assert not fraction[6:].strip("0"), text
    return f"{whole}.{fraction[:6].ljust(6, '0')}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
