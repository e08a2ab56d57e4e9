"""Planned statements of MySQL and MariaDB, which are parsed or refused."""

from __future__ import annotations

import pytest

from schemas.ddl.mysql_statements import read_statements
from schemas.errors import DdlError
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.planned_ddl.mysql_clauses import (
    Add,
    AddUnique,
    Clause,
    Definition,
    DropIndex,
    Redefine,
    RenameIndex,
    SetDefault,
)
from schemas.planned_ddl.mysql_statements import read_planned
from schemas.table import TableId

ID = TableId("s", "shop", "orders")
A = "ALTER TABLE orders "
X = Definition("x", "`x` INT")


@pytest.mark.parametrize(
    ("ddl", "clauses"),
    [
        (A + "ADD x int", [Add(X)]),
        ("alter table `shop`.`orders` add column `x` int;", [Add(X)]),
        (A + "ADD /* why */ x int -- because\n", [Add(X)]),
        (A + "ADD x int FIRST", [Add(X, "")]),
        (A + "ADD x int AFTER `my col`", [Add(X, "my col")]),
        (A + "ADD COLUMN IF NOT EXISTS x int", [Add(X, None, if_missing=True)]),
        (A + "ADD x int, ALGORITHM=INSTANT, LOCK=NONE", [Add(X)]),
        (A + "ALGORITHM=INPLACE, ADD x int COMMENT 'a, b; c'", [Add(X)]),
        (
            A + "ADD x int NOT NULL DEFAULT -5 COMMENT 'c' CHECK (x > 0)",
            [Add(Definition("x", "`x` INT NOT NULL DEFAULT -5"))],
        ),
        (
            A + "ADD x varchar(9) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'it''s'",
            [
                Add(
                    Definition(
                        "x",
                        "`x` VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'it''s'",
                    )
                )
            ],
        ),
        (
            A + "ADD x int AS (n * 2) STORED",
            [Add(Definition("x", "`x` INT", expression="(n * 2)", stored=True))],
        ),
        (
            A + "ADD x bigint AUTO_INCREMENT UNIQUE",
            [Add(Definition("x", "`x` BIGINT", not_null=True, unique=True))],
        ),
        (
            A + "ADD x int PRIMARY KEY",
            [Add(Definition("x", "`x` INT", not_null=True, primary=True))],
        ),
        (A + "MODIFY n bigint", [Redefine("n", Definition("n", "`n` BIGINT"))]),
        (A + "CHANGE `a``b` n int AFTER q", [Redefine("a`b", Definition("n", "`n` INT"), "q")]),
        (A + "DROP n, DROP COLUMN IF EXISTS q", [Drop("n"), Drop("q", if_there=True)]),
        (A + "RENAME COLUMN n TO q", [Rename("n", "q")]),
        (A + "ALTER n SET DEFAULT 5", [SetDefault("n", "5")]),
        (A + "ALTER COLUMN n DROP DEFAULT", [SetDefault("n", None)]),
        (A + "ADD INDEX i (n), ADD FULLTEXT KEY (note)", []),
        (A + "ADD UNIQUE (n, q)", [AddUnique("n", ("n", "q"))]),
        (A + "ADD CONSTRAINT c UNIQUE KEY (n(5))", [AddUnique("c", ())]),
        (A + "ADD PRIMARY KEY (n, q)", [AddUnique("PRIMARY", ("n", "q"), primary=True)]),
        (A + "ADD CONSTRAINT f FOREIGN KEY (n) REFERENCES u (id), DROP FOREIGN KEY g", []),
        (A + "ADD FOREIGN KEY (n) REFERENCES u (id) ON DELETE CASCADE", []),
        (A + "DROP KEY i, RENAME INDEX a TO b", [DropIndex("i"), RenameIndex("a", "b")]),
        ("CREATE UNIQUE INDEX i ON shop.orders (n)", [AddUnique("i", ("n",))]),
        ("CREATE INDEX i ON orders (n)", []),
        ("DROP INDEX i ON orders", [DropIndex("i")]),
        ("DROP INDEX `i v` ON `shop`.orders ALGORITHM=INPLACE LOCK NONE", [DropIndex("i v")]),
        (A + "ENGINE = InnoDB, COMMENT 'x', AUTO_INCREMENT = 5, FORCE", []),
        (A + "ADD PARTITION (PARTITION p1 VALUES LESS THAN (5))", []),
        ("ALTER TABLE IF EXISTS `shop`.`orders` COALESCE PARTITION 2", []),
    ],
)
def test_what_a_statement_does_to_the_catalog(ddl: str, clauses: list[Clause]) -> None:
    (statement,) = read_planned(ddl, ID)
    assert list(statement.clauses) == clauses
    assert not read_statements([statement.text]).grave


