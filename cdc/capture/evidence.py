"""The facts that decide whether a source's changes are captured.

`cdc.capture.gathering` gathers them once per capture, and `cdc.capture.judgement` judges them. A
server that does not answer is a fact, too: its error is in place of the answer, so that the answers
of the other servers are still judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.connect import ConnectorStatus
    from cdc.debezium import CaptureNames, DefinitionChange, Finding
    from cdc.log.position import LogPosition
    from cdc.sources.source_facts import LogHealth, ServerIdentity
    from schemas.table import TableId

T = TypeVar("T")
Answer: TypeAlias = T | TributaryError
"""What a server reports, or why it does not."""


def known(answer: Answer[T]) -> T:
    """Return what a server has reported.

    Raises:
        TributaryError: It did not answer.
    """
    if isinstance(answer, TributaryError):
        raise answer
    return answer


@dataclass(frozen=True)
class CleanupPolicy:
    """What Kafka removes from a topic besides what has expired.

    Args:
        policy: Its ``cleanup.policy``.
        lagging: Whether compaction spares every record, even the oldest.
    """

    policy: str
    lagging: bool

    @property
    def compacted(self) -> bool:
        """Whether Kafka may drop a record because a later one has its key."""
        return "compact" in self.policy


@dataclass(frozen=True)
class ConnectorHealth:
    """The state of a connector and its tasks.

    Args:
        status: The state, as Kafka Connect has it.
        failure: What failed and why, in one line without secrets; None if nothing has.
        remedy: What to do about the failure; empty without one.
    """

    status: ConnectorStatus
    failure: str | None = None
    remedy: str = ""

    @property
    def running(self) -> bool:
        """Whether the connector and all of its tasks run."""
        return self.status.running

    @property
    def asleep(self) -> bool:
        """Whether somebody has paused or stopped it."""
        return self.status.state in ("PAUSED", "STOPPED")

    @property
    def states(self) -> str:
        """The states of the connector and its tasks."""
        tasks = ", ".join(f"task {task.id} {task.state}" for task in self.status.tasks)
        return f"{self.status.state} with {tasks or 'no task'}"


@dataclass(frozen=True)
class SignsOfLife:
    """What shows whether a connector sends changes.

    Args:
        topic: The topic of its heartbeats.
        beat_age_s: Age of the newest heartbeat in seconds, negative if it is dated ahead of this
            clock; None if the topic holds none.
        sends: Whether a heartbeat or another record came lately. A heartbeat is a row of the log,
            so changes come without one while the connector sends a long transaction or a backlog.
        remedy: What to do if it sends nothing.
    """

    topic: str
    beat_age_s: float | None
    sends: bool
    remedy: str


@dataclass(frozen=True)
class ConnectorFacts:
    """A connector as Kafka Connect has it.

    Args:
        effective: Its configuration, with references in place of secrets.
        wrong: Its settings with which changes are lost or altered.
        listed: The tables in its include list; None if a publication selects the tables.
        health: The state of the connector and its tasks; None if it was deleted meanwhile.
    """

    effective: Mapping[str, str]
    wrong: tuple[Finding, ...]
    listed: frozenset[TableId] | None
    health: ConnectorHealth | None

    @property
    def running(self) -> bool:
        """Whether the connector and all of its tasks run."""
        return self.health is not None and self.health.running


@dataclass(frozen=True)
class CaptureEvidence:
    """How one source and tier is captured at one moment.

    Args:
        names: Its publication, slot and connector.
        log: The source's log, as this capture depends on it.
        lost: Why changes that were not captured are gone from the log; None if none are.
        unreadable: Why the kept log cannot be read further; None if it can.
        obstacles: Why changes of all tables are not captured in full, one sentence each.
        server: The primary.
        topics: The cleanup policies of the topics with facts that no event of a table shows.
        connector: The connector; None if there is none.
        stored: The position that Connect has stored, read after the log; None if there is none.
        statements: The changes of definitions that the connector reports; empty if its kind reports
            none, or they were not asked for.
        starts: The offsets in their topic at which it started without a stored position.
        life: Whether the connector sends changes; None if that was not asked for.
        strays: By table, the topics with its name that no table has; only runs look for them.
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
    statements: Answer[tuple[DefinitionChange, ...]] = ()
    starts: tuple[int, ...] = ()
    life: Answer[SignsOfLife | None] = None
    strays: Mapping[TableId, Sequence[str]] = field(default_factory=dict)

    @property
    def errors(self) -> list[TributaryError]:
        """The errors of the servers that did not answer, each once."""
        answers: tuple[Answer[object], ...] = (
            *(self.log, self.lost, self.unreadable, self.obstacles, self.server),
            *(self.topics, self.life, self.statements, self.connector, self.stored),
        )
        found = [answer for answer in answers if isinstance(answer, TributaryError)]
        return list({id(error): error for error in found}.values())

    def require_answers(self) -> None:
        """Check that every server has answered.

        Raises:
            TributaryError: The first error of a server.
        """
        for error in self.errors:
            raise error

    @property
    def connector_facts(self) -> ConnectorFacts | None:
        """The connector, or None if there is none or Connect does not answer."""
        return None if isinstance(self.connector, TributaryError) else self.connector

    @property
    def health(self) -> Answer[ConnectorHealth | None]:
        """The state of the connector; None if there is none."""
        facts = self.connector
        return facts.health if isinstance(facts, ConnectorFacts) else facts

    @property
    def stored_position(self) -> LogPosition | None:
        """The position that Connect has stored, or None if there is none or it is not known."""
        return None if isinstance(self.stored, TributaryError) else self.stored
