"""Reads a connector's heartbeats from their topic, and waits for the next one.

The connector writes a heartbeat as a row of the source database, and captures it like any change.
Each heartbeat names the server on which it was written, and the time when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc.debezium.connector import KINDS
from cdc.debezium.event_reader import EventReader
from cdc.debezium.task_ends import task_of
from cdc.errors import CaptureError
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import BACKLOG_S, Movement, wait_while, wait_while_moving
from schemas.avro import field_name

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from cdc.runtime.progress import Progress
    from schemas.catalog import SourceKind
    from schemas.registry import SchemaRegistry

_POLL_S = 0.1
_SILENCE_S = 120.0


def silence_bound_s(interval_ms: int) -> float:
    """Return the age, in seconds, above which Debezium's newest heartbeat shows a stuck connector.

    Args:
        interval_ms: Interval between two heartbeats, in milliseconds.
    """
    return _SILENCE_S + 10 * interval_ms / 1000


def came_lately(sent: datetime | None, bound_s: float) -> bool:
    """Return whether Debezium sent a record at most ``bound_s`` seconds ago.

    A record whose time is more than ``bound_s`` seconds ahead of this machine's clock does not
    count. Without this rule, the record would count as recent until that time has passed.

    Args:
        sent: The time of the record; None if there is no record.
        bound_s: The limit, in seconds.
    """
    if sent is None:
        return False
    return abs((datetime.now(timezone.utc) - sent).total_seconds()) <= bound_s


@dataclass(frozen=True)
class Heartbeat:
    """One heartbeat that a connector has sent to the heartbeat topic.

    Args:
        owner: Name of the slot, or name of the connector for a source without slots.
        system_identifier: Identity of the server, or of its cluster.
        timeline: PostgreSQL's timeline, which grows with every promotion; None for other kinds.
        beat_at: The server's time when the heartbeat was written.
        beats: Number of the connector's heartbeats so far, so a missing number shows a missing
            heartbeat; None for PostgreSQL, whose heartbeats have no number.
        topic_offset: Offset of the record in the heartbeat topic.
        task: The connector's task that has sent the record; None if the record names no task.
    """

    owner: str
    system_identifier: str
    timeline: int | None
    beat_at: datetime
    beats: int | None
    topic_offset: int
    task: str | None = None


def latest_heartbeat(
    kafka: KafkaAdmin,
    registry: SchemaRegistry,
    capture: CaptureNames,
    *,
    timeout_s: float = 30.0,
) -> Heartbeat | None:
    """Return the newest committed heartbeat row that Debezium sent; None if there is none.

    Raises:
        KafkaError: The heartbeat topic does not exist or cannot be read in time.
        RegistryError: The registry does not know the record's schema.
        DecodeError: The record is not a heartbeat.
    """
    record = kafka.latest_record(capture.heartbeat_topic, timeout_s=timeout_s)
    return None if record is None else parse_heartbeat(record, registry, capture.kind)


def wait_for_heartbeat(
    kafka: KafkaAdmin,
    capture: CaptureNames,
    *,
    after: int,
    timeout_s: float,
    progress: Progress | None = None,
    require_running: Callable[[], object] | None = None,
) -> None:
    """Wait until a heartbeat row that Debezium wrote to the database is in Kafka.

    Only a heartbeat shows that changes flow. Connect reports a connector as RUNNING even while
    the connector retries forever after one of these failures:

    - The connector cannot read the log: another reader holds the slot, the replication right is
      missing, or the publication was missing when a change was written.
    - The connector cannot write its heartbeat row.

    Args:
        kafka: The cluster.
        capture: The names of the connector and of its topics.
        after: Last stable offset of the heartbeat topic before the connector was started.
        timeout_s: Limit for the wait, in seconds.
        progress: Shows the wait.
        require_running: Called during the wait; raises an error with the reason if the connector
            has failed.

    Raises:
        CaptureError: No heartbeat came in time.
        KafkaError: The heartbeat topic does not exist.
    """

    def silent() -> str:
        if max(kafka.stable_offsets(capture.heartbeat_topic).values(), default=0) > after:
            return ""
        if require_running is not None:
            require_running()
        return f"topic {capture.heartbeat_topic} is still at offset {after}"

    with shown_as(f"wait for a heartbeat of connector {capture.connector}", progress) as task:
        if wait_while(silent, timeout_s=timeout_s, poll_s=_POLL_S, task=task):
            raise CaptureError(
                f"connector {capture.connector} runs, but no heartbeat reached topic"
                f" {capture.heartbeat_topic} within {timeout_s:.0f} s",
                remedy=KINDS[capture.kind].silence_remedy(capture),
                connector=capture.connector,
                topic=capture.heartbeat_topic,
            )


def wait_while_sending(
    kafka: KafkaAdmin, topics: Collection[str], wait: Callable[[], None]
) -> None:
    """Wait for a heartbeat row, and repeat the wait as long as Debezium sends changes.

    A connector that sends a large transaction or a backlog sends its heartbeats only after these
    changes.

    Args:
        kafka: The cluster.
        topics: The topics of the connector's tables.
        wait: Waits once; raises a CaptureError if no heartbeat came in time.

    Raises:
        CaptureError: No heartbeat came. Either the topics did not grow during the last wait, or the
            time limit for all waits together has passed.
    """
    sent = Movement()

    def silent() -> CaptureError | None:
        try:
            wait()
        except CaptureError as error:
            sent.note(end())
            return error
        return None

    def end() -> int:
        return sum(sum(ends.values()) for ends in kafka.high_watermarks_many(topics).values())

    sent.note(end())
    if error := wait_while_moving(
        silent, sent.ended, timeout_s=0.0, most_s=BACKLOG_S, poll_s=_POLL_S
    ):
        raise error


def parse_heartbeat(record: KafkaRecord, registry: SchemaRegistry, kind: SourceKind) -> Heartbeat:
    """Decode one heartbeat row that Debezium has sent.

    Args:
        record: The record.
        registry: The writers' schemas.
        kind: The kind of source.

    Raises:
        RegistryError: The registry does not know the record's schema.
        DecodeError: The record is not a heartbeat.
    """
    return parse_heartbeats([record], registry, kind)[0]


def parse_heartbeats(
    records: Iterable[KafkaRecord], registry: SchemaRegistry, kind: SourceKind
) -> list[Heartbeat]:
    """Decode heartbeat rows that Debezium has sent; each writer's schema is fetched once.

    Args:
        records: The records.
        registry: The writers' schemas.
        kind: The kind of source.

    Raises:
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not a heartbeat.
    """
    events = EventReader(registry)
    return [_decode_heartbeat(one, events, kind) for one in records]


def _decode_heartbeat(record: KafkaRecord, events: EventReader, kind: SourceKind) -> Heartbeat:
    """Decode the heartbeat row in a record that Debezium has sent."""

    def heartbeat(event: Any) -> Heartbeat:
        row = event["after"]
        beat = KINDS[kind].beat(row)
        return Heartbeat(
            owner=row["source"],
            system_identifier=beat.system_identifier,
            timeline=beat.timeline,
            beat_at=_time_of_beat(row[field_name("beat_at")]),
            beats=beat.beats,
            topic_offset=record.offset,
            task=task_of(record),
        )

    return events.read(record, "a heartbeat", heartbeat)


def _time_of_beat(text: str) -> datetime:
    """Parse the time in a heartbeat row as Debezium sends it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
