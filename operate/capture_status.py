"""The status of captures: logs of sources, connectors and heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc.capture.judgement import of_capture
from cdc.capture.log_limits import over_limit
from cdc.capture.unneeded_tables import of_unneeded
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.captured_tables import CapturedTables
    from cdc.capture.evidence import ConnectorHealth
    from cdc.capture.log_limits import OverLimit
    from cdc.sources.log_health import LogHealth
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from operate.server_answers import CaptureAnswer
    from schemas.table import TableId


@dataclass(frozen=True)
class CaptureStatus:
    """The status of a capture: its source's log, its connector, and its newest heartbeat.

    Args:
        source: The source.
        tier: The tier.
        log: The state of the source's log; None if the source could not be queried.
        connector: ``running``, ``not running`` or ``missing``; None if Connect did not answer.
        beat_at: Time of the newest heartbeat in Kafka, by the source's clock. The connector has
            read all source transactions that committed before this time. None if there is no
            heartbeat, or if it could not be read.
        problem: The capture's problems, joined into one string; None if there is no problem.
        health: The states of the connector and its tasks; None if the connector does not exist, or
            if Connect did not answer.
        over_limit: The limit in ``wal_limit`` that the retained log exceeds; None if the log
            exceeds no limit, or if its size is not known.
        moving: The tables that join or leave the capture in a move that is not finished.
        warning: What an operator should correct although no row change is in danger, and the
            remedy; None if there is nothing to correct.
    """

    source: str
    tier: str
    log: LogHealth | None
    connector: str | None
    beat_at: datetime | None
    problem: str | None
    health: ConnectorHealth | None = None
    over_limit: OverLimit | None = None
    moving: tuple[TableId, ...] = ()
    warning: str | None = None

    @property
    def place(self) -> str:
        """Source and tier, as ``shop/default``."""
        return f"{self.source}/{self.tier}"

    @property
    def silent_s(self) -> float | None:
        """Seconds since the newest heartbeat, for ``status``; None if no heartbeat is known."""
        if self.beat_at is None:
            return None
        return max(0.0, (datetime.now(timezone.utc) - self.beat_at).total_seconds())

    @property
    def alarms(self) -> bool:
        """Whether the capture retains so much log that the exit codes of commands report this."""
        return self.over_limit is not None and self.over_limit.alarms

    def to_json(self) -> dict[str, Any]:
        """The capture's status as plain values."""
        return {
            "source": self.source,
            "tier": self.tier,
            "log": None if self.log is None else {"name": self.log.title, **self.log.facts()},
            "connector": self.connector,
            "tasks": [] if self.health is None else [one.state for one in self.health.status.tasks],
            "heartbeat_age_s": self.silent_s,
            "problem": self.problem,
            "over_limit": None if self.over_limit is None else self.over_limit.to_json(),
            "moving": [str(table) for table in self.moving],
            "warning": self.warning,
        }


def capture_status(
    store: Store,
    answer: CaptureAnswer,
    of: CapturedTables,
    limits: Mapping[str, int],
    before: Iterable[TableRecord],
) -> CaptureStatus:
    """Return the status of one capture from its evidence and its newest heartbeat.

    Args:
        store: The state store.
        answer: What the servers answered about the capture.
        of: The capture and its tables.
        limits: The source's limits of the retained log in bytes, by the names of their settings.
        before: The records of all tables, as they were read before the servers were asked.
    """
    evidence = answer.evidence
    findings = [of.attributed(finding) for finding in of_capture(evidence)]
    problems = [finding.message for finding in findings]
    problems += [] if answer.trouble is None else [answer.trouble]
    unneeded = of_unneeded(store, evidence, before)
    if (lost := unneeded.forgotten) is not None:
        problems.append(f"{lost.message}. {lost.remedy}")
    renamed = unneeded.renamed
    connector = None
    if not isinstance(evidence.connector, TributaryError):
        facts = evidence.connector
        connector = "missing" if facts is None else "running" if facts.running else "not running"
    log = None if isinstance(evidence.log, TributaryError) else evidence.log
    return CaptureStatus(
        evidence.names.source,
        evidence.names.tier,
        log,
        connector,
        answer.beat_at,
        "; ".join(problems) or None,
        None if isinstance(evidence.health, TributaryError) else evidence.health,
        None if log is None else over_limit(evidence.names, log, limits),
        tuple(sorted(record.table for record in of.moving)),
        None if renamed is None else f"{renamed.message}. {renamed.remedy}",
    )
