"""Finds captures that send no changes, and restarts failed or disconnected connectors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc.capture.captured_tables import captures_of, listed
from cdc.capture.connector_activity import any_lately, lost_connection, signs
from cdc.capture.gathering import health
from cdc.capture.judgement import Finding, Severity, why_silent
from cdc.capture.recovery import (
    disconnected,
    explained,
    lost_before_restart,
    restart_connector,
)
from cdc.errors import ConnectError, KafkaError, LeaseHeldError, StateError
from cdc.store.connector_restarts import Restarts
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.captured_tables import CapturedTables
    from cdc.capture.evidence import ConnectorHealth, SignsOfLife
    from cdc.capture.recovery import FailedConnector
    from cdc.debezium import CaptureNames
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)

UNREAD = frozenset({State.RETIRED, State.NEEDS_BOOTSTRAP})
"""States of tables that need no changes from their capture."""


@dataclass(frozen=True)
class Silence:
    """A capture that sends no changes.

    Args:
        capture: The capture.
        tables: The tables that get no changes.
        reason: Why the capture sends no changes.
        remedy: What to do.
        moving: The tables whose move to another tier is not finished: the tables' next generations
            (new images in the lake) get no changes, or the tables have not left this capture yet.
        unknown: True if a server did not answer, so the capture may send changes after all.
    """

    capture: CaptureNames
    tables: tuple[TableId, ...]
    reason: str
    remedy: str
    moving: tuple[TableId, ...] = ()
    unknown: bool = False

    @property
    def message(self) -> str:
        """The message for an operator: the names of the tables, and why the capture is silent."""
        if not self.tables:
            return self.reason  # names the tables that move
        if self.unknown:
            return f"{self.reason}; it may be that no changes come for {listed(self.tables)}"
        waits = f", and the move of {listed(self.moving)} waits" if self.moving else ""
        return f"{self.reason}; until then no changes come for {listed(self.tables)}{waits}"

    def to_json(self) -> dict[str, Any]:
        """Return the capture, its tables, the reason and the remedy as values for JSON."""
        return {
            "source": self.capture.source,
            "tier": self.capture.tier,
            "connector": self.capture.connector,
            "message": self.message,
            "remedy": self.remedy,
            "tables": [str(table) for table in self.tables],
            "moving": [str(table) for table in self.moving],
        }


def silences(context: RunContext, records: Iterable[TableRecord]) -> list[Silence]:
    """Return the tables' captures that send no changes, or perhaps send none.

    The call also restarts connectors that have failed or have lost their connection. A topic that
    cannot be read, or a server that does not answer, affects only the captures that need this topic
    or server.

    Args:
        context: The runs' context. If it has no client of Connect, only the records in Kafka are
            checked.
        records: The tables.

    Raises:
        StateError: The state store cannot be used.
    """
    watched = [*map(_watched_capture, captures_of(context.config, records))]
    topics = [one.names.heartbeat_topic for one in watched]
    try:
        beats = context.kafka.newest_times_each(topics)
    except KafkaError as error:
        beats = dict.fromkeys(topics, error)
    return list(_Watch(context, beats).silences(watched))


def _watched_capture(capture: CapturedTables) -> CapturedTables:
    """Return a capture without the tables that follow it and must be copied again.

    If all tables that follow the capture must be copied again, the result has all these tables. So
    the capture is still watched: the slot of a failed connector holds back the primary's log.
    """
    needing = tuple(record for record in capture.followed if record.state not in UNREAD)
    return replace(capture, followed=needing or capture.followed)


def _is_unread(capture: CapturedTables) -> bool:
    """Return whether all tables that follow a capture must be copied again."""
    return all(record.state in UNREAD for record in capture.followed)


def _sorted_tables(records: Iterable[TableRecord]) -> tuple[TableId, ...]:
    """Return the tables of a watched capture's records, in order."""
    return tuple(sorted(record.table for record in records))


