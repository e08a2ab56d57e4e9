"""The values in the lake that replace masked or hashed values."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.rows.masking import MASK, hidden
from schemas.table import Column, TableId, TableSchema
from tests.spark.local import local_config

KINDS = {
    "words": "string",
    "number": "int",
    "price": "decimal(10,2)",
    "bytes": "binary",
    "seen": "timestamp",
}
SEEN = datetime(2024, 2, 29, 1, 2, 3, tzinfo=timezone.utc)
ROWS = [
    (1, "a Ω 😀", 7, Decimal("1.50"), b"\x00\xff", SEEN),
    (2, "", 0, Decimal("0.00"), b"", None),
    (3, None, None, None, None, None),
]  # fmt: skip


def table(hide: str) -> TableSchema:
    columns = (Column(name, "any", "string", hide=hide, plain=kind) for name, kind in KINDS.items())
    return TableSchema(
        TableId("shop", "public", "people"), (Column("id", "int", "int"), *columns), ("id",)
    )


def lake(folder: Path, key: str | None = "${HASH_KEY}"):
    section = local_config(folder).lake
    return type(section).model_validate({"url": section.url, "hash_key": key})


@pytest.mark.parametrize("key", ["short", "k" * 64, "a key longer than a block " * 8, "kéy"])
def test_hashes_are_those_of_the_standard(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HASH_KEY", key)
    schema = table("hash")
    ddl = ", ".join(f"{c.name} {c.lake_type}" for c in schema.shown().columns)
    rows = hidden(spark.createDataFrame(ROWS, ddl), schema, lake(tmp_path))
    assert rows.columns == ["id", *KINDS]

    def hashed(text: str | bytes) -> str:
        data = text.encode() if isinstance(text, str) else text
        return hmac.new(key.encode(), data, hashlib.sha256).hexdigest()

    assert [tuple(row) for row in rows.orderBy("id").collect()] == [
        (1, *map(hashed, ("a Ω 😀", "7", "1.50", b"\x00\xff", "2024-02-29 01:02:03"))),
        (2, *map(hashed, ("", "0", "0.00", b"")), None),
        (3, None, None, None, None, None),
    ]


def test_the_key_is_not_in_what_spark_shows_of_a_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASH_KEY", "canary-key")
    schema = table("hash")
    frame = spark.range(3).selectExpr("CAST(id AS INT) AS id", *_nulls(schema))
    query = hidden(frame, schema, lake(tmp_path))._jdf.queryExecution()
    shown = query.toString() + query.executedPlan().treeString()
    assert "sha2" in shown
    inner = bytes(byte ^ 0x36 for byte in b"canary-key")
    for form in (b"canary-key", inner):
        assert form.decode("latin-1") not in shown
        assert form.hex().upper() not in shown.upper()
        assert str(list(form))[1:-1] not in shown


def _nulls(schema: TableSchema) -> list[str]:
    return [f"CAST(NULL AS {c.lake_type}) AS {c.name}" for c in schema.shown().columns[1:]]


def test_a_mask_stands_for_every_value_but_null(spark: SparkSession, tmp_path: Path) -> None:
    schema = table("mask")
    ddl = ", ".join(f"{c.name} {c.lake_type}" for c in schema.shown().columns)
    rows = hidden(spark.createDataFrame(ROWS, ddl), schema, lake(tmp_path, None))
    shown = [tuple(row) for row in rows.orderBy("id").collect()]
    assert shown == [
        (1, *[MASK] * 5),
        (2, *[MASK] * 4, None),
        (3, *[None] * 5),
    ]


def test_without_a_key_nothing_is_hashed(spark: SparkSession, tmp_path: Path) -> None:
    schema = table("hash")
    frame = spark.range(1).selectExpr("CAST(id AS INT) AS id", *_nulls(schema))
    with pytest.raises(ConfigError, match=r"shop:public\.people .*hash_key is not set") as refusal:
        hidden(frame, schema, lake(tmp_path, None))
    assert refusal.value.context["field"] == "lake.hash_key"
