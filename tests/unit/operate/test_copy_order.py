"""The largest tables are copied first."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import SourceError
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.copy_order import by_size, copies, largest_first
from operate.table_outcome import Outcome
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

A, B, C, NEW = (TableId("shop", "public", name) for name in ("a", "b", "c", "new"))


@pytest.fixture
def services(tmp_path: Path) -> Services:
    document = minimal() | {"spark": {"parallel_tables": 1}}
    return Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())


def test_tables_of_one_size_keep_their_order_and_unknown_ones_come_last() -> None:
    assert by_size([A, NEW, B, C], {A: 1, B: 9, C: 9}) == [B, C, A, NEW]
    assert by_size([A, B], {}) == [A, B]
    assert by_size([NEW, A], {A: 0}) == [A, NEW], "a table without rows has a size"


def test_the_largest_table_is_copied_first_by_one_look_at_the_sizes(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tables of the source are not measured: MariaDB would open all of them for minutes."""
    source, looks = services.source("shop"), list[list[TableId]]()

    def total_bytes(tables: list[TableId]) -> dict[TableId, int]:
        looks.append(tables)
        return {A: 10, B: 30, C: 20}

    monkeypatch.setattr(source, "total_bytes", total_bytes)
    outcomes = copies(services, [A, B, C], lambda one: Outcome(one, "copied"), action="copy")
    assert [one.table for one in outcomes] == [B, C, A]
    assert looks == [[A, B, C]]
    # If all begin at once, no size is read.
    assert largest_first(services, [A, B], 2) == [A, B]
    assert looks == [[A, B, C]]


def test_sizes_that_cannot_be_read_stop_no_copy(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(_: list[TableId]) -> dict[TableId, int]:
        raise SourceError("a table is rewritten", remedy="Wait.")

    monkeypatch.setattr(services.source("shop"), "total_bytes", locked)
    assert largest_first(services, [B, A], 1) == [B, A]
