"""The fleet at a glance: counts, services, sources, and the slowest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.store.table_state import State
from operate.render import seconds
from operate.ui.tables import TONES
from operate.ui.troubles import Trouble, of_fleet

if TYPE_CHECKING:
    from cdc.store.history import RunEntry
    from operate.capture_status import CaptureStatus
    from operate.metrics.facts import Facts
    from operate.ui.troubles import Tone

_OTHER = "other"
"""The name for the part of a run's time that belongs to no step."""


@dataclass(frozen=True)
class Tile:
    """A figure of the fleet.

    Args:
        label: What the figure counts.
        value: The figure.
        tone: How the figure is shown.
        detail: A short text beside the figure.
        query: The query, in a URL, with which the list shows the counted tables; None for a tile
            without a link.
    """

    label: str
    value: str
    tone: Tone = "quiet"
    detail: str = ""
    query: str | None = None


@dataclass(frozen=True)
class Service:
    """Whether a service answered.

    Args:
        name: The service.
        up: Whether the service answered.
    """

    name: str
    up: bool


@dataclass(frozen=True)
class SourceView:
    """One capture of a source.

    Args:
        place: Source and tier.
        connector: The state of the capture's connector in words.
        tone: How the connector's state is shown.
        slot: Name of what keeps the log for the capture, such as a slot; None if not known.
        active: Whether a connector reads the log; None if the server does not say.
        retained_bytes: Size of the log that is kept for the capture; None if not known.
        facts: What the server says about the log, by name.
        beat_at: Time of the newest heartbeat; None if there is none, or if it could not be read.
        silent_s: Seconds since the newest heartbeat.
        oldest_s: The greatest ``freshness_s`` of the capture's tables; None if not known.
        tables: Number of the capture's tables.
        problem: What is wrong; None if nothing is.
    """

    place: str
    connector: str
    tone: Tone
    slot: str | None
    active: bool | None
    retained_bytes: int | None
    facts: Mapping[str, object]
    beat_at: datetime | None
    silent_s: float | None
    oldest_s: float | None
    tables: int
    problem: str | None


@dataclass(frozen=True)
class StepView:
    """A step of a run.

    Args:
        name: The step.
        seconds: How long the step took.
        part: The step's share of the run's time, from 0 to 1.
        before: The joint share of the steps that are listed before this step, from 0 to 1.
    """

    name: str
    seconds: float
    part: float
    before: float


@dataclass(frozen=True)
class RunView:
    """A run of a table, or several runs of one hour that had the same outcome.

    Args:
        entry: The history's entry of the run or runs.
        table: The table.
        steps: The run's steps, the slowest first, and then the time that belongs to no step.
    """

    entry: RunEntry
    table: str
    steps: tuple[StepView, ...]

    @property
    def slowest(self) -> str:
        """The run's slowest step and the step's share of the run's time, in words."""
        named = [step for step in self.steps if step.name != _OTHER]
        return f"{named[0].name} {named[0].part:.0%}" if named else "no steps are known"


@dataclass(frozen=True)
class Overview:
    """All tables and captures (the fleet) at a glance.

    Args:
        tiles: The figures.
        services: The services, each with whether it answered.
        troubles: What is not as it should be, grave troubles first.
        sources: The captures.
        slowest: The slowest runs among the newest runs of all tables.
    """

    tiles: Sequence[Tile]
    services: Sequence[Service]
    troubles: Sequence[Trouble]
    sources: Sequence[SourceView]
    slowest: Sequence[RunView]


def overview(facts: Facts, *, slowest: int = 8) -> Overview:
    """Return all tables and captures (the fleet) at a glance, as the page shows them."""
    services = [
        Service(" ".join(filter(None, key)).replace("_", " "), up)
        for key, up in sorted(facts.up.items())
    ]
    if facts.status is None:
        return Overview((), services, (), (), ())
    troubles = of_fleet(facts.status, facts.read_at)
    return Overview(
        _fleet_tiles(facts, troubles),
        services,
        troubles,
        sources(facts),
        slowest_runs((facts.runs or {}).values(), slowest),
    )


