"""How a connector's definition of a table is compared with the catalog's."""

from __future__ import annotations

import pytest

from cdc.capture.known_definition import differences, exact_columns, newest
from cdc.debezium import DefinitionChange, KnownColumn
from cdc.sources.source_facts import SourceColumn
from schemas.table import Column, TableId, TableSchema
from schemas.types_mysql import MysqlType

TABLE = TableId("shop", "shop", "t")


def catalog(
    shown: str, charset: str = "", *, name: str = "c", nullable: bool = True
) -> SourceColumn:
    kind = MysqlType.parse(shown, charset)
    return SourceColumn(name, kind, nullable, generated=False, default_sql=None)


def known(
    type_name: str,
    *sizes: int,
    charset: str | None = None,
    labels: tuple[str, ...] = (),
    name: str = "c",
    nullable: bool = True,
) -> KnownColumn:
    length, scale = (*sizes, None, None)[:2]
    return KnownColumn(name, type_name, length, scale, charset, nullable, labels)


@pytest.mark.parametrize(
    ("connector", "server"),
    [
        (known("INT"), catalog("int(11)")),
        (known("INTEGER UNSIGNED"), catalog("int(10) unsigned")),
        (known("INT UNSIGNED ZEROFILL", 5), catalog("int(5) unsigned zerofill")),
        (known("BOOLEAN"), catalog("tinyint(1)")),
        (known("NUMERIC", 6, 2), catalog("decimal(6,2)")),
        (known("DEC"), catalog("decimal(10,0)")),
        (known("FLOAT", 30), catalog("double")),
        (known("BIT"), catalog("bit(1)")),
        (known("DATETIME", -1), catalog("datetime")),
        (known("TEXT", 100, charset="utf8"), catalog("tinytext", "utf8mb3")),
        (known("VARCHAR", 9, charset="UTF8MB4"), catalog("varchar(9)", "utf8mb4")),
        (known("VARCHAR", 9, charset="LATIN1"), catalog("varchar(9)", "latin1")),
        (known("VARCHAR", 9, charset="utf8"), catalog("varchar(9)", "utf8mb4")),
        (known("NVARCHAR", 9, charset="utf8"), catalog("varchar(9)", "utf8mb3")),
        (known("VARCHAR BINARY", 9, charset="latin1"), catalog("varchar(9)", "latin1")),
        (known("BLOB", 100), catalog("tinyblob")),
        (known("POINT"), catalog("point")),
        (known("JSON"), catalog("longtext", "utf8mb4")),
        (
            known("ENUM", 1, charset="latin1", labels=("'it''s'", r"'it\'s'")),
            catalog("enum('it''s','it''s')", "utf8mb4"),
        ),
        (known("INT", nullable=True), catalog("int", nullable=False)),
    ],
)
def test_names_of_one_type_are_no_difference(connector: KnownColumn, server: SourceColumn) -> None:
    assert differences([connector], [server]) == []


@pytest.mark.parametrize(
    ("connector", "server", "told"),
    [
        (known("INT"), catalog("int unsigned"), "is int unsigned, and the connector has int"),
        (known("INT"), catalog("bigint"), "is bigint"),
        (known("DECIMAL", 6, 2), catalog("decimal(6,3)"), "decimal(6,3)"),
        (known("DATETIME"), catalog("datetime(3)"), "datetime(3)"),
        (known("BINARY", 4), catalog("binary(5)"), "binary(5)"),
        (
            known("VARCHAR", 9, charset="latin1"),
            catalog("varchar(9)", "utf8mb4"),
            "is text in utf8, and the connector has text in latin1",
        ),
        (known("VARCHAR", 9, charset="binary"), catalog("varbinary(9)"), "is bytes"),
        (known("ENUM", labels=("'b'", "'a'")), catalog("enum('a','b')"), "enum('a','b')"),
        (known("INT", nullable=False), catalog("int"), "the connector has int NOT NULL"),
        (known("REAL"), catalog("double"), "is double"),
    ],
)
def test_what_is_read_otherwise_is_one(
    connector: KnownColumn, server: SourceColumn, told: str
) -> None:
    (found,) = differences([connector], [server])
    assert told in found


@pytest.mark.parametrize("name", ["BOOL", "BOOLEAN"])
def test_a_boolean_differs_where_no_run_can_read_the_number_by_key(name: str) -> None:
    columns = [catalog("tinyint(1)"), catalog("tinyint(1)", name="d")]
    connector = [known(name), known("TINYINT", 1, name="d")]
    assert differences(connector, columns, exact=("d",)) == []
    (found,) = differences(connector, columns, exact=("c", "d"))
    assert found == (
        f"column c is tinyint(1), and the connector has it as {name}, so it sends true for each"
        " number other than 0"
    )


def test_no_run_reads_a_key_by_key_nor_a_row_without_one() -> None:
    columns = (Column("id", "int", "int"), Column("flag", "tinyint(1)", "int"))
    assert exact_columns(TableSchema(TABLE, columns, ("id",))) == ("id",)
    assert exact_columns(TableSchema(TABLE, columns, ())) == ("id", "flag")


def test_names_and_their_order_count() -> None:
    server = [catalog("int", name="a"), catalog("int", name="b")]
    assert differences([known("INT", name=name) for name in "ab"], server) == []
    for names, order in (("ba", "come in the order"), ("a", "are"), ("abc", "are")):
        (found,) = differences([known("INT", name=name) for name in names], server)
        assert found == f"its columns {order} a, b, and the connector has {', '.join(names)}"


def test_the_last_statement_counts() -> None:
    def change(offset: int, table: TableId | None, *names: str) -> DefinitionChange:
        columns = tuple(known("INT", name=name) for name in names)
        return DefinitionChange("ALTER", table, "", None, False, offset, columns=columns)

    other = TableId("shop", "shop", "u")
    changes = [change(0, TABLE, "a"), change(1, other, "b"), change(2, None), change(3, TABLE, "c")]
    names = {table: [one.name for one in columns] for table, columns in newest(changes).items()}
    assert names == {TABLE: ["c"], other: ["b"]}
    assert newest(changes[:0]) == {}