@pytest.mark.parametrize(
    "ddl",
    [
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
        "RENAME TABLE other TO shop.orders",
        A + "RENAME TO other",
        A + "RENAME AS other",
        "DROP TABLE IF EXISTS orders",
        A + "CONVERT TO CHARACTER SET utf8mb4",
        A + "ADD x int, CONVERT TO CHARACTER SET utf8mb4",
        A + "DEFAULT CHARACTER SET latin1",
        A + "REORGANIZE PARTITION a INTO (PARTITION a VALUES IN (1))",
        "ALTER TABLE IF EXISTS `shop`.`orders` DROP PARTITION p1",
        A + "EXCHANGE PARTITION p WITH TABLE other",
        "ALTER TABLE other EXCHANGE PARTITION p WITH TABLE orders",
        A + "PARTITION BY HASH (id) PARTITIONS 4",
        A + "REMOVE PARTITIONING",
        A + "DROP PRIMARY KEY, ADD PRIMARY KEY (n)",
        A + "DROP INDEX `PRIMARY`, ADD PRIMARY KEY (n)",
        A + "DROP CONSTRAINT IF EXISTS `PRIMARY`",
        A + "ADD x int, ENGINE = MyISAM",
        A + "ENGINE MyISAM",
        A + "ADD (x int, y int)",
        A + "ADD COLUMN (x int, y int)",
        A + "ORDER BY n",
        A + "DISABLE KEYS",
    ],
)
def test_what_a_run_does_not_look_into_is_as_grave_here(ddl: str) -> None:
    (statement,) = read_planned(ddl, ID)
    assert statement.clauses == ()
    assert read_statements([statement.text]).grave


def test_statements_are_read_one_by_one_and_rows_are_none_of_it() -> None:
    found = read_planned(
        "SET lock_wait_timeout = 5; ALTER TABLE orders ADD x int; UPDATE orders SET x = 5 WHERE"
        " note = 'a;b'; OPTIMIZE TABLE orders; TRUNCATE TABLE orders;"
        " ALTER TABLE orders MODIFY x int DEFAULT 7;",
        ID,
    )
    assert [statement.text for statement in found] == [
        "ALTER TABLE orders ADD x int",
        "ALTER TABLE orders MODIFY x int DEFAULT 7",
    ]


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("ALTER TABLE other ADD x int", "another table"),
        ("ALTER TABLE elsewhere.orders ADD x int", "another table"),
        ("ALTER TABLE ORDERS ADD x int", "another table"),
        ("ALTER TABLE other DROP PARTITION p1", "another table"),
        ("ALTER TABLE other.orders REBUILD PARTITION p1", "another table"),
        ("ALTER TABLE other EXCHANGE PARTITION p WITH TABLE orders_old", "another table"),
        ("CREATE INDEX i ON other (n)", "another table"),
        ("DROP INDEX i ON other", "another table"),
        ("RENAME TABLE other TO another", "another table"),
        ("DROP TABLE elsewhere.orders", "another table"),
        ("CREATE TABLE orders (id int)", "only ALTER TABLE"),
        ("DROP DATABASE shop", "only ALTER TABLE"),
        ("CREATE INDEX i ON orders (n) ALGORITHM=INPLACE", "only ALTER TABLE"),
        ("RENAME", "only ALTER TABLE"),
        (A + "ADD x int WAIT 5", "not understood"),
        (A + "ADD x national varchar(5)", "not understood"),
        (A + "ADD x int COLUMN_FORMAT FIXED", "not understood"),
        (A + "frobnicate", "not understood"),
        (A + "ADD x real", "write type real"),
        (A + "ADD x int /*! , DROP n */", "such comments"),
        (A + "ADD x int /*M!100100 NOT NULL */", "such comments"),
        (A + "ADD x int DEFAULT 'open", "cannot be parsed"),
        (
            "SET STATEMENT lock_wait_timeout=5 FOR " + A + "DROP PARTITION p0",
            "may change the meaning",
        ),
        ("SET sql_log_bin = 0; " + A + "ADD c int", "may change the meaning"),
        (
            "SET SESSION lock_wait_timeout = 5, sql_mode = ''; " + A + "ADD c int",
            "may change the meaning",
        ),
    ],
)
def test_what_is_not_taken_apart_is_refused(ddl: str, why: str) -> None:
    with pytest.raises(DdlError, match=why) as caught:
        read_planned(ddl, ID)
    assert caught.value.remedy
