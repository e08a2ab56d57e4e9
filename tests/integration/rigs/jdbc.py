"""Query engines that are asked by their own JDBC drivers, in the JVM of the Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc.runtime.spark import java_class
from tests.integration.rigs.engines import Row, Types, UnreadableError, cell, moment


@dataclass
class Jdbc:
    """Connections to one server.

    Args:
        session: The session whose JVM runs the driver.
        driver: The driver's class.
        url: The server's JDBC URL.
        jar: The driver's jar, if pyspark does not bring it.
        properties: Properties of each connection.
    """

    session: SparkSession
    driver: str
    url: str
    jar: Path | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def ask(self, query: str) -> list[list[Any]]:
        """The rows of the answer to a query.

        Raises:
            UnreadableError: The server gives no answer.
        """
        try:
            with self._statement() as statement:
                answer = statement.executeQuery(query)
                width = range(1, answer.getMetaData().getColumnCount() + 1)
                rows = []
                while answer.next():
                    rows.append([_plain(answer.getObject(number)) for number in width])
                return rows
        except Py4JJavaError as error:
            raise UnreadableError(_reason(error)) from error

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        properties = java_class(self.session, "java.util.Properties")()
        for name, value in self.properties.items():
            properties.setProperty(name, value)
        connection = self._loaded.connect(self.url, properties)
        try:
            yield connection.createStatement()
        finally:
            connection.close()

    @cached_property
    def _loaded(self) -> Any:
        """The driver, loaded only once, because py4j knows each class by its name only."""
        if self.jar is None:
            return java_class(self.session, self.driver)()
        gateway = self.session.sparkContext._gateway
        assert gateway is not None
        urls = gateway.new_array(java_class(self.session, "java.net.URL"), 1)
        urls[0] = java_class(self.session, "java.io.File")(str(self.jar)).toURI().toURL()
        loader = java_class(self.session, "java.net.URLClassLoader")(urls)
        return loader.loadClass(self.driver).newInstance()


@dataclass
class Hive:
    """Hive, through HiveServer2.

    Args:
        server: Connections to it.
        name: The engine's name.
    """

    server: Jdbc
    name: str

    def rows(self, table: str, types: Types) -> list[Row]:
        # A list of bytes has no form of its own in an answer, so each item is asked for.
        longest = {name: self._longest(table, name) for name, kind in types.items() if _bytes(kind)}
        asked = [
            one for name, kind in types.items() for one in _asked(name, kind, longest.get(name, 0))
        ]
        answer = self.server.ask(f"SELECT {', '.join(asked)} FROM {table}")
        return [self._row(types, longest, iter(row)) for row in answer]

    def shown(self, table: str, types: Types) -> dict[str, str]:
        lower = {name.lower(): name for name in types}
        described = self.server.ask(f"DESCRIBE {table}")
        return {lower[name]: kind for name, kind, *_ in described if name in lower}

    def _longest(self, table: str, name: str) -> int:
        sizes = self.server.ask(f"SELECT size(`{name}`) FROM {table}")
        return max((size for (size,) in sizes if size is not None), default=0)

    def _row(self, types: Types, longest: dict[str, int], values: Iterator[Any]) -> Row:
        row = {}
        for name, kind in types.items():
            value = next(values)
            if _bytes(kind):
                items = [next(values) for _ in range(longest[name])]
                # The size of NULL is -1.
                row[name] = None if value == -1 else [one and one.lower() for one in items[:value]]
            elif kind.startswith("array<"):
                row[name] = cell(None if value is None else json.loads(value), kind)
            else:
                row[name] = _cell(value, kind)
        return row


@dataclass
class Presto:
    """Presto, through one of its catalogs.

    Args:
        server: Connections to it.
        catalog: The catalog of the queries.
        name: The engine's name.
    """

    server: Jdbc
    catalog: str
    name: str

    def rows(self, table: str, types: Types) -> list[Row]:
        asked = ", ".join(
            f'CAST("{name}" AS varchar)' if _is_text(kind) else f'"{name}"'
            for name, kind in types.items()
        )
        answer = self.server.ask(f"SELECT {asked} FROM {self._place(table)}")
        return [
            {
                name: _cell(value, kind)
                for (name, kind), value in zip(types.items(), row, strict=True)
            }
            for row in answer
        ]

    def shown(self, table: str, types: Types) -> dict[str, str]:
        lower = {name.lower(): name for name in types}
        described = self.server.ask(f"DESCRIBE {self._place(table)}")
        return {lower[name]: kind for name, kind, *_ in described if name in lower}

    def _place(self, table: str) -> str:
        return ".".join(f'"{part}"' for part in (self.catalog, *table.split(".")))


def _asked(name: str, kind: str, longest: int) -> Sequence[str]:
    """The SQL expressions by which Hive returns the cells of a column."""
    if _bytes(kind):
        return (f"size(`{name}`)", *(f"hex(`{name}`[{number}])" for number in range(longest)))
    return (f"CAST(`{name}` AS string)" if _is_text(kind) else f"`{name}`",)


def _bytes(kind: str) -> bool:
    return kind == "array<binary>"


def _is_text(kind: str) -> bool:
    """Whether the server converts values of this type to text.

    It does for dates and timestamps, because the values of the JDBC driver have a time zone.
    """
    return kind == "date" or kind.startswith("timestamp")


def _cell(value: Any, kind: str) -> Any:
    return cell(moment(value) if kind.startswith("timestamp") else value, kind)


def _plain(value: Any) -> Any:
    """A value from a JDBC driver, converted to a Python value."""
    kind = getattr(value, "getClass", None)
    if kind is None:
        return value
    if hasattr(value, "getArray") and "Array" in kind().getSimpleName():
        return [_plain(item) for item in value.getArray()]
    return value.toString()


def _reason(error: Py4JJavaError) -> str:
    """The innermost reason of a failure, on one line."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return " ".join(str(cause.getMessage()).split())
