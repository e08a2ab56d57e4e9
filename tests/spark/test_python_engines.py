"""Python engines without Spark read every lake type, and tables after each kind of operation.

The test compares their results with the page docs/readers_python.md.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.lake import table_services
from cdc.lake.write import LakeTable
from tests.spark.lake import (
    CLUSTERED,
    SEVERAL_COMMITS,
    accept,
    change,
    insert_all,
    lake,
    record,
    rows,
    schema,
)
from tributary_reader import open_table
from tributary_reader.snapshot import published_files

pytestmark = pytest.mark.breadth

PAGE = Path(__file__).parents[2] / "docs" / "readers_python.md"
TYPES: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**53 + 1),
    "float": (1.5, -0.0, math.inf, math.nan),
    "double": (1e308, 5e-324, -math.inf, math.nan),
    "decimal(10,2)": (Decimal("-99999999.99"), Decimal("0.01")),
    "decimal(38,10)": (Decimal("1234567890123456789012345678.0123456789"), Decimal("0E-10")),
    "string": ("", "a\u0000b\n", "日本 \U0001f40d"),
    "binary": (bytearray(b""), bytearray(b"\x00\xff")),
    "date": (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": tuple(
        map(dt.datetime.fromisoformat, ("0001-01-03", "9999-12-30T23:59:59.999999"))
    ),
    "timestamp_ntz": tuple(
        map(dt.datetime.fromisoformat, ("0001-01-03", "2020-03-29T02:30:00.000001"))
    ),
    "array<int>": ([], [1, None, -1]),
    "array<string>": (["", None], ["é"]),
}
NTZ = "timestamp_ntz"
"""The only lake type because of which an engine may fail to read its whole table."""
ROWS = 6
Rows = dict[int, dict[str, Any]]


def _arrow(path: str) -> pa.Table:
    return open_table(path).read()


def _pandas(path: str) -> pa.Table:
    import pandas as pd

    frame = open_table(path).read().to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame, preserve_index=False)


def _polars(path: str) -> pa.Table:
    import polars as pl

    return pl.from_arrow(_arrow(path)).to_arrow()  # type: ignore[union-attr]


def _duckdb(path: str) -> pa.Table:
    import duckdb

    files = [one.path for one in published_files(path)]
    with duckdb.connect() as connection:
        query = "SELECT * FROM read_parquet($1, union_by_name = true)"
        return connection.sql(query, params=[files]).to_arrow_table()


def _polars_files(path: str) -> pa.Table:
    import polars as pl

    files = [one.path for one in published_files(path)]
    return pl.scan_parquet(files, missing_columns="insert").collect().to_arrow()


def _daft_files(path: str) -> pa.Table:
    import daft

    return daft.read_parquet([one.path for one in published_files(path)]).to_arrow()


def _daft(path: str) -> pa.Table:
    import daft

    return daft.read_hudi(path).to_arrow()


def _hudi(path: str) -> pa.Table:
    from hudi import HudiTableBuilder

    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(path).build().read())


ENGINES: dict[str, tuple[str, Callable[[str], pa.Table]]] = {
    "tributary_reader": ("pyarrow", _arrow),
    "pandas": ("pandas", _pandas),
    "Polars": ("polars", _polars),
    "DuckDB, files": ("duckdb", _duckdb),
    "Polars, files": ("polars", _polars_files),
    "Daft, files": ("daft", _daft_files),
    "Daft, Hudi": ("daft", _daft),
    "hudi-rs": ("hudi", _hudi),
}


def plain(value: Any) -> Any:
    """A form of a cell for comparisons: two forms are equal exactly if the values are equal."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return repr(value) if isinstance(value, float) else value


def _by_key(found: Iterable[Mapping[str, Any]], names: list[str]) -> Rows:
    return {row["id"]: {name: plain(row[name]) for name in names} for row in found}


def read_by(engine: str, path: str, names: list[str]) -> tuple[int, Rows] | str:
    """The number of rows and the rows that an engine returns, or its error."""
    try:
        table = ENGINES[engine][1](path)
    except BaseException as error:
        # A panic of Rust is no Exception.
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:120]
    return table.num_rows, _by_key(table.select(names).to_pylist(), names)


