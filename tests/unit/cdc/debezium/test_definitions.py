"""The changes of table definitions in a connector's topic, read from its real record format."""

from __future__ import annotations

from typing import cast

import pytest

from cdc.debezium import (
    DefinitionChange,
    Definitions,
    KnownColumn,
    StatementsByTable,
    definition_changes,
    definitions,
)
from cdc.errors import KafkaError
from cdc.kafka import KafkaAdmin
from cdc.log.binlog_position import BinlogPosition
from schemas.ddl.mysql_statements import read_statements
from schemas.table import TableId
from tests.unit.cdc.debezium.statement_topics import (
    CAPTURE,
    REGISTRY,
    Kafka,
    second,
    value,
    written,
)


def told(file: str, *, gtid: str | None = None, at: int = 300) -> list[DefinitionChange]:
    """The changes that are read from one RENAME TABLE of two tables, by default at byte 300."""
    source = {"gtid": gtid, "snapshot": "false", "file": file, "pos": at}
    return read("RENAME TABLE orders TO former, swapped TO orders", "orders", "former", **source)


def read(
    ddl: str, *tables: str, database: str | None = "shop", **source: object
) -> list[DefinitionChange]:
    """The changes that are read from one statement whose record has these tables of ``shop``."""
    kafka = Kafka([written(ddl, *tables, database=database, **source)])
    return list(definition_changes(cast("KafkaAdmin", kafka), REGISTRY, CAPTURE, 0, 8))


def test_a_statement_is_told_with_a_place_that_covers_its_first_byte() -> None:
    found = told("binlog.000003")
    assert [str(change.table) for change in found] == ["shop:shop.orders", "shop:shop.former"]
    for change in found:
        place = BinlogPosition.parse(change.place or "")
        assert not BinlogPosition("binlog.000003", 300).reaches(place)
        assert BinlogPosition("binlog.000003", 301).reaches(place)
        assert change.gtid is None
        assert [column.name for column in change.columns] == ["id", "v"]
        assert change.columns[1] == KnownColumn("v", "VARCHAR", 20, None, None, True)


@pytest.mark.parametrize(("file", "place"), [("", None), ("binlog.000003", "binlog.000003:301")])
def test_a_snapshot_of_definitions_may_name_no_file(file: str, place: str | None) -> None:
    assert {change.place for change in told(file, gtid="0-1-5")} == {place}


def statements(reader: Definitions) -> str:
    return "".join(change.statement for change in reader.of(CAPTURE).changes)


def test_each_record_is_read_once_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_PART", 2)
    kafka = Kafka([value(ddl) for ddl in "abc"])
    reader = Definitions(cast("KafkaAdmin", kafka), REGISTRY)
    assert (statements(reader), kafka.asked) == ("abc", [(7, 9), (9, 10)])
    kafka.values.append(value("d"))
    # It goes on only if the topic still has the last record that was read.
    assert (statements(reader), kafka.asked[2:]) == ("abcd", [(9, 10), (10, 11)])
    assert (statements(reader), kafka.asked[4:]) == ("abcd", [])
    found = reader.of(CAPTURE)
    assert (found.topic_id, found.first, found.end) == (kafka.id, 7, 11)
    # A topic that lost records is read again.
    del kafka.values[1:]
    kafka.values.append(value("z"))
    assert (statements(reader), kafka.asked[4:]) == ("az", [(7, 9)])
    # Another topic of that name is read from its start.
    kafka.id, kafka.values = "second", [value(ddl) for ddl in "vwxyz"]
    assert statements(reader) == "vwxyz"


def test_a_topic_that_was_cut_off_and_filled_again_is_read_again() -> None:
    kafka = Kafka([value(ddl) for ddl in "abc"])
    reader = Definitions(cast("KafkaAdmin", kafka), REGISTRY)
    assert statements(reader) == "abc"
    kafka.values[1:], kafka.sent[9] = [value(ddl) for ddl in "xyz"], second(60)
    assert statements(reader) == "axyz"


