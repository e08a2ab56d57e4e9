"""Reads topics' offsets, leaders and settings, and checks partitions that have new leaders."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.position_check import TopicFacts
from cdc.errors import KafkaError
from cdc.kafka import End, KnownRecord, ReachedOffset, leader_epochs, never_compacted

if TYPE_CHECKING:
    from cdc.lake.timeline import Committed
    from cdc.run.context import RunContext
    from cdc.store.table_state import LastRecord, TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_LEADERS_S = 10.0
"""The longest wait for answers about the topics of idle tables, in seconds."""


def topic_facts(context: RunContext, topics: Iterable[str]) -> dict[str, TopicFacts | KafkaError]:
    """Return the UUID, offsets and leader epochs of each captured topic.

    The topics' settings are not read. If a topic cannot be read, for example because it has no
    leader, the result has an error in place of the topic's facts. So other topics are not affected.

    Raises:
        KafkaError: The cluster does not answer.
    """
    names = list(dict.fromkeys(topics))
    looks = context.kafka.looks(names)

    def seen(name: str) -> TopicFacts | KafkaError:
        look = looks.get(name)
        if isinstance(look, KafkaError):
            return look
        if look is None:
            return _GONE
        return replace(_facts_of_topic(look.info.id, look.earliest, look.ends), high=look.high)

    return {name: seen(name) for name in names}


_GONE = TopicFacts(id=None, earliest={}, stable={})


def _facts_of_topic(
    topic_id: str | None, earliest: Mapping[int, int], ends: Mapping[int, End]
) -> TopicFacts:
    """Return the facts of a captured topic, from its UUID, first offsets and ends."""
    stable = {partition: end.offset for partition, end in ends.items()}
    return TopicFacts(topic_id, earliest, stable, epochs=leader_epochs(ends))


def one_topic(context: RunContext, topic: str) -> TopicFacts:
    """Return one captured topic's UUID, offsets, leader epochs and cleanup policy.

    The call waits until the topic's leaders answer.

    Raises:
        KafkaError: The cluster does not answer, or the topic cannot be read.
    """
    described = context.kafka.topics([topic]).get(topic)
    ends = context.kafka.ends_many([topic]).get(topic, {})
    earliest = context.kafka.start_offsets_many([topic]).get(topic, {})
    facts = _facts_of_topic(described.id if described is not None else None, earliest, ends)
    found = with_settings(context, {topic: facts})[topic]
    if isinstance(found, KafkaError):
        raise found
    return found


def still_in_topic(
    context: RunContext, record: TableRecord, latest: Committed, now: TopicFacts
) -> Committed:
    """Check that a captured topic continues from the offsets of the lake's newest commit.

    Only a partition with a new leader is checked for a truncation. A new leader can lack records
    that the former leader had, for example because its disk was restored from a backup. While
    a broker remains the leader, it never truncates records that consumers could read.

    After a whole cluster was restored, its leaders can have the former epochs again, and so do not
    count as new. So each partition is also checked for the last record that the lake has read.

    Args:
        context: The runs' context.
        record: The table.
        latest: The newest commit of the lake table.
        now: The current facts of the table's topic.

    Returns:
        The newest commit, with the epochs of the current leaders.

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
    known = _known_last_records(record.topic, commit.last_records)
    answers: list[tuple[int, str | KafkaError | None]] = [
        *((log.partition, answer) for log, answer in context.kafka.truncated(asked).items()),
        *(
            (one.partition, answer)
            for one, answer in _replaced_last_records(context, known).items()
        ),
    ]
    for partition, answer in answers:
        if isinstance(answer, KafkaError):
            raise answer
        if answer is not None:
            cuts.setdefault(partition, answer)
    position_check.check_cuts(record.table, record.topic, cuts)
    return replace(latest, record=replace(commit, epochs=dict(now.epochs)))


