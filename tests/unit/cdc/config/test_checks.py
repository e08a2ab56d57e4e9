"""Which data checks the configuration accepts, and from which section a table gets each check."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.table import TableId
from tests.unit.cdc.configuration import environment as environment
from tests.unit.cdc.configuration import minimal, read, refusal

ORDERS, PARTS = TableId("shop", "public", "orders"), TableId("shop", "public", "parts")
NULLS = {"kind": "not_null", "columns": ["id"]}


def having(*checks: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    document = minimal()
    document["tables"] = {"public.orders": {"checks": {"one": checks[0]}}} if checks else sections
    return document


def test_a_check_replaces_that_of_the_same_name_in_a_less_specific_section() -> None:
    config = read(
        having(
            **{
                "*": {"checks": {"a": NULLS, "b": {"kind": "freshness", "max_age": "1h"}}},
                "public.orders": {"checks": {"a": {"kind": "unique", "columns": ["n"]}}},
                "public.parts": {"checks": {"b": {"kind": "freshness", "enabled": False}}},
            }
        )
    )
    orders = config.table_settings(ORDERS).checks
    assert {name: one.kind for name, one in orders.items()} == {"a": "unique", "b": "freshness"}
    assert orders["a"].columns == ("n",)
    parts = config.table_settings(PARTS).checks
    assert [name for name, one in parts.items() if one.enabled] == ["a"]
    assert parts["b"].max_age_s is None, "keys of another section stay out"


def test_a_check_that_is_left_out_needs_its_kind_only() -> None:
    read(having({"kind": "not_null", "enabled": False}))


@pytest.mark.parametrize(
    ("check", "field", "reason"),
    [
        ({"kind": "not_null"}, "", "kind not_null needs columns"),
        ({"kind": "unique", "columns": []}, "", "kind unique needs columns"),
        ({"kind": "accepted_values", "columns": ["a"]}, "", "needs values"),
        ({"kind": "range", "columns": ["a"]}, "", "needs min or max, or both"),
        ({"kind": "reference", "columns": ["a"]}, "", "needs references"),
        ({"kind": "volume", "period": "1d"}, "", "time_column and period go together"),
        ({"kind": "volume", "least": 3.0}, "least", "must not be greater than most"),
        ({"kind": "verify", "fraction": 0.5}, "fraction", "is not possible with method full"),
        ({"kind": "verify", "method": "window"}, "", "method window needs time_column and window"),
        (
            {"kind": "verify", "method": "sample", "max_seconds": 9},
            "max_seconds",
            "is not possible with method sample",
        ),
        ({**NULLS, "min": 1}, "min", "is not possible with kind not_null"),
        ({"kind": "freshness", "columns": ["a"]}, "columns", "is not possible with kind freshness"),
        (
            {
                "kind": "reference",
                "columns": ["a", "b"],
                "references": {"table": "public.x", "columns": ["a"]},
            },
            "references.columns",
            "must be as many as columns, of which there are 2",
        ),
        ({**NULLS, "cron": "0 3 * *"}, "cron", "must have five fields"),
        ({**NULLS, "cron": "@daily"}, "cron", "must have five fields"),
        ({**NULLS, "cron": "0 0 0 3 * *"}, "cron", "must have five fields"),
        ({**NULLS, "cron": "0 25 * * *"}, "cron", "bad hour"),
        ({**NULLS, "cron": "0 3 31 2 *"}, "cron", "bad day-of-month"),
        ({**NULLS, "zone": "Europe/Atlantis"}, "zone", "is not a time zone"),
        ({**NULLS, "zone": "../etc/passwd"}, "zone", "is not a time zone"),
        ({**NULLS, "every_commits": 0}, "every_commits", "greater than or equal to 1"),
        ({**NULLS, "policy": "mail"}, "policy", "report"),
        ({"kind": "nothing"}, "kind", "not_null"),
    ],
)
def test_a_check_that_cannot_work_is_refused_by_its_key(
    check: dict[str, Any], field: str, reason: str
) -> None:
    error = refusal(having(check))
    place = 'tables."public.orders".checks.one'
    assert error.context["field"] == (f"{place}.{field}" if field else place)
    assert reason in error.message


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a b", "a" * 51])
def test_the_name_of_a_check_can_be_a_label(name: str) -> None:
    document = minimal()
    document["defaults"] = {"checks": {name: NULLS}}
    assert refusal(document).context["field"].startswith("defaults.checks")


def test_a_check_without_a_schedule_is_never_due_by_itself() -> None:
    settings = read(having({**NULLS})).table_settings(ORDERS).checks["one"]
    assert not settings.scheduled
    for more in ({"cron": "0 3 * * *"}, {"every_commits": 5}):
        assert read(having({**NULLS, **more})).table_settings(ORDERS).checks["one"].scheduled


def test_utc_needs_no_database_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default must work in the smallest container."""

    def none(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr("cdc.config.checks.ZoneInfo", none)
    read(having({**NULLS, "cron": "0 3 * * *"}))
    assert "is not a time zone" in refusal(having({**NULLS, "zone": "Europe/Zurich"})).message
