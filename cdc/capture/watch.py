"""Whether changes still come: connectors that failed, hang or send no heartbeats.

A table whose connector sends nothing looks like a table without changes, so a run must distinguish
the two.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc.capture.recovery import RETRY, explained, restart_failed
from cdc.debezium import came_lately, silence, silence_bound_s
from cdc.errors import ConnectError, LeaseHeldError
from cdc.store.connector_restarts import Restarts
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.connect import ConnectClient, ConnectorStatus
    from cdc.debezium import CaptureNames
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)

UNWATCHED = frozenset({State.RETIRED, State.NEEDS_BOOTSTRAP})
"""States of tables that do not need changes to come."""
_ASLEEP = frozenset({"PAUSED", "STOPPED"})
_NAMED = 5


@dataclass(frozen=True)
class Silence:
    """A capture that sends no changes.

    Args:
        capture: The capture.
        tables: The tables that get no changes.
        reason: Why no changes come.
        remedy: What to do.
    """

    capture: CaptureNames
    tables: tuple[TableId, ...]
    reason: str
    remedy: str

    @property
    def message(self) -> str:
        """The problem and its tables, as a message."""
        return f"{self.reason}; until then no changes come for {listed(self.tables)}"

    def to_json(self) -> dict[str, Any]:
        """The silence as plain values."""
        return {
            "source": self.capture.source,
            "tier": self.capture.tier,
            "connector": self.capture.connector,
            "message": self.message,
            "remedy": self.remedy,
            "tables": [str(table) for table in self.tables],
        }


def listed(names: Sequence[object]) -> str:
    """Return the first names of a list, and the number of the others."""
    named, more = ", ".join(map(str, names[:_NAMED])), len(names) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def silences(context: RunContext, records: Iterable[TableRecord]) -> list[Silence]:
    """Find the captures of the tables that send no changes now, and restart failed connectors.

    Args:
        context: What runs work with. Without a client of Connect, only heartbeats and other records
            decide.
        records: The tables.

    Raises:
        KafkaError: The cluster does not answer.
        StateError: The state store cannot be used.
    """
    groups: dict[CaptureNames, list[TableId]] = {}
    for record in records:
        if record.state not in UNWATCHED and record.table.source in context.config.sources:
            groups.setdefault(context.capture(record), []).append(record.table)
    beats = context.kafka.newest_times(capture.heartbeat_topic for capture in groups)
    return list(_Watch(context, beats).found(groups))


class _Watch:
    def __init__(self, context: RunContext, beats: Mapping[str, datetime]) -> None:
        self._context = context
        self._beats = beats
        self._restarts = Restarts(context.store)
        self._connect: ConnectClient | None = context.connect
        self._away: ConnectError | None = None
        self._former_ends = dict(context.topic_ends)
        context.topic_ends.clear()

    def found(self, groups: Mapping[CaptureNames, Sequence[TableId]]) -> Iterator[Silence]:
        for capture, tables in groups.items():
            try:
                why = self._why(capture)
                if why is not None:
                    # A process that changes the capture holds this lease, and stops the connector
                    # for a moment.
                    with self._context.leases.hold(capture.resource):
                        why = self._why(capture, restart=True)
            except LeaseHeldError as held:
                _log.info("connector %s was not checked: %s", capture.connector, held)
                continue
            if why is not None:
                silence = Silence(capture, tuple(sorted(tables)), *why)
                _log.warning("%s", silence.message)
                yield silence

    def _why(self, capture: CaptureNames, *, restart: bool = False) -> tuple[str, str] | None:
        """Return why no changes come and what to do, or None if changes come."""
        name = capture.connector
        away, status = self._status(name)
        if away is not None:
            quiet = self._quiet(capture, f"Kafka Connect does not answer ({away.message})")
            return None if quiet is None else (quiet, away.remedy)
        if self._connect is not None:
            if status is None:
                what = f"there is no connector {name}, and changes wait in the source's log"
                return what, "Run `tributary onboard` for one of its tables, which creates it."
            if status.failure is not None:
                return self._failed(name, status.failure, restart=restart)
            if status.state in _ASLEEP:
                what = f"connector {name} is {status.state}"
                return what, f"To resume it, {RETRY}."
            if status.running:
                self._restarts.settle(name)
        states = "runs" if status is None or status.running else f"is {_states(status)}"
        quiet = self._quiet(capture, f"connector {name} {states}")
        return None if quiet is None else (quiet, silence(capture))

    def _status(self, name: str) -> tuple[ConnectError | None, ConnectorStatus | None]:
        """Return the connector's state, or the error of Connect, which then counts for all."""
        if self._connect is None or self._away is not None:
            return self._away, None
        try:
            return None, self._connect.status(name)
        except ConnectError as error:
            _log.warning("connectors were not checked: %s", error)
            self._away = error
            return error, None

    def _quiet(self, capture: CaptureNames, what: str) -> str | None:
        """Return a reason if the last heartbeat is too old and no changes come either.

        A beat is a row of the log, so changes come without beats while the connector sends one long
        transaction or a backlog.
        """
        topic, beat = capture.heartbeat_topic, self._beats.get(capture.heartbeat_topic)
        if self._lately(capture, beat) or self._flows(capture):
            return None
        if beat is None:
            return f"{what}, and topic {topic} holds no heartbeat"
        age = (datetime.now(timezone.utc) - beat).total_seconds()
        when = f"{age:,.0f} s old" if age >= 0 else f"dated {-age:,.0f} s ahead of this clock"
        return f"{what}, and its last heartbeat in topic {topic} is {when}"

    def _lately(self, capture: CaptureNames, sent: datetime | None) -> bool:
        interval_ms = self._context.config.source(capture.source).heartbeat_interval_ms
        return came_lately(sent, silence_bound_s(interval_ms))

    def _flows(self, capture: CaptureNames) -> bool:
        """Return whether records came lately, or since the last look.

        The last look matters, since the senders' clocks may be behind.
        """
        context, kafka = self._context, self._context.kafka
        topics = [*capture.own_topics, *context.store.topics(capture.source, capture.tier)]
        ends = kafka.high_watermarks_many(topics)
        end = sum(sum(partitions.values()) for partitions in ends.values())
        context.topic_ends[capture] = end
        if end > self._former_ends.get(capture, end):
            return True
        return any(self._lately(capture, sent) for sent in kafka.newest_times(topics).values())

    def _failed(self, name: str, trace: str, *, restart: bool) -> tuple[str, str]:
        if restart and self._connect is not None:
            failed = restart_failed(self._connect, self._restarts, name, trace)
        else:
            failed = explained(name, trace)
        return failed.reason, failed.remedy


def _states(status: ConnectorStatus) -> str:
    tasks = ", ".join(f"task {task.id} {task.state}" for task in status.tasks) or "no task"
    return f"{status.state} with {tasks}"
