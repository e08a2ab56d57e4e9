"""The facts that decide whether a source's changes are captured.

`cdc.capture.gathering` gathers the facts once per capture, and `cdc.capture.judgement` judges them.
If a server does not answer, the evidence has the server's error in place of the answer. The answers
of the other servers are judged nevertheless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.connect import ConnectorStatus
    from cdc.debezium import CaptureNames, Heartbeat, ReportedStatements, SettingFinding
    from cdc.errors import OtherConnectorError
    from cdc.kafka import KafkaRecord
    from cdc.log.continuity import Continuity
    from cdc.log.position import LogPosition
    from cdc.sources.log_health import LogHealth
    from cdc.sources.sent_table import SentTable
    from cdc.sources.source_facts import ServerIdentity
    from schemas.table import TableId

T = TypeVar("T")
Answer: TypeAlias = T | TributaryError
"""The answer of a server, or its error if the server does not answer."""


def known(answer: Answer[T]) -> T:
    """Return a server's answer from a capture's evidence, or raise the server's error.

    Raises:
        TributaryError: The server did not answer.
    """
    if isinstance(answer, TributaryError):
        raise answer
    return answer


@dataclass(frozen=True)
class CleanupPolicy:
    """The cleanup policy of a captured topic.

    Args:
        policy: The topic's ``cleanup.policy``.
        lagging: Whether ``min.compaction.lag.ms`` is so long that compaction never removes a
            record.
    """

    policy: str
    lagging: bool

    @property
    def compacted(self) -> bool:
        """Whether Kafka can drop a record because a later record has the same key."""
        return "compact" in self.policy


@dataclass(frozen=True)
class ConnectorHealth:
    """The state of a capture's connector and its tasks.

    Args:
        status: The state in Kafka Connect.
        failure: The failure and its cause, in one line without secrets; None if nothing failed.
        remedy: The remedy of the failure; empty if nothing failed.
    """

    status: ConnectorStatus
    failure: str | None = None
    remedy: str = ""

    @property
    def running(self) -> bool:
        """Whether the capture's connector and all of its tasks run."""
        return self.status.running

    @property
    def paused_or_stopped(self) -> bool:
        """Whether an operator has paused or stopped the capture's connector."""
        return self.status.state in ("PAUSED", "STOPPED")

    @property
    def states(self) -> str:
        """The states of the capture's connector and its tasks, in one line for messages."""
        tasks = ", ".join(f"task {task.id} {task.state}" for task in self.status.tasks)
        return f"{self.status.state} with {tasks or 'no task'}"


@dataclass(frozen=True)
class SignsOfLife:
    """Whether a capture's connector sends changes, and the age of its newest heartbeat.

    Args:
        topic: The topic of the connector's heartbeats.
        beat_age_s: Age of the newest heartbeat in seconds; None if the topic has no heartbeat.
            Negative if the heartbeat's time is ahead of this machine's clock.
        sends: Whether a heartbeat or another record was sent recently. A heartbeat is a change in
            the source's log, so the connector sends a heartbeat only after all earlier changes.
            While the connector sends a backlog, only the backlog's records show that the connector
            works.
        remedy: What to do if the connector sends nothing.
    """

    topic: str
    beat_age_s: float | None
    sends: bool
    remedy: str


@dataclass(frozen=True)
class Beats:
    """A capture's newest heartbeats in Kafka.

    Args:
        newest: The newest heartbeat; None if there is none, or if it could not be read.
        record: The Kafka record of the newest heartbeat; None if ``newest`` is None.
        strangers: How the heartbeats show that another installation writes to the same topics; None
            if the heartbeats show no other installation.
        trouble: Why the heartbeats could not be read; None if they could be read.
    """

    newest: Heartbeat | None = None
    record: KafkaRecord | None = None
    strangers: str | None = None
    trouble: TributaryError | None = None


@dataclass(frozen=True)
class ConnectorFacts:
    """The configuration and the state of a capture's connector, as Kafka Connect reports them.

    Args:
        effective: The connector's configuration, with references in place of secrets.
        wrong: The connector's settings that can make the connector lose or alter changes.
        listed: The tables in the connector's include list; None if a publication selects the
            tables.
        health: The state of the connector and its tasks; None if the connector was deleted right
            after its configuration was read.
        other_owner: The error to raise if another installation made the connector, else None.
    """

    effective: Mapping[str, str]
    wrong: tuple[SettingFinding, ...]
    listed: frozenset[TableId] | None
    health: ConnectorHealth | None
    other_owner: OtherConnectorError | None = None

    @property
    def running(self) -> bool:
        """Whether the capture's connector and all of its tasks run."""
        return self.health is not None and self.health.running


