"""The setting ``partition_by``: which entries there are, and which are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cdc.config import TableSettings
from cdc.config.partitions import partition_field, period_column
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal, read, refusal


@pytest.mark.parametrize(
    ("entry", "compact", "name", "lake_type"),
    [
        ("country", "country", "country", "string"),
        ({"column": "country"}, "country", "country", "string"),
        ("day(at)", "day(at)", "at_day", "date"),
        ("day(at, UTC)", "day(at)", "at_day", "date"),
        (" hour( at ,Europe/Berlin ) as h", "hour(at, Europe/Berlin) as h", "h", "string"),
        ("month(at,Etc/GMT+1)", "month(at, Etc/GMT+1)", "at_month", "string"),
        ({"column": "at", "by": "year", "name": "at_year"}, "year(at)", "at_year", "string"),
        ("hash(id, 64)", "hash(id, 64)", "id_hash", "int"),
        ({"column": "id", "by": "hash", "buckets": 2}, "hash(id, 2)", "id_hash", "int"),
    ],
)
def test_both_forms_of_an_entry_mean_the_same(
    entry: Any, compact: str, name: str, lake_type: str
) -> None:
    (one,) = TableSettings.model_validate({"partition_by": [entry]}).partition_by
    assert str(one) == compact
    assert str(partition_field(compact)) == compact
    assert one.lake_name == name
    assert one.lake_type == lake_type


@pytest.mark.parametrize(
    ("entry", "key", "reason"),
    [
        ("day(at", "partition_by[0]", "is not a column or an expression"),
        ("week(at)", "partition_by[0]", "is not a column or an expression"),
        ("day(at, Europe/Berlin, 2)", "partition_by[0]", "is not a column or an expression"),
        ("day(at, Europe/Nowhere)", "partition_by[0].zone", "is not a time zone"),
        ({"column": "at", "by": "day", "zone": "+2"}, "partition_by[0].zone", "is not a time zone"),
        ({"column": "at", "by": "week"}, "partition_by[0].by", "'hour', 'day'"),
        ({"by": "day"}, "partition_by[0].column", "is required"),
        ({"column": "at", "bye": "day"}, "partition_by[0].bye", "did you mean 'by'?"),
        ("hash(id)", "partition_by[0]", "by: hash needs buckets"),
        ("hash(id, 1)", "partition_by[0].buckets", "greater than or equal to 2"),
        ("hash(id, 1025)", "partition_by[0].buckets", "less than or equal to 1024"),
        ("hash(id, many)", "partition_by[0].buckets", "integer"),
        ({"column": "at", "by": "day", "buckets": 4}, "partition_by[0]", "only with by: hash"),
        ({"column": "id", "zone": "UTC"}, "partition_by[0]", "only with hour, day, month or year"),
        ({"column": "id", "name": "x"}, "partition_by[0]", "only for an expression"),
        ({"column": "at", "by": "day", "name": "a b"}, "partition_by[0].name", "pattern"),
        (7, "partition_by[0]", "must be a map of keys"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_key(entry: Any, key: str, reason: str) -> None:
    document = minimal() | {"tables": {"public.orders": {"partition_by": [entry]}}}
    problems = refusal(document).message
    assert f'tables."public.orders".{key}' in problems
    assert reason in problems


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"partition_by": ["day(at)", "day(at, Asia/Tokyo)"]}, "two partition columns.*at_day"),
        ({"partition_by": ["at_day", "day(at)"]}, "two partition columns.*at_day"),
        ({"partition_by": ["day(at)"], "columns": {"exclude": ["at"]}}, "replicated: at"),
        ({"partition_by": ["hash(id, 4)"], "columns": {"include": ["at"]}}, "replicated: id"),
        ({"partition_by": ["day(at)"], "columns": {"mask": ["at"]}}, "no time in this column"),
        ({"partition_by": ["day(at)"], "columns": {"as": {"at": "string"}}}, "no time in this"),
    ],
)
def test_partitions_that_other_settings_rule_out_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    ((path, problem),) = TableSettings.model_validate(settings).conflicts()
    assert path == ("partition_by",)
    assert re.search(reason, problem)


def test_hidden_values_have_hashes_and_buckets() -> None:
    rules = {"partition_by": ["hash(email, 8)"], "columns": {"hash": ["email"]}}
    assert TableSettings.model_validate(rules).conflicts() == []


def test_a_more_specific_section_replaces_the_partitions() -> None:
    document = minimal() | {"defaults": {"partition_by": ["day(at, Europe/Berlin)", "country"]}}
    document["tables"] = {
        "public.orders": {"partition_by": [{"column": "id", "by": "hash", "buckets": 8}]}
    }
    config = read(document)
    of = {name: config.table_settings(TableId("shop", "public", name)) for name in ("orders", "x")}
    assert list(map(str, of["orders"].partition_by)) == ["hash(id, 8)"]
    assert list(map(str, of["x"].partition_by)) == ["day(at, Europe/Berlin)", "country"]


@pytest.mark.parametrize(
    ("by", "unit", "zone", "column"),
    [
        ("day(at, Europe/Berlin)", "day", "Europe/Berlin", "at_day"),
        ("hour(at) as h", "hour", "UTC", "h"),
        ("at", "day", "Europe/Berlin", "at"),
        ("at", "hour", "UTC", None),
        ("day(at)", "day", "Europe/Berlin", None),
        ("day(at)", "hour", "UTC", None),
        ("day(sent)", "day", "UTC", None),
        ("hash(at, 4)", "day", "UTC", None),
    ],
)
def test_periods_are_partitions_by_the_same_column_length_and_zone(
    by: str, unit: Any, zone: str, column: str | None
) -> None:
    chosen = {"event_time": {"column": "at"}, "completeness": {"by": unit, "zone": zone}}
    settings = TableSettings.model_validate({"partition_by": ["country", by], **chosen})
    assert period_column(settings, unit, zone) == column
    alone = TableSettings.model_validate({"partition_by": [by]})
    assert period_column(alone, unit, zone) is None
