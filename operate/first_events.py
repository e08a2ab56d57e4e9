"""Finds the time of the first change in a table's topic that the lake does not have yet."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from cdc.debezium.event_reader import EventReader
from cdc.errors import DecodeError
from cdc.store.table_state import State
from schemas.errors import TributaryError, UnknownSchemaError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from cdc.store.table_state import TableRecord
    from operate.server_answers import Answers
    from schemas.registry import SchemaRegistry
    from schemas.table import TableId

_log = logging.getLogger(__name__)
MOST = 200
"""Maximum number of topics that one call of `first_events` reads. Later calls read the others."""
_READ_S = 2.0
"""Limit for the read from Kafka in one call of `first_events`, in seconds."""
_LOOK_S = 3.0
"""Limit for one call of `first_events`, in seconds; the registry's client would try for longer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_JUST_BEFORE = timedelta(milliseconds=1)
"""The precision of source times.

The lake may lack any change of the millisecond in which the first waiting change was made. So the
lake is complete only up to one millisecond before the time of the first waiting change.
"""

Place = tuple[str, int]
"""A topic, and an offset of the topic's only partition."""


class FirstEvents:
    """The times of changes that wait in topics. Each record is read once, since it never changes.

    A change's time is when the source says that it made the change, or when Connect sent it,
    whichever is earlier. Hours can be between the two. The time is None if it cannot be read from
    the record.
    """

    def __init__(self) -> None:
        self._known: dict[Place, datetime | None] = {}
        self._reads: Counter[Place] = Counter()
        self._events: EventReader | None = None

    def keep(self, places: Iterable[Place]) -> None:
        """Forget the times at all places (topic and offset) except the given places."""
        for gone in {*self._known, *self._reads} - {*places}:
            self._known.pop(gone, None)
            self._reads.pop(gone, None)

    def unknown(self, places: Iterable[Place]) -> list[Place]:
        """Return the places that were not read yet, the places with the fewest failed reads first.

        With this order, records that cannot be read do not keep other records from being read.
        """
        return sorted(
            (one for one in places if one not in self._known), key=self._reads.__getitem__
        )

    def at(self, place: Place) -> datetime | None:
        """Return the time of the first change from an offset on; None if the time is not known."""
        return self._known.get(place)

    def read(
        self, kafka: KafkaAdmin, registry: SchemaRegistry, ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        """Read the first record of each range of offsets; keep the time of the record's change.

        Records of open Kafka transactions count, as in `cdc.run.overdue`. The time of a record that
        cannot be read in time stays unknown.

        Args:
            kafka: The cluster.
            registry: The schemas of the records.
            ranges: By topic, the first offset of the range, and the offset after the range.

        Raises:
            TributaryError: The registry does not answer. The times of later records stay unknown.
        """
        until = time.monotonic() + _LOOK_S
        self._reads.update((topic, start) for topic, (start, _) in ranges.items())
        events = self._events = self._events or EventReader(registry)
        for topic, record in kafka.first_records(ranges, timeout_s=_READ_S).items():
            if time.monotonic() > until:
                return
            try:
                self._known[topic, ranges[topic][0]] = _time_of_first_event(events, record)
            except UnknownSchemaError as error:  # the table's run fails by it, others go on
                _log.debug("%s", error)


def _time_of_first_event(events: EventReader, record: KafkaRecord) -> datetime | None:
    """Return the time of the change in the first waiting event; None if it cannot be read.

    The result is when the source says that it made the change, or when Connect sent it, whichever
    is earlier.
    """
    try:
        made = events.read(record, "a change", _source_time_of_event)
    except DecodeError:
        return None
    return made if record.timestamp is None else min(made, record.timestamp)


def _source_time_of_event(event: Any) -> datetime:
    """Return when the change in the first waiting event was made, as the source says."""
    try:
        return _EPOCH + timedelta(milliseconds=int(event["source"]["ts_ms"]))
    except OverflowError as error:
        raise ValueError(f"no time: {error}") from error


def first_events(
    answers: Answers,
    records: Iterable[TableRecord],
    ends: Mapping[str, Mapping[int, int] | TributaryError],
    lacking: Mapping[str, int],
    now: datetime,
) -> dict[TableId, datetime]:
    """Return, for each table, a time up to which the lake has all changes of the table.

    The time is just before the first change that waits in the table's topic. The result has only
    tables whose last commit is so old that they can be late. The result lacks tables with
    quarantined records, and tables whose first waiting record cannot be read. One call reads at
    most `MOST` topics, so the result also lacks the tables whose topics only a later call reads. If
    the result lacks a table, callers use the time of the table's last commit.

    Args:
        answers: Asks the servers.
        records: The tables.
        ends: For each topic, the end offset of each partition, or why the topic cannot be read.
        lacking: Number of a table's quarantined records, by the id of the table's attempt.
        now: The time, in UTC.
    """
    known, config = answers.first_events, answers.services.config
    wanted: dict[TableId, tuple[str, int, int]] = {}
    for record in records:
        end, done = ends.get(record.topic), record.applied_offsets
        # A topic has one partition, and runs refuse another number.
        if done is None or not isinstance(end, Mapping) or set(end) != {0}:
            continue
        start = done.get(0, 0)
        whole = not lacking.get(str(record.attempt_id))
        if start < end[0] and whole and _may_be_late(config, record, now):
            wanted[record.table] = (record.topic, start, end[0])
    places = {table: (topic, start) for table, (topic, start, _) in wanted.items()}
    known.keep(places.values())
    unknown = known.unknown(places.values())[:MOST]
    if unknown:
        ranges = {topic: (start, end) for topic, start, end in wanted.values()}
        _read_first_events(answers, {topic: ranges[topic] for topic, _ in unknown})
    times = {table: known.at(place) for table, place in places.items()}
    return {table: at - _JUST_BEFORE for table, at in times.items() if at is not None}


def _read_first_events(answers: Answers, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Read the first event in each topic's range of offsets; stop after a limited time."""
    known = answers.first_events
    try:
        kafka, registry = answers.kafka(), answers.services.registry
        answers.within(
            "the first events that wait",
            lambda: known.read(kafka, registry, ranges),
            at_most_s=_LOOK_S,
        )
    except TributaryError as error:
        _log.warning("the first events that wait could not be read: %s", error)


def _may_be_late(config: Config, record: TableRecord, now: datetime) -> bool:
    """Whether a table can be late. If so, the table's first event that waits is read.

    A table can be late if it is INCREMENTAL and its last commit is too old for its freshness
    target.

    Before the first commit of a run, the time of the copy counts.
    """
    commit, applied_at = record.last_commit, record.applied_at
    if record.state is not State.INCREMENTAL or applied_at is None:
        return False
    try:
        settings = config.table_settings(record.table)
    except TributaryError:
        return False
    allowed = settings.freshness_target_s
    watermark = None if commit is None else commit.watermark
    allowed += 0 if watermark is None else settings.allowed_lateness_s
    return (now - (watermark or applied_at)).total_seconds() > allowed