def _fleet_tiles(facts: Facts, troubles: Sequence[Trouble]) -> list[Tile]:
    """Return the page's figures of the fleet. The field ``facts.status`` must not be None."""
    tables = () if facts.status is None else facts.status.tables
    states = Counter(one.record.state for one in tables)
    late = sum(one.late for one in tables)
    ages = [one.freshness_s for one in tables if one.freshness_s is not None]
    behind = [one.events_behind for one in tables if one.events_behind is not None]
    bad = sum(one.tone == "bad" for one in troubles)
    found = [
        Tile("Tables", f"{len(tables):,}", detail="on the plan", query=""),
        Tile(
            "Need attention",
            f"{len(troubles):,}",
            "bad" if bad else "warn" if troubles else "good",
            f"{bad:,} of them grave" if bad else "none of them grave" if troubles else "all well",
        ),
        Tile("Late", f"{late:,}", "bad" if late else "good", "over target", "state=late"),
        Tile("Oldest", seconds(max(ages)) if ages else "unknown", detail="greatest freshness"),
        Tile("Events behind", f"{sum(behind):,}" if behind else "unknown", detail="at most"),
    ]
    if (plan := facts.forecast) is not None:
        tone: Tone = "good" if plan.kept else "warn"
        found.append(Tile("Load", f"{plan.load:.0%}", tone, f"of {plan.capacity}"))
    found += [
        Tile(
            state.value.replace("_", " ").capitalize(),
            f"{states[state]:,}",
            TONES[state],
            "tables" if states[state] != 1 else "table",
            f"state={state.value}",
        )
        for state in State
        if states[state]
    ]
    return found


def sources(facts: Facts) -> list[SourceView]:
    """Return the captures of all sources, as the page shows them."""
    return (
        [] if facts.status is None else [_source_view(facts, one) for one in facts.status.captures]
    )


def _source_view(facts: Facts, capture: CaptureStatus) -> SourceView:
    """Return a capture, with the figures of its tables, as the page shows it."""
    tables = [
        one
        for one in (() if facts.status is None else facts.status.tables)
        if (one.record.table.source, one.record.tier) == (capture.source, capture.tier)
    ]
    ages = [one.freshness_s for one in tables if one.freshness_s is not None]
    log, running = capture.log, capture.connector == "running"
    silent = (
        None
        if capture.beat_at is None
        else max(0.0, (facts.read_at - capture.beat_at).total_seconds())
    )
    return SourceView(
        capture.place,
        capture.connector or "unknown",
        "bad"
        if capture.problem or capture.connector == "missing"
        else "good"
        if running
        else "warn",
        None if log is None else log.title,
        None if log is None else log.active,
        None if log is None else log.retained_bytes,
        {} if log is None else {key: value for key, value in log.facts().items() if value},
        capture.beat_at,
        silent,
        max(ages, default=None),
        len(tables),
        capture.problem,
    )


def run_view(entry: RunEntry) -> RunView:
    """Return a run with its steps, as the page shows it."""
    whole = max(entry.seconds, sum(entry.steps.values()), 0.001)
    left = whole - sum(entry.steps.values())
    listed = sorted(entry.steps.items(), key=lambda one: -one[1])
    steps, before = [], 0.0
    for name, spent in [*listed, (_OTHER, left)] if listed else []:
        steps.append(StepView(name, spent, spent / whole, before))
        before += spent / whole
    return RunView(entry, str(entry.table), tuple(steps))


def slowest_runs(entries: Iterable[RunEntry], most: int) -> list[RunView]:
    """Return the slowest runs for the page; for several runs in one entry, their mean counts."""
    longest = sorted(entries, key=lambda one: -one.seconds / one.runs)
    return [run_view(one) for one in longest[:most]]
