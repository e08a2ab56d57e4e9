"""XA transactions, whose rows are in the binlog before it is decided whether they commit."""

from __future__ import annotations

import itertools
import re
import threading
import time

import pytest

from cdc.sources.mysql import preparation
from stack.mysql_software import MYSQL
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab

pytestmark = pytest.mark.breadth


def audit(lab: Lab) -> list[str]:
    with lab.connections.open("admin") as session:
        return preparation.audit_server(session, append=False)


def branch(database: MysqlDatabase, name: str, row: int, *ending: str) -> None:
    """Run a branch of an XA transaction that inserts a row, in a session that is closed then."""
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (
            f"XA START {name}",
            f"INSERT INTO item VALUES ({row})",
            f"XA END {name}",
            *ending,
        ):
            cursor.execute(statement)


def onboard_again(database: MysqlDatabase) -> None:
    """Restart the primary, so that its counters of XA statements begin at zero."""
    database.stack.server(database.kind).restart()
    database.catch_up()


def logged(database: MysqlDatabase, place: tuple[str, int]) -> set[str]:
    events = database.root(f"SHOW BINLOG EVENTS IN '{place[0]}' FROM {place[1]}")
    return {str(event[2]) for event in events}


def place(database: MysqlDatabase) -> tuple[str, int]:
    statement = "SHOW BINARY LOG STATUS" if database.kind == MYSQL else "SHOW MASTER STATUS"
    file, position, *_ = database.root(statement)[0]
    return str(file), int(position)


def test_a_table_of_a_server_with_xa_transactions_is_refused(lab: Lab) -> None:
    database = lab.database
    preparation.prepare(lab.connections)
    lab.make("item", "CREATE TABLE item (id int PRIMARY KEY)")
    onboard_again(database)
    # A transaction of one phase is logged as it commits, like any other.
    branch(database, "'one'", 1, "XA COMMIT 'one' ONE PHASE")
    branch(database, "'none'", 2, "XA ROLLBACK 'none'")
    assert audit(lab) == []
    before = place(database)
    branch(database, "'two'", 3, "XA PREPARE 'two'")
    try:
        assert database.query("SELECT id FROM item") == [(1,)]
        assert any("Write_rows" in event for event in logged(database, before))
        (problem,) = audit(lab)
        assert problem.startswith("XA transactions are used")
        # A prepared branch outlives the server, whose counters do not.
        onboard_again(database)
        (problem,) = audit(lab)
        assert problem.startswith("XA transactions are used (1 are prepared")
    finally:
        end_branches(lab)
    # The counters began again with the server, so the branch's end is enough.
    assert audit(lab) == []
    assert database.query("SELECT id FROM item ORDER BY id") == [(1,), (3,)]


def test_a_branch_is_ended_by_the_statement_that_names_it(lab: Lab) -> None:
    """The identifiers of branches have arbitrary bytes, as transaction managers create them."""
    database = lab.database
    preparation.prepare(lab.connections)
    lab.make("item", "CREATE TABLE item (id int PRIMARY KEY)")
    names = ("X'ff00fe'", "X'ff00',X'27fe',7", "'it''s','b'", "'w'")
    try:
        for number, name in enumerate(names):
            branch(database, name, number, f"XA PREPARE {name}")
    finally:
        assert end_branches(lab) == len(names)
    (problem,) = audit(lab)
    assert problem.startswith(f"XA transactions are used ({len(names)} since the server started)")
    onboard_again(database)
    assert audit(lab) == []
    assert len(database.query("SELECT id FROM item")) == len(names)


def end_branches(lab: Lab) -> int:
    """Run the statements in the problems until no branch is prepared; returns their number."""
    for turn in itertools.count():
        named = re.search(r"(XA COMMIT .+) or XA ROLLBACK", " ".join(audit(lab)))
        if named is None:
            return turn
        lab.database.root(named[1])
    raise AssertionError


def texts(turn: int, worker: int) -> list[tuple[str]]:
    """60 rows of 60 words each; most words are new to the full-text index."""
    return [
        (" ".join(f"w{(turn * 7 + row * 13 + word * 31 + worker) % 99991}" for word in range(60)),)
        for row in range(60)
    ]


def test_the_servers_own_work_is_no_xa_transaction(lab: Lab) -> None:
    """InnoDB writes full-text indexes in transactions without a connection."""
    preparation.prepare(lab.connections)
    lab.make("page", "CREATE TABLE page (id int AUTO_INCREMENT PRIMARY KEY, t text, FULLTEXT (t))")

    def write(worker: int, stop: threading.Event) -> None:
        with lab.database.connect() as connection, connection.cursor() as cursor:
            turn = 0
            while not stop.is_set():
                cursor.executemany("INSERT INTO page (t) VALUES (%s)", texts(turn, worker))
                turn += 1

    with at_work(write, 3):
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            assert audit(lab) == []
