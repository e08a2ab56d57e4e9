"""Reads what a connector has sent to Kafka: up to which position it has captured its source's log.

PostgreSQL's connector confirms to the slot only positions that Connect has stored: at the first
poll after Connect has stored one, Debezium reads the stored position, and confirms this one
(`PostgresConnectorTask.performCommit`, since Debezium 2.7). Connect stores a position only once
Kafka has acknowledged all records up to it. So a worker that is killed at any moment leaves a slot
that is at the stored position or before it.

If the slot is after the stored position, a stranger has read it, advanced it or created it again,
or the stored position has become older. Without Kafka transactions (`connect.exactly_once: false`),
a worker that was suspended can store an older position once it wakes, although another worker has
taken its task over. The next position that the task stores replaces it.

The next task does not show the difference: it begins at the slot's position without an error, and
the next stored position hides the gap. But Kafka shows it. A task sends the log in its order and
without gaps. So the connector has sent all that is between the two positions if one task has read a
commit that is not after the first one, and has sent an event from after the second one.

With Kafka transactions, Connect stores a position in the transaction of the records before it.
Debezium reads the stored position within its worker, and Tributary by Connect's REST interface,
which reads the topic for itself, as committed only. Kafka answers the end of a transaction before
its brokers have the markers of the commit. So while a broker restarts, the position that the
interface shows can be behind the slot for half a minute, whether or not a connector reads. What is
sent decides here, too, but it can be as late. So the first look only notes the two positions, and
changes count as lost if a look `LATE_S` later still does not find what is between. A stored
position that is after the slot's is no proof that nothing was lost: a connector that has begun
behind a gap stores one.
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
"""How late the markers of a commit may be in Kafka, in seconds: twice ``replica.lag.time.max.ms``,
after which a leader no longer waits for a follower.
"""


def is_sent(stream: TaskStream, stored: Lsn, confirmed: Lsn) -> bool:
    """Return whether a task has sent all changes between two positions.

    If the commit before a later event is another one than that before the task's first event, the
    task has read it. So the task began to read before this commit. A task that began after a gap
    has read no commit up to ``stored``.

    Args:
        stream: What the task has sent to one topic.
        stored: The position that Connect has stored.
        confirmed: The slot's later position.
    """
    return stream.first < stream.later <= stored.value and stream.last >= confirmed.value


def _waited(
    age_s: float, begin: Lsn, upto: Lsn, stored: LogPosition | None
) -> tuple[LogPosition | None, bool]:
    """Return the result of `SentRecords._committed` for a commit that has not arrived.

    Args:
        age_s: Since when it is known, in seconds.
        begin: The position that Connect had stored then.
        upto: The slot's position then.
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
        exactly_once: Whether connectors write to Kafka in transactions. Then a commit can be late
            in Kafka.
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

        This is Connect's stored position, or the later position of a slot if the connector has sent
        all that is between. Kafka is asked only if the two differ; without Kafka transactions, only
        while nothing reads the slot. A commit that can be late counts as if it had arrived.

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

    def settled(
        self, names: CaptureNames, log: LogHealth, stored: LogPosition | None
    ) -> LogPosition | None:
        """Return the same as `position`, if it is known whether changes were lost.

        A caller that starts a connector, or changes it, needs this: the connector would hide a gap.

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
        """Return the position up to which changes count as captured, with Kafka transactions.

        Returns:
            The position, and whether a commit up to it can be late. If changes are lost, the
            position is before the slot's.
        """
        if names.slot is None:
            return stored, False
        marks, scope = LateCommits(self._store), names.resource
        if (mark := marks.of(scope)) is not None:
            begin, upto = Lsn.parse(mark.stored), Lsn.parse(mark.confirmed)
            same_slot = log.confirmed_after(begin, while_read=True) is not None
            # A connector that has begun behind a gap stores a later position than this one.
            arrived = stored == upto or not same_slot
            if not arrived and not self._is_sent(names, begin, upto):
                return _waited(mark.age_s, begin, upto, stored)
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
        return _waited(mark.age_s, stored, confirmed, stored)

    def using(self, kafka: Callable[[], KafkaAdmin]) -> SentRecords:
        """Return the same with another way to open the cluster."""
        return SentRecords(self._store, kafka, self._registry, exactly_once=self.exactly_once)

    def beats(self, names: CaptureNames, here: Answer[ServerIdentity]) -> Beats:
        """Return a capture's newest heartbeats; if they cannot be read, the reason.

        Args:
            names: The capture.
            here: The primary, or its error if it does not answer.

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
        """Return the servers from which the capture's tables were copied."""
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

        The heartbeats show it, or, if the task reads a backlog, the topic that grew last.
        """
        if self._shows(names.heartbeat_topic, stored, confirmed):
            return True
        topics = self._store.topics(names.source, names.tier)
        sent = self._kafka().newest_times_each(topics) if topics else {}
        times = {topic: at for topic, at in sent.items() if isinstance(at, datetime)}
        newest = max(times, key=lambda topic: times[topic], default=None)
        return newest is not None and self._shows(newest, stored, confirmed)

    def _shows(self, topic: str, stored: Lsn, confirmed: Lsn) -> bool:
        """Return whether a topic shows that one task has sent all between two positions."""
        start, end = self._range(topic)
        with self._kafka().reader() as reader:
            ends = TaskEnds(reader, EventReader(self._registry()), {topic: start})
            streams = task_streams(ends, topic, end, stored.value)
            return any(is_sent(stream, stored, confirmed) for stream in streams)

    def _range(self, topic: str) -> tuple[int, int]:
        """Return a topic's first offset and its last stable offset; both 0 without such a topic.

        Raises:
            KafkaError: The topic cannot be read.
        """
        look = self._kafka().looks([topic]).get(topic)
        if isinstance(look, KafkaError):
            raise look
        return (0, 0) if look is None else (look.earliest[0], look.ends[0].offset)
