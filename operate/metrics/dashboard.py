"""The dashboard of Grafana: deploy/grafana/tributary.json.

``python -m operate.metrics.dashboard`` prints the dashboard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from operate.metrics import metric_definitions as m
from operate.metrics.panel import WIDTH, Panel
from operate.metrics.panels import ROWS

UID = "tributary"
"""The dashboard's id. It stays the same, so that an import replaces the earlier dashboard."""
SCHEMA_VERSION = 39
"""Version of the dashboard's format: the format of Grafana 11.0, which later releases convert."""


_LINK = {
    "type": "link",
    "icon": "doc",
    "tooltip": "What the alarm means, and which command helps",
    "tags": [],
    "asDropdown": False,
    "includeVars": False,
    "keepTime": False,
    "targetBlank": True,
}
"""The attributes that all links of panels share."""


def _placed() -> Iterator[dict[str, Any]]:
    """Yield the rows and their panels as Grafana's JSON, each at its place in the grid."""
    top, number = 0, 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        top, left, tallest = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left, tallest = top + tallest, 0, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel) -> dict[str, Any]:
    """Return a panel as Grafana's JSON, without its place."""
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    instant = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": datasource,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend or "__auto",
            "instant": instant,
            "range": not instant,
            "format": "table" if panel.kind == "table" else "time_series",
        }
        for number, (expression, legend) in enumerate(panel.expressions)
    ]
    links = []
    if panel.runbook is not None:
        url = f"${{docs}}/runbooks.md#{panel.runbook.lower()}"
        links.append({**_LINK, "title": f"Runbook: {panel.runbook}", "url": url})
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": datasource,
        "targets": targets,
        "links": links,
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options_of_panel(panel),
    }


def _field(panel: Panel) -> dict[str, Any]:
    """Return how Grafana shows a panel's values."""
    found: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in panel.steps],
        },
    }
    if panel.kind == "table":
        found["custom"] = {"align": "auto", "inspect": False}
    if panel.kind == "timeseries":
        found |= {} if panel.signed else {"min": 0}
        found["custom"] = {
            "fillOpacity": 20 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
        }
    return found


def _options_of_panel(panel: Panel) -> dict[str, Any]:
    """Return the options of a Grafana panel's type."""
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
    tooltip = {"mode": "multi", "sort": "desc"}
    if panel.kind == "timeseries":
        return {"legend": {**legend, "showLegend": True}, "tooltip": tooltip}
    if panel.kind == "state-timeline":
        return {
            "mergeValues": True,
            "showValue": "never",
            "rowHeight": 0.9,
            "legend": {**legend, "showLegend": False},
            "tooltip": tooltip,
        }
    if panel.kind == "table":
        return {"showHeader": True, "frameIndex": 0}
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "auto",
        "justifyMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def _variables() -> list[dict[str, Any]]:
    """Return the variables of Grafana's dashboard; each depends on the variables before it."""
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    found: list[dict[str, Any]] = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "refresh": 1,
        }
    ]
    chosen = ""
    for name, label in (("source", "Source"), ("tier", "Tier"), ("table", "Table")):
        query = f"label_values({m.STATE.full_name}{{{chosen}}}, {name})"
        found.append(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": datasource,
                "query": query,
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            }
        )
        chosen += f'{"," if chosen else ""}{name}=~"${name}"'
    found.append(
        {
            "name": "docs",
            "label": "URL of docs/",
            "type": "textbox",
            "query": "docs",
            "current": {"text": "docs", "value": "docs"},
        }
    )
    return found


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON."""
    return {
        "uid": UID,
        "title": "Tributary",
        "description": "Tables, captures, tiers and services of Tributary (docs/observe.md).",
        "tags": ["tributary", "cdc"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_placed()),
    }


def as_json() -> str:
    """Return the text of deploy/grafana/tributary.json."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_json())