def test_statements_of_an_open_transaction_are_waited_for() -> None:
    kafka = Kafka([value(ddl) for ddl in "abc"])
    kafka.hidden = 1
    found = Definitions(cast("KafkaAdmin", kafka), REGISTRY).of(CAPTURE)
    assert "".join(change.statement for change in found.changes) == "abc"


def test_a_hanging_transaction_hides_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can read the statement, but the connector's stored position is after it."""
    monkeypatch.setattr(definitions, "_OPEN_S", 0.0)
    kafka = Kafka([value(ddl) for ddl in "abc"])
    kafka.hidden = kafka.ends_with = 1
    with pytest.raises(KafkaError, match="from offset 9 on cannot be read") as caught:
        Definitions(cast("KafkaAdmin", kafka), REGISTRY).of(CAPTURE)
    assert f"--topic {CAPTURE.schema_change_topic} --partition 0" in caught.value.remedy


SHOP, ELSEWHERE, ANYWHERE, UNKNOWN = (
    TableId("shop", *name)
    for name in (("shop", "orders"), ("elsewhere", "orders"), ("", "orders"), ("", ""))
)


@pytest.mark.parametrize(
    ("statement", "database", "found"),
    [
        ("DROP INDEX u ON orders", "shop", SHOP),
        ("DROP INDEX u ON orders", "elsewhere", ELSEWHERE),
        ("DROP INDEX u ON orders", None, ANYWHERE),
        ("drop index `u` on `elsewhere` . `orders` LOCK=NONE", "shop", ELSEWHERE),
        ("/* app */ DROP INDEX u ON orders", "shop", SHOP),
        ("-- app\n#\nDROP INDEX IF EXISTS u ON orders WAIT 5", "shop", SHOP),
        ("/*!80000 DROP INDEX u ON orders */", "shop", SHOP),
        ("CREATE OR REPLACE UNIQUE INDEX u USING BTREE ON orders(a)", "shop", SHOP),
        ("DROP INDEX `on` ON `elsewhere`.orders", "shop", ELSEWHERE),
        ("DROP INDEX orders ON other", "shop", TableId("shop", "shop", "other")),
        ("DROP INDEX u ON `a``b`.`c.d`", "shop", TableId("shop", "a`b", "c.d")),
        ("DROP INDEX u ON .orders", "shop", UNKNOWN),
        ("SET STATEMENT lock_wait_timeout = 5 FOR DROP INDEX u ON orders", "shop", SHOP),
        ("CREATE INDEX u ON orders (a)", "shop", None),
        ("DROP DATABASE `index`", "shop", None),
        ("CREATE OR REPLACE VIEW v AS SELECT 1 FROM t USE INDEX (u)", "shop", None),
        ("SET character_set_server = latin1", "", None),
    ],
)
def test_a_dropped_index_is_found_by_the_table_that_its_statement_names(
    statement: str, database: str | None, found: TableId | None
) -> None:
    """The connector's record of such a statement has no table, only the session's database."""
    (change,) = read(statement, database=database)
    assert (change.table, change.beside) == (None, found)
    of_table = StatementsByTable([change])
    assert bool(of_table.of(SHOP)) is (found in (SHOP, ANYWHERE, UNKNOWN))
    assert bool(of_table.of(ELSEWHERE)) is (found in (ELSEWHERE, ANYWHERE, UNKNOWN))


