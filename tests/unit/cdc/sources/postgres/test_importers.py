"""Which sessions of a standby count as importers of snapshots."""

from __future__ import annotations

import pytest

from cdc.sources.postgres.importers import HIDDEN, described

DUMP = (1, "backup", "pg_dump", HIDDEN)
IMPORT = (3, "report", "", "BEGIN; set transaction snapshot '00000003-0000001B-1'")


@pytest.mark.parametrize(
    "alone",
    [DUMP, (2, "app", "psql", "SELECT 1"), (4, "t", "tributary", "SET TRANSACTION SNAPSHOT '1'")],
    ids=["one dump", "another program", "our own"],
)
def test_a_session_that_imports_nothing_is_not_named(alone: tuple[int, str, str, str]) -> None:
    assert described([alone]) is None


def test_a_parallel_dump_and_an_import_are_named() -> None:
    found = described([DUMP, (2, "backup", "pg_dump", HIDDEN), IMPORT])
    assert found is not None
    assert "pg_dump (process 1), pg_dump (process 2), report (process 3);" in found


def test_many_sessions_are_counted() -> None:
    found = described([(number, "u", "pg_dump", "") for number in range(9)])
    assert found is not None
    assert "pg_dump (process 4) and 4 more;" in found
