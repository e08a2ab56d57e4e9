"""What ``status`` asks Kafka, Kafka Connect and the sources, and what these servers answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from cdc.capture.server_queries import ServerOpeners
from cdc.errors import KafkaError
from cdc.store.table_state import State
from operate.bounded_calls import BoundedCalls, result
from operate.first_events import FirstEvents
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import CaptureEvidence
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.sources.base import Source
    from cdc.store.table_state import TableRecord
    from operate.context import Services

T = TypeVar("T")
_CONNECTORS_S = 10.0
"""Maximum wait for connectors' names, in seconds; shorter than the wait of Connect's client."""


@dataclass(frozen=True)
class CaptureAnswer:
    """What the servers answered about one capture.

    Args:
        evidence: The capture's evidence. If a server did not answer, the evidence has the error.
        beat_at: Time of the newest heartbeat in Kafka; None if there is none, or if it could not be
            read.
        trouble: Why the heartbeat could not be read; None if it could be read.
    """

    evidence: CaptureEvidence
    beat_at: datetime | None
    trouble: str | None


class Answers:
    """Asks the servers what ``status`` needs; the servers' clients limit the waits.

    Args:
        services: The services of the command.
        first_events: The times of changes that wait in topics, as earlier calls have read them.

    Attributes:
        known_ends: The newest result of `ends` for each topic; None before `ends` is called.
    """

    def __init__(self, services: Services, first_events: FirstEvents | None = None) -> None:
        self.services = services
        self.first_events = FirstEvents() if first_events is None else first_events
        self.known_ends: Mapping[str, Mapping[int, int] | TributaryError] | None = None

    def source(self, name: str) -> Source:
        """Return the source with this name."""
        return self.services.source(name)

    def kafka(self) -> KafkaAdmin:
        """Return the client of the Kafka cluster."""
        return self.services.kafka

    def connect(self) -> ConnectClient:
        """Return the client of Kafka Connect."""
        return self.services.connect

    def connectors(self) -> list[str]:
        """Return the names of all connectors in Kafka Connect.

        Raises:
            TributaryError: Connect does not answer within some seconds.
        """
        connect = self.connect()
        call = BoundedCalls().start("connectors", connect.names)
        return result(call, "Kafka Connect", time.monotonic() + _CONNECTORS_S)

    def captures(self, captures: Sequence[CaptureNames]) -> list[CaptureAnswer]:
        """Return the servers' answers about each capture, in the order of the argument."""
        return [self.capture(names) for names in captures]

    def capture(self, names: CaptureNames) -> CaptureAnswer:
        """Return the servers' answers about one capture."""
        servers = ServerOpeners(lambda: self.source(names.source), self.kafka, self.connect)
        evidence = self.services.stream_evidence(names, servers)
        beat, trouble = evidence.beats.newest, evidence.beats.trouble
        return CaptureAnswer(
            evidence,
            None if beat is None else beat.beat_at,
            None if trouble is None else trouble.message,
        )

    def ends(self, topics: Iterable[str]) -> Mapping[str, Mapping[int, int] | TributaryError]:
        """Return the end offsets of topics, as a mapping from each topic to offsets by partition.

        If a topic cannot be read, the result has an error in place of its offsets.

        The end offsets include records of open Kafka transactions, although no consumer can read
        these records yet. If the offsets left them out, a table that lacks such records would seem
        complete up to the newest heartbeat.

        Raises:
            TributaryError: Kafka does not answer.
        """
        wanted, found = list(topics), dict[str, dict[int, int] | KafkaError]()
        if wanted:
            kafka = self.kafka()
            found = self.within(
                "the ends of topics", lambda: kafka.ends_now(wanted, committed=False)
            )
            self.known_ends = {**(self.known_ends or {}), **found}
        return found

    def within(self, what: str, work: Callable[[], T], *, at_most_s: float | None = None) -> T:
        """Call ``work``, which asks servers; return its result.

        Args:
            what: What is asked for, in words for errors.
            work: Asks the servers.
            at_most_s: Limit for the wait, in seconds. By default, only the servers' clients limit
                the wait.

        Raises:
            Overdue: The answer is later than ``at_most_s``.
            TributaryError: A server does not answer.
        """
        if at_most_s is None:
            return work()
        return result(BoundedCalls().start(what, work), what, time.monotonic() + at_most_s)


def end_offsets(
    answers: Answers, records: Sequence[TableRecord]
) -> tuple[Mapping[str, Mapping[int, int] | TributaryError], str | None]:
    """Return the end offsets of tables' topics, or the reason why Kafka did not answer.

    Returns:
        The end offsets, and None as the reason. A topic that cannot be read has an error in place
        of its offsets. If Kafka does not answer, an empty mapping and the error's message.
    """
    try:
        return answers.ends(one.topic for one in records if one.state is not State.RETIRED), None
    except TributaryError as error:
        return {}, error.message
