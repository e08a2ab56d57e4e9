"""Reads the facts about topics, in each run once for all tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.position_check import TopicFacts
from cdc.errors import KafkaError
from cdc.kafka import ReachedOffset, leader_epochs, never_compacted

if TYPE_CHECKING:
    from cdc.lake.timeline import Committed
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_LEADERS_S = 10.0
"""Limit for the answers of the new leaders of idle tables' topics, in seconds."""


def topic_facts(context: RunContext, topics: Iterable[str]) -> dict[str, TopicFacts]:
    """Read the current facts of topics, without their settings, in three calls.

    Raises:
        KafkaError: The cluster does not answer.
    """
    names = list(dict.fromkeys(topics))
    described = context.kafka.topics(names)
    ends = context.kafka.ends_many(names)
    earliest = context.kafka.start_offsets_many(names)
    return {
        name: TopicFacts(
            id=described[name].id if name in described else None,
            earliest=earliest.get(name, {}),
            stable={partition: end.offset for partition, end in ends.get(name, {}).items()},
            epochs=leader_epochs(ends.get(name, {})),
        )
        for name in names
    }


def one_topic(context: RunContext, topic: str) -> TopicFacts:
    """Read the current facts of one topic, with its settings.

    Raises:
        KafkaError: The cluster does not answer.
    """
    return with_settings(context, topic_facts(context, [topic]))[topic]


def still_in_topic(
    context: RunContext, record: TableRecord, latest: Committed, now: TopicFacts
) -> Committed:
    """Check that the topic continues from the offsets that the lake has read.

    A leader keeps every record that it has shown as committed. So only partitions with a new leader
    are checked: the new leader may have lacked records, or may have an older disk.

    Args:
        context: The runs' context.
        record: The table.
        latest: The newest commit of the lake table.
        now: The current facts of the table's topic.

    Returns:
        The commit with the current leaders' epochs.

    Raises:
        LostHistoryError: The topic does not continue from the lake's offsets. The error names the
            gap.
        CaptureError: The topic is compacted, but has not lost a record yet.
        KafkaError: A leader does not answer in time.
    """
    commit, known_id = latest.record, None
    if record.attempt is not None:
        known_id = record.attempt.topic_id
    position_check.check_topic(
        record.table,
        record.topic,
        topic_id=commit.topic_id or known_id,
        start=commit.offsets,
        now=now,
    )
    cuts: dict[int, str] = {}
    asked = _elsewhere_led(record.topic, commit.offsets, commit.epochs, now)
    for log, answer in context.kafka.truncated(asked).items():
        if isinstance(answer, KafkaError):
            raise answer
        if answer is not None:
            cuts[log.partition] = answer
    position_check.check_cuts(record.table, record.topic, cuts)
    return replace(latest, record=replace(commit, epochs=dict(now.epochs)))


def cut_off(
    context: RunContext, idle: Iterable[TableRecord], topics: Mapping[str, TopicFacts]
) -> set[TableId]:
    """Find idle tables whose topic was truncated below the lake's offset and refilled up to it.

    The new leaders of all topics are checked in one call, since a rolling restart of the brokers
    elects all leaders again. If a leader has all records, its epoch is stored with the cached
    offsets, and no process checks this leader again. A leader that does not answer is checked at
    the next look. The table's run decides how to handle a truncated topic.

    Args:
        context: The runs' context.
        idle: Tables whose topics end where their last commits did.
        topics: The topics.
    """
    asked: dict[ReachedOffset, TableRecord] = {}
    for record in idle:
        if (last := record.last_commit) is not None:
            now = topics[record.topic]
            logs = _elsewhere_led(record.topic, last.offsets, last.epochs, now)
            asked |= dict.fromkeys(logs, record)
    answers = context.kafka.truncated(asked, timeout_s=_LEADERS_S)
    silent = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
    if silent:
        what = f"{len(silent)} partitions of idle tables"
        _log.warning("%s were not checked under their new leaders: %s", what, silent[0])
    doubtful = {log.topic for log, answer in answers.items() if answer is not None}
    whole = {record.table: record for record in asked.values() if record.topic not in doubtful}
    context.store.put_all([_led_by(record, topics[record.topic]) for record in whole.values()])
    return {asked[log].table for log, answer in answers.items() if isinstance(answer, str)}


def _led_by(record: TableRecord, now: TopicFacts) -> TableRecord:
    """Return the record with the current leaders' epochs, where a partition has a leader."""
    last = record.last_commit
    if last is None:
        return record
    epochs = {partition: now.epochs.get(partition, was) for partition, was in last.epochs.items()}
    return replace(record, last_commit=replace(last, epochs=epochs))


def _elsewhere_led(
    topic: str, offsets: Mapping[int, int], epochs: Mapping[int, int], now: TopicFacts
) -> list[ReachedOffset]:
    """Return offset and epoch from before the new leader, for each partition with a new leader."""
    return [
        ReachedOffset(topic, partition, offsets[partition], was)
        for partition, was in epochs.items()
        if was != now.epochs.get(partition)
    ]


def with_settings(context: RunContext, topics: Mapping[str, TopicFacts]) -> dict[str, TopicFacts]:
    """Add the settings that affect records to topics' facts; one call reads hundreds of topics.

    Raises:
        KafkaError: The cluster does not answer.
    """
    found = context.kafka.topic_configs(topics)
    context.topic_settings.update(found)
    return {
        name: replace(
            facts,
            policy=found[name].get("cleanup.policy", facts.policy),
            lagging=never_compacted(found[name]),
        )
        if name in found
        else facts
        for name, facts in topics.items()
    }
