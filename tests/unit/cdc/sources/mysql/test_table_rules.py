"""The conditions that a table must fulfil so that the binlog shows all its changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.sources.mysql.table_rules import MysqlTableRules
from cdc.sources.source_facts import SourceColumn, SourceTable, TableKind
from schemas.table import TableId
from schemas.types_mysql import MysqlType


def table(*types: str, kind: TableKind = "table") -> SourceTable:
    return SourceTable(
        table=TableId("shop", "shop", "t"),
        kind=kind,
        columns=tuple(
            SourceColumn(f"c{n}", MysqlType.parse(shown), True, False, None)
            for n, shown in enumerate(types)
        ),
        primary_key=("c0",),
        unique_indexes=(("c0",),),
        identity_columns=("c0",),
        source_kind="mariadb",
    )


@pytest.mark.parametrize("former", ["time", "datetime(3)", "timestamp"])
def test_the_format_from_before_mariadb_10_1_is_refused_by_name(former: str) -> None:
    found = MysqlTableRules().not_in_log(table("int(11)", f"{former} /* mariadb-5.3 */", former))
    assert found is not None
    assert "format from before MariaDB 10.1 (`c1`)" in found[0]
    assert found[1].startswith("Run ALTER TABLE `shop`.`t` FORCE")
    assert MysqlTableRules().not_in_log(table("int(11)", former)) is None


def test_system_versioning_is_ended_by_a_statement_that_stops_no_connector() -> None:
    found = MysqlTableRules().not_in_log(table("int(11)", kind="other"))
    assert found is not None
    assert "ALTER TABLE `shop`.`t` /*M! DROP SYSTEM VERSIONING */" in found[1]


def test_a_unique_index_with_a_hidden_column_is_refused_by_name() -> None:
    found = MysqlTableRules().not_in_log(replace(table("text"), hashed_indexes=("u", "w")))
    assert found is not None
    assert "has unique indexes on long columns (`u`, `w`)" in found[0]
    assert "ALTER TABLE `shop`.`t` DROP INDEX `u`" in found[1]
