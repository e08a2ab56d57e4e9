"""Maintenance of partitions, with and without a change of rows."""

from __future__ import annotations

import pytest

from schemas.ddl.mysql_secrets import without_passwords
from schemas.ddl.mysql_statements import read_statements

A = "ALTER TABLE t "
ADDED = "ADD PARTITION (PARTITION p VALUES LESS THAN (5))"
REORGANIZED = "REORGANIZE PARTITION a INTO "


@pytest.mark.parametrize(
    "statement",
    [
        A + ADDED,
        "alter table `shop`.`orders` add partition (partition p values less than (to_days("
        "'2026-01-01')) engine = InnoDB, partition m values less than maxvalue)",
        A + "ADD PARTITION IF NOT EXISTS (PARTITION p VALUES IN (1, 2))",
        A + "ADD PARTITION LOCAL PARTITIONS 3",
        A + "COALESCE PARTITION 2",
        A + "REBUILD PARTITION p0, `p 1`",
        A + "ANALYZE PARTITION ALL",
        A + "CHECK PARTITION p0",
        "ALTER TABLE IF EXISTS shop.t OPTIMIZE PARTITION p0 /* why */",
        A + REORGANIZED + "(PARTITION b VALUES LESS THAN (5), PARTITION `c` VALUES LESS THAN (9))",
        A + "REORGANIZE PARTITION a, b INTO (PARTITION c VALUES LESS THAN MAXVALUE)",
    ],
)
def test_what_moves_rows_between_partitions_changes_none(statement: str) -> None:
    found = read_statements([statement])
    assert (found.count, found.grave) == (1, [])


@pytest.mark.parametrize(
    "statement",
    [
        # The server drops the rows that no new list has.
        A + REORGANIZED + "(PARTITION a VALUES IN (1))",
        A + REORGANIZED + "(PARTITION b VALUES LESS THAN (5), PARTITION c VALUES IN (6))",
        A + REORGANIZED + "(PARTITION a VALUES IN (1) COMMENT 'PARTITION x VALUES LESS THAN (5)')",
        A + REORGANIZED + "(PARTITION `p VALUES LESS THAN ` VALUES IN (1))",
        A + REORGANIZED + "(PARTITION b)",
        A + "REORGANIZE PARTITION",
        A + "REPAIR PARTITION a",
        A + "DROP PARTITION a",
        A + "TRUNCATE PARTITION a",
        A + "REMOVE PARTITIONING",
        A + ADDED + ", DROP COLUMN c",
        A + "DROP COLUMN c, " + ADDED,
        A + "REBUILD PARTITION a, DROP COLUMN c",
        A + ADDED + "; DROP TABLE t",
        "ALTER IGNORE TABLE t REBUILD PARTITION a",
        A + "ADD PARTITION (PARTITION p VALUES LESS THAN ('open",
    ],
)
def test_what_may_change_rows_is_grave(statement: str) -> None:
    assert read_statements([statement]).grave == [without_passwords(statement)]