@pytest.mark.parametrize(
    ("statement", "database", "found"),
    [
        ("CREATE OR REPLACE TABLE orders (id int PRIMARY KEY, v varchar(40))", "shop", SHOP),
        ("CREATE OR REPLACE TABLE orders (PRIMARY KEY (a)) AS SELECT 1 AS a", "shop", SHOP),
        ("create or replace table if not exists `orders` like model", "shop", SHOP),
        ("/* app */ CREATE OR REPLACE TABLE elsewhere.orders (id int)", "shop", ELSEWHERE),
        ("/*M!100000 CREATE OR REPLACE TABLE orders (id int) */", "elsewhere", ELSEWHERE),
        ("CREATE OR REPLACE TABLE orders (id int)", None, ANYWHERE),
        ("CREATE OR REPLACE TABLE", "shop", UNKNOWN),
        (
            "SET STATEMENT a=1, b=(SELECT substr('for' FROM 1 FOR 2)) FOR"
            " CREATE OR REPLACE TABLE orders (id int)",
            "shop",
            SHOP,
        ),
        # A table that the connector does not know has the rows of a table that is followed.
        ("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE orders", "shop", SHOP),
        ("CREATE OR REPLACE TEMPORARY TABLE orders (id int)", "shop", None),
        ("CREATE OR REPLACE VIEW orders AS SELECT 1", "shop", None),
        # Dumps drop a database in a comment that MariaDB's connector does not read.
        ("CREATE TABLE orders (id int)", "shop", SHOP),
        ("CREATE TEMPORARY TABLE orders (id int)", "shop", None),
        ("CREATE TABLE IF NOT EXISTS orders (`replace` int)", "shop", None),
        ("SET STATEMENT a = 1", "shop", None),
        # The connector reads nothing of these.
        ("/*!50100 ALTER TABLE orders DROP PARTITION p */", "shop", SHOP),
        ("/* app */ /*M! ALTER TABLE IF EXISTS elsewhere.orders DROP c */;", "shop", ELSEWHERE),
        ("/*! TRUNCATE orders */", "shop", SHOP),
        ("/*! DROP TABLE orders */", "shop", SHOP),
        ("/*! DROP TABLE other, orders */", "shop", UNKNOWN),
        ("/*! RENAME TABLE other TO orders */", "shop", UNKNOWN),
        ("/*!40000 ALTER TABLE `orders` DISABLE KEYS */", "shop", None),
        ("/*! DROP TABLES orders */", "shop", SHOP),
        ("/*! RENAME TABLES other TO orders */", "shop", UNKNOWN),
        ("/*!50001 DROP VIEW a, b */", "shop", None),
        ("/*! DROP USER a, b */", "shop", None),
        ("/*! RENAME USER a TO orders */", "shop", None),
        ("/*!50001 DROP VIEW IF EXISTS orders */", "shop", None),
        ("ALTER TABLE orders /*! DROP PARTITION p */", "shop", None),
    ],
)
def test_a_replaced_table_is_found_by_its_statement(
    statement: str, database: str | None, found: TableId | None
) -> None:
    """The connector does not apply the statement, and its record of it has no table."""
    (change,) = read(statement, database=database)
    assert (change.table, change.beside) == (None, found)
    assert bool(StatementsByTable([change]).of(SHOP)) is (found in (SHOP, ANYWHERE, UNKNOWN))
    assert found is None or read_statements([statement]).grave


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE orders", SHOP),
        ("SET STATEMENT a=1 FOR ALTER TABLE big EXCHANGE PARTITION p WITH TABLE orders", SHOP),
        ("/* app */ ALTER TABLE big exchange partition p with table orders", SHOP),
        ("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE elsewhere.`orders`", ELSEWHERE),
        # The record has the database of the altered table, and nothing that of the session.
        ("ALTER TABLE shop.big EXCHANGE PARTITION p WITH TABLE orders", ANYWHERE),
        ("ALTER TABLE big COMMENT 'exchange partition'", None),
    ],
)
def test_a_swapped_table_is_found_by_the_statement_on_the_other_one(
    statement: str, found: TableId | None
) -> None:
    (change,) = read(statement, "big")
    assert (change.table, change.beside) == (TableId("shop", "shop", "big"), found)
    assert StatementsByTable([change]).of(TableId("shop", "shop", "big")) == [change]
    assert bool(StatementsByTable([change]).of(SHOP)) is (found in (SHOP, ANYWHERE))
