"""A panel of the dashboard of Grafana, and the expressions and colours that panels share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from operate.metrics import metric_definitions as m

WIDTH = 24
"""Number of columns of Grafana's grid."""

Kind = Literal["stat", "timeseries", "state-timeline", "table"]
Steps = tuple[tuple[float | None, str], ...]

_TABLE = 'source=~"$source",tier=~"$tier",table=~"$table"'
_CAPTURE = 'source=~"$source",tier=~"$tier"'
_READER = 'table=~"$table"'
ONE: Steps = ((None, "green"), (1, "red"))
"""Colours of a panel: green below 1, red from 1 on."""
SOME: Steps = ((None, "green"), (1, "orange"))
"""Colours of a panel: green below 1, orange from 1 on."""
UP: Steps = ((None, "red"), (1, "green"))
"""Colours of a panel: red below 1, green from 1 on."""
RATIO: Steps = ((None, "green"), (0.7, "orange"), (1, "red"))
"""Colours of a panel: green below 70 %, orange from 70 % on, red from 100 % on."""
PLAIN: Steps = ((None, "blue"),)
"""Colour of a panel: always blue."""
GREEN: Steps = ((None, "green"),)
"""Colour of a panel: always green."""


@dataclass(frozen=True)
class Panel:
    """One panel of Grafana's dashboard.

    Args:
        title: The title.
        kind: Grafana's type of panel.
        expressions: Pairs of an expression of PromQL and the legend of its series.
        unit: Grafana's unit of the values.
        about: What the panel shows, and when to act.
        steps: Pairs of a value and the colour from this value on; the first value is None.
        runbook: The alarm whose runbook the panel links to; None if it links to no runbook.
        width: Columns of the grid.
        height: Rows of the grid.
        stacked: Whether a time series is stacked.
        signed: Whether values can be below 0.
    """

    title: str
    kind: Kind
    expressions: tuple[tuple[str, str], ...]
    unit: str
    about: str
    steps: Steps = PLAIN
    runbook: str | None = None
    width: int = 8
    height: int = 8
    stacked: bool = False
    signed: bool = False


def of(metric: m.Metric, more: str = "") -> str:
    """Return a PromQL selector: a metric, limited to what the dashboard's variables choose."""
    chosen = {m.TABLE: _TABLE, m.CAPTURE: _CAPTURE, m.READER: _READER}
    own = next(
        (text for labels, text in chosen.items() if metric.labels[: len(labels)] == labels), ""
    )
    inside = ",".join(part for part in (own, more) if part)
    return f"{metric.full_name}{{{inside}}}" if inside else metric.full_name


def total(metric: m.Metric, more: str = "", *, by: str = "") -> str:
    """Return a PromQL sum of a metric. A series that several processes show counts only once."""
    once = f"max by ({', '.join(metric.labels)}) ({of(metric, more)})"
    return f"sum by ({by}) ({once})" if by else f"sum({once})"


def in_state(state: str) -> str:
    """Return a PromQL expression for the number of tables in a state."""
    return total(m.STATE, f'state="{state}"')


def count(title: str, expression: str, about: str, steps: Steps, runbook: str | None) -> Panel:
    """Return a small Grafana panel with one number of the whole fleet."""
    return Panel(
        *(title, "stat", ((expression, ""),), "short", about),
        steps=steps,
        runbook=runbook,
        width=4,
        height=4,
    )


def worst(title: str, expression: str, unit: str, about: str, **more: Any) -> Panel:
    """Return a Grafana panel of the 20 largest series; more series would be unreadable."""
    return Panel(
        title, "timeseries", ((f"topk(20, {expression})", "{{table}}"),), unit, about, **more
    )
