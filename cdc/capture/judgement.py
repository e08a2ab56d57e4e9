"""Judges from the evidence alone whether the changes of a capture's tables are captured.

Bootstraps, runs, `check` and `status` all use the findings of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cdc.capture.position_check import Rests, check_stream
from cdc.debezium import keeps_nulls
from cdc.errors import LostHistoryError
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import (
        Answer,
        CaptureEvidence,
        CleanupPolicy,
        ConnectorHealth,
        SignsOfLife,
    )
    from cdc.debezium import CaptureNames
    from cdc.sources.base import SourceLog
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_COPY_AGAIN = "Run `tributary run`, which marks its tables, then `tributary bootstrap` for them."

_ONE_WRITER = (
    "Let only one server write in each GTID domain: set another gtid_domain_id on each server that"
    " takes writes. After a failover, no other domain is needed. Then run `tributary run`, which"
    " marks its tables, then `tributary bootstrap` for them, which recreates the connector."
)


class Severity(Enum):
    """What a finding means for the source's changes, for example that they are lost."""

    LOST = "lost"
    """Changes that were not captured are gone."""
    INCOMPLETE = "incomplete"
    """Changes could be missing from the topics, or could be altered there."""
    WAITING = "waiting"
    """Changes wait in the source's log until an operator acts."""
    UNKNOWN = "unknown"
    """A server does not answer, so it is unknown whether the changes are captured."""
    UNNEEDED = "unneeded"
    """The capture also has tables whose changes nothing reads."""


@dataclass(frozen=True)
class Finding:
    """One problem of a capture that the evidence shows.

    Args:
        severity: What the problem means for the source's changes.
        subject: The object with the problem: a slot, a connector's property, a topic.
        message: The problem, as a sentence that names the subject.
        remedy: What to do.
    """

    severity: Severity
    subject: str
    message: str
    remedy: str


def of_capture(evidence: CaptureEvidence) -> list[Finding]:
    """Return the findings that concern all tables of a capture, first those about the log."""
    return [
        *_log_findings(evidence),
        *_obstacle_findings(evidence),
        *_stranger_findings(evidence),
        *_topic_findings(evidence),
        *_connector_findings(evidence),
        *_unanswered_findings(evidence),
    ]


def of_table(
    evidence: CaptureEvidence,
    table: TableId,
    obstacles: Sequence[str],
    record: TableRecord | None = None,
) -> list[Finding]:
    """Return the findings that concern only one table of a capture.

    `of_capture` returns the findings that concern all tables.

    Args:
        evidence: The evidence of the table's capture.
        table: The table.
        obstacles: The result of `SourceCapture.audit_table` for the table.
        record: The table's record, which shows how the connector sent NULL when the table was
            copied. If the connector now sends NULL differently, there is a finding. None omits this
            comparison.
    """
    subject, connector = f"table {table}", evidence.connector_facts
    remedy = f"Run `tributary onboard {table}`, which adds it; correct by hand what remains."
    problems = list(obstacles)
    if connector is not None and connector.listed is not None and table not in connector.listed:
        problems.append(f"connector {evidence.names.connector} does not list it")
    elif connector is not None and connector.listed is not None:
        # The connector lists the table already, so onboarding has nothing to add.
        remedy = "Correct that on the source, or offboard the table."
    found = [Finding(Severity.INCOMPLETE, subject, problem, remedy) for problem in problems]
    expected = record is not None and record.attempt is not None and record.attempt.nulls_are_kept
    if expected and connector is not None and not keeps_nulls(connector.effective):
        problem = (
            f"connector {evidence.names.connector} sent NULL as NULL when the table was copied, and"
            " now sends the default of a column for its NULL"
        )
        found.append(Finding(Severity.INCOMPLETE, subject, problem, _COPY_AGAIN))
    for topic in evidence.strays.get(table, ()):
        name = evidence.names.connector
        problem = (
            f"changes went to topic {topic}, whose table does not exist: either the schema had"
            f" another name while connector {name} started, or a table that was moved to another"
            f" schema stayed captured and was then dropped. Restart {name}, delete that topic"
        )
        found.append(Finding(Severity.INCOMPLETE, subject, problem, _COPY_AGAIN))
    return found


