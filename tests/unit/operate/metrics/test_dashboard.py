"""The dashboard shows every metric, by expressions on metrics and labels that exist."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import jsonschema
import pytest

from operate.metrics import metric_definitions as m
from operate.metrics.dashboard import UID, as_json, dashboard
from operate.metrics.panel import WIDTH, Panel
from operate.metrics.panels import LEFT_OUT, ROWS
from tests.unit.operate.documents import text
from tests.unit.operate.metrics.alarm_rules import RULES, SECTIONS

FILE = "deploy/grafana/tributary.json"
BOARD = dashboard()
PANELS: list[dict[str, Any]] = [one for one in BOARD["panels"] if one["type"] != "row"]
EXPRESSIONS = [(one["title"], target["expr"]) for one in PANELS for target in one["targets"]]
KNOWN = {one.full_name: one for one in m.METRICS}
KINDS = ["stat", "timeseries", "state-timeline", "table"]
UNITS = ["short", "s", "bytes", "binBps", "percentunit", "bool_on_off", "bool_yes_no"]
"""The units of Grafana that the dashboard may use."""
DATASOURCE = {"const": {"type": "prometheus", "uid": "${datasource}"}}
PLACE = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 0} for name in "xywh"},
    "required": [*"xywh"],
    "additionalProperties": False,
}
TARGET = {
    "type": "object",
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "expr": {"type": "string", "minLength": 1},
        "datasource": DATASOURCE,
        "legendFormat": {"type": "string", "minLength": 1},
    },
    "required": ["refId", "expr", "datasource", "legendFormat", "instant", "range", "format"],
}
STEP = {
    "type": "object",
    "properties": {"value": {"type": ["number", "null"]}, "color": {"type": "string"}},
    "required": ["value", "color"],
    "additionalProperties": False,
}
PANEL = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": KINDS},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "datasource": DATASOURCE,
        "gridPos": PLACE,
        "targets": {"type": "array", "items": TARGET, "minItems": 1},
        "links": {"type": "array", "items": {"required": ["title", "url", "targetBlank"]}},
        "options": {"type": "object"},
        "fieldConfig": {
            "properties": {
                "defaults": {
                    "properties": {
                        "unit": {"enum": UNITS},
                        "thresholds": {
                            "properties": {
                                "mode": {"const": "absolute"},
                                "steps": {"type": "array", "items": STEP, "minItems": 1},
                            },
                            "required": ["mode", "steps"],
                        },
                    },
                    "required": ["unit", "color", "thresholds"],
                },
            },
            "required": ["defaults", "overrides"],
        },
    },
    "required": ["id", "type", "title", "description", "datasource", "gridPos", "targets"],
}
ROW = {
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "row"},
        "title": {"type": "string", "minLength": 1},
        "gridPos": PLACE,
        "collapsed": {"const": False},
        "panels": {"maxItems": 0},
    },
    "required": ["id", "type", "title", "gridPos", "collapsed", "panels"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "uid": {"pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "items": {"oneOf": [PANEL, ROW]}},
    },
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time", "refresh"],
}
"""The part of Grafana's JSON schema for dashboards that this dashboard needs."""


def test_the_file_is_what_the_code_says() -> None:
    assert text(FILE) == as_json(), (
        "write it again: python -m operate.metrics.dashboard > deploy/grafana/tributary.json"
    )
    assert json.loads(text(FILE)) == BOARD


def test_the_dashboard_has_the_form_that_grafana_takes() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(BOARD, SCHEMA)
    assert BOARD["uid"] == UID == "tributary", "an import replaces that of an earlier version"
    assert "id" not in BOARD, "each Grafana has its own"
    numbers = [one["id"] for one in BOARD["panels"]]
    assert numbers == sorted(set(numbers))


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for one in BOARD["panels"]:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, one["title"]
        taken |= cells
    tops = [one["gridPos"]["y"] for one in BOARD["panels"]]
    assert tops == sorted(tops)


def test_the_rows_are_fleet_tiers_tables_readers_and_sources() -> None:
    titles = [one["title"] for one in BOARD["panels"] if one["type"] == "row"]
    assert titles == ["Fleet", "Tiers", "Tables", "Readers", "Sources"]
    for _, panels in ROWS:
        for one, other in combinations(panels, 2):
            assert one.title != other.title


def test_every_metric_is_on_a_panel_or_left_out_on_purpose() -> None:
    shown = {name for _, expression in EXPRESSIONS for name in metrics_of(expression)}
    assert shown | LEFT_OUT == set(KNOWN)
    assert not shown & LEFT_OUT


def metrics_of(expression: str) -> list[str]:
    return re.findall(r"\b(tributary_\w+)", expression)


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_an_expression_is_on_metrics_and_labels_that_exist(title: str, expression: str) -> None:
    for name, inside in re.findall(r"\b(tributary_\w+)(?:\{([^}]*)\})?", expression):
        asked = set(re.findall(r"(\w+)(?:=~|=|!=)", inside))
        assert asked <= set(KNOWN[name].labels), (title, name)
        assert {"source", "tier", "table"} & set(KNOWN[name].labels) <= asked | {"tier"} or (
            name == "tributary_up"
        ), "the variables choose what has their labels"
    grouped = {
        label.strip()
        for labels in re.findall(r"\bby \(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    assert grouped <= {label for name in metrics_of(expression) for label in KNOWN[name].labels}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_its_series_have(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        labels = {label for name in metrics_of(target["expr"]) for label in KNOWN[name].labels}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels


def test_the_variables_choose_source_tier_and_table() -> None:
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "source", "tier", "table", "docs"]
    state = m.STATE.full_name
    assert [variables[name]["query"] for name in ("source", "tier", "table")] == [
        f"label_values({state}{{}}, source)",
        f'label_values({state}{{source=~"$source"}}, tier)',
        f'label_values({state}{{source=~"$source",tier=~"$tier"}}, table)',
    ]
    used = set(re.findall(r"\$\{?(\w+)", text(FILE))) - {"__all"}
    assert used == set(variables)


def test_links_lead_to_runbooks_and_every_alarm_has_a_panel() -> None:
    links = [link["url"] for one in PANELS for link in one["links"]]
    anchors = {name.lower() for name in SECTIONS}
    for url in links:
        page, _, anchor = url.partition("#")
        assert page == "${docs}/runbooks.md"
        assert anchor in anchors
    linked = {url.partition("#")[2] for url in links}
    assert linked == {rule["alert"].lower() for rule in RULES}


def test_values_are_in_the_units_of_their_definitions() -> None:
    wanted = {
        "bytes": {"bytes", "binBps", "short"},
        "seconds": {"s", "percentunit"},
        "ratio": {"percentunit"},
    }
    every: list[Panel] = [panel for _, panels in ROWS for panel in panels]
    for panel in every:
        for expression, _ in panel.expressions:
            for name in metrics_of(expression):
                if (units := wanted.get(KNOWN[name].unit)) is not None:
                    assert panel.unit in units, panel.title


def test_the_page_says_how_to_import_it() -> None:
    assert FILE in text("docs/observe.md")