@dataclass(frozen=True)
class CaptureEvidence:
    """The facts about one capture at one moment.

    Args:
        names: The names of the capture's publication, slot and connector.
        log: The health of the source's log for this capture.
        lost: Why uncaptured changes are gone from the source's log; None if no change is gone.
        continuity: The result of comparing the end of the source's log with the end that the
            previous comparison recorded (`LogLooks`); None if the ends were not compared.
        unreadable: Why the connector cannot continue in the log that the source retains; None if
            the connector can continue.
        obstacles: Reasons why the changes of every table of the capture may be incomplete, one
            sentence each.
        server: The identity of the primary.
        topics: The cleanup policies of the capture's `evidence_topics`, as a mapping from topic to
            policy. A record that is deleted from one of these topics is lost, because it is stored
            nowhere else.
        connector: The connector's configuration and state; None if the connector does not exist.
        stored: The position that Connect has stored for the connector, or a later position up to
            which Kafka has all changes (`SentRecords`); None if Connect has stored no position.
            Connect's position is read after ``log``, as `LogHealth.problem` requires.
        statements: The DDL statements that the connector has reported; None if this kind of
            connector reports no statements, or if the caller did not request them.
        starts: One offset for each start of the connector at which Connect had no stored
            position. It is the offset of the first record after this start in the topic of DDL
            statements.
        life: Whether the connector sends changes; None if the caller did not request this fact.
        skipped: Why the connector will skip a table definition of its schema history at its next
            start; None if the connector will skip no definition, or if the caller did not request
            the statements.
        members: The tables that were added to the publication one by one, each with the statement
            that removes the table; empty for a source without publications.
        strays: By table, the topics to which the connector sent the table's changes because the
            table's schema was renamed (`cdc.capture.stray_topics`). Only runs search for these.
        beats: The newest heartbeats. A failure to read them is no finding about the capture.
    """

    names: CaptureNames
    log: Answer[LogHealth]
    lost: Answer[str | None]
    unreadable: Answer[str | None]
    obstacles: Answer[tuple[str, ...]]
    server: Answer[ServerIdentity]
    topics: Answer[Mapping[str, CleanupPolicy]]
    connector: Answer[ConnectorFacts | None]
    stored: Answer[LogPosition | None]
    statements: Answer[ReportedStatements | None] = None
    starts: tuple[int, ...] = ()
    life: Answer[SignsOfLife | None] = None
    continuity: Answer[Continuity | None] = None
    skipped: Answer[str | None] = None
    members: Answer[Mapping[TableId, SentTable]] = field(default_factory=dict)
    strays: Mapping[TableId, Sequence[str]] = field(default_factory=dict)
    beats: Beats = field(default_factory=Beats)

    @classmethod
    def unanswered(cls, names: CaptureNames, error: TributaryError) -> CaptureEvidence:
        """Return the evidence of a capture about which no server has answered.

        Args:
            names: The capture's publication, slot and connector.
            error: Why no server has answered.
        """
        facts: dict[str, Any] = dict.fromkeys(_answer_fields(), error)
        return cls(names, **facts)

    @property
    def errors(self) -> list[TributaryError]:
        """The errors of the servers that did not answer, without duplicates."""
        answers = [getattr(self, name) for name in _answer_fields()]
        found = [answer for answer in answers if isinstance(answer, TributaryError)]
        return list({id(error): error for error in found}.values())

    def require_answers(self) -> None:
        """Check that every server has answered for the capture's evidence.

        Raises:
            TributaryError: The first error in `errors`.
        """
        for error in self.errors:
            raise error

    @property
    def connector_facts(self) -> ConnectorFacts | None:
        """The connector's configuration and state.

        None if the connector does not exist or Connect does not answer.
        """
        return None if isinstance(self.connector, TributaryError) else self.connector

    @property
    def health(self) -> Answer[ConnectorHealth | None]:
        """The state of the capture's connector; None if the connector does not exist.

        If Connect does not answer, the value is Connect's error.
        """
        facts = self.connector
        return facts.health if isinstance(facts, ConnectorFacts) else facts

    @property
    def stored_position(self) -> LogPosition | None:
        """The capture's stored position; None if Connect has stored none or does not answer."""
        return None if isinstance(self.stored, TributaryError) else self.stored


def _answer_fields() -> list[str]:
    """Return the names of the fields of `CaptureEvidence` that can have a server's error."""
    return [one.name for one in fields(CaptureEvidence) if str(one.type).startswith("Answer[")]