def judged(table: LakeTable, engine: str) -> dict[str, str]:
    """By column: `equal`, or an example of a value that differs from Spark's, or the error."""
    names = [column.name for column in table.layout.schema.columns]
    wanted = _by_key((row.asDict() for row in table.read().select(*names).collect()), names)
    found = read_by(engine, table.path.removeprefix("file://"), names)
    if isinstance(found, str):
        return dict.fromkeys(names, found)
    number, cells = found
    if number != len(wanted) or cells.keys() != wanted.keys():
        return dict.fromkeys(names, f"{number} rows instead of {len(wanted)}")
    return {
        name: "equal" if not differing else f"{differing[0][0]} for {differing[0][1]}"
        for name in names
        if (
            differing := [
                (cells[key][name], wanted[key][name])
                for key in wanted
                if cells[key][name] != wanted[key][name]
            ]
        )
        is not None
    }


def of_types(spark: SparkSession, folder: Path, kinds: Sequence[str]) -> LakeTable:
    """Create a table with a column of each type; every column has values and NULLs."""
    columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
    table = lake(spark, folder, schema("id", id="bigint", **columns), buckets=2)
    values = [(key, *(([*TYPES[kind], None] * ROWS)[key] for kind in kinds)) for key in range(ROWS)]
    insert_all(spark, table, *values)
    return table


def lives(spark: SparkSession, folder: Path) -> dict[str, LakeTable]:
    """Create a table for each kind of operation, such as clustering or TRUNCATE, and perform it."""
    found = {}
    columns = schema("id", id="bigint", name="string", n="int")
    for name, settings in (
        ("updates and deletes", {"buckets": 2}),
        ("clustering", {"index": "bloom", "hudi": CLUSTERED}),
        ("TRUNCATE", {}),
        ("moves between partitions", {"partition_by": ("name",)}),
    ):
        table = lake(spark, folder / name.replace(" ", "_"), columns, **settings)
        insert_all(spark, table, *[(k, "a/ b", k) for k in range(ROWS)], size=SEVERAL_COMMITS)
        change(spark, table, 1, ("u", 1, (1, "new", 7)), ("d", 2, (2, None, None)))
        found[name] = table
    found["clustering"].keep_up(lambda: None)
    again = rows(spark, found["TRUNCATE"], [("c", 3, (9, "after", 1))])
    found["TRUNCATE"].overwrite(again, record(offsets={0: 4}), accept)
    added = lake(spark, folder / "added", columns, buckets=2)
    insert_all(spark, added, *[(k, "old", k) for k in range(ROWS)])
    wider = schema("id", id="bigint", name="string", n="bigint", more="double")
    found["columns added and widened"] = LakeTable(
        spark, added.path, wider, TableSettings(buckets=2)
    )
    change(spark, found["columns added and widened"], 1, ("u", 1, (1, "new", 2**40, 1.5)))
    return found


def shortened(columns: Mapping[str, str]) -> str:
    """One result for a table: `equal`, or the result of the first column that is not equal."""
    return next((one for one in columns.values() if one != "equal"), "equal")


def test_the_page_says_what_each_engine_returns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    others = [kind for kind in TYPES if kind != NTZ]
    types = {
        (NTZ,): of_types(spark, tmp_path / "ntz", (NTZ,)),
        (*others,): of_types(spark, tmp_path / "others", others),
    }
    tables = lives(spark, tmp_path)
    results: dict[str, dict[str, str]] = {}
    for engine in ENGINES:
        by_type: dict[str, str] = {}
        for kinds, table in types.items():
            by_column = judged(table, engine)
            by_type |= {kind: by_column[f"c{number}"] for number, kind in enumerate(kinds)}
        results[engine] = {
            **{kind: by_type[kind] for kind in TYPES},
            **{f"after {name}": shortened(judged(table, engine)) for name, table in tables.items()},
        }
    wanted = page(results)
    assert wanted in PAGE.read_text("utf-8"), f"put this on the page:\n{wanted}"


def page(results: Mapping[str, Mapping[str, str]]) -> str:
    """The generated part of the page docs/readers_python.md."""
    titles = [
        f"{engine} ({dist} {version(dist)})" for engine in results if (dist := ENGINES[engine][0])
    ]
    lines = [
        "| | " + " | ".join(titles) + " |",
        "|---" * (len(titles) + 1) + "|",
    ]
    notes: dict[str, int] = {}
    for row in next(iter(results.values())):
        cells = []
        for one in results.values():
            text = one[row]
            cells.append(
                "equal" if text == "equal" else f"no ({notes.setdefault(text, len(notes) + 1)})"
            )
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    listed = [f"{number}. `{text}`" for text, number in notes.items()]
    return "\n".join([*lines, "", *listed, ""])
