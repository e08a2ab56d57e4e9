"""A configuration, and documents that commands of Tributary print."""

from __future__ import annotations

from typing import Any

CANARY = "canary-4711"
ORDERS, ITEMS = "shop:public.orders", "shop:public.items"


def entry(table: str, state: str = "incremental", error: str | None = None, **more: Any) -> Any:
    found = error and {"error": error, "message": f"has {CANARY}", "remedy": "Do it."}
    return {"table": table, "action": "x", "state": state, "error": found, **more}


def run_document(*tables: Any, **conditions: list[str]) -> dict[str, Any]:
    return {"tables": tables, "waiting": {}, "conditions": conditions, "failed_checks": []}


def period(hour: int, revision: int = 1, late: int = 0) -> dict[str, Any]:
    start = f"2026-11-23T{hour:02}"
    return {
        "period": start,
        "start": f"{start}:00:00+00:00",
        "end": f"2026-11-23T{hour + 1:02}:00:00+00:00",
        "revision": revision,
        "late_rows": late,
        "instant": CANARY,
    }


def table(**facts: Any) -> dict[str, Any]:
    common = {"table": ORDERS, "state": "incremental", "freshness_s": 5.0, "freshness_target_s": 60}
    return {**common, "conditions": [], **facts}


CONFIG = f"""
sources:
  shop:
    primary: {{host: db.invalid, password: "${{SHOP_PASSWORD}}"}}
kafka: {{registry: {{password: "{CANARY}"}}}}
tiers: {{hot: {{freshness_target_s: 60}}}}
tables:
  public.orders: {{tier: hot, completeness: hour}}
  public.items: {{tier: hot}}
  public.clicks: {{completeness: day}}
  audit.*: {{}}
"""