def follows(record: TableRecord) -> bool:
    """Return whether findings about a capture concern a table.

    Findings concern a table if runs apply the table's stream, or will apply it after `resume`.
    """
    return (record.resume_to or record.state) in (State.CATCHING_UP, State.INCREMENTAL)


def of_stream(
    record: TableRecord, evidence: CaptureEvidence, source: SourceLog
) -> Iterator[Finding]:
    """Yield a finding if changes are missing both in a table's stream and in its lake table.

    Only the evidence is used; no server is queried.

    Args:
        record: The table.
        evidence: The evidence of the table's capture.
        source: The table's source, which parses positions.
    """
    answers = (evidence.server, evidence.log)
    if not follows(record) or any(isinstance(answer, TributaryError) for answer in answers):
        return
    try:
        check_stream(record.table, Rests.of(record), evidence, source)
    except LostHistoryError as lost:
        if isinstance(evidence.lost, str) and evidence.lost in lost.message:
            return  # `of_capture` has it, for all tables
        yield Finding(Severity.LOST, f"table {record.table}", lost.message, lost.remedy)


def of_topic(topic: str, policy: CleanupPolicy) -> Iterator[Finding]:
    """Yield a finding if a captured topic is compacted: compaction can drop unread changes."""
    if policy.compacted:
        spared = policy.lagging
        yield Finding(
            Severity.INCOMPLETE,
            f"topic {topic}",
            f"topic {topic} has cleanup.policy={policy.policy}"
            + ("" if spared else ", so deletes and older changes may be gone from it"),
            f"Set cleanup.policy=delete on topic {topic}." + ("" if spared else f" {_COPY_AGAIN}"),
        )


def why_silent(
    names: CaptureNames, health: Answer[ConnectorHealth | None], life: SignsOfLife | None
) -> Finding | None:
    """Return a finding with the reason if a capture sends no changes; None if it sends changes.

    A topic without new records does not prove that the capture is silent, because the topic's table
    may have had no changes.

    Args:
        names: The capture.
        health: The state of the capture's connector; None if the connector does not exist.
        life: Whether the connector sends changes; None if the caller does not know. Then only
            ``health`` decides.
    """
    name = f"connector {names.connector}"
    if isinstance(health, TributaryError):
        what, remedy = f"Kafka Connect does not answer ({health.message})", health.remedy
        return _finding_of_silence(name, what, life, remedy)
    if health is None:
        what = f"there is no {name}, and changes wait in the source's log"
        remedy = (
            "Run `tributary onboard` for one of its tables, or `tributary move` for one that moves,"
            " which creates it."
        )
        return Finding(Severity.WAITING, name, what, remedy)
    if health.failure is not None:
        return Finding(Severity.WAITING, name, health.failure, health.remedy)
    if health.paused_or_stopped:
        remedy = "To resume it, run `tributary retry` for one of its tables."
        return Finding(Severity.WAITING, name, f"{name} is {health.status.state}", remedy)
    return _finding_of_silence(
        name, f"{name} {'runs' if health.running else f'is {health.states}'}", life
    )


def _finding_of_silence(
    name: str, what: str, life: SignsOfLife | None, remedy: str = ""
) -> Finding | None:
    """Return a finding if a capture's connector sends nothing, although it has not failed.

    Args:
        name: The subject of the finding, as ``connector NAME``.
        what: The connector's state in words, for the beginning of the finding's message.
        life: Whether the connector sends changes; None if the caller does not know this.
            Then the result is also None.
        remedy: The remedy; if it is empty, the finding has the remedy in ``life``.
    """
    if life is None or life.sends:
        return None
    if life.beat_age_s is None:
        last = f"topic {life.topic} holds no heartbeat"
    else:
        age = life.beat_age_s
        when = f"{age:,.0f} s old" if age >= 0 else f"dated {-age:,.0f} s ahead of this clock"
        last = f"its last heartbeat in topic {life.topic} is {when}"
    return Finding(Severity.WAITING, name, f"{what}, and {last}", remedy or life.remedy)


