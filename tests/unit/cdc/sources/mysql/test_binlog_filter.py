"""Which changes a filter of the binlog can hide."""

from __future__ import annotations

import pytest

from cdc.sources.mysql.primary import BinlogFilter

NONE = frozenset[str]()
SHOP, OTHER = frozenset({"shop"}), frozenset({"other"})


@pytest.mark.parametrize(
    ("only", "ignored", "reason"),
    [
        (NONE, NONE, None),
        (OTHER, NONE, "binlog_do_db leaves out database shop"),
        (NONE, SHOP, "binlog_ignore_db leaves out database shop"),
        (SHOP, NONE, "binlog_do_db leaves out DDL statements, such as TRUNCATE, of sessions"),
        (NONE, OTHER, "binlog_ignore_db leaves out DDL statements, such as TRUNCATE, of sessions"),
    ],
)
def test_a_filter_for_another_database_hides_statements_of_its_sessions(
    only: frozenset[str], ignored: frozenset[str], reason: str | None
) -> None:
    found = BinlogFilter(only, ignored).leaves_out("shop")
    assert found is None if reason is None else str(found).startswith(reason)
