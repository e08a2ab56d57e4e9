"""Batches with an enum label that has another name on the source now."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import SchemaChangeError
from cdc.rows.columns import OFFSET, PROBLEM
from cdc.rows.masking import hidden
from cdc.run.former_labels import FormerLabels
from schemas.table import Column, TableId, TableSchema
from tests.spark.local import local_config

TABLE = TableId("shop", "public", "t")
LABELS = FormerLabels({"mood": frozenset({"sad", "it's", "a,b"})})
ROWS = [
    (1, 11, None, "sad", "x"),
    (2, 12, None, "it's", "x"),
    (3, 13, None, None, "x"),
    (4, 14, "cannot be applied", "hapy", "x"),
]


def batch(spark: SparkSession, *more: tuple[int, int, str | None, str, str]):
    return spark.createDataFrame(
        [*ROWS, *more],
        f"id int, {OFFSET} bigint, {PROBLEM} string, mood string, note string",
    )


def table(hide: str = "") -> TableSchema:
    mood = Column("mood", "mood", "string", hide=hide, plain="string" if hide else "")
    columns = (Column("id", "int", "int"), mood, Column("note", "text", "string"))
    return TableSchema(TABLE, columns, ("id",))


def test_a_value_that_is_no_label_now_stops_the_table(spark: SparkSession, tmp_path: Path) -> None:
    lake = local_config(tmp_path).lake
    LABELS.require_present(batch(spark), table(), lake)
    found = batch(spark, (6, 16, None, "hapy", "x"), (5, 15, None, "hapyy", "x"))
    FormerLabels().require_present(found, table(), lake)
    with pytest.raises(SchemaChangeError, match=r"offset 15\) has 'hapyy' in column 'mood'"):
        LABELS.require_present(found, table(), lake)


@pytest.mark.parametrize("hide", ["hash", "mask"])
def test_hidden_labels_are_compared_as_the_lake_has_them_and_are_not_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hide: str
) -> None:
    monkeypatch.setenv("HASH_KEY", "key " * 30)
    section = local_config(tmp_path).lake
    lake = type(section).model_validate({"url": section.url, "hash_key": "${HASH_KEY}"})
    LABELS.require_present(hidden(batch(spark), table(hide), lake), table(hide), lake)
    found = hidden(batch(spark, (5, 15, None, "hapy", "x")), table(hide), lake)
    if hide == "mask":
        LABELS.require_present(found, table(hide), lake)
        return
    with pytest.raises(SchemaChangeError, match=r"offset 15\) has a value in column") as caught:
        LABELS.require_present(found, table(hide), lake)
    assert "hapy" not in caught.value.message
