"""Finds topics that no longer have the records that were read from them.

A cluster that was restored from an earlier snapshot continues at an earlier offset, and can elect
leaders with the same epochs as before. Then neither the end offsets nor the epochs show that the
partitions have got other records. But the records have other timestamps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin

from cdc.errors import KafkaError
from cdc.kafka.client import TRANSIENT, KafkaClient
from cdc.kafka.records import AT_END, consumer_settings, record_of, timed_out
from cdc.kafka.topic_values import KnownRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ONE_RECORD: dict[str, Any] = {"fetch.message.max.bytes": 16 * 1024}
"""Settings of a consumer that needs one record of each partition: a fetch of 16 KiB. Kafka returns
a record even if it is larger."""
Answers = dict[KnownRecord, str | KafkaError | None]


def replaced(
    client: KafkaClient,
    admin: ck_admin.AdminClient,
    known: Iterable[KnownRecord],
    *,
    deadline: float,
) -> Answers:
    """Find partitions that no longer have a known record, as `KafkaAdmin.replaced` does.

    One request asks each partition for its first record with the known timestamp or a later one. If
    the answer is a record with this timestamp at the known offset, the partition has the known
    record. In any other case, the record at the known offset is read, since it can still be the
    known record: the answer can be an earlier record of the same millisecond, or an earlier record
    with a later timestamp, for example because a clock was set back.

    Args:
        client: The cluster.
        admin: The admin client of the same cluster.
        known: The known records, one of each partition.
        deadline: When to give up reading records, as a time of ``time.monotonic()``.
    """
    wanted = {ck.TopicPartition(one.topic, one.partition): one for one in known}
    found: Answers = dict.fromkeys(wanted.values())
    try:
        first, failed = _partition_offsets(
            client,
            admin,
            {at: ck_admin.OffsetSpec.for_timestamp(one.sent_ms) for at, one in wanted.items()},
        )
        unclear = [at for at, look in first.items() if not shows(look, wanted[at])]
        earliest, unread = _partition_offsets(
            client, admin, dict.fromkeys(unclear, ck_admin.OffsetSpec.earliest())
        )
    except KafkaError as error:
        return dict.fromkeys(found, error)
    found.update((wanted[at], error) for at, error in {**failed, **unread}.items())
    there = [wanted[at] for at, look in earliest.items() if look.offset <= wanted[at].offset]
    return {**found, **_read_known_records(client, there, deadline)}


def shows(first: ck_admin.ListOffsetsResultInfo, known: KnownRecord) -> bool:
    """Whether an answer of Kafka proves that a partition still has a known record.

    Args:
        first: Offset and timestamp of the partition's first record with the known timestamp or a
            later one; both are negative if there is no such record.
        known: The record that the partition had.
    """
    # An earlier record of the same millisecond proves nothing: the log can have been restored up to
    # a moment in that millisecond.
    return first.offset == known.offset and first.timestamp == known.sent_ms


def _partition_offsets(
    client: KafkaClient,
    admin: ck_admin.AdminClient,
    asked: Mapping[ck.TopicPartition, ck_admin.OffsetSpec],
) -> tuple[
    dict[ck.TopicPartition, ck_admin.ListOffsetsResultInfo], dict[ck.TopicPartition, KafkaError]
]:
    """Return the requested offset of each partition, and the error of each silent partition."""
    if not asked:
        return {}, {}
    return client.call_each(
        "list offsets", lambda: admin.list_offsets(dict(asked), request_timeout=client.timeout_s)
    )


def _read_known_records(
    client: KafkaClient, known: Iterable[KnownRecord], deadline: float
) -> Answers:
    """Read the record at each known offset; return, for each known record, what replaced it.

    All partitions are read at once, since a read of a single partition takes a tenth of a second.
    """
    waiting = {(one.topic, one.partition): one for one in known}
    found: Answers = {}
    if not waiting:
        return found
    consumer = ck.Consumer({**consumer_settings(client), **AT_END, **_ONE_RECORD})
    try:
        places = [ck.TopicPartition(*at, one.offset) for at, one in waiting.items()]
        consumer.assign(places)
        while waiting and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(1.0, left))
            if message is None:
                continue
            at = (message.topic() or "", message.partition() or 0)
            if at not in waiting or not _is_answer(message, waiting[at]):
                continue
            one = waiting.pop(at)
            found[one] = _answer(client, message, one)
            consumer.pause([ck.TopicPartition(*at)])
    finally:
        consumer.close()
    late = {
        one: timed_out(client, one.topic, one.partition, one.offset, one.offset + 1)
        for one in waiting.values()
    }
    return found | late


def _is_answer(message: ck.Message, known: KnownRecord) -> bool:
    """Return whether a message of a partition shows what is at a known record's offset."""
    error = message.error()
    if error is None:
        return True
    if error.code() == ck.KafkaError._PARTITION_EOF:
        # A leader of another moment can show an earlier end.
        return (message.offset() or 0) > known.offset
    return error.code() not in TRANSIENT


def _answer(
    client: KafkaClient, message: ck.Message, known: KnownRecord
) -> str | KafkaError | None:
    """Return how the first message at or after a known record's offset differs from the record."""
    error = message.error()
    if error is not None and error.code() != ck.KafkaError._PARTITION_EOF:
        return client.refused(f"read topic {known.topic}", error, topic=known.topic)
    if error is not None or message.offset() != known.offset:
        return difference(known, None)
    record = record_of(known.topic, known.partition, known.offset, message)
    return difference(known, record.timestamp)


def difference(known: KnownRecord, now: datetime | None) -> str | None:
    """Return what a Kafka partition has in place of a known record; None if it has the record.

    Args:
        known: The record that the partition had.
        now: The timestamp of the record that the partition now has at the known offset; None if it
            has no record there.
    """
    sent = _EPOCH + timedelta(milliseconds=known.sent_ms)
    if now == sent:
        return None
    what = f"the record at offset {known.offset} was of {sent.isoformat(timespec='milliseconds')}"
    if now is None:
        return f"{what}, and now there is none"
    return f"{what}, and is of {now.isoformat(timespec='milliseconds')} now"
