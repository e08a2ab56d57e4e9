"""The panels of Grafana's dashboard. Together they show all metrics except `LEFT_OUT`."""

from __future__ import annotations

from operate.metrics import metric_definitions as m
from operate.metrics.check_panels import CHECKS
from operate.metrics.commit_panels import COMMITS, ROUNDS
from operate.metrics.panel import GREEN as _GREEN
from operate.metrics.panel import ONE as _ONE
from operate.metrics.panel import PLAIN as _PLAIN
from operate.metrics.panel import RATIO as _RATIO
from operate.metrics.panel import SOME as _SOME
from operate.metrics.panel import UP as _UP
from operate.metrics.panel import WIDTH, Panel
from operate.metrics.panel import count as _count
from operate.metrics.panel import in_state as _in_state
from operate.metrics.panel import of as _of
from operate.metrics.panel import total as _sum
from operate.metrics.panel import worst as _worst
from operate.metrics.reader_panels import READERS

__all__ = ["LEFT_OUT", "ROWS", "WIDTH", "Panel"]

_WARN = 'level="warn"'
_PAUSED = 'state="paused"'

_FLEET = (
    _count(
        "Late tables",
        _sum(m.LATE),
        "Incremental tables whose freshness exceeds their target.",
        *(_SOME, "TributaryStale"),
    ),
    _count(
        "Failed tables",
        _in_state("failed"),
        "Tables that an error stopped. Runs try them again.",
        *(_ONE, "TributaryTableFailed"),
    ),
    _count(
        "Tables to copy again",
        f"{_in_state('needs_bootstrap')} + ({_sum(m.ABANDONED)} or"
        f" vector(0)) + ({_sum(m.LOST)} or vector(0))",
        "Tables that get no changes until they are copied again: they need a bootstrap, lost their"
        " stream, or wait for a copy that no process works on.",
        *(_ONE, "TributaryNeedsBootstrap"),
    ),
    _count(
        *("Messages in quarantine", _sum(m.QUARANTINED), "Messages that tables lack."),
        *(_SOME, "TributaryQuarantined"),
    ),
    _count(
        "Rows that differ",
        f"{_sum(m.DRIFT)} or vector(0)",
        "Differences that the newest verify of each table found.",
        *(_ONE, "TributaryVerifyDrift"),
    ),
    _count(
        "Connectors down",
        f"count(max by (source, tier) ({_of(m.CONNECTOR_UP)}) == 0) or vector(0)",
        "Captures whose connector or one of its tasks does not run.",
        *(_ONE, "TributaryConnectorDown"),
    ),
    Panel(
        "Tables by state",
        "timeseries",
        ((_sum(m.STATE, by="state"), "{{state}}"),),
        "short",
        "Number of tables in each state.",
        stacked=True,
    ),
    Panel(
        "Targets that are missed or cannot be kept",
        "timeseries",
        ((_sum(m.SHORTFALL, by="cause, missed"), "{{cause}}, missed: {{missed}}"),),
        "short",
        "Tables by cause. docs/commands.md says what to do about each cause.",
        runbook="TributaryStale",
        stacked=True,
    ),
    _worst(
        "Freshness in parts of the target",
        f"{_of(m.FRESHNESS)} / {_of(m.TARGET)}",
        "percentunit",
        "The 20 worst tables. Above 100 %, a table is late.",
        steps=_RATIO,
        runbook="TributaryStaleCritical",
    ),
    Panel(
        "Services",
        "state-timeline",
        ((f"min by (service, source) ({_of(m.UP)})", "{{service}} {{source}}"),),
        "bool_on_off",
        "Whether each service answers. Series that need a service which is away are absent.",
        steps=_UP,
        runbook="TributaryErrors",
    ),
    Panel(
        "Scrapes",
        "timeseries",
        (
            (f"max({_of(m.READ_SECONDS)})", "time to read"),
            (f"time() - max({_of(m.READ_AT)})", "age of the facts"),
        ),
        "s",
        "A scrape takes 8 s at most. Facts above a minute mean that none succeeds.",
        runbook="TributaryMetricsAbsent",
    ),
    _count(
        "Scrape",
        f"min({_of(m.SUCCESS)})",
        "1 if the facts could be read in time. At 0, all other panels are empty.",
        *(_UP, "TributaryMetricsAbsent"),
    ),
    _count("Workers", f"max({_of(m.WORKERS)})", "spark.parallel_tables.", _PLAIN, None),
    _count("Tables", f"max({_of(m.TABLES)})", "On the plan.", _PLAIN, None),
    _count(
        "Connectors without tables",
        f"max({_of(m.WITHOUT_TABLES)}) or vector(0)",
        "Connectors of the configuration while the state store has no table.",
        *(_ONE, "TributaryNoTables"),
    ),
    _count(
        "Tables paused by a setting",
        f"count(max by (table) ({_of(m.STATE, _PAUSED)}) == 1"
        f" and on (table) max by (table) ({_of(m.ERROR)}) == 1) or vector(0)",
        "Tables that get no changes until somebody acts. Those that a person paused do not count.",
        *(_ONE, "TributaryTablePaused"),
    ),
    Panel(
        "Version",
        "table",
        ((f"count by (version) ({_of(m.BUILD)})", "{{version}}"),),
        "short",
        "Processes that show metrics, by the version of Tributary.",
        height=4,
    ),
    Panel(
        "Freshness of shared lake tables",
        "timeseries",
        ((_of(m.SHARED_FRESHNESS), "{{name}}"),),
        "s",
        "Freshness of the oldest shard of each lake table that several tables feed.",
        runbook="TributaryStale",
        width=16,
    ),
)
_TIER = (
    Panel(
        "Load",
        "timeseries",
        ((_of(m.TIER_LOAD), "{{tier}}"),),
        "percentunit",
        "Part of all workers that each tier needs, by prediction. Above 70 %, targets are unsure.",
        steps=_RATIO,
        runbook="TributaryStale",
        stacked=True,
    ),
    Panel(
        "Events behind",
        "timeseries",
        ((_of(m.TIER_BEHIND), "{{tier}}"),),
        "short",
        "Events that wait, by tier.",
        stacked=True,
    ),
    Panel(
        "Work that waits",
        "timeseries",
        ((_of(m.TIER_BACKLOG), "{{tier}}"),),
        "s",
        "Predicted time of one worker for the events that wait.",
        runbook="TributaryStale",
        stacked=True,
    ),
)
_TABLES = (
    Panel(
        "States",
        "state-timeline",
        ((f"topk(30, {_of(m.STATE)} == 1)", "{{table}} {{state}}"),),
        "short",
        "The state of each table; at most 30 series. Choose tables above.",
        steps=_GREEN,
        width=WIDTH,
    ),
    _worst(
        "Freshness",
        _of(m.FRESHNESS),
        "s",
        "Seconds up to which each table is complete: the 20 oldest.",
        runbook="TributaryStale",
    ),
    _worst("Freshness target", _of(m.TARGET), "s", "The 20 longest targets."),
    _worst("Events behind", _of(m.BEHIND), "short", "Events that wait: the 20 largest numbers."),
    Panel(
        "Age of commits and watermarks",
        "timeseries",
        (
            (f"topk(10, time() - {_of(m.COMMIT)})", "commit of {{table}}"),
            (f"topk(10, time() - {_of(m.WATERMARK)})", "watermark of {{table}}"),
            (f"topk(10, time() - {_of(m.COMPLETE)})", "complete: {{table}}"),
        ),
        "s",
        "A commit is old if nothing changed. A watermark that is old while events wait is late.",
        runbook="TributaryStale",
        width=16,
    ),
    Panel(
        "Age of complete periods",
        "timeseries",
        (
            (f"topk(10, time() - {_of(m.PERIOD_END)})", "end of {{table}}"),
            (f"topk(10, time() - {_of(m.PERIOD_DUE)})", "overdue: {{table}}"),
        ),
        "s",
        "Time since the end of the newest hour or day that is complete. Above 0, the next one is"
        " overdue by so long.",
        runbook="TributaryPeriodOverdue",
        width=16,
        signed=True,
    ),
    _worst(
        "Late rows",
        _of(m.LATE_ROWS),
        "short",
        "Rows that came late for complete hours or days.",
    ),
    _worst(
        "Late",
        _of(m.LATE),
        "bool_yes_no",
        "1 while the table's freshness exceeds its target.",
        steps=_SOME,
        runbook="TributaryStale",
    ),
    _worst("Duration of runs", _of(m.RUN_SECONDS), "s", "The newest run of each table."),
    _worst("Age of runs", f"time() - {_of(m.RUN_AT)}", "s", "Since the newest run began."),
    _worst("Commits of runs", _of(m.RUN_COMMITS), "short", "Commits of the newest run."),
    Panel(
        "Records of runs",
        "timeseries",
        ((_sum(m.RUN_RECORDS, by="operation"), "{{operation}}"),),
        "short",
        "Records of the newest runs by operation, as Debezium names it.",
        stacked=True,
    ),
    Panel(
        "Size in the lake",
        "timeseries",
        ((_sum(m.LAKE, by="part"), "{{part}}"),),
        "bytes",
        "Files of the newest commits, older files that are kept for readers, other generations.",
        stacked=True,
    ),
    _worst(
        "Messages in quarantine",
        _of(m.QUARANTINED),
        "short",
        "Messages that each table lacks.",
        steps=_SOME,
        runbook="TributaryQuarantined",
    ),
    Panel(
        "Errors",
        "table",
        ((f"{_of(m.ERROR)} == 1", "{{table}} {{kind}}"),),
        "short",
        "Tables that have an error now, with the error's class.",
        runbook="TributaryTableFailed",
    ),
    _worst(
        "Failures in a row",
        _of(m.FAILURES),
        "short",
        "Tries that failed since the last commit.",
        steps=((None, "green"), (1, "orange"), (5, "red")),
        runbook="TributaryTableFailed",
    ),
    Panel(
        "To copy again",
        "table",
        (
            (f"{_of(m.LOST)} == 1", "{{table}} lost its stream"),
            (f"{_of(m.ABANDONED)} == 1", "the copy of {{table}} waits"),
        ),
        "short",
        "Tables whose stream is lost, and whose copy no process continues.",
        runbook="TributaryNeedsBootstrap",
    ),
    _worst(
        "Leases",
        f"{_of(m.LEASE)} - time()",
        "s",
        "Seconds until the lease of the process that works on the table expires, unless it is"
        " renewed. Below 0, the process hangs or is gone.",
        steps=((None, "red"), (0, "green")),
        signed=True,
    ),
    _worst(
        "Age of leases",
        f"time() - {_of(m.LEASE_TAKEN)}",
        "s",
        "How long the process that works on the table has held its lease.",
    ),
    Panel(
        "Verification",
        "timeseries",
        (
            (f"topk(10, time() - {_of(m.VERIFY_EQUAL_AT)})", "{{table}} equal"),
            (f"topk(10, time() - {_of(m.VERIFY_AT)})", "{{table}} compared"),
        ),
        "s",
        "Time since each table was last compared, and since it was last found equal.",
        steps=((None, "green"), (8 * 86400, "orange")),
        runbook="TributaryVerifyOverdue",
    ),
    _worst("Duration of verify", _of(m.VERIFY_SECONDS), "s", "The newest verify of each table."),
    Panel(
        "Differences",
        "timeseries",
        ((f"topk(20, {_of(m.DRIFT)})", "{{table}} {{kind}}"),),
        "short",
        "Differences that the newest verify found, by kind.",
        steps=_ONE,
        runbook="TributaryVerifyDrift",
    ),
)
_SOURCES = (
    Panel(
        "Connectors",
        "state-timeline",
        ((f"{_of(m.CONNECTOR_STATE)} == 1", "{{source}}/{{tier}} {{state}}"),),
        "short",
        "The state of each connector.",
        steps=_GREEN,
        runbook="TributaryConnectorDown",
        width=12,
    ),
    Panel(
        "Connectors that run",
        "state-timeline",
        ((_of(m.CONNECTOR_UP), "{{source}}/{{tier}}"),),
        "bool_on_off",
        "Whether the connector and all of its tasks run.",
        steps=_UP,
        runbook="TributaryConnectorDown",
        width=12,
    ),
    Panel(
        "Tasks",
        "timeseries",
        ((_sum(m.CONNECTOR_TASKS, by="state"), "{{state}}"),),
        "short",
        "Tasks of connectors by state.",
        runbook="TributaryConnectorDown",
        stacked=True,
    ),
    Panel(
        "Age of heartbeats",
        "timeseries",
        (
            (f"time() - {_of(m.BEAT)}", "{{source}}/{{tier}}"),
            (_of(m.BEAT_LIMIT), "limit of {{source}}/{{tier}}"),
        ),
        "s",
        "A connector whose newest heartbeat is older than its limit counts as stuck.",
        runbook="TributaryHeartbeatMissing",
    ),
    Panel(
        "Problems",
        "state-timeline",
        ((_of(m.PROBLEM), "{{source}}/{{tier}}"),),
        "bool_yes_no",
        "Whether `tributary status` names a problem of the capture.",
        steps=_ONE,
        runbook="TributaryErrors",
    ),
    Panel(
        "Log that the source keeps",
        "timeseries",
        (
            (_of(m.LOG_BYTES), "{{source}}/{{tier}}"),
            (_of(m.LOG_LIMIT), "{{source}}/{{tier}}: {{level}}"),
        ),
        "bytes",
        "PostgreSQL: what the slot holds back, and the limits of wal_limit. MySQL and MariaDB: all"
        " binlogs.",
        runbook="TributaryWalLimitCritical",
    ),
    Panel(
        "Log that the slot may still write",
        "timeseries",
        ((_of(m.SLOT_SAFE), "{{source}}/{{tier}}"),),
        "bytes",
        "Until the slot can lose changes. Empty without max_slot_wal_keep_size: then the slot fills"
        " the disk instead.",
        runbook="TributarySlotNearLoss",
    ),
    Panel(
        "Growth of the log",
        "timeseries",
        ((f"deriv({_of(m.LOG_BYTES)}[1h])", "{{source}}/{{tier}}"),),
        "binBps",
        "How fast the log that each source keeps has grown in the last hour.",
        runbook="TributaryWalGrowth",
        signed=True,
    ),
    Panel(
        "Captures above wal_limit.warn",
        "stat",
        (
            (
                f"count({_of(m.LOG_BYTES)} > ignoring (level) {_of(m.LOG_LIMIT, _WARN)})"
                " or vector(0)",
                "above warn",
            ),
        ),
        "short",
        "Captures whose slot holds back more log than wal_limit.warn.",
        steps=_SOME,
        runbook="TributaryWalLimit",
        width=4,
        height=4,
    ),
    Panel(
        "Log in danger",
        "state-timeline",
        ((_of(m.LOG_DANGER), "{{source}}/{{tier}}"),),
        "bool_yes_no",
        "Whether the log may soon lose changes that were not captured.",
        steps=_ONE,
        runbook="TributarySlotNearLoss",
        width=4,
    ),
    Panel(
        "Slots that are read",
        "state-timeline",
        ((_of(m.SLOT_ACTIVE), "{{source}}/{{tier}}"),),
        "bool_yes_no",
        "Whether a connector reads the slot.",
        steps=_UP,
        runbook="TributarySlotInactive",
        width=4,
    ),
)
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Fleet", _FLEET),
    ("Tiers", (*_TIER, *ROUNDS)),
    ("Tables", (*_TABLES, *COMMITS, *CHECKS)),
    ("Readers", READERS),
    ("Sources", _SOURCES),
)
"""The rows of the dashboard, each with its panels."""
LEFT_OUT: frozenset[str] = frozenset()
"""Metrics that are on no panel, on purpose."""
