"""The text of keys: each key has exactly one text, equal in copy and stream, for any values."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc.lake.key_text import key_text
from cdc.runtime.spark import java_class
from schemas.table import Column
from tests.spark.lake import ONE_COMMIT, SEVERAL_COMMITS, change, content, insert, lake, schema

_WORDS = (
    "__null__",
    "__empty__",
    "",
    "{}",
    "null",
    "\\N",
    "e\u0301",
    "é",
    "a,b:",
    "0:1:2",
    "x" * 3000,
)
TEXTS = st.sampled_from(_WORDS) | st.text(
    alphabet=",:;|\\=NU. a\n\r\0é😀\U0010ffff\ue000\uff21\uffff", max_size=6
)
MOMENTS = st.datetimes(
    dt.datetime.fromisoformat("0001-01-02"), dt.datetime.fromisoformat("9999-12-30")
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.none() | TEXTS,
    "int": st.integers(-2, 20),
    "bigint": st.sampled_from([-(2**63), -1, 0, 1, 11, 2**63 - 1]),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=3).map(bytearray),
    "date": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": MOMENTS.map(lambda at: at.replace(tzinfo=dt.timezone.utc)),
    "timestamp_ntz": MOMENTS,
    "decimal(20,3)": st.decimals(-1000, 1000, places=3, allow_nan=False),
    "double": st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e300, float("nan"), float("inf")]),
    "float": st.sampled_from([0.0, -0.0, 0.5, float("nan"), float("-inf")]),
}
COLUMNS = [
    Column(f"c{number}_{n}", kind, kind) for number, kind in enumerate(VALUES) for n in (0, 1)
]
ROWS = st.lists(
    st.tuples(*(VALUES[column.lake_type] for column in COLUMNS)), min_size=5, max_size=25
)
KEYS = st.lists(
    st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True),
    min_size=10,
    max_size=10,
)


def same(value: Any) -> Any:
    """A form in which two values are equal if the source takes them for equal.

    For example, 0.0 equals -0.0, and NaN equals NaN.
    """
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return bytes(value) if isinstance(value, bytearray) else value


@settings(max_examples=3, phases=[Phase.generate])
@given(rows=ROWS, keys=KEYS)
def test_two_keys_have_one_text_only_if_they_are_equal(
    spark: SparkSession, rows: list[tuple[Any, ...]], keys: list[list[Column]]
) -> None:
    ddl = ", ".join(f"`{column.name}` {column.lake_type}" for column in COLUMNS)
    shown = spark.createDataFrame(rows, ddl).select(
        "*", *(key_text(key).alias(f"k{number}") for number, key in enumerate(keys))
    )
    found = shown.collect()
    parse = java_class(spark, "org.apache.hudi.keygen.KeyGenUtils").extractRecordKeys
    for number, key in enumerate(keys):
        texts: dict[str, Any] = {}
        for row in found:
            text, value = row[f"k{number}"], tuple(same(row[column.name]) for column in key)
            assert texts.setdefault(text, value) == value
            assert "," not in text, "with a colon, Hudi would take it apart"
        assert len(texts) == len(set(texts.values()))
        in_units = sorted(texts, key=lambda text: text.encode("utf-16-be"))
        assert sorted(texts, key=str.encode) == in_units, "Hudi compares keys in both orders"
        for text in texts:
            # Where two columns name the partition, Hudi puts the name of the key's before it.
            assert [list(parse(one)) for one in (text, f"_cdc_key:{text}")] == [
                [text],
                [f"_cdc_key:{text}"],
            ]


AT = dt.datetime.fromisoformat("1969-12-31T23:59:59.999999")
AWKWARD: list[tuple[Any, ...]] = [
    ("00:1b:44:11", 1, AT, 0.0),  # Hudi's own reading of such a key never ends
    ("00:1b:44:11", 11, AT, 0.0),
    ("00:1b:44:11", 1, AT, 0.5),
    ("x,b:y", 1, AT, 0.0),
    ("x", 1, AT, float("inf")),
    ("", 1, AT, 0.0),
    ("__empty__", 1, AT, 0.0),
    ("__null__", 1, AT, 0.0),
    ("a:b:c", 2, AT, 0.0),
    ("|", 2, AT, 0.0),
    ("\\", 2, AT, 0.0),
    ("line\r\nend{}", 2, AT, 0.0),
    ("\uff21", 2, AT, 0.0),  # Java sorts these two by UTF-16, Spark by UTF-8: the other way round
    ("\U0001f600", 2, AT, 0.0),
    ("\ue000", 2, AT, 0.0),
]


@pytest.mark.parametrize(
    ("size", "by"),
    [
        (ONE_COMMIT, ()),
        pytest.param(SEVERAL_COMMITS, (), marks=pytest.mark.breadth),
        pytest.param(ONE_COMMIT, ("n", "a"), marks=pytest.mark.breadth),
    ],
    ids=["bucket", "bloom", "partitioned"],
)
def test_awkward_keys_are_found_again(
    spark: SparkSession, tmp_path: Path, size: Any, by: tuple[str, ...]
) -> None:
    keyed = schema("a,n,t,f", a="string", n="int", t="timestamp_ntz", f="double", v="int")
    table = lake(spark, tmp_path / "t", keyed, partition_by=by)
    # A partition has no name for an empty text.
    keys = [key for key in AWKWARD if key[0] or not by]
    insert(spark, table, *[(*key, 0) for key in keys], size=size)
    updated, deleted, moved = keys[0::3], keys[1::3], keys[2::3]
    ends = [(f"{key[0]},:", *key[1:]) for key in moved]

    change(
        spark,
        table,
        9,
        *(("u", 1, (*key[:3], -key[3], 1)) for key in updated),
        *(("d", 2, (*key, None)) for key in (*deleted, *moved)),
        *(("c", 3, (*key, 2)) for key in ends),
    )

    expected = [*((*key[:3], -key[3], 1) for key in updated), *((*key, 2) for key in ends)]
    assert content(table) == sorted(expected, key=repr)


@pytest.mark.parametrize("by", [(), ("v",)], ids=["bloom", "global"])
def test_a_key_is_found_in_its_file_whatever_characters_the_files_keys_have(
    spark: SparkSession, tmp_path: Path, by: tuple[str, ...]
) -> None:
    """A bloom index looks for a key only in files whose least and greatest key enclose that key."""
    keyed = schema("a", a="string", v="int")
    apart = {"hoodie.parquet.small.file.limit": 0}
    table = lake(spark, tmp_path / "t", keyed, partition_by=by, index="bloom", hudi=apart)
    insert(spark, table, ("\uff21", 0), ("\U0001f600", 0), ("\ue000", 0))

    change(spark, table, 9, ("u", 1, ("\uff21", 1)), ("d", 2, ("\ue000", None)))
    assert content(table) == [("\uff21", 1), ("\U0001f600", 0)]
    change(spark, table, 19, ("d", 11, ("\uff21", None)), ("u", 12, ("\U0001f600", 2)))
    assert content(table) == [("\U0001f600", 2)]
