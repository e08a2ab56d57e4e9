"""Which statements in a connector's topic of definitions concern a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.debezium import DefinitionChange, KnownColumn, ReportedStatements, StatementsByTable
from cdc.errors import CaptureError, LostHistoryError
from cdc.log.binlog_position import BinlogPosition, read_position
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from cdc.run import ddl_events
from cdc.run.ddl_events import statements_since
from cdc.sources.base import Source
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from schemas.types_mysql import MysqlType

TABLE = TableId("shop", "shop", "orders")
BIG = TableId("shop", "shop", "big")


class Positions:
    """The part of a MariaDB source that these tests need: it parses positions."""

    def position(self, text: str) -> MariadbGtidSet:
        return MariadbGtidSet.parse(text)


def change(statement: str, table: TableId | None = TABLE, **more: Any) -> DefinitionChange:
    facts: dict[str, Any] = {"gtid": "0-1-9", "snapshot": False, "offset": 0, **more}
    return DefinitionChange(kind="ALTER", table=table, statement=statement, **facts)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (change("ALTER TABLE orders ADD x int"), True),
        (change("ALTER TABLE orders ADD x int", gtid=None), True),
        (change("ALTER TABLE orders ADD x int", gtid="0-1-5"), False),
        (change("CREATE TABLE orders (id int)", snapshot=True, gtid=None), False),
        (change("ALTER TABLE big ADD x int", BIG), False),
        (change("ALTER TABLE big EXCHANGE ...", BIG, beside=TABLE), True),
        (change("ALTER TABLE big EXCHANGE ...", BIG, beside=TableId("shop", "", "orders")), True),
        (change("ALTER TABLE big EXCHANGE ...", BIG, beside=TableId("shop", "", "other")), False),
        (change("DROP INDEX ...", None, beside=TableId("shop", "", "")), True),
    ],
)
def test_what_is_told_of_a_table_after_a_position(told: DefinitionChange, found: bool) -> None:
    of_table = StatementsByTable([told]).of(TABLE)
    listed = list(statements_since(cast("Source", Positions()), "0-1-5", of_table))
    assert bool(listed) is found


def test_statements_of_a_table_are_found_in_the_order_of_the_log() -> None:
    tables = [TableId("shop", "shop", f"t{number}") for number in range(3000)]
    swap = change("ALTER TABLE t1 ...", tables[1], offset=3001, beside=tables[7])
    reported = StatementsByTable(
        [
            *(change("ALTER TABLE ...", table, offset=at) for at, table in enumerate(tables)),
            swap,
            change("ALTER TABLE t7 ADD y int", tables[7], offset=3002),
        ]
    )
    assert [one.offset for one in reported.of(tables[7])] == [7, 3001, 3002]
    assert [one.offset for one in reported.of(tables[1])] == [1, 3001]
    assert {len(reported.of(table)) for table in tables[8:]} == {1}
    assert reported.of(TABLE) == []


class Places:
    """The part of a MySQL source that these tests need: it parses positions."""

    def position(self, text: str) -> MysqlGtidSet | BinlogPosition:
        return read_position(text)


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("place", "gtid", "found"),
    [
        ("binlog.000003:99", None, False),
        ("binlog.000003:100", None, False),
        # It begins at the place, and so was not executed there.
        ("binlog.000003:101", None, True),
        ("binlog.000002:5000", None, False),
        (None, None, True),
        ("other.000001:5", None, True),
        # The server got GTIDs afterwards: its places go on.
        ("binlog.000004:5", f"{UUID}:1", True),
    ],
)
def test_what_is_told_after_a_place_in_the_binlog(
    place: str | None, gtid: str | None, found: bool
) -> None:
    told = change("ALTER TABLE orders ADD x int", gtid=gtid, place=place)
    listed = list(statements_since(cast("Source", Places()), "binlog.000003:100", [told]))
    assert bool(listed) is found


def test_what_is_told_without_a_gtid_came_after_those_that_have_one() -> None:
    told = change("ALTER TABLE orders ADD x int", gtid=None, place="binlog.000003:100")
    assert list(statements_since(cast("Source", Places()), f"{UUID}:1-9", [told]))


def connector_has(reported: str, *, then: str = "int", later: bool = False) -> None:
    """Compare the connector's reported type of a column with the catalog's type.

    Args:
        reported: The type that the connector has reported.
        then: The type in the catalog.
        later: Whether the table changes once more during the comparison.
    """
    read = KnownColumn("id", reported, None, None, None, True, ())
    column = SimpleNamespace(name="id", type=MysqlType.parse(then, ""), nullable=True)
    looks = iter([Fingerprint({"look": 1}), Fingerprint({"look": 2 if later else 1})])
    captured = SimpleNamespace(
        described=lambda _: (SimpleNamespace(columns=(column,)), next(looks)),
        fingerprint=lambda *_, **__: next(looks),
    )
    context = SimpleNamespace(
        sources={"shop": SimpleNamespace(capture=lambda _: captured, current_position=lambda: "1")},
        definitions=SimpleNamespace(
            of=lambda _: ReportedStatements("id", 0, 1, (change("", columns=(read,)),))
        ),
        progress=None,
    )
    record, names = SimpleNamespace(table=TABLE), SimpleNamespace(connector="c")
    ddl_events._require_known_definition(*cast("Any", (context, record, names, None)))


def test_a_table_that_changes_while_it_is_compared_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connector that is behind the next statement has lost nothing."""
    monkeypatch.setattr(ddl_events, "_wait_for_statements", lambda *_: None)
    connector_has("INT")
    connector_has("INT", later=True)
    with pytest.raises(LostHistoryError, match="by a definition that differs"):
        connector_has("BIGINT")
    with pytest.raises(CaptureError, match="changed while its definition was compared"):
        connector_has("BIGINT", later=True)
