"""The type map of MySQL and MariaDB."""

from __future__ import annotations

import pytest

from schemas.errors import UnsupportedTypeError
from schemas.types_mysql import MysqlType


@pytest.mark.parametrize(
    ("column_type", "lake"),
    [
        ("tinyint(1)", "int"),
        ("int(10) unsigned zerofill", "bigint"),
        ("mediumint unsigned", "int"),
        ("bigint(20)", "bigint"),
        ("bigint unsigned", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("decimal(38,30) unsigned", "decimal(38,30)"),
        ("decimal(39,0)", "string"),
        ("float(7,3)", "float"),
        ("double(7,3)", "double"),
        ("varchar(20)", "string"),
        ("varbinary(20)", "binary"),
        ("datetime(6)", "timestamp_ntz"),
        ("timestamp", "timestamp"),
        ("time(3)", "bigint"),
        ("year(4)", "int"),
        ("bit(1)", "boolean"),
        ("bit(63)", "bigint"),
        ("bit(64)", "decimal(20,0)"),
        ("enum('a','b')", "string"),
        ("set('a','b')", "string"),
        ("json", "string"),
        ("point", "binary"),
        ("geomcollection", "binary"),
        ("vector(3)", "array<float>"),
    ],
)
def test_each_type_has_a_lake_type(column_type: str, lake: str) -> None:
    kind = MysqlType.parse(column_type)
    assert kind.rule(table="t", column="c").lake_type == lake
    assert str(kind) == column_type


@pytest.mark.parametrize("column_type", ["uuid", "inet4", "inet6", "year(2)", "", "?"])
def test_a_type_without_a_rule_is_refused_by_name_and_travels_as_text(column_type: str) -> None:
    kind = MysqlType.parse(column_type)
    with pytest.raises(UnsupportedTypeError, match="column 'c' of table t") as refusal:
        kind.rule(table="t", column="c")
    assert "columns.as: {c: string}" in refusal.value.remedy
    assert kind.rule(table="t", column="c", as_text=True).lake_type == "string"


def test_labels_are_read_as_they_are() -> None:
    kind = MysqlType.parse("enum('it''s','a,b','(x) unsigned','')")
    assert kind.labels == ("it's", "a,b", "(x) unsigned", "")
    assert not kind.unsigned
    assert kind.rule(table="t", column="c").lake_type == "string"


@pytest.mark.parametrize("sign", ["", " unsigned zerofill"])
def test_a_long_decimal_is_printed_without_the_zeros_of_its_display(sign: str) -> None:
    rule = MysqlType.parse(f"decimal(40,2){sign}").rule(table="t", column="c")
    assert rule.read("c") == "CAST(CAST(c AS DECIMAL(40,2)) AS CHAR)"


@pytest.mark.parametrize("name", ["enum", "set"])
@pytest.mark.parametrize("label", ["App\\\\User", "a\\nb", "a\\rb", "a\\0b"])
def test_a_label_that_the_catalog_prints_with_an_escape_is_refused(name: str, label: str) -> None:
    kind = MysqlType.parse(f"{name}('a','{label}')", "utf8mb4")
    with pytest.raises(UnsupportedTypeError, match="the connector sends such a label with its esc"):
        kind.rule(table="t", column="c")
    assert kind.rule(table="t", column="c", as_text=True).lake_type == "string"