def cut_off(
    context: RunContext,
    idle: Collection[TableRecord],
    topics: Mapping[str, TopicFacts | KafkaError],
) -> set[TableId]:
    """Return idle tables whose captured topics were truncated below the lake's offset and refilled.

    Such a topic has got other records since then, and ends at the lake's offset again. So its end
    offset does not show the truncation.

    All new leaders are checked in one call, since a rolling restart of brokers elects many leaders.
    If a leader has all records, its epoch is stored with the table, and this leader is not checked
    again. A leader that does not answer is checked by the next call.

    After a whole cluster was restored, its leaders can have the former epochs again, and so do not
    count as new. So each process also checks once, in one call, whether all topics still have the
    last records that the lake has read.

    Args:
        context: The runs' context.
        idle: The tables whose topics end at the offset of the table's last commit.
        topics: For each topic, the current `TopicFacts`, or the error if the topic could not be
            read.

    Returns:
        The tables whose topics were truncated. The runs of these tables report the truncation.
    """
    asked: dict[ReachedOffset, TableRecord] = {}
    facts = {name: now for name, now in topics.items() if not isinstance(now, KafkaError)}
    for record in idle:
        if (last := record.last_commit) is not None and (now := facts.get(record.topic)):
            logs = _elsewhere_led(record.topic, last.offsets, last.epochs, now)
            asked |= dict.fromkeys(logs, record)
    answers = context.kafka.truncated(asked, timeout_s=_LEADERS_S)
    silent = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
    if silent:
        what = f"{len(silent)} partitions of idle tables"
        _log.warning("%s were not checked under their new leaders: %s", what, silent[0])
    doubtful = {log.topic for log, answer in answers.items() if answer is not None}
    whole = {record.table: record for record in asked.values() if record.topic not in doubtful}
    context.store.put_all(
        [_with_present_epochs(record, facts[record.topic]) for record in whole.values()]
    )
    cut = {asked[log].table for log, answer in answers.items() if isinstance(answer, str)}
    return cut | _tables_of_refilled_topics(context, idle, facts)


def _tables_of_refilled_topics(
    context: RunContext, idle: Iterable[TableRecord], facts: Mapping[str, TopicFacts]
) -> set[TableId]:
    """Return the idle tables whose topics lack the last record that the lake has read.

    The topic has a different record at this offset, or none. Records that this process has already
    found are not searched for again.
    """
    asked: dict[KnownRecord, TableRecord] = {}
    for record in idle:
        if (last := record.last_commit) is not None and record.topic in facts:
            known = _known_last_records(record.topic, last.last_records)
            asked |= {one: record for one in known if context.proven.get(one.log) != one}
    answers = _replaced_last_records(context, asked, timeout_s=_LEADERS_S)
    context.proven.update((one.log, one) for one, answer in answers.items() if answer is None)
    silent = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
    if silent:
        what = f"{len(silent)} partitions of idle tables"
        _log.warning("%s were not asked for the last record read: %s", what, silent[0])
    return {asked[one].table for one, answer in answers.items() if isinstance(answer, str)}


def _known_last_records(topic: str, records: Mapping[int, LastRecord]) -> list[KnownRecord]:
    """Return, for each partition of a captured topic, the last record that the lake has read."""
    return [KnownRecord(topic, part, it.offset, it.sent_ms) for part, it in records.items()]


def _replaced_last_records(
    context: RunContext, known: Collection[KnownRecord], *, timeout_s: float | None = None
) -> dict[KnownRecord, str | KafkaError | None]:
    """Return what captured topics have in place of known records, as from `KafkaAdmin.replaced`."""
    return context.kafka.replaced(known, timeout_s=timeout_s) if known else {}


def _with_present_epochs(record: TableRecord, now: TopicFacts) -> TableRecord:
    """Return a table's record with the present leader epochs of its captured topic."""
    last = record.last_commit
    if last is None:
        return record
    epochs = {partition: now.epochs.get(partition, was) for partition, was in last.epochs.items()}
    return replace(record, last_commit=replace(last, epochs=epochs))


def _elsewhere_led(
    topic: str, offsets: Mapping[int, int], epochs: Mapping[int, int], now: TopicFacts
) -> list[ReachedOffset]:
    """Return the lake's offset and the former epoch for each partition that has a new leader."""
    return [
        ReachedOffset(topic, partition, offsets[partition], was)
        for partition, was in epochs.items()
        if was != now.epochs.get(partition)
    ]


def with_settings(
    context: RunContext, topics: Mapping[str, TopicFacts | KafkaError]
) -> dict[str, TopicFacts | KafkaError]:
    """Return captured topics' facts with each topic's cleanup policy and compaction lag.

    The settings of hundreds of topics are read in one call. If the settings of a topic cannot be
    read, the result has an error in place of the topic's facts.

    Raises:
        KafkaError: The cluster does not answer.
    """
    readable = {name: now for name, now in topics.items() if not isinstance(now, KafkaError)}
    found, failed = context.kafka.topic_configs_each(readable)
    context.topic_settings.update(found)
    known = {
        name: replace(
            readable[name],
            policy=settings.get("cleanup.policy", readable[name].policy),
            lagging=never_compacted(settings),
        )
        for name, settings in found.items()
    }
    return {**topics, **known, **failed}
