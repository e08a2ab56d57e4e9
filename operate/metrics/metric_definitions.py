"""Every metric of ``metrics``: name, type, labels, unit, and where its value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TABLE = ("source", "table", "tier")
"""The labels of a metric of tables."""
CAPTURE = ("source", "tier")
"""The labels of a metric of captures."""
READER = ("table", "reader")
"""The labels of a metric of readers."""
CONNECTOR_STATES = (
    *("running", "paused", "stopped", "failed", "unassigned", "restarting", "missing"),
)
"""The states of a connector: the states in Kafka Connect, and ``missing`` if the connector does not
exist.
"""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: The metric's name without the prefix that all names have.
        help: What a value says.
        unit: The unit of a value; ``0 or 1`` if the value answers a question.
        read_from: Where the value comes from.
        labels: The names of the labels.
        kind: The metric's type in docs/observe.md. Prometheus gets every metric as a gauge.
    """

    name: str
    help: str
    unit: str
    read_from: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "info", "state set"] = "gauge"

    @property
    def full_name(self) -> str:
        """The metric's name in Prometheus."""
        return f"tributary_{self.name}"


def _metric_of_table(name: str, help_: str, unit: str, read_from: str, *more: str) -> Metric:
    """Return a metric of Prometheus that each table has, with the labels of tables."""
    return Metric(f"table_{name}", help_, unit, read_from, (*TABLE, *more))


_BOOL, _SECONDS, _MOMENT, _BYTES = "0 or 1", "seconds", "seconds since 1970", "bytes"
_STORE, _SERVERS = "state store", "sources, Kafka, Connect"

BUILD = Metric(
    "build_info", "1; the label is the version of Tributary.", "-", "-", ("version",), "info"
)
SUCCESS = Metric(
    "scrape_success",
    "Whether the facts that are shown could be read. At 0, all series but this one, `tributary_up`"
    " and `tributary_build_info` are absent.",
    *(_BOOL, "-"),
)
READ_AT = Metric(
    "facts_timestamp_seconds",
    "When the facts that are shown were read: up to five minutes ago while a read takes long.",
    *(_MOMENT, "-"),
)
READ_SECONDS = Metric("facts_duration_seconds", "How long that took.", _SECONDS, "-")
UP = Metric(
    "up",
    "Whether a service answered. `service` is `state_store`, `kafka`, `connect` or `source`;"
    " `source` is empty for the others. At 0, the series that need the service are absent.",
    *(_BOOL, _SERVERS),
    ("service", "source"),
)

