"""A shop whose tables have names in a Hive Metastore, and engines that read them by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from cdc.config import Config
from cdc.lake.publish import current_path
from cdc.runtime import spark as spark_module
from schemas.table import TableSchema
from stack.local import LocalStack
from tests.integration.rigs.engines import Engine, Row, Types, UnreadableError, cell
from tests.integration.rigs.reader_page import EQUAL, Results
from tests.integration.rigs.shop import Shop

_NUMBERS = re.compile(r"\(\d+(,\d+)?\)")


@contextmanager
def named_spark(stack: LocalStack, metastore: str, scratch: Path) -> Iterator[SparkSession]:
    """A Spark session with which tests read tables by name; the product needs no such session."""
    document = yaml.safe_load(stack.config_text())
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "2g",
        "conf": {
            "spark.local.dir": str(scratch),
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore,
        },
    }
    yield spark_module.session(Config.model_validate(document), "tributary-tests")
    spark_module.stop()


class NamedShop(Shop):
    """A shop whose tables have names in a metastore."""

    def named(self, name: str) -> str:
        """The name of a table for readers."""
        found = self.services.config.catalog_name(self.table(name))
        assert found is not None
        return ".".join(found)

    def serving(self, name: str) -> str:
        """The folder of the generation that a table's readers are to see."""
        path = current_path(self.record(name).base_path)
        assert path is not None
        return path.rsplit("/", 1)[1]

    def types(self, name: str) -> Types:
        """The lake types of a table's columns."""
        return {column.name: column.lake_type for column in self._schema(name).columns}

    def truth(self, name: str) -> list[Row]:
        """All rows as the source has them now, in the order of their keys."""
        source, table = self.services.source(self.database.name), self.table(name)
        schema, types = self._schema(name), self.types(name)
        keys = self.database.rows(f"SELECT id FROM {name} ORDER BY id")
        rows = source.fetch_by_key(source.table(table), schema, keys, list(types))
        cells = [{key: cell(value, types[key]) for key, value in row.items()} for row in rows]
        return sorted(cells, key=lambda row: row["id"])

    def _schema(self, name: str) -> TableSchema:
        source, table = self.services.source(self.database.name), self.table(name)
        settings = self.services.config.table_settings(table)
        return source.schema(source.table(table), settings)


@dataclass
class Readers:
    """Engines that read the tables of a shop by name, and the results of the comparisons.

    Args:
        shop: The shop.
        engines: The engines.
        results: The results so far.
        unequal: By engine and table, the columns in which ``compare_types`` found cells that
            differ from the source. Other comparisons leave these columns out.
    """

    shop: NamedShop
    engines: Sequence[Engine]
    results: Results = field(default_factory=Results)
    unequal: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def compare(self, part: str, row: str, *names: str) -> None:
        """Note whether each engine shows all of these tables as the source has them."""
        for name in names:
            types, truth = self.shop.types(name), self.shop.truth(name)
            assert truth, f"{name} is empty on the source: the comparison would prove nothing"
            for engine in self.engines:
                left_out = self.unequal.get((engine.name, name), set())
                asked = {column: kind for column, kind in types.items() if column not in left_out}
                seen = attempt(lambda: engine.rows(self.shop.named(name), asked))  # noqa: B023
                rows = [{column: cells[column] for column in asked} for cells in truth]
                self.results.add(part, row, engine.name, difference(seen, rows))

    def expect(self, part: str, row: str, name: str, types: Types, rows: list[Row]) -> None:
        """Note whether each engine shows exactly these rows of a table."""
        for engine in self.engines:
            seen = attempt(lambda: engine.rows(self.shop.named(name), types))  # noqa: B023
            self.results.add(part, row, engine.name, difference(seen, rows))

    def compare_types(self, part: str, name: str) -> None:
        """Note for each lake type of a table whether engines show its cells as the source does."""
        types, truth = self.shop.types(name), self.shop.truth(name)
        for engine in self.engines:
            shown = engine.shown(self.shop.named(name), types)
            together = attempt(lambda: engine.rows(self.shop.named(name), types))  # noqa: B023
            for column, kind in types.items():
                asked, seen = {"id": types["id"], column: kind}, together
                if isinstance(seen, str):
                    # Otherwise one column that cannot be read would hide the others.
                    seen = attempt(lambda: engine.rows(self.shop.named(name), asked))  # noqa: B023
                rows = [{key: row[key] for key in asked} for row in truth]
                found, own = difference(seen, rows), _plain(shown[column])
                result = found if own == _plain(kind) else f"{own}: {found}"
                if found != EQUAL:
                    self.unequal.setdefault((engine.name, name), set()).add(column)
                self.results.add(part, _plain(kind), engine.name, result)


def attempt(read: Callable[[], list[Row]]) -> list[Row] | str:
    """The rows that a read returns, in the order of their keys, or why the read failed."""
    try:
        return sorted(read(), key=lambda row: row["id"])
    except UnreadableError as error:
        return f"fails, {error}"


def difference(seen: list[Row] | str, truth: list[Row]) -> str:
    """The difference from the source, as text: an error, row counts or one cell, or `equal`."""
    if isinstance(seen, str):
        return seen
    if len(seen) != len(truth):
        return f"{len(seen)} rows for {len(truth)}"
    wrong: list[tuple[Any, Any]] = [
        (mine[name], theirs[name])
        for mine, theirs in zip(seen, truth, strict=True)
        for name in theirs
        if mine[name] != theirs[name]
    ]
    return f"`{wrong[0][0]}` for `{wrong[0][1]}`" if wrong else EQUAL


def _plain(kind: str) -> str:
    """A type's text without spaces and sizes: ``decimal(10, 2)`` gives ``decimal(p,s)``."""
    return _NUMBERS.sub(lambda found: "(p,s)" if found[1] else found[0], kind.replace(" ", ""))