def stopping(findings: Sequence[Finding]) -> list[str]:
    """Return the messages of the findings that make runs stop a capture's tables."""
    grave = (Severity.LOST, Severity.INCOMPLETE)
    return [finding.message for finding in findings if finding.severity in grave]


def _log_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield the findings about the source's log in a capture's evidence."""
    log = evidence.log
    if isinstance(log, TributaryError):
        return
    known = evidence.continuity
    broken = None if known is None or isinstance(known, TributaryError) else known.lost
    for problem in (evidence.lost, evidence.unreadable, broken):
        if isinstance(problem, str):
            yield Finding(Severity.LOST, log.title, f"{log.title} {problem}", _COPY_AGAIN)
    if log.danger is not None:
        remedy = "Raise max_slot_wal_keep_size on the server, or let the connector catch up."
        yield Finding(Severity.WAITING, log.title, f"{log.title} {log.danger}", remedy)


def _obstacle_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield a finding for each of the ``obstacles`` in a capture's evidence."""
    if isinstance(evidence.obstacles, TributaryError):
        return
    for obstacle in evidence.obstacles:
        remedy = f"Correct that on the source. {_COPY_AGAIN}"
        yield Finding(Severity.INCOMPLETE, _capture_title(evidence), obstacle, remedy)


def _stranger_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield a finding if a capture's topic has heartbeats of another installation."""
    if evidence.beats.strangers is not None:
        source = evidence.names.source
        yield Finding(
            Severity.INCOMPLETE,
            f"topic {evidence.names.heartbeat_topic}",
            evidence.beats.strangers,
            "Give the installation that came later topics of its own: delete its connector, and set"
            f" another topic_prefix for source {source} there. Wait some minutes until this is no"
            f" longer reported, since earlier heartbeats are still read. {_COPY_AGAIN}",
        )


def _topic_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield a finding for each captured topic that is compacted and can have lost records."""
    if isinstance(evidence.topics, TributaryError):
        return
    for topic, policy in evidence.topics.items():
        # If a topic's compaction lag keeps all records, the topic still has what runs need.
        if not policy.lagging:
            yield from of_topic(topic, policy)


def _connector_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield findings about the settings, owner, skipped definitions and state of a connector."""
    name, connector = f"connector {evidence.names.connector}", evidence.connector_facts
    for wrong in () if connector is None else connector.wrong:
        yield Finding(
            Severity.INCOMPLETE,
            f"{name}: {wrong.property}",
            f"{name}: {wrong}",
            "Correct it in connect.connector. Then `tributary run` marks the tables whose changes"
            " it may have altered or kept from their topics, and `tributary bootstrap` for them"
            " corrects the connector.",
        )
    if connector is not None and (other := connector.other_owner) is not None:
        yield Finding(Severity.WAITING, name, other.message, other.remedy)
    if isinstance(evidence.skipped, str):
        yield Finding(Severity.INCOMPLETE, name, evidence.skipped, _ONE_WRITER)
    health, life = evidence.health, evidence.life
    silent = why_silent(evidence.names, health, None if isinstance(life, TributaryError) else life)
    if silent is not None:
        yield silent
    elif health is not None and not isinstance(health, TributaryError) and not health.running:
        # Connect is about to start the connector, or has no worker for it.
        remedy = "Wait until it runs; if it does not, see the log of Kafka Connect's workers."
        yield Finding(Severity.WAITING, name, f"{name} is {health.states}", remedy)


def _unanswered_findings(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Yield a finding for each error of a server in a capture's evidence."""
    for error in evidence.errors:
        yield Finding(Severity.UNKNOWN, _capture_title(evidence), error.message, error.remedy)


def _capture_title(evidence: CaptureEvidence) -> str:
    """Return the subject of findings about a whole capture, as ``capture SOURCE/TIER``."""
    return f"capture {evidence.names.source}/{evidence.names.tier}"
