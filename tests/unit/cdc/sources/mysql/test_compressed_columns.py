"""Which servers are searched for compressed columns."""

from __future__ import annotations

from typing import cast

import pytest

from cdc.sources.mysql.compressed_columns import obstacle
from cdc.sources.mysql.connection import Session


class Asked:
    """A session that notes its statements, and answers each without rows."""

    def __init__(self, kind: str) -> None:
        self.kind, self.statements = kind, list[str]()

    def rows(self, statement: str, _values: object = ()) -> list[tuple[object, ...]]:
        self.statements.append(statement)
        return []


@pytest.mark.parametrize(("kind", "statements"), [("mysql", 0), ("mariadb", 1)])
def test_only_mariadb_is_searched_and_not_its_own_databases(kind: str, statements: int) -> None:
    """The search reads the columns of all tables, and MySQL has no compressed columns."""
    session = Asked(kind)
    assert obstacle(cast("Session", session)) is None
    assert len(session.statements) == statements
    assert all("TABLE_SCHEMA NOT IN" in one for one in session.statements)
