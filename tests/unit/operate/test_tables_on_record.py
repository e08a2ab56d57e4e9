"""Overlapping paths in the lake are found among any other tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.store.table_state import State, TableRecord
from operate.shards import is_beside
from operate.tables_on_record import TablesOnRecord
from schemas.table import Shard, TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

ORDERS = TableId("shop", "public", "orders")


class Named:
    """A fake configuration that gives each table the path and the shard of its record."""

    def __init__(self, records: list[TableRecord]) -> None:
        self._records = {record.table: record for record in records}

    def table_path(self, table: TableId) -> str:
        return self._records[table].base_path

    def shard(self, table: TableId) -> Shard | None:
        return self._records[table].shard


def record(name: str, path: str, of: str | None = None) -> TableRecord:
    shard = None if of is None else Shard(of, name, "_shard", f"s3a://lake/{of}")
    table = TableId("shop", "public", name)
    return table_record(table, State.RETIRED, base_path=path, shard=shard)


def refusal(new: TableRecord, others: list[TableRecord]) -> TableId | None:
    known = TablesOnRecord(Named([new]), others)  # type: ignore[arg-type]
    try:
        known.unused_path(new.table)
    except ConfigError as error:
        found = error.message.rpartition(" ")[2]
        return next(one.table for one in others if str(one.table) == found)
    return None


@pytest.mark.parametrize(
    ("path", "overlaps"),
    [
        ("s3a://lake/shop/public/orders", True),
        ("s3a://lake/shop/public/ORDERS", True),
        ("s3a://lake/shop/public", True),
        ("s3a://lake/shop/public/orders/2026", True),
        ("s3a://lake/shop/public/orders2", False),
        ("s3a://lake/shop/public/order", False),
    ],
)
def test_paths_in_one_another_are_found(path: str, overlaps: bool) -> None:
    orders = record("orders", "s3a://lake/shop/public/orders")
    assert refusal(record("new", path), [orders]) == (orders.table if overlaps else None)


def overlap(one: str, other: str) -> bool:
    one, other = one.casefold() + "/", other.casefold() + "/"
    return one.startswith(other) or other.startswith(one)


def overlaps(new: TableRecord, other: TableRecord) -> bool:
    """Whether the paths of two tables overlap, by the plain definition for one pair of tables."""
    if overlap(new.base_path, other.base_path):
        return True
    stranger = new.shard is None or not is_beside(other, new.shard)
    shared = other.shard is not None and overlap(new.base_path, other.shard.base_path)
    holds = new.shard is not None and overlap(new.shard.base_path, other.base_path)
    return stranger and (shared or holds)


paths = st.lists(st.sampled_from(["a", "A", "ab", "of"]), min_size=1, max_size=3).map(
    lambda parts: "s3a://lake/" + "/".join(parts)
)
some_records = st.builds(
    record, st.sampled_from("tuvwxyz"), paths, st.sampled_from([None, "a", "of"])
)


@given(some_records, st.lists(some_records, max_size=6))
def test_a_table_is_refused_exactly_if_its_path_overlaps_with_another_ones(
    new: TableRecord, records: list[TableRecord]
) -> None:
    """This must hold even after a table was noted again with another path."""
    last = {one.table: one for one in records}
    others = [one for one in last.values() if one.table != new.table]
    expected = {one.table for one in others if overlaps(new, one)}
    found = refusal(new, records)
    assert found in expected if expected else found is None


def test_a_record_that_is_noted_takes_its_path(tmp_path: Path) -> None:
    document = minimal()
    document["tables"] = {"public.customers": {"name": "shop/public/orders/more"}}
    config = parse(yaml.safe_dump(document), base=tmp_path)
    known = TablesOnRecord(config, [])
    customers = TableId("shop", "public", "customers")
    path = known.unused_path(ORDERS)
    assert known.unused_path(customers) == f"{path}/more"
    known.note(table_record(ORDERS, base_path=path))
    assert known.unused_path(ORDERS) == path, "a table's own path does not count"
    with pytest.raises(ConfigError, match=r"overlaps with the path of table shop:public\.orders"):
        known.unused_path(customers)
