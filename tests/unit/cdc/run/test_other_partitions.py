"""Settings whose partition columns differ from those of the existing lake table."""

from __future__ import annotations

import pytest

from cdc.config import TableSettings
from cdc.errors import ConfigError
from cdc.run.comparison import other_partitions
from schemas.changes import ChangeLakePartitions, Verdict
from schemas.table import TableId
from tests.handoffs import handed

TABLE = TableId("shop", "public", "orders")


@pytest.mark.parametrize(
    ("had", "now"),
    [
        *(((), ("a",)), (("a",), ()), (("a",), ("b",)), (("a", "b"), ("b", "a"))),
        *((("a",), ("day(a)",)), (("day(a)",), ("day(a, Asia/Tokyo)",))),
        *((("hash(a, 4)",), ("hash(a, 8)",)), (("day(a)",), ("day(a) as b",))),
    ],
)
def test_other_partition_columns_ask_for_a_copy(had: tuple[str, ...], now: tuple[str, ...]) -> None:
    handoff = handed((), partition_by=had)
    assert other_partitions(TABLE, TableSettings(partition_by=had), handoff) == ()
    (change,) = other_partitions(TABLE, TableSettings(partition_by=now), handoff)
    assert isinstance(change, ChangeLakePartitions)
    assert change.verdict is Verdict.BOOTSTRAP
    assert f"from ({', '.join(had)}) to ({', '.join(now)})" in str(change)


def test_a_new_copy_of_a_shard_does_not_change_the_shared_tables_partitions() -> None:
    settings = TableSettings.model_validate({"from": ["public.orders_*"], "partition_by": ["a"]})
    assert other_partitions(TABLE, settings, handed((), partition_by=("a",))) == ()
    with pytest.raises(ConfigError, match=r"changed from \(b\) to \(a\)") as caught:
        other_partitions(TABLE, settings, handed((), partition_by=("b",)))
    assert caught.value.context["field"] == "partition_by"
    assert caught.value.remedy.startswith("Set partition_by back.")


def test_the_handoff_has_the_partitions_in_both_forms() -> None:
    by = ("a", "day(b, Asia/Tokyo) as c", "hash(a, 8)")
    fields = handed((), partition_by=by).partition_fields
    assert fields == TableSettings.model_validate({"partition_by": by}).partition_by
    assert tuple(map(str, fields)) == by
