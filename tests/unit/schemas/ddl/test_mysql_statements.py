"""The effects of MySQL statements on a table, and statements that are not understood."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.catalog import CatalogColumn
from schemas.changes import Verdict
from schemas.ddl.mysql_secrets import without_passwords
from schemas.ddl.mysql_statements import read_statements
from schemas.statement_effects import DroppedIndex, OldValue


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD INDEX ix (a)",
        "ALTER TABLE `shop`.`t` ADD UNIQUE KEY ix (a, b), DROP KEY other",
        "ALTER TABLE t RENAME INDEX a TO b",
        "CREATE INDEX ix ON t (a)",
        "DROP INDEX ix ON t",
        "ALTER TABLE t ENGINE = InnoDB",
        "ALTER TABLE t DROP INDEX ix, ENGINE 'innodb'",
        "ALTER TABLE t ADD PRIMARY KEY (a)",
        "ALTER TABLE t FORCE, ALGORITHM = INPLACE, LOCK = NONE",
        "ALTER TABLE t COMMENT 'x'",
        "ALTER TABLE t AUTO_INCREMENT = 5",
        "ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES u (id)",
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT 5",
        "ALTER TABLE t MODIFY COLUMN a bigint",
    ],
)
def test_what_changes_no_row_is_understood(statement: str) -> None:
    told = read_statements([statement])
    assert (told.count, told.grave, told.added, told.gone) == (1, [], {}, set())


@pytest.mark.parametrize(
    ("statement", "numbered"),
    [
        ("ALTER TABLE t MODIFY Seq bigint NOT NULL AUTO_INCREMENT, ADD UNIQUE (seq)", True),
        ("ALTER TABLE t CHANGE seq seq int auto_increment PRIMARY KEY", True),
        ("ALTER TABLE t MODIFY seq SERIAL", True),
        ("ALTER TABLE t MODIFY seq bigint NOT NULL", False),
    ],
)
def test_rows_get_numbers_when_their_column_becomes_auto_increment(
    statement: str, *, numbered: bool
) -> None:
    told, none = read_statements([statement]), read_statements([])
    assert told.grave == []
    for former, changed in ((False, numbered), (None, numbered), (True, False)):
        old = CatalogColumn(1, "Seq", "bigint", False, None, False, "bigint", numbered=former)
        for effects in (told, none.and_then(told), told.and_then(none)):
            assert effects.redefined(old, replace(old, numbered=numbered)) is changed


@pytest.mark.parametrize(
    "statement",
    [
        "RENAME TABLE t TO t_old, t_new TO t",
        "ALTER TABLE t RENAME TO u",
        "DROP TABLE t",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t DROP PARTITION p1",
        "ALTER TABLE t TRUNCATE PARTITION p1",
        "ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u",
        "ALTER TABLE t IMPORT TABLESPACE",
        "ALTER TABLE t ADD COLUMN (x int, y int)",
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE t DROP INDEX `PRIMARY`, ADD PRIMARY KEY (a, b)",
        "ALTER TABLE t DROP CONSTRAINT IF EXISTS `primary`",
        "DROP INDEX `PRIMARY` ON t",
        "ALTER TABLE t ENGINE = BLACKHOLE",
        "ALTER TABLE t ADD INDEX (a), ENGINE = MyISAM",
        "ALTER TABLE t ORDER BY a",
        "ALTER TABLE t DISCARD TABLESPACE",
        "ALTER TABLE t ADD c int /*!80000 , MODIFY a varchar(5) */",
        "this is no statement",
    ],
)
def test_what_may_change_rows_or_is_not_understood_is_grave(statement: str) -> None:
    assert read_statements([statement]).grave == [without_passwords(statement)]


@pytest.mark.parametrize("unique", ["UNIQUE INDEX comment (x)", "UNIQUE comment (x)"])
def test_an_index_whose_name_is_a_word_of_the_parser_is_unknown(unique: str) -> None:
    found = read_statements([f"ALTER TABLE t DROP INDEX a, ADD {unique}"])
    assert [one.unique for one in found.dropped_indexes] == [()]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (id) ON DELETE CASCADE",
        "ALTER TABLE t ADD INDEX (a), ADD FOREIGN KEY (a) REFERENCES u (id) on update set null",
        "ALTER TABLE t ADD COLUMN c int REFERENCES u (id) ON DELETE /* all */ CASCADE",
        "ALTER TABLE t ADD FOREIGN KEY IF NOT EXISTS (a) REFERENCES u (id) ON DELETE CASCADE",
    ],
)
def test_a_foreign_key_that_came_and_went_is_told(statement: str) -> None:
    """If the server logs the key's cascades, the key is harmless; else its changes are unknown."""
    told = read_statements([statement]).and_then(read_statements(["ALTER TABLE t DROP KEY f"]))
    shown = " ".join(without_passwords(statement).split())
    assert told.cascades == [shown] or told.grave == [shown]
    assert told.without_events_of_cascades().grave == [shown]
    harmless = read_statements(["ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (id)"])
    assert harmless.without_events_of_cascades().grave == []


