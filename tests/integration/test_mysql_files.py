"""What a look at a table reads: no list for which MySQL opens all its tables, and no fact twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdc.sources.mysql import preparation
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.source import MysqlSource
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab
from tests.integration.rigs.sources import capture_of

pytestmark = pytest.mark.breadth


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[object]]]:
    """All statements of sessions, with their values."""
    found: list[tuple[str, Sequence[object]]] = []
    rows, named = Session.rows, Session.named

    def notes_rows(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        found.append((statement, values))
        return rows(session, statement, values)

    def notes_named(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        found.append((statement, values))
        return named(session, statement, values)

    monkeypatch.setattr(Session, "rows", notes_rows)
    monkeypatch.setattr(Session, "named", notes_named)
    return found


def test_a_commit_asks_for_the_filter_of_the_log_once(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    preparation.prepare(lab.connections)
    table = lab.make("t", "CREATE TABLE t (id int PRIMARY KEY)")
    asked.clear()
    assert capture_of(MysqlSource("shop", lab.connections.config)).audited(table.table)[0] == table
    statements = [text for text, _ in asked]
    assert len({"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"}.intersection(statements)) == 1
    assert sum(text.endswith(" STATUS") for text in statements) == 1
    assert not [text for text in statements if "INNODB_FOREIGN" in text]