STATE = Metric(
    "table_state",
    "1 for the table's state, 0 for the other states.",
    *(_BOOL, _STORE, (*TABLE, "state"), "state set"),
)
WATERMARK = _metric_of_table(
    "watermark_timestamp_seconds",
    "Event time up to which the newest commit is complete.",
    *(_MOMENT, _STORE),
)
COMPLETE = _metric_of_table(
    "complete_timestamp_seconds",
    "Event time up to which the table is complete, by the newest look that proved that nothing is"
    " missing. It is later than the commit's watermark if the table lacks no event and a newer"
    " heartbeat proves it, or if the first event that waits is newer.",
    *(_MOMENT, "state store, Kafka"),
)
COMMIT = _metric_of_table("commit_timestamp_seconds", "Time of the newest commit.", _MOMENT, _STORE)
COMMIT_SECONDS = _metric_of_table(
    "commit_duration_seconds",
    "How long the newest commit took, from the read of the topic to the end of the commit. This and"
    " the other figures of the newest commit are absent if no run has written it: after a copy, a"
    " change of columns or the death of a process, and for shards.",
    *(_SECONDS, _STORE),
)
COMMIT_BYTES = _metric_of_table(
    "commit_written_bytes",
    "Size of the data files that the newest commit wrote. Hudi rewrites each file in which a row"
    " changes.",
    *(_BYTES, _STORE),
)
COMMIT_ROWS = _metric_of_table(
    "commit_rows",
    "Rows of the newest commit by what Hudi did: `insert`, `update` or `delete`.",
    *("rows", _STORE, "operation"),
)
COMMIT_BYTES_PER_ROW = _metric_of_table(
    "commit_written_bytes_per_row",
    "Written bytes of the newest commit per changed row; absent if no row changed.",
    *("bytes per row", _STORE),
)
FRESHNESS = _metric_of_table(
    "freshness_seconds",
    "Seconds since the time up to which the table is complete, less `allowed_lateness_s`; without"
    " such a time, since the newest commit, or the copy without one, while events wait.",
    *(_SECONDS, "state store, Kafka"),
)
TARGET = _metric_of_table(
    "freshness_target_seconds", "The freshness target.", _SECONDS, "tributary.yaml"
)
LATE = _metric_of_table(
    "late",
    "Whether an incremental table's freshness exceeds its target.",
    *(_BOOL, "state store, Kafka"),
)
BEHIND = _metric_of_table(
    "events_behind",
    "Offsets between the newest commit and the end of the topic: at most this many events wait.",
    *("events", "state store, Kafka"),
)
QUARANTINED = _metric_of_table(
    "quarantined_messages", "Messages in quarantine.", "messages", _STORE
)
ERROR = _metric_of_table(
    "error",
    "1 while the table has an error; `kind` is the error's class. A table without one has no"
    " series.",
    *(_BOOL, _STORE, "kind"),
)
FAILURES = _metric_of_table("failures", "Failures in a row; absent at 0.", "failures", _STORE)
LOST = _metric_of_table(
    "lost",
    "1 if changes are missing both in the table's stream and in its lake table; otherwise absent.",
    *(_BOOL, "state store, sources, Kafka, Connect"),
)
ABANDONED = _metric_of_table(
    "copy_abandoned",
    "1 if a table with readers waits for a copy that no process works on; otherwise absent.",
    *(_BOOL, _STORE),
)
LEASE = _metric_of_table(
    "lease_expiry_timestamp_seconds",
    "When the lease of the process that works on the table expires, unless it is renewed. Without"
    " such a process there is no series.",
    *(_MOMENT, _STORE),
)
LEASE_TAKEN = _metric_of_table(
    "lease_taken_timestamp_seconds",
    "When that process took the lease. A run holds it for its turn, a copy until its end.",
    *(_MOMENT, _STORE),
)
RUN_AT = _metric_of_table(
    "run_timestamp_seconds", "When the newest run of the table began.", _MOMENT, _STORE
)
RUN_SECONDS = _metric_of_table(
    "run_duration_seconds", "How long the newest run took.", _SECONDS, _STORE
)
RUN_COMMITS = _metric_of_table("run_commits", "Commits of the newest run.", "commits", _STORE)
RUN_RECORDS = _metric_of_table(
    "run_records",
    "Kafka records of the newest run by operation, as Debezium names it: `c` create, `u` update,"
    " `d` delete, `t` truncate; `tombstone`.",
    *("records", _STORE, "operation"),
)
LAKE = _metric_of_table(
    "lake_bytes",
    "Size in the lake as last measured. `part` is `current`: files of the newest commit; `kept`:"
    " the rest of the generation; `other_generations`.",
    *(_BYTES, _STORE, "part"),
)
VERIFY_AT = _metric_of_table(
    "verify_timestamp_seconds", "When `verify` last compared the table.", _MOMENT, _STORE
)
VERIFY_EQUAL_AT = _metric_of_table(
    "verify_success_timestamp_seconds",
    "When `verify` last found source and lake equal.",
    *(_MOMENT, _STORE),
)
VERIFY_SECONDS = _metric_of_table(
    "verify_duration_seconds", "How long the newest `verify` took.", _SECONDS, _STORE
)
DRIFT = _metric_of_table(
    "verify_drift_rows",
    "Differences that the newest `verify` found; absent if there are none. `kind` is `missing`,"
    " `extra`, `different` or `duplicate` for the first 1,000, `more` for those beyond them,"
    " `unsettled` for keys that kept changing.",
    *("rows", _STORE, "kind"),
)

CHECK_OUTCOME = _metric_of_table(
    "check_outcome",
    "1 for the outcome of the check's newest execution: `passed`, `failed`, `skipped` or `error`.",
    *(_BOOL, _STORE, "check", "outcome"),
)
CHECK_FAILED = _metric_of_table(
    "check_failed",
    "Whether the check has a failure that nothing has ended (docs/checks.md). `policy`"
    " is `report`, `alarm` or `pause`.",
    *(_BOOL, _STORE, "check", "policy"),
)
CHECK_DUE = _metric_of_table(
    "check_due",
    "Whether the check is due by its schedule, and was not executed since or did not work. A check"
    " without a schedule has no series.",
    *(_BOOL, "state store, tributary.yaml", "check"),
)
CHECK_AT = _metric_of_table(
    "check_timestamp_seconds", "When the check last ended.", *(_MOMENT, _STORE, "check")
)
CHECK_PASSED_AT = _metric_of_table(
    "check_success_timestamp_seconds", "When the check last passed.", *(_MOMENT, _STORE, "check")
)

