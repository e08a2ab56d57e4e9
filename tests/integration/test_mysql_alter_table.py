"""Statements of MySQL and MariaDB: the verdict of `schema check`, and the result of the next run.

All tables go through the same copy and the same run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from cdc.store.table_state import State
from operate.schema import check
from schemas.changes import Verdict
from stack.mysql_software import MYSQL
from tests.integration.rigs.mysql import MysqlDatabase, mysql_of
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop

IGNORE, EVOLVE, FILL, BOOTSTRAP = Verdict
CREATE = (
    "CREATE TABLE T (id int PRIMARY KEY, v int NOT NULL, t varchar(40) DEFAULT 'it''s',"
    " d datetime DEFAULT current_timestamp, p decimal(8,2) NOT NULL DEFAULT 1,"
    " b binary(2) NOT NULL DEFAULT 'ab')"
    " CHARACTER SET utf8mb4"
)
ROWS = "INSERT INTO T (id, v) VALUES (1, 1), (2, 2)"
A = "ALTER TABLE T "


@dataclass(frozen=True)
class Kind:
    """One kind of change; ``T`` stands for the table."""

    name: str
    verdict: Verdict
    statements: tuple[str, ...]
    partitions: str = ""
    rows: str = ROWS
    before: tuple[str, ...] = ()

    def sql(self, *statements: str) -> list[str]:
        return [re.sub(r"\bT\b", self.name, text) for text in statements]


KINDS = [
    Kind("added", EVOLVE, (A + "ADD x int FIRST, ALGORITHM=INSTANT",)),
    Kind("filled", FILL, (A + "ADD x varchar(9) NOT NULL DEFAULT 'so' AFTER id",)),
    Kind("filled_with_nothing", FILL, (A + "ADD x varchar(9) NOT NULL DEFAULT ''",)),
    Kind("padded", BOOTSTRAP, (A + "MODIFY b binary(4) NOT NULL DEFAULT 'ab'",)),
    Kind(
        "rounded",  # the server rounds 19.989999771118164 to 19.99
        BOOTSTRAP,
        (A + "MODIFY f double(12,2) NOT NULL DEFAULT 19.99",),
        before=(A + "ADD f float(8,2) NOT NULL DEFAULT 19.99",),
    ),
    Kind("wider", EVOLVE, (A + "MODIFY v bigint NOT NULL, DROP t /* of no use */",)),
    Kind(
        "same",
        IGNORE,
        (
            A + "MODIFY t varchar(40) DEFAULT 'it''s', MODIFY v int NOT NULL, ADD y int",
            A + "MODIFY d datetime DEFAULT now(), MODIFY p decimal(8,2) NOT NULL DEFAULT 1.0",
            A + "ALTER t SET DEFAULT 'it''s', DROP y",
        ),
    ),
    Kind("renamed", BOOTSTRAP, (A + "CHANGE v w int NOT NULL",)),
    Kind("indexed", IGNORE, (A + "ADD UNIQUE by_v (v, id), COMMENT = 'c'",)),
    Kind("recoded", BOOTSTRAP, (A + "MODIFY t varchar(40) CHARACTER SET latin1",)),
    Kind("another_key", BOOTSTRAP, (A + "ADD UNIQUE (v), DROP PRIMARY KEY, ADD PRIMARY KEY (v)",)),
    Kind(
        "numbered",  # the server gives row 1 a number
        BOOTSTRAP,
        (A + "MODIFY v int NOT NULL AUTO_INCREMENT, ADD UNIQUE by_v (v)",),
        rows="INSERT INTO T (id, v) VALUES (1, 0), (2, 2)",
    ),
    Kind(
        "numbered_before",
        IGNORE,
        (A + "MODIFY v int NOT NULL AUTO_INCREMENT COMMENT 'as before'",),
        before=(A + "MODIFY v int NOT NULL AUTO_INCREMENT, ADD UNIQUE by_v (v)",),
    ),
    Kind(
        "grown",
        IGNORE,
        (
            A + "ADD PARTITION (PARTITION q VALUES LESS THAN (9))",
            A + "REORGANIZE PARTITION p INTO (PARTITION o VALUES LESS THAN (2), PARTITION p VALUES"
            " LESS THAN (5))",
            A + "REBUILD PARTITION p",
            A + "ANALYZE PARTITION o, q",
        ),
        "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (5))",
    ),
    Kind(
        "cut",  # the server drops row 2
        BOOTSTRAP,
        (A + "REORGANIZE PARTITION p INTO (PARTITION p VALUES IN (1, 4))",),
        "PARTITION BY LIST (id) (PARTITION p VALUES IN (1, 2, 4))",
    ),
    Kind(
        "computed",
        EVOLVE,
        (A + "MODIFY v bigint NOT NULL",),
        before=(
            A + "ADD is_it int AS (t = 'it''s') STORED, ADD or_not int AS (t <> 'it\\'s') VIRTUAL,"
            " ADD joined varchar(99) AS (concat(t, ', ', t)) STORED,"
            " ADD path varchar(50) AS (concat(t, '\\\\')) STORED",
        ),
    ),
    Kind("left_its_name", BOOTSTRAP, ("RENAME TABLE T TO elsewhere",)),
]


def log_status(database: MysqlDatabase) -> tuple[str, int]:
    statement = "SHOW BINARY LOG STATUS" if database.kind == MYSQL else "SHOW MASTER STATUS"
    file, position, *_ = database.root(statement)[0]
    return str(file), int(position)


@pytest.mark.breadth
def test_the_answer_before_is_what_the_run_does_then(shop: Shop) -> None:
    names = [one.name for one in KINDS]
    shop.database.execute(
        *(
            text
            for one in KINDS
            for text in one.sql(f"{CREATE} {one.partitions}", one.rows, *one.before)
        )
    )
    succeeded(shop.onboard(*names))
    file, position = log_status(mysql_of(shop.database))
    answers = {}
    for one in KINDS:
        ddl = "; ".join(one.sql(*one.statements))
        answers[one.name] = check(shop.services, shop.table(one.name), ddl)
    said = {name: answer.verdict for name, answer in answers.items()}
    assert said == {one.name: one.verdict for one in KINDS}
    events = mysql_of(shop.database).root(f"SHOW BINLOG EVENTS IN '{file}' FROM {position}")
    assert not [event for event in events if "planned" in str(event)]
    shop.database.execute(*(text for one in KINDS for text in one.sql(*one.statements)))
    assert shop.scalar("SELECT v FROM numbered WHERE id = 1") != 0
    shop.database.execute(
        *(
            f"INSERT INTO {one.name} (id, v) VALUES (4, 4)"
            for one in KINDS
            if one.name not in ("left_its_name", "renamed")
        ),
    )
    # Sessions of others compute a column as its table was opened, perhaps by a session of ours.
    assert shop.scalar("SELECT path FROM computed WHERE id = 4") == "it's\\"
    results = {result.table.name: result for result in shop.run()}
    for one in KINDS:
        record, result = shop.record(one.name), results[one.name]
        history = shop.services.store.schema_history(record.table)
        if one.verdict is BOOTSTRAP:
            assert record.state is State.NEEDS_BOOTSTRAP, result
            continue
        assert record.state is State.INCREMENTAL, result
        shop.assert_equal(one.name)
        found = [change.to_json() for entry in history for change in entry.changes]
        promised = [change.to_json() for change in answers[one.name].changes]
        assert facts(promised) == facts(found), one.name


def facts(changes: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each change and its verdict, without default values, which servers print differently."""
    return [
        (re.sub(r"^(the default of column '\w+') .*", r"\1", one["what"]), one["verdict"])
        for one in changes
    ]
