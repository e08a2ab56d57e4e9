"""Statements that stop MariaDB's connector, according to the connector's own parser."""

from __future__ import annotations

import pytest

from schemas.errors import DdlError
from schemas.planned_ddl.mariadb_unreadable import require_readable, unreadable_clause
from schemas.table import TableId

A = "ALTER TABLE t "


@pytest.mark.parametrize(
    ("statement", "clause"),
    [
        (A + "ADD SYSTEM VERSIONING", "ADD SYSTEM VERSIONING"),
        (A + "drop system versioning", "DROP SYSTEM VERSIONING"),
        ("CREATE TABLE t (v int WITHOUT SYSTEM VERSIONING)", "WITHOUT SYSTEM VERSIONING"),
        (A + "ADD PERIOD FOR p(a, b)", "ADD PERIOD FOR"),
        (A + "ADD PERIOD IF NOT EXISTS FOR p(a, b)", "ADD PERIOD IF NOT EXISTS FOR"),
        (A + "DROP PERIOD FOR SYSTEM_TIME", "DROP PERIOD FOR"),
        (A + "ADD UNIQUE (id, p WITHOUT OVERLAPS)", "WITHOUT OVERLAPS"),
        (A + "CONVERT PARTITION p TO TABLE u", "CONVERT PARTITION"),
        (A + "CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)", "CONVERT TABLE"),
        (A + "ADD PARTITION PARTITIONS 3", "ADD PARTITION PARTITIONS"),
        (A + "ADD PARTITION (PARTITION `p 1` HISTORY)", "PARTITION ? HISTORY"),
        (A + "REORGANIZE PARTITION", "REORGANIZE PARTITION"),
        (A + "ADD CONSTRAINT IF NOT EXISTS c CHECK (v > 1)", "ADD CONSTRAINT IF NOT EXISTS"),
        (A + "ALTER COLUMN IF EXISTS v SET DEFAULT 5", "ALTER COLUMN IF EXISTS"),
        (A + "RENAME INDEX IF EXISTS a TO b", "RENAME INDEX IF EXISTS"),
        (A + "MODIFY v varchar(20) COMPRESSED", "COMPRESSED"),
        (A + "ADD v int DEFAULT NEXT VALUE FOR s", "NEXT VALUE FOR"),
        (A + "ADD v inet6", "INET6"),
        (A + "ADD x int; " + A + "ADD SYSTEM VERSIONING", "ADD SYSTEM VERSIONING"),
    ],
)
def test_what_stops_the_connector_is_named(statement: str, clause: str) -> None:
    assert unreadable_clause(statement) == clause
    with pytest.raises(DdlError, match="would stop the capture of all tables") as refused:
        require_readable(statement, TableId("shop", "shop", "t"))
    assert "/*M!" in refused.value.remedy


@pytest.mark.parametrize(
    "statement",
    [
        A + "ADD PARTITION (PARTITION p VALUES LESS THAN (5))",
        A + "COALESCE PARTITION 2",
        A + "REORGANIZE PARTITION a INTO (PARTITION b VALUES LESS THAN (5))",
        A + "REMOVE PARTITIONING",
        A + "PARTITION BY SYSTEM_TIME INTERVAL 1 MONTH",
        A + "CONVERT TO CHARACTER SET utf8mb4",
        A + "ROW_FORMAT = COMPRESSED",
        A + "ROW_FORMAT=COMPRESSED, ADD v int",
        A + "ADD v int COMMENT 'ADD SYSTEM VERSIONING', ADD `COMPRESSED` int",
        A + "ADD COLUMN IF NOT EXISTS v int, DROP CONSTRAINT IF EXISTS c",
        A + "/*M! ADD SYSTEM VERSIONING */",
        "CREATE TABLE t (a date, b date, PERIOD FOR p(a, b)) WITH SYSTEM VERSIONING",
        A + "ADD v varchar(9) DEFAULT 'open",
    ],
)
def test_what_it_reads_is_no_such_clause(statement: str) -> None:
    assert unreadable_clause(statement) is None
    require_readable(statement, TableId("shop", "shop", "t"))
