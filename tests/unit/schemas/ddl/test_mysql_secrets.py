"""Passwords in DDL statements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.ddl.mysql_secrets import UNREADABLE, without_passwords
from schemas.ddl.mysql_statements import read_statements


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("CREATE TABLE f (a int) CONNECTION='u:pw@h'", "CREATE TABLE f (a int) CONNECTION='***'"),
        (
            'ALTER TABLE f comment = "it\'\'s \\"pw", ADD b int',
            "ALTER TABLE f comment = '***', ADD b int",
        ),
        ("ALTER TABLE f PASSWORD 'a''pw'", "ALTER TABLE f PASSWORD '***'"),
        (
            "ALTER TABLE f ADD b int COMMENT 'x', DROP c",
            "ALTER TABLE f ADD b int COMMENT '***', DROP c",
        ),
        (
            "CREATE TABLE f (a int) TABLE_TYPE=JDBC OPTION_LIST='User=u,Password=pw'",
            "CREATE TABLE f (a int) TABLE_TYPE=JDBC OPTION_LIST='***'",
        ),
        ("ALTER TABLE f /*! x */ CONNECTION='pw'", UNREADABLE),
        ("ALTER TABLE f /*! COMMENT 'x' */", UNREADABLE),
        ("ALTER TABLE f COMMENT 'x", UNREADABLE),
        (
            "ALTER TABLE f /* was CONNECTION='pw' */ ADD b int -- PASSWORD 'pw'\n, DROP c # 'pw'",
            "ALTER TABLE f ADD b int , DROP c ",
        ),
        ("ALTER TABLE f ADD b varchar(9) DEFAULT _utf8'--x', ADD `#comment` int", None),
        (
            "ALTER TABLE f ADD b int ENGINE_ATTRIBUTE = '{\"key\": \"pw\"}', HTTP='https://u:pw@h'",
            "ALTER TABLE f ADD b int ENGINE_ATTRIBUTE = '***', HTTP='***'",
        ),
        ("ALTER TABLE f ENGINE_ATTRIBUTE '{}'", "ALTER TABLE f ENGINE_ATTRIBUTE '***'"),
        ("ALTER TABLE f CONNECTION := 'u:pw'", "ALTER TABLE f CONNECTION := '***'"),
        ("ALTER TABLE f HTTP=/**/'u:pw'", "ALTER TABLE f HTTP= '***'"),
        ("ALTER TABLE f HTTP=`u:pw`", "ALTER TABLE f HTTP='***'"),
        ("ALTER TABLE f `OPTION_LIST`=`password=pw`", "ALTER TABLE f `OPTION_LIST`='***'"),
        ("ALTER TABLE f OPTION_LIST=pw", "ALTER TABLE f OPTION_LIST='***'"),
        (
            "ALTER TABLE f ADD b int COMMENT 'ON DELETE CASCADE'",
            "ALTER TABLE f ADD b int COMMENT '***'",
        ),
        ("ALTER TABLE f ADD b int -- pw\n", "ALTER TABLE f ADD b int "),
        ("RENAME TABLE comments TO `connections`", None),
        ("ALTER TABLE f OPTION_LIST=`password=pw`", "ALTER TABLE f OPTION_LIST='***'"),
        (
            "ALTER TABLE f ADD b varchar(50) DEFAULT (PASSWORD('pw'))",
            "ALTER TABLE f ADD b varchar(50) DEFAULT (PASSWORD('***'))",
        ),
        ("RENAME TABLE f TO g /* was CONNECTION='pw' */", UNREADABLE),
        ("DROP INDEX comment/* CONNECTION='pw' */ON f", "DROP INDEX comment ON f"),
        ('ALTER TABLE f CHANGE password "pw_hash" varchar(9)', None),
        ('ALTER TABLE f CHANGE COLUMN comment "comment" varchar(9)', None),
        ("ALTER TABLE f ENGINE = 'InnoDB', CHARACTER SET = 'utf8mb4', COLLATE='utf8mb4_bin'", None),
        (
            "ALTER TABLE f ADD b varchar(9) DEFAULT 'comment', COMMENT 'x'",
            "ALTER TABLE f ADD b varchar(9) DEFAULT 'comment', COMMENT '***'",
        ),
        ("ALTER TABLE f ADD connection varchar(9) DEFAULT 'x'", None),
        ("ALTER TABLE f ADD b varchar(9) DEFAULT 'COMMENT ''x'''", None),
        ("ALTER TABLE f ADD `comment` int", None),
        ("ALTER TABLE f ADD b int", None),
        ("ALTER TABLE f ADD b SET('a','b'), ADD c ENUM('comment') DEFAULT 'comment'", None),
    ],
)
def test_only_texts_that_can_have_a_password_are_left_out(
    statement: str, shown: str | None
) -> None:
    found = without_passwords(statement)
    assert found == (statement if shown is None else shown)
    before, after = (read_statements([one]) for one in (statement, found))
    assert replace(after, grave=[]) == replace(before, grave=[])
    assert len(after.grave) == len(before.grave)
    assert "pw'" not in repr(before), "no reason shows a password"
