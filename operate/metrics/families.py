"""Turns the facts of a scrape into metrics of Prometheus."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.samples import Sample

from cdc.config.tables import configured_tier
from cdc.debezium import silence_bound_s
from cdc.store.table_state import State
from operate.metrics import metric_definitions as m
from operate.readers import Progress

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.history import RunEntry
    from cdc.store.table_state import CommitWrites
    from operate.capture_status import CaptureStatus
    from operate.check_status import CheckStatus
    from operate.metrics.facts import Facts
    from operate.readers import ReaderStatus
    from operate.status import Status, TableStatus

_STATES = tuple(state.value for state in State)


class _Families:
    """Collects values by metric."""

    def __init__(self) -> None:
        self._found = {
            one.name: GaugeMetricFamily(one.full_name, one.help, labels=one.labels)
            for one in m.METRICS
        }
        self._labels: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, str]] = {}

    def add(self, metric: m.Metric, value: float | datetime | None, *labels: str) -> None:
        """Add a value to a metric; None stands for an unknown value, and adds nothing."""
        if value is None:
            return
        number = value.timestamp() if isinstance(value, datetime) else float(value)
        # Most series of a table have the same labels, which are one object: its text is made once.
        key = (metric.labels, labels)
        if (named := self._labels.get(key)) is None:
            named = self._labels[key] = dict(zip(metric.labels, labels, strict=True))
        family = self._found[metric.name]
        family.samples.append(Sample(family.name, named, number))

    def __iter__(self) -> Iterator[GaugeMetricFamily]:
        return (family for family in self._found.values() if family.samples)


def families(config: Config, facts: Facts | None) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of a scrape, each with all of its values.

    Args:
        config: The configuration.
        facts: The facts; None if they could not be read in time.
    """
    found = _Families()
    found.add(m.BUILD, 1, importlib.metadata.version("tributary-cdc"))
    found.add(m.SUCCESS, facts is not None and facts.status is not None)
    if facts is not None:
        for (service, source), up in facts.up.items():
            found.add(m.UP, up, service, source)
        if facts.status is not None:
            found.add(m.READ_AT, facts.read_at)
            found.add(m.READ_SECONDS, facts.seconds)
            _add_metrics_of_status(found, config, facts, facts.status)
    yield from found


def _add_metrics_of_status(found: _Families, config: Config, facts: Facts, status: Status) -> None:
    """Add the metrics whose values need the state store."""
    found.add(m.TABLES, len(status.tables))
    if not status.tables:
        left = () if status.empty_store is None else status.empty_store.left
        found.add(m.WITHOUT_TABLES, None if left is None else len(left))
    behind: dict[str, int] = {}
    for table in status.tables:
        run = (facts.runs or {}).get(table.record.table)
        _add_table(found, table, run)
        if table.events_behind is not None:
            tier = configured_tier(table.record.tier)
            behind[tier] = behind.get(tier, 0) + table.events_behind
    for shared in status.shared:
        found.add(m.SHARED_FRESHNESS, shared.freshness_s, shared.name)
    for reader in status.readers:
        _add_reader(found, reader)
    for capture in status.captures:
        _add_capture(found, config, capture)
    found.add(m.WORKERS, config.spark.parallel_tables)
    if facts.newest_round is not None:
        found.add(m.ROUND_AT, facts.newest_round.ended_at)
        found.add(m.ROUND_SECONDS, facts.newest_round.seconds)
    for tier, events in behind.items():
        found.add(m.TIER_BEHIND, events, tier)
    if facts.forecast is not None:
        backlog = dict.fromkeys(facts.forecast.tiers, 0.0)
        for need in facts.forecast.needs:
            backlog[need.tier] += need.seconds
        for tier, load in facts.forecast.tiers.items():
            found.add(m.TIER_LOAD, load, tier)
            found.add(m.TIER_BACKLOG, backlog[tier], tier)
    short: dict[tuple[str, str], int] = {}
    for one in status.targets:
        named = (str(one.cause), "true" if one.missed else "false")
        short[named] = short.get(named, 0) + len(one.tables)
    for named, tables in short.items():
        found.add(m.SHORTFALL, tables, *named)