TABLES = Metric("tables", "Tables on the plan.", "tables", _STORE)
WITHOUT_TABLES = Metric(
    "connectors_without_tables",
    "Connectors of the configuration's captures while the state store has no record of a table."
    " Absent while a table is on the plan, and if Connect did not answer.",
    *("connectors", "state store, Connect"),
)
PERIOD_END = _metric_of_table(
    "period_end_timestamp_seconds",
    "End of the newest hour or day that was announced as complete. Only tables with the setting"
    " `completeness` have it.",
    *(_MOMENT, _STORE),
)
PERIOD_DUE = _metric_of_table(
    "period_due_timestamp_seconds",
    "From when on the next hour or day is overdue: its end, the lateness that the settings allow,"
    " and the freshness target have passed. Absent while the table is not incremental.",
    *(_MOMENT, _STORE),
)
LATE_ROWS = _metric_of_table(
    "late_rows",
    "Number of rows that came late for hours or days that were announced as complete; absent at 0.",
    *("rows", _STORE),
)
SHARED_FRESHNESS = Metric(
    "shared_freshness_seconds",
    "Freshness of the oldest shard of a lake table that several tables feed.",
    *(_SECONDS, "state store, Kafka"),
    ("name",),
)

READER_LAG = Metric(
    "reader_lag_seconds",
    "Seconds since the commit that a registered reader has read; 0 if no commit came after it. For"
    " a reader that has recorded nothing: since the publication. In an object store as of the last"
    " look of a run, and absent if that is over an hour old.",
    *(_SECONDS, "files of readers", READER),
)
READER_UNREAD = Metric(
    "reader_unread_seconds",
    "Seconds since the oldest commit that the reader has not read; 0 if it has read all.",
    *(_SECONDS, "files of readers", READER),
)
READER_TARGET = Metric(
    "reader_lag_target_seconds",
    "The limit of the reader's `tributary_reader_unread_seconds`. Absent without one.",
    *(_SECONDS, "tributary.yaml", READER),
)
READER_LOST = Metric(
    "reader_lost",
    "1 if the reader must read the whole table once, since files of its commit may be cleaned or"
    " another copy does not continue it, or if its file cannot be read; otherwise absent.",
    *(_BOOL, "files of readers", READER),
)

CONNECTOR_UP = Metric(
    "connector_up",
    "Whether the connector and all of its tasks run.",
    *(_BOOL, "Connect"),
    CAPTURE,
)
CONNECTOR_STATE = Metric(
    "connector_state",
    "1 for the connector's state, 0 for the other states; `missing` if there is no such connector.",
    *(_BOOL, "Connect"),
    (*CAPTURE, "state"),
    "state set",
)
CONNECTOR_TASKS = Metric(
    "connector_tasks",
    "Tasks of the connector by state.",
    *("tasks", "Connect"),
    (*CAPTURE, "state"),
)
BEAT = Metric(
    "heartbeat_timestamp_seconds",
    "Time of the newest heartbeat in Kafka, by the source's clock.",
    *(_MOMENT, "Kafka"),
    CAPTURE,
)
BEAT_LIMIT = Metric(
    "heartbeat_limit_seconds",
    "Age of the newest heartbeat above which the connector counts as stuck.",
    *(_SECONDS, "tributary.yaml"),
    CAPTURE,
)
PROBLEM = Metric(
    "capture_problem",
    "Whether `status` names a problem of the capture.",
    *(_BOOL, _SERVERS),
    CAPTURE,
)
LOG_BYTES = Metric(
    "log_retained_bytes",
    "Size of the log that the source keeps: for PostgreSQL what the slot holds back, for MySQL and"
    " MariaDB all binlogs.",
    *(_BYTES, "source"),
    CAPTURE,
)
LOG_LIMIT = Metric(
    "log_limit_bytes",
    "The limits of `wal_limit`: from `level` `warn` on `status` warns, from `alarm` on exit codes"
    " show it, and above `give_up` a run drops the slot. A limit that is not set has no series.",
    *(_BYTES, "tributary.yaml"),
    (*CAPTURE, "level"),
)
SLOT_ACTIVE = Metric("slot_active", "Whether a connector reads the slot.", _BOOL, "source", CAPTURE)
SLOT_SAFE = Metric(
    "slot_safe_bytes",
    "Bytes that can be written to the log before the slot can lose changes. Absent if"
    " `max_slot_wal_keep_size` is not set: then the slot fills the disk instead.",
    *(_BYTES, "source"),
    CAPTURE,
)
LOG_DANGER = Metric(
    "log_in_danger",
    "Whether the log may soon lose changes that were not captured.",
    *(_BOOL, "source"),
    CAPTURE,
)