class _Watch:
    """One check of the captures of a run's tables.

    Args:
        context: The runs' context.
        beats: For each heartbeat topic, the time of the newest heartbeat, or the error of reading
            the topic.
    """

    def __init__(self, context: RunContext, beats: Mapping[str, datetime | KafkaError]) -> None:
        self._context = context
        self._beats = beats
        self._restarts = Restarts(context.store)
        self._away: ConnectError | None = None
        self._former_ends = dict(context.topic_ends)
        context.topic_ends.clear()

    def silences(self, captures: Iterable[CapturedTables]) -> Iterator[Silence]:
        """Yield the captures that send no changes, or perhaps send none.

        The method also restarts failed and disconnected connectors.

        Args:
            captures: The captures.
        """
        for one in captures:
            capture = one.names
            try:
                silences = self._judged(capture)
                if silences is not None:
                    # A process that changes the capture holds this lease. Such a process can have
                    # stopped the connector for a moment.
                    with self._context.leases.hold(capture.resource):
                        silences = self._judged(capture, restart=True)
            except LeaseHeldError as held:
                _log.info("connector %s was not restarted: %s", capture.connector, held)
                continue
            except StateError:
                raise
            except TributaryError as error:
                silences = _unknown_finding(capture, error)
            if silences is not None:
                finding = one.attributed(silences)
                tables, moving = _sorted_tables(one.followed), _sorted_tables(one.moving)
                unknown = finding.severity is Severity.UNKNOWN
                remedy = finding.remedy
                if one.followed and not unknown and _is_unread(one):
                    # `retry` is refused for them: only a copy begins with the changes from now on.
                    names = " ".join(map(str, tables))
                    remedy = f"Run `tributary bootstrap {names}`, which repairs the capture first."
                silent = Silence(capture, tables, finding.message, remedy, moving, unknown)
                _log.warning("%s", silent.message)
                yield silent

    def _judged(self, capture: CaptureNames, *, restart: bool = False) -> Finding | None:
        """Return a finding with the reason if a capture sends no changes; None if it sends changes.

        If a topic cannot be read, only the connector's state is judged. If the state does not
        explain a silence, the finding says that it is not known whether the capture sends changes.

        Args:
            capture: The capture.
            restart: Whether to restart the connector if it has failed or lost its connection.
        """
        name, state = capture.connector, self._health(capture.connector)
        try:
            silences = why_silent(capture, state, self._signs_of_life(capture))
        except KafkaError as error:
            silences = why_silent(capture, state, None) or _unknown_finding(capture, error)
        if state is None or isinstance(state, ConnectError):
            return silences
        failed = self._failure(capture, state)
        if failed is None:
            if state.running and silences is None:
                self._restarts.forget_if_stable(name)
            return silences
        if restart:
            connect = self._context.connected()
            lost = partial(self._lost, capture)
            failed = restart_connector(connect, self._restarts, name, failed, lost)
        return Finding(Severity.WAITING, f"connector {name}", failed.reason, failed.remedy)

    def _lost(self, capture: CaptureNames) -> str | None:
        """Return why the connector must not be restarted; None if a restart is safe."""
        return lost_before_restart(
            self._context.sources[capture.source].capture(capture),
            self._context.connected(),
            capture,
            self._context.sent,
        )

    def _failure(self, capture: CaptureNames, state: ConnectorHealth) -> FailedConnector | None:
        """Return a connector's failure or lost connection, both of which a restart can repair.

        The result is None if the connector has neither.
        """
        trace, context = state.status.failure, self._context
        if trace is not None:
            return explained(capture.connector, trace)
        lost = state.running and lost_connection(context.kafka, context.config, capture)
        return disconnected(capture) if lost else None

    def _health(self, name: str) -> ConnectorHealth | ConnectError | None:
        """Return the state of a connector; None if the connector does not exist.

        If Connect does not answer, this call and all later calls return Connect's error. The later
        calls send no request.
        """
        if self._away is not None:
            return self._away
        try:
            return health(self._context.connected().status(name))
        except ConnectError as error:
            _log.warning("connectors were not checked: %s", error)
            self._away = error
            return error

    def _signs_of_life(self, capture: CaptureNames) -> SignsOfLife:
        """Return the newest heartbeat's age, and whether the capture's connector sends changes.

        Raises:
            KafkaError: A topic of the capture cannot be read, and no other topic shows the answer.
        """
        interval_ms = self._context.config.source(capture.source).heartbeat_interval_ms
        beat = self._beats.get(capture.heartbeat_topic)
        if isinstance(beat, KafkaError):
            raise beat
        return signs(capture, interval_ms, beat, lambda bound_s: self._flows(capture, bound_s))

    def _flows(self, capture: CaptureNames, bound_s: float) -> bool:
        """Return whether a capture's topics got a record in the last ``bound_s`` seconds.

        The time of a record is by the sender's clock, which can be slow. So the result is also True
        if a topic's end offset has grown since the last check.

        Raises:
            KafkaError: A topic of the capture cannot be read, and no other topic got a record.
        """
        context, kafka = self._context, self._context.kafka
        topics = [*capture.own_topics, *context.store.topics(capture.source, capture.tier)]
        former, ends = self._former_ends.get(capture, {}), dict[str, int]()
        for topic, look in kafka.looks(topics).items():
            if not isinstance(look, KafkaError):
                ends[topic] = sum(look.high.values())
        context.topic_ends[capture] = ends
        if any(end > former.get(topic, end) for topic, end in ends.items()):
            return True
        return any_lately(kafka, topics, bound_s)


def _unknown_finding(capture: CaptureNames, error: TributaryError) -> Finding:
    """Return a finding: because of an error, it is unknown whether the capture sends changes."""
    name = f"connector {capture.connector}"
    what = f"whether {name} sends changes is not known ({error.message})"
    return Finding(Severity.UNKNOWN, name, what, error.remedy)