def _add_table(found: _Families, table: TableStatus, run: RunEntry | None) -> None:
    """Add the metrics of a table."""
    record, commit = table.record, table.record.last_commit
    labels = (record.table.source, str(record.table), record.tier)
    for state in _STATES:
        found.add(m.STATE, state == record.state.value, *labels, state)
    found.add(m.COMPLETE, table.watermark, *labels)
    if commit is not None:
        found.add(m.WATERMARK, commit.watermark, *labels)
        found.add(m.COMMIT, commit.committed_at, *labels)
        if commit.writes is not None:
            _add_writes(found, commit.writes, labels)
    found.add(m.FRESHNESS, table.freshness_s, *labels)
    found.add(m.TARGET, table.target_s or None, *labels)
    found.add(m.LATE, table.late, *labels)
    found.add(m.BEHIND, table.events_behind, *labels)
    found.add(m.QUARANTINED, table.quarantined, *labels)
    if record.error is not None:
        found.add(m.ERROR, 1, *labels, record.error.error)
    found.add(m.FAILURES, record.failures or None, *labels)
    found.add(m.LOST, 1 if table.lost is not None else None, *labels)
    found.add(m.ABANDONED, 1 if table.abandoned else None, *labels)
    if table.lease is not None:
        found.add(m.LEASE, table.lease.expires_at, *labels)
        found.add(m.LEASE_TAKEN, table.lease.taken_at, *labels)
    if run is not None:
        _add_run(found, run, labels)
    if (size := record.size) is not None:
        found.add(m.LAKE, size.image_bytes, *labels, "current")
        found.add(m.LAKE, size.kept_bytes, *labels, "kept")
        found.add(m.LAKE, size.other_generations_bytes, *labels, "other_generations")
    if (periods := table.periods) is not None:
        found.add(m.PERIOD_END, periods.newest_end, *labels)
        found.add(m.PERIOD_DUE, periods.due_at, *labels)
        found.add(m.LATE_ROWS, periods.late_rows or None, *labels)
    if (verified := table.verified) is not None:
        found.add(m.VERIFY_AT, verified.at, *labels)
        found.add(m.VERIFY_EQUAL_AT, verified.equal_at, *labels)
        found.add(m.VERIFY_SECONDS, verified.seconds, *labels)
        for kind, rows in verified.differences.items():
            found.add(m.DRIFT, rows, *labels, kind)
    for check in table.checks:
        _add_check(found, check, labels)


def _add_writes(found: _Families, writes: CommitWrites, labels: tuple[str, str, str]) -> None:
    """Add the metrics of what a table's newest commit has written."""
    found.add(m.COMMIT_SECONDS, writes.seconds, *labels)
    found.add(m.COMMIT_BYTES, writes.bytes, *labels)
    found.add(m.COMMIT_ROWS, writes.inserts, *labels, "insert")
    found.add(m.COMMIT_ROWS, writes.updates, *labels, "update")
    found.add(m.COMMIT_ROWS, writes.deletes, *labels, "delete")
    found.add(m.COMMIT_BYTES_PER_ROW, writes.bytes_per_row, *labels)


def _add_check(found: _Families, check: CheckStatus, labels: tuple[str, str, str]) -> None:
    """Add the metrics of a table's data check."""
    if check.settings.scheduled:
        found.add(m.CHECK_DUE, check.due, *labels, check.name)
    if check.record is None:
        return
    newest = check.record.newest
    found.add(m.CHECK_OUTCOME, 1, *labels, check.name, newest.outcome)
    found.add(m.CHECK_FAILED, check.failed, *labels, check.name, check.settings.policy)
    found.add(m.CHECK_AT, newest.finished_at, *labels, check.name)
    found.add(m.CHECK_PASSED_AT, check.record.passed_at, *labels, check.name)


def _add_reader(found: _Families, reader: ReaderStatus) -> None:
    """Add the metrics of a registered reader."""
    labels = (reader.table, reader.state.name)
    found.add(m.READER_LAG, reader.lag_s, *labels)
    found.add(m.READER_UNREAD, reader.unread_s, *labels)
    found.add(m.READER_TARGET, reader.target_s, *labels)
    lost = reader.progress in (Progress.LOST, Progress.UNREADABLE)
    found.add(m.READER_LOST, 1 if lost else None, *labels)


def _add_run(found: _Families, run: RunEntry, labels: tuple[str, str, str]) -> None:
    """Add the metrics of a table's newest run."""
    found.add(m.RUN_AT, run.started_at, *labels)
    found.add(m.RUN_SECONDS, run.seconds, *labels)
    found.add(m.RUN_COMMITS, run.commits, *labels)
    for operation, records in run.counts.items():
        found.add(m.RUN_RECORDS, records, *labels, operation)


def _add_capture(found: _Families, config: Config, capture: CaptureStatus) -> None:
    """Add the metrics of a capture: its connector, its heartbeat and its log."""
    labels = (capture.source, capture.tier)
    if capture.connector is not None:
        found.add(m.CONNECTOR_UP, capture.connector == "running", *labels)
        health = capture.health
        now = "missing" if health is None else health.status.state.lower()
        for state in m.CONNECTOR_STATES:
            found.add(m.CONNECTOR_STATE, state == now, *labels, state)
        tasks = [] if health is None else [one.state.lower() for one in health.status.tasks]
        for state in sorted({"running", *tasks}):
            found.add(m.CONNECTOR_TASKS, tasks.count(state), *labels, state)
    found.add(m.BEAT, capture.beat_at, *labels)
    source = config.source(capture.source)
    found.add(m.BEAT_LIMIT, silence_bound_s(source.heartbeat_interval_ms), *labels)
    for level, size in source.log_limits.items():
        found.add(m.LOG_LIMIT, size, *labels, level)
    found.add(m.PROBLEM, capture.problem is not None, *labels)
    if (log := capture.log) is None:
        return
    found.add(m.LOG_BYTES, log.retained_bytes, *labels)
    found.add(m.LOG_DANGER, log.danger is not None, *labels)
    facts = log.facts()
    found.add(m.SLOT_ACTIVE, facts.get("active"), *labels)
    found.add(m.SLOT_SAFE, facts.get("safe_wal_size"), *labels)
