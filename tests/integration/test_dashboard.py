"""The expressions of Grafana's dashboard, evaluated by Prometheus' own tool (promtool).

The input series are exactly the product's documented metrics, so an expression with any other name
finds nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operate.metrics import metric_definitions as m
from operate.metrics.dashboard import dashboard
from tests.integration.rigs.prometheus import filled, run_promtool

VALUES = {
    "source": "shop",
    "table": "shop:public.orders",
    "tier": "default",
    "service": "kafka",
    "version": "0.1.0",
    "operation": "u",
    "part": "current",
    "kind": "missing",
    "cause": "runs",
    "missed": "true",
    "name": "shop.orders",
    "level": "warn",
}
STATES = {
    "table_state": ("failed", "needs_bootstrap", "paused", "incremental"),
    "connector_state": ("running",),
}
"""By metric: the values of its label ``state``. Metrics that are not listed get one series."""
MINUTES = 120


def series(value: str) -> list[dict[str, str]]:
    """The input series for every metric of the product, as two processes would show them."""
    found = []
    for one in m.METRICS:
        for state in STATES.get(one.name, ("running",)):
            labels = {name: VALUES.get(name, state) for name in one.labels}
            for instance in ("a", "b"):
                inside = {**labels, "instance": instance, "job": "tributary"}
                text = ",".join(f'{name}="{value}"' for name, value in inside.items())
                found.append({"series": f"{one.full_name}{{{text}}}", "values": value})
    return found


def expressions() -> list[str]:
    return [
        filled(target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


def found(expression: str) -> dict[str, Any]:
    """A promtool expectation that an expression finds at least one series."""
    counted = f"count({expression}) > bool 0 or on () vector(0)"
    return {
        "expr": counted,
        "eval_time": "90m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


def test_every_expression_of_the_dashboard_finds_series(tmp_path: Path) -> None:
    asked = expressions()
    assert len(asked) > 40
    assert not [one for one in asked if "$" in one]
    case = {
        "interval": "1m",
        "name": "all metrics at 1",
        "input_series": series(f"1+0x{MINUTES}"),
        "promql_expr_test": [found(one) for one in asked],
    }
    code, said = run_promtool(tmp_path, [case], rules=no_rules(tmp_path))
    assert code == 0, said


def test_two_processes_that_show_the_same_count_once(tmp_path: Path) -> None:
    once = {
        "Late tables": 1,
        "Failed tables": 1,
        "Tables to copy again": 3,
        "Messages in quarantine": 1,
        "Rows that differ": 1,
        "Connectors down": 0,
        "Scrape": 1,
        "Workers": 1,
        "Tables": 1,
        "Connectors without tables": 1,
        "Tables paused by a setting": 1,
        "Captures above wal_limit.warn": 0,
    }
    stats = [one for one in dashboard()["panels"] if one["type"] == "stat"]
    assert {one["title"] for one in stats} == set(once)
    case = {
        "interval": "1m",
        "name": "all metrics at 1, twice",
        "input_series": series(f"1+0x{MINUTES}"),
        "promql_expr_test": [
            {
                "expr": filled(one["targets"][0]["expr"]),
                "eval_time": "90m",
                "exp_samples": [{"labels": "{}", "value": once[one["title"]]}],
            }
            for one in stats
        ],
    }
    code, said = run_promtool(tmp_path, [case], rules=no_rules(tmp_path))
    assert code == 0, said


def test_an_expression_on_another_name_finds_nothing(tmp_path: Path) -> None:
    wrong = "sum(tributary_table_lateness)"
    case = {
        "interval": "1m",
        "input_series": series(f"1+0x{MINUTES}"),
        "promql_expr_test": [found(wrong)],
    }
    code, said = run_promtool(tmp_path, [case], rules=no_rules(tmp_path))
    assert code != 0
    assert "tributary_table_lateness" in said


def no_rules(folder: Path) -> Path:
    file = folder / "no_rules.yaml"
    file.write_text("groups: []\n")
    return file
