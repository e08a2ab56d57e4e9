"""One check's results: passed, failed, and an error."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cdc.store.actor import Actor
from cdc.store.checks import CheckResult
from tests.records import NOW, ORDERS

PASSED = CheckResult(
    *(ORDERS, "keys", "not_null", "alarm", "a", NOW, NOW, "passed", {"rows": 3, "id": 0}),
    detail="3 rows",
    instant="20260102030405000",
    commits=7,
    by=Actor("u", "h", "checks run"),
)
FAILED = replace(PASSED, outcome="failed", started_at=NOW + timedelta(hours=1), counts={"id": 2})
BROKEN = replace(PASSED, outcome="error", started_at=NOW + timedelta(hours=2), counts={})