TIER_BEHIND = Metric(
    "tier_events_behind",
    "Sum of `tributary_table_events_behind` over the tier.",
    *("events", "state store, Kafka"),
    ("tier",),
)
TIER_BACKLOG = Metric(
    "tier_backlog_seconds",
    "Predicted time of one worker for the events that wait, as in `plan`.",
    *(_SECONDS, "state store, Kafka"),
    ("tier",),
)
TIER_LOAD = Metric(
    "tier_load_ratio",
    "Part of all workers or cores that the tier needs to keep its targets, as in `plan`.",
    *("ratio", "state store, Kafka"),
    ("tier",),
)
WORKERS = Metric("workers", "`spark.parallel_tables`.", "workers", "tributary.yaml")
ROUND_AT = Metric(
    "round_timestamp_seconds",
    "When the newest round of `run --continuous` ended: it looks for tables with work while workers"
    " run others. Only the process that runs the tables has it, and only rounds that could reach"
    " Kafka and the state store count.",
    *(_MOMENT, "this process"),
)
ROUND_SECONDS = Metric(
    "round_duration_seconds",
    "How long that round took. A new table, or new events, wait for the next round.",
    *(_SECONDS, "this process"),
)
SHORTFALL = Metric(
    "freshness_shortfall_tables",
    'Tables whose freshness target is missed (`missed="true"`) or cannot be kept by prediction,'
    " by the `cause` that `status` names.",
    *("tables", "state store, Kafka"),
    ("cause", "missed"),
)

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Scrape and services", (SUCCESS, UP, READ_AT, READ_SECONDS, BUILD)),
    (
        "Tables",
        (
            *(STATE, WATERMARK, COMPLETE, COMMIT, FRESHNESS, TARGET, LATE, BEHIND),
            *(COMMIT_SECONDS, COMMIT_BYTES, COMMIT_ROWS, COMMIT_BYTES_PER_ROW),
            *(QUARANTINED, ERROR, FAILURES, LOST, ABANDONED, LEASE, LEASE_TAKEN),
            *(RUN_AT, RUN_SECONDS, RUN_COMMITS, RUN_RECORDS, LAKE),
            *(PERIOD_END, PERIOD_DUE, LATE_ROWS),
            *(VERIFY_AT, VERIFY_EQUAL_AT, VERIFY_SECONDS, DRIFT, SHARED_FRESHNESS),
            *(CHECK_OUTCOME, CHECK_FAILED, CHECK_DUE, CHECK_AT, CHECK_PASSED_AT),
            *(TABLES, WITHOUT_TABLES),
        ),
    ),
    ("Readers", (READER_LAG, READER_UNREAD, READER_TARGET, READER_LOST)),
    (
        "Captures",
        (
            *(CONNECTOR_UP, CONNECTOR_STATE, CONNECTOR_TASKS, BEAT, BEAT_LIMIT, PROBLEM),
            *(LOG_BYTES, LOG_LIMIT, LOG_DANGER, SLOT_ACTIVE, SLOT_SAFE),
        ),
    ),
    (
        "Tiers and workers",
        (TIER_BEHIND, TIER_BACKLOG, TIER_LOAD, WORKERS, ROUND_AT, ROUND_SECONDS, SHORTFALL),
    ),
)
"""All metrics, by the sections of docs/observe.md."""
METRICS = tuple(metric for _, metrics in SECTIONS for metric in metrics)
"""All metrics."""


def as_markdown() -> str:
    """Return the part of docs/observe.md that lists every metric."""
    lines: list[str] = []
    for title, metrics in SECTIONS:
        lines += [f"### {title}", "", "| metric | type | labels | unit | read from | meaning |"]
        lines.append("|---|---|---|---|---|---|")
        for one in metrics:
            labels = ", ".join(f"`{label}`" for label in one.labels) or "-"
            lines.append(
                f"| `{one.full_name}` | {one.kind} | {labels} | {one.unit} | {one.read_from} |"
                f" {one.help} |"
            )
        lines.append("")
    return "\n".join(lines)
