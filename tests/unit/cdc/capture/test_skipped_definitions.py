"""Which captures stop because their connector would skip a table definition at its next start."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.skipped_definitions import skipped
from cdc.debezium import CaptureNames
from cdc.debezium.schema_history import LearnedDefinition
from cdc.log.binlog_position import StoredPosition
from cdc.log.gtid import MariadbGtidSet
from cdc.log.position import LogPosition
from schemas.table import TableId

NAMES = CaptureNames("shop", "default", None, None, "c", "shop", "mariadb")
STORED = MariadbGtidSet.parse("0-1-9")


def found(
    schema: str, table: str, *, names: CaptureNames = NAMES, stored: LogPosition | None = STORED
) -> str | None:
    one = LearnedDefinition(TableId("shop", schema, table), (), None, "0-2-8", None, snapshot=False)
    definitions = cast("Any", SimpleNamespace(learned=lambda _: (one,)))
    return skipped(names, lambda: definitions, stored, {TableId("shop", "shop", "orders")})


@pytest.mark.parametrize("table", [("shop", "orders"), ("tributary", "heartbeat")])
def test_a_captured_table_or_one_of_ours_is_named_with_both_positions(
    table: tuple[str, str],
) -> None:
    assert found(*table) == (
        f"connector c skips a definition of table {'.'.join(table)} when it starts: the schema"
        " history has the definition after GTID 0-2-8, and the stored position 0-1-9 is of another"
        " server in the same domain"
    )


def test_other_tables_and_other_kinds_do_not_count() -> None:
    assert found("shop", "lines") is None
    assert found("shop", "orders", stored=None) is None
    plain = replace(NAMES, kind="mysql")
    assert found("shop", "orders", names=plain, stored=StoredPosition(None, None)) is None