@pytest.mark.parametrize(
    ("statement", "unique"),
    [
        ("ALTER TABLE t DROP INDEX u", []),
        ("ALTER TABLE t DROP KEY u, ADD UNIQUE KEY u (A, b)", [{"a", "b"}]),
        (
            "ALTER TABLE t ADD CONSTRAINT c UNIQUE (a), DROP CONSTRAINT u, ADD UNIQUE (b)",
            [{"a"}, {"b"}],
        ),
        ("ALTER TABLE t DROP INDEX u, ADD UNIQUE (a(5)), ADD INDEX (a)", []),
        ("DROP INDEX u ON t", []),
        ("drop index if exists `u v` on shop.t ALGORITHM=INPLACE LOCK=NONE", []),
        ("/* app */ DROP INDEX u ON t LOCK=NONE", []),
        ("CREATE OR REPLACE INDEX u ON t (a)", []),
        ("CREATE OR REPLACE UNIQUE INDEX u ON t (a)", [{"a"}]),
    ],
)
def test_a_dropped_index_is_known_with_what_replaces_it(
    statement: str, unique: list[set[str]]
) -> None:
    found = read_statements(["ALTER TABLE t FORCE"]).and_then(read_statements([statement]))
    assert found.grave == []
    assert found.dropped_indexes == [
        DroppedIndex(without_passwords(statement).strip(), tuple(map(frozenset, unique)))
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP FOREIGN KEY f, DROP CHECK c, DROP COLUMN n",
        "ALTER TABLE t ADD UNIQUE (a), RENAME INDEX u TO v, ALTER INDEX w INVISIBLE",
        "CREATE UNIQUE INDEX u ON t (a)",
    ],
)
def test_what_drops_no_index(statement: str) -> None:
    found = read_statements([statement])
    assert (found.grave, found.dropped_indexes) == ([], [])


@pytest.mark.parametrize(
    ("definition", "default"),
    [
        ("c int", OldValue(constant=False, null=True)),
        ("c int NULL DEFAULT NULL", OldValue(constant=False, null=True)),
        ("c int NOT NULL", OldValue(constant=False, null=False)),
        ("c int NOT NULL DEFAULT 5 AFTER a", OldValue(constant=True, null=False)),
        ("c decimal(5,2) DEFAULT -1.5", OldValue(constant=True, null=False)),
        ("c varchar(9) CHARACTER SET utf8mb4 DEFAULT ''", OldValue(constant=True, null=False)),
        ("c datetime DEFAULT CURRENT_TIMESTAMP", OldValue(constant=False, null=False)),
        ("c char(36) DEFAULT (uuid())", OldValue(constant=False, null=False)),
        ("c int AS (a + 1) STORED", OldValue(constant=False, null=False)),
        ("c int GENERATED ALWAYS AS (a + 1)", OldValue(constant=False, null=False)),
        ("c timestamp(6) GENERATED ALWAYS AS ROW START", OldValue(constant=False, null=False)),
    ],
)
def test_a_new_column_says_what_older_rows_show(definition: str, default: OldValue) -> None:
    told = read_statements([f"ALTER TABLE t ADD COLUMN {definition}"])
    assert told.grave == []
    assert told.old_rows_of("C") == default


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ADD c int", "ALTER TABLE t DROP c", "ALTER TABLE t ADD c int"],
        ["ALTER TABLE t ADD c int DEFAULT 5", "ALTER TABLE t ALTER c DROP DEFAULT"],
        ["ALTER TABLE t ADD c int DEFAULT 5", "ALTER TABLE t MODIFY c int"],
        ["ALTER TABLE t CHANGE a c int"],
        ["ALTER TABLE t RENAME COLUMN a TO c"],
        [],
    ],
)
def test_nobody_knows_old_rows_of_a_column_that_had_another_life(statements: list[str]) -> None:
    assert read_statements(statements).old_rows_of("c") is None


def test_a_column_under_a_former_name_is_another() -> None:
    told = read_statements(["ALTER TABLE t DROP COLUMN a, ADD COLUMN a int"])
    assert told.is_another("A")
    assert not told.is_another("b")


@pytest.mark.parametrize(
    ("definition", "default", "verdict", "stored"),
    [
        ("c int", None, Verdict.EVOLVE, None),
        ("c int DEFAULT 7", "7", Verdict.FILL, "7"),
        ("c int NOT NULL", None, Verdict.BOOTSTRAP, None),
        ("c datetime DEFAULT CURRENT_TIMESTAMP", "current_timestamp()", Verdict.BOOTSTRAP, None),
    ],
)
def test_the_verdict_of_a_new_column(
    definition: str, default: str | None, verdict: Verdict, stored: str | None
) -> None:
    told = read_statements([f"ALTER TABLE t ADD COLUMN {definition}"])
    column = CatalogColumn(1, "c", "int", True, default, generated=False, written="int")
    found = told.verdict(column, hidden=False)
    assert (found[0], found[2]) == (verdict, stored)
    if verdict is Verdict.FILL:
        assert told.verdict(column, hidden=True)[0] is Verdict.BOOTSTRAP
