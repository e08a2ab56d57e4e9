"""Finds out, from records in Kafka, up to which position a connector has captured the log.

PostgreSQL's connector confirms to the slot only a position that Connect has stored: Debezium reads
the stored position at its next poll, and confirms it (`PostgresConnectorTask.performCommit`, since
Debezium 2.7). Connect stores a position only once Kafka has acknowledged all records up to it. So
if a worker is killed, at whatever moment, the slot is at the stored position or before it.

Two events can put the slot after the stored position:

- Another program has read the slot, advanced it or created it again. Then changes can be lost.
- The stored position has become older. Without Kafka transactions (`connect.exactly_once: false`),
  a worker that was suspended can store an older position when it wakes, although another worker has
  taken over its task. The next position that the present task stores replaces the older one.

In both cases, the next task begins at the slot's position without an error, and the next stored
position hides any gap. But the records in Kafka show whether there is a gap, because a task sends
the log in order and without gaps. The connector has sent all changes between the two positions if
one task has read a commit at or before the stored position, and has sent an event at or after the
slot's position.

With Kafka transactions, the slot can also be ahead because a commit is late in Kafka. Connect
stores a position in the same transaction as the records before the position. Debezium reads this
position within its worker. Tributary reads it by Connect's REST interface, which reads the
committed records of Connect's topic. Kafka acknowledges the end of a transaction before all brokers
have the markers of the commit. So while a broker restarts, the interface can show a position behind
the slot for half a minute, whether or not a connector reads the slot.

The records in Kafka decide in this case, too, but these records can be as late as the stored
position. So the first comparison only records the two positions. Changes count as lost if a
comparison `LATE_S` seconds later still does not find in Kafka all changes between the two
positions. A stored position that has become later than the slot's position proves nothing: a
connector that began after a gap stores such a position, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.capture.evidence import Beats
from cdc.capture.other_servers import other_server
from cdc.debezium import parse_heartbeats
from cdc.debezium.event_reader import EventReader
from cdc.debezium.task_ends import TaskEnds
from cdc.debezium.task_streams import task_streams
from cdc.errors import DecodeError, KafkaError
from cdc.log.position import Lsn
from cdc.store.late_commits import LateCommits
from schemas.errors import RegistryError, TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import Answer
    from cdc.debezium import CaptureNames
    from cdc.debezium.task_streams import TaskStream
    from cdc.kafka import KafkaAdmin
    from cdc.log.position import LogPosition
    from cdc.sources.log_health import LogHealth
    from cdc.sources.source_facts import ServerIdentity
    from cdc.store.state_store import Store
    from schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)

LATE_S = 60.0
"""Longest time, in seconds, by which the markers of a commit may be late in Kafka. This is twice
the default of ``replica.lag.time.max.ms``, after which a leader no longer waits for a follower.
"""


def is_sent(stream: TaskStream, stored: Lsn, confirmed: Lsn) -> bool:
    """Return whether a task's records show that the task sent all changes of a log range.

    The range begins at ``stored`` and ends at ``confirmed``. Each event names the last commit
    before the event. If an event names a later commit than the task's first event names, the task
    has read this commit. A task that began after a gap has read no commit up to ``stored``. So a
    task that has read a commit up to ``stored`` began before any gap.

    Args:
        stream: What the task has sent to one topic.
        stored: The position that Connect has stored.
        confirmed: The slot's later position.
    """
    return stream.first < stream.later <= stored.value and stream.last >= confirmed.value


def _position_of_late_commit(
    age_s: float, begin: Lsn, upto: Lsn, stored: LogPosition | None
) -> tuple[LogPosition | None, bool]:
    """Return the result of `SentRecords._committed` for a commit that has not arrived.

    Args:
        age_s: Time since the commit was first found missing, in seconds.
        begin: The position that Connect had stored when the commit was first found missing.
        upto: The slot's position when the commit was first found missing.
        stored: The position that Connect has stored now.
    """
    if age_s >= LATE_S:
        return begin, False
    return (stored if isinstance(stored, Lsn) and stored > upto else upto), True


class SentRecords:
    """Reads what connectors have sent to Kafka, as evidence about their captures.

    Args:
        store: The state store, which has the captures' topics.
        kafka: Opens the cluster.
        registry: Opens the registry, which has the writers' schemas.
        exactly_once: Whether connectors write to Kafka in transactions. If so, a commit can be
            late in Kafka.
    """

    def __init__(
        self,
        store: Store,
        kafka: Callable[[], KafkaAdmin],
        registry: Callable[[], SchemaRegistry],
        *,
        exactly_once: bool,
    ) -> None:
        self._store = store
        self._kafka = kafka
        self._registry = registry
        self.exactly_once = exactly_once

    def position(
        self, names: CaptureNames, log: LogHealth, stored: LogPosition | None
    ) -> LogPosition | None:
        """Return the position up to which a connector has captured its source's log.

        This is Connect's stored position, or the slot's later position if the connector has sent
        all changes between the two positions. Kafka is queried only if the slot's position is
        later, or was later at an earlier call that could not decide whether changes were lost.
        Without Kafka transactions, the two positions are compared only while nothing reads the
        slot. With Kafka transactions, the commit of Connect's newest position can be late in Kafka.
        While the commit can be late, all changes up to the slot's position count as sent.

        Args:
            names: The capture.
            log: The health of the source's log for the capture.
            stored: The position that Connect has stored, read after ``log``; None if there is none.

        Raises:
            TributaryError: Kafka or the registry does not answer, or a record of the connector's
                topics is not an event.
        """
        if self.exactly_once:
            captured, _ = self._committed(names, log, stored)
            return captured
        confirmed = log.confirmed_after(stored)
        if not isinstance(confirmed, Lsn) or not isinstance(stored, Lsn):
            return stored
        if not self._is_sent(names, stored, confirmed):
            return stored
        _log.info(
            "%s begins at %s, and Connect has stored %s, which became older: connector %s has sent"
            " what is between",
            log.title,
            confirmed,
            stored,
            names.connector,
        )
        return confirmed

    def certain_position(
        self, names: CaptureNames, log: LogHealth, stored: LogPosition | None
    ) -> LogPosition | None:
        """Return the same as `position`; raise an error while a commit can be late in Kafka.

        A caller that starts or changes a connector must know first whether changes were lost,
        because the connector would hide a gap.

        Raises:
            KafkaError: A commit of the connector can be late in Kafka.
            TributaryError: As for `position`.
        """
        if not self.exactly_once:
            return self.position(names, log, stored)
        captured, late = self._committed(names, log, stored)
        if late:
            raise KafkaError(
                f"{log.title} begins at {captured}, but Connect has stored only {stored}: a commit"
                f" of connector {names.connector} can be late in Kafka, for example since a broker"
                " restarts, or changes are lost",
                remedy="Run the command again in a minute: by then it is known which.",
                connector=names.connector,
            )
        return captured

    def _committed(
        self, names: CaptureNames, log: LogHealth, stored: LogPosition | None
    ) -> tuple[LogPosition | None, bool]:
        """Find the result of `position` for a connector that writes to Kafka in transactions.

        Returns:
            The position up to which changes count as captured, and whether a commit of the
            connector can be late in Kafka. If changes are lost, the position is before the slot's
            position.
        """
        if names.kind != "postgres":
            return stored, False
        marks, scope = LateCommits(self._store), names.resource
        if (mark := marks.of(scope)) is not None:
            begin, upto = Lsn.parse(mark.stored), Lsn.parse(mark.confirmed)
            same_slot = log.confirmed_after(begin, while_read=True) is not None
            # A connector that has begun behind a gap stores a later position than this one.
            arrived = stored == upto or not same_slot
            if not arrived and not self._is_sent(names, begin, upto):
                return _position_of_late_commit(mark.age_s, begin, upto, stored)
            marks.forget(scope)
        confirmed = log.confirmed_after(stored, while_read=True)
        if not isinstance(confirmed, Lsn) or not isinstance(stored, Lsn):
            return stored, False
        if self._is_sent(names, stored, confirmed):
            return confirmed, False
        _log.warning(
            "%s begins at %s, but Connect has stored only %s: if this is no late commit in Kafka,"
            " changes of connector %s are lost, which is decided in %.0f s",
            *(log.title, confirmed, stored, names.connector, LATE_S),
        )
        mark = marks.note(scope, str(stored), str(confirmed))
        return _position_of_late_commit(mark.age_s, stored, confirmed, stored)

    def using(self, kafka: Callable[[], KafkaAdmin]) -> SentRecords:
        """Return a copy of this reader that opens the cluster by the given function."""
        return SentRecords(self._store, kafka, self._registry, exactly_once=self.exactly_once)

    def beats(self, names: CaptureNames, here: Answer[ServerIdentity]) -> Beats:
        """Return a capture's newest heartbeats, or the reason why they cannot be read.

        Args:
            names: The capture.
            here: The identity of the primary, or an error if the primary does not answer.

        Raises:
            StateError: The state store cannot be used.
        """
        try:
            records = self._kafka().latest_records(names.heartbeat_topic)
            if not records:
                return Beats()
            beats = parse_heartbeats(records, self._registry(), names.kind)
        except (DecodeError, KafkaError, RegistryError) as error:
            return Beats(trouble=error)
        now = None if isinstance(here, TributaryError) else here.system_identifier
        strangers = other_server(names, beats, now, lambda: self._copied_from(names))
        return Beats(beats[-1], records[-1], strangers)

    def _copied_from(self, names: CaptureNames) -> set[str]:
        """Return the identities of the servers from which the capture's tables were copied."""
        attempts = (
            record.attempt
            for record in (*self._store.tables(), *self._store.builds())
            if (record.table.source, record.tier) == (names.source, names.tier)
        )
        servers = (one for attempt in attempts if attempt is not None for one in attempt.servers)
        return {one.system_identifier for one in servers if one.system_identifier}

    def answer(
        self,
        names: CaptureNames,
        log: Answer[LogHealth],
        stored: Answer[LogPosition | None],
    ) -> Answer[LogPosition | None]:
        """Return the same as `position`, or the error of the server that does not answer."""
        if isinstance(log, TributaryError) or isinstance(stored, TributaryError):
            return stored
        try:
            return self.position(names, log, stored)
        except TributaryError as error:
            return error

    def _is_sent(self, names: CaptureNames, stored: Lsn, confirmed: Lsn) -> bool:
        """Return whether the topics show that one task has sent all changes between two positions.

        The heartbeats can show this. While the task reads a backlog, only the topic with the newest
        record can show it.
        """
        if self._shows(names.heartbeat_topic, stored, confirmed):
            return True
        topics = self._store.topics(names.source, names.tier)
        sent = self._kafka().newest_times_each(topics) if topics else {}
        times = {topic: at for topic, at in sent.items() if isinstance(at, datetime)}
        newest = max(times, key=lambda topic: times[topic], default=None)
        return newest is not None and self._shows(newest, stored, confirmed)

    def _shows(self, topic: str, stored: Lsn, confirmed: Lsn) -> bool:
        """Return whether one topic shows that a task has sent all changes between two positions."""
        start, end = self._range(topic)
        with self._kafka().reader() as reader:
            ends = TaskEnds(reader, EventReader(self._registry()), {topic: start})
            streams = task_streams(ends, topic, end, stored.value)
            return any(is_sent(stream, stored, confirmed) for stream in streams)

    def _range(self, topic: str) -> tuple[int, int]:
        """Return a topic's first offset and last stable offset; both 0 if the topic does not exist.

        Raises:
            KafkaError: The topic cannot be read.
        """
        look = self._kafka().looks([topic]).get(topic)
        if isinstance(look, KafkaError):
            raise look
        return (0, 0) if look is None else (look.earliest[0], look.ends[0].offset)
