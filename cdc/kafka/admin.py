"""The client for topics and offsets. One call reads the offsets of many topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin

from cdc.errors import KafkaError
from cdc.kafka import first_records, known_records, records, topic_creation, topic_looks
from cdc.kafka.client import UNKNOWN_TOPIC, KafkaClient, missing
from cdc.kafka.reader import RecordReader
from cdc.kafka.records import KafkaRecord
from cdc.kafka.topic_looks import described, places
from cdc.kafka.topic_values import (
    NEVER_COMPACTED,
    End,
    KnownRecord,
    ReachedOffset,
    Since,
    TopicInfo,
    TopicLook,
)
from cdc.runtime.waiting import wait_while

if TYPE_CHECKING:
    from cdc.config import KafkaConfig
    from cdc.runtime.progress import Progress

_POLL_S = 0.1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LATEST_MS = 250_000_000_000_000
"""The greatest send time, in the year 9892. A later time is replaced by this time, since Kafka's
times can be beyond the end of Python's times.
"""
_CONFIGS_AT_ONCE = 500
"""Maximum number of topics in one request for settings: an answer has 5 KB for each topic."""


class KafkaAdmin:
    """Topics and offsets of one Kafka cluster. Safe to share among threads.

    Args:
        config: Address of the cluster, and the login.
        timeout_s: Limit for one request, in seconds. A request that fails transiently is repeated
            up to five times, within a minute.
    """

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 20.0) -> None:
        self._topic = config.topic
        self._client = KafkaClient(config, timeout_s=timeout_s)
        self._admin = ck_admin.AdminClient(dict(self._client.settings))
        self._client.renew = lambda: self._admin.list_topics(timeout=self._client.timeout_s)

    def ping(self) -> tuple[str, int]:
        """Return the Kafka cluster's id and its number of brokers.

        Raises:
            KafkaError: The cluster is unreachable or refuses the login.
        """
        found = self._client.call(
            "describe the cluster",
            lambda: {"": self._admin.describe_cluster(request_timeout=self._client.timeout_s)},
        )[""]
        return str(found.cluster_id), len(found.nodes)

    def ensure_topics(
        self, wanted: Mapping[str, Mapping[str, str]], progress: Progress | None = None
    ) -> dict[str, TopicInfo]:
        """Create missing topics, check that existing ones are suitable, and return descriptions.

        A new topic has ``cleanup.policy=delete``, since compaction would remove changes that the
        lake has not read. A new topic also has the longest possible compaction lag: if somebody
        alters the policy later, no record is removed before a run notices the change. An existing
        topic is never altered. The number of requests hardly grows with the number of topics.

        Args:
            wanted: For each topic, the settings that override those of ``kafka.topic``.
            progress: Shows the wait while a quota of the cluster refuses further topics.

        Raises:
            ThrottledError: Because of a quota of the cluster, no further topic was created for two
                minutes.
            KafkaError: A topic cannot be created, or it exists with several partitions, with
                compaction, or with a retention that is too short.
        """
        settings = {name: self.new_topic_settings(config) for name, config in wanted.items()}
        factor = self._topic.replication_factor
        return topic_creation.ensure(self, self._client, self._admin, settings, factor, progress)

    def ensure_topic(self, name: str, *, config: Mapping[str, str] | None = None) -> TopicInfo:
        """Create one topic if it is missing, or check that it is suitable; see `ensure_topics`."""
        return self.ensure_topics({name: config or {}})[name]

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the descriptions of topics, by name; topics that do not exist are left out."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        found = self._client.call(
            "describe topics",
            lambda: self._admin.describe_topics(
                ck.TopicCollection(wanted), request_timeout=self._client.timeout_s
            ),
            ignored=UNKNOWN_TOPIC,
        )
        return {name: described(name, topic) for name, topic in found.items()}

    def looks(self, names: Iterable[str]) -> dict[str, TopicLook | KafkaError]:
        """Return the descriptions, first offsets and end offsets of many topics, in four requests.

        Topics that do not exist are left out. If a topic cannot be read, the result has an error in
        place of its description and offsets. If only some topics lack a leader, the call waits a
        few seconds for their leaders to be elected.

        Raises:
            KafkaError: Several topics were requested, and none of them can be read.
        """
        return topic_looks.looks(self._client, self._admin, names)

    def all_topics(self) -> frozenset[str]:
        """Return the names of all topics of the cluster.

        Raises:
            KafkaError: The cluster does not answer.
        """

        def listed() -> dict[str, Future[frozenset[str]]]:
            names: Future[frozenset[str]] = Future()
            found = self._admin.list_topics(timeout=self._client.timeout_s)
            names.set_result(frozenset(found.topics))
            return {"": names}

        return self._client.call("list topics", listed)[""]

    def topic(self, name: str) -> TopicInfo:
        """Return the description of a topic.

        Raises:
            KafkaError: The topic does not exist.
        """
        found = self.topics([name]).get(name)
        if found is None:
            raise missing(name)
        return found

    def topic_id(self, topic: str) -> str:
        """Return the topic's UUID as Kafka prints it (base64)."""
        return self.topic(topic).id

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the topic's effective settings, including defaults."""
        found = self.topic_configs([topic])
        if topic not in found:
            raise missing(topic)
        return found[topic]

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the effective settings of many topics; topics that do not exist are left out.

        Raises:
            KafkaError: The settings of a topic cannot be read.
        """
        found, failed = self.topic_configs_each(topics)
        for error in failed.values():
            raise error
        return found

    def topic_configs_each(
        self, topics: Iterable[str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, KafkaError]]:
        """Return the settings of topics, and the errors of topics whose settings cannot be read.

        The settings are the effective ones, including defaults. Both results leave out topics that
        do not exist.

        Raises:
            KafkaError: Several topics were requested, and the settings of none can be read.
        """
        names = list(dict.fromkeys(topics))
        found: dict[str, dict[str, str]] = {}
        failed: dict[str, KafkaError] = {}
        for first in range(0, len(names), _CONFIGS_AT_ONCE):
            settings, refused = self._configs(names[first : first + _CONFIGS_AT_ONCE])
            found |= settings
            failed |= refused
        return found, failed

    def delete_topic(self, topic: str) -> bool:
        """Delete a topic, and return whether it existed."""
        found = self._client.call(
            f"delete topic {topic}",
            lambda: self._admin.delete_topics(
                [topic],
                operation_timeout=self._client.timeout_s,
                request_timeout=self._client.timeout_s,
            ),
            ignored=UNKNOWN_TOPIC,
            topic=topic,
        )
        return topic in found

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Return, for each partition of a topic, the first offset that the partition still has."""
        return self._of_one(topic, self.start_offsets_many([topic]))

    def stable_offsets(self, topic: str) -> dict[int, int]:
        """Return, for each partition of a topic, the last stable offset.

        All records below this offset are from transactions that have ended.
        """
        return self._of_one(topic, self.stable_offsets_many([topic]))

    def high_watermarks(self, topic: str) -> dict[int, int]:
        """Return, for each partition, the offset after the last record, committed or not."""
        return self._of_one(topic, self.high_watermarks_many([topic]))

    def ends_many(self, topics: Iterable[str]) -> dict[str, dict[int, End]]:
        """Return, for each topic and partition, the last stable offset and the leader's epoch."""
        return self._ends(topics, ck_admin.OffsetSpec.latest(), committed=True)

    def truncated(
        self, logs: Iterable[ReachedOffset], *, timeout_s: float | None = None
    ) -> dict[ReachedOffset, str | KafkaError | None]:
        """Find partitions that were truncated below an offset that they had reached.

        Args:
            logs: The offsets that the partitions had reached.
            timeout_s: Limit for all partitions together, in seconds; by default the limit of one
                request.

        Returns:
            For each of ``logs``, a description of the truncation; None if the partition was not
            truncated; an error if the partition's leader does not answer.
        """
        deadline = time.monotonic() + (timeout_s or self._client.timeout_s)
        return records.truncated(self._client, logs, deadline=deadline)

    def replaced(
        self, known: Iterable[KnownRecord], *, timeout_s: float | None = None
    ) -> dict[KnownRecord, str | KafkaError | None]:
        """Find partitions that have another record, or none, in place of a known record.

        Args:
            known: The known records, one of each partition.
            timeout_s: Limit in seconds, after which no further record is read; by default the limit
                of one request.

        Returns:
            For each of ``known``, what the partition has in place of the known record. None if the
            partition still has the known record, or has deleted this record and all earlier ones.
            An error if the partition cannot be read.
        """
        deadline = time.monotonic() + (timeout_s or self._client.timeout_s)
        return known_records.replaced(self._client, self._admin, known, deadline=deadline)

    def first_records(
        self, ranges: Mapping[str, tuple[int, int]], *, timeout_s: float
    ) -> dict[str, KafkaRecord]:
        """Return the first record of a range in partition 0 of each topic, committed or not.

        Topics without a record in the range, and topics that cannot be read in time, are left out.

        Args:
            ranges: For each topic, the first offset and the offset after the last one.
            timeout_s: Limit for all topics together, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        return first_records.first_records(self._client, ranges, deadline=deadline)

    def start_offsets_many(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return first offsets of many topics at once; missing topics are left out."""
        return self._offsets(topics, ck_admin.OffsetSpec.earliest(), committed=False)

    def stable_offsets_many(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return last stable offsets of many topics at once; missing topics are left out."""
        return self._offsets(topics, ck_admin.OffsetSpec.latest(), committed=True)

    def high_watermarks_many(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return high watermarks of many topics at once; missing topics are left out."""
        return self._offsets(topics, ck_admin.OffsetSpec.latest(), committed=False)

    def ends_now(
        self, topics: Iterable[str], *, committed: bool
    ) -> dict[str, dict[int, int] | KafkaError]:
        """Return, for each topic that can be read now, the end offset of each partition.

        This call waits for no leader. If a topic cannot be read, for example because a partition
        has no leader, the result has an error in place of the offsets. Topics that do not exist,
        and topics whose partitions do not answer yet, are left out.

        Args:
            topics: The topics.
            committed: Whether to return the last stable offsets. If False, the result has the high
                watermarks.

        Raises:
            KafkaError: The cluster does not answer, or several topics were requested and none of
                them can be read.
        """
        return topic_looks.ends_now(self._client, self._admin, topics, committed=committed)

    def newest_times(self, topics: Iterable[str]) -> dict[str, datetime]:
        """Return the time of each topic's newest record, for all topics at once.

        Topics without records are left out. The time is by the sender's clock, unless the topic's
        settings choose the broker's clock.
        """
        described, uncommitted = self.topics(topics), ck.IsolationLevel.READ_UNCOMMITTED
        found: dict[str, datetime] = {}
        for place, result in self._request_offsets(
            described, ck_admin.OffsetSpec.max_timestamp(), uncommitted
        ):
            if result.timestamp >= 0:
                sent = _kafka_record_time(result.timestamp)
                found[place.topic] = max(sent, found.get(place.topic, sent))
        return found

    def newest_times_each(self, topics: Iterable[str]) -> dict[str, datetime | KafkaError]:
        """Return the same as `newest_times`, with an error for each topic that cannot be read.

        Raises:
            KafkaError: Several topics were requested, and none of them can be read.
        """
        found, failed = topic_looks.newest(self._client, self._admin, topics)
        return {**{topic: _kafka_record_time(ms) for topic, ms in found.items()}, **failed}

    def since(self, times: Mapping[str, datetime]) -> dict[str, dict[int, Since]]:
        """Return, for each topic and partition, the offset of the first record at or after a time.

        Records of open transactions count. Topics that are missing or cannot be read are left out.
        The time of a record is by the same clock as in `newest_times`.

        Args:
            times: The time for each topic, in UTC.

        Raises:
            KafkaError: The cluster does not answer.
        """
        return topic_looks.since(self._client, self._admin, times)

    def latest_record(self, topic: str, *, timeout_s: float = 30.0) -> KafkaRecord | None:
        """Return the newest committed record of a topic; None if it has no record.

        The last offset need not have a record, since the markers of Kafka transactions also take
        offsets. So the search goes backwards from the last stable offset.

        Raises:
            KafkaError: The topic does not exist, or the search took longer than ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        starts, ends = self.start_offsets(topic), self.stable_offsets(topic)
        return records.newest(self._client, topic, starts, ends, deadline)

    def latest_records(self, topic: str, *, timeout_s: float = 30.0) -> list[KafkaRecord]:
        """Return up to 32 of the newest committed records of each partition, the oldest first.

        The call needs no more requests than `latest_record`, which returns the last of the records.

        Raises:
            KafkaError: The topic does not exist, or the search took longer than ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        starts, ends = self.start_offsets(topic), self.stable_offsets(topic)
        return records.newest_few(self._client, topic, starts, ends, deadline)

    def reader(self) -> RecordReader:
        """Return a reader that uses one consumer for many reads.

        The reader is a context manager, which closes the consumer at the end of the ``with`` block.
        """
        return RecordReader(self._client)

    def read(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float = 30.0
    ) -> Iterator[KafkaRecord]:
        """Yield the committed records of a short range of offsets in order.

        Args:
            topic: The topic.
            partition: The partition's number.
            start: The first offset to read.
            end: The offset after the last one to read.
            timeout_s: Limit for the whole read, in seconds.

        Raises:
            KafkaError: The range cannot be read in time.
        """
        deadline = time.monotonic() + timeout_s
        return records.read(self._client, topic, partition, start, end, deadline=deadline)

    def new_topic_settings(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings for a new topic.

        Args:
            config: Settings that override those of ``kafka.topic``. They cannot override the
                cleanup policy and the compaction lag.
        """
        kept = {"retention.ms": str(self._topic.retention_ms)}
        if self._topic.max_message_bytes is not None:
            kept["max.message.bytes"] = str(self._topic.max_message_bytes)
        return {
            **self._topic.config,
            **kept,
            **config,
            **NEVER_COMPACTED,
            "cleanup.policy": "delete",
        }

    def _configs(
        self, names: Sequence[str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, KafkaError]]:
        """Return the settings and the errors by topic; topics that do not exist are left out."""
        kind = ck_admin.ConfigResource.Type.TOPIC
        asked = [ck_admin.ConfigResource(kind, name) for name in names]
        found, failed = self._client.call_each(
            "read the settings of topics",
            lambda: self._admin.describe_configs(asked, request_timeout=self._client.timeout_s),
            ignored=UNKNOWN_TOPIC,
        )
        settings = {
            str(resource.name): {str(key): str(entry.value) for key, entry in entries.items()}
            for resource, entries in found.items()
        }
        return settings, {str(resource.name): error for resource, error in failed.items()}

    def _offsets(
        self, topics: Iterable[str], spec: ck_admin.OffsetSpec, *, committed: bool
    ) -> dict[str, dict[int, int]]:
        found = self._ends(topics, spec, committed=committed)
        return {
            name: {partition: end.offset for partition, end in ends.items()}
            for name, ends in found.items()
        }

    def _ends(
        self, topics: Iterable[str], spec: ck_admin.OffsetSpec, *, committed: bool
    ) -> dict[str, dict[int, End]]:
        """Wait until all partitions of the topics answer, and return their offsets.

        Topics that do not exist are left out. Kafka can describe a new topic before its partitions
        answer. Without the wait, such a topic would be left out, too.
        """
        level = (
            ck.IsolationLevel.READ_COMMITTED if committed else ck.IsolationLevel.READ_UNCOMMITTED
        )
        found: dict[str, dict[int, End]] = {}
        silent = self.topics(topics)

        def late() -> list[str]:
            nonlocal silent
            if silent:
                for place, result in self._request_offsets(silent, spec, level):
                    end = End(result.offset, result.leader_epoch)
                    found.setdefault(place.topic, {})[place.partition] = end
            silent = self.topics(
                t.name for t in silent.values() if len(found.get(t.name, ())) < t.partitions
            )
            return list(silent)

        if names := wait_while(late, timeout_s=self._client.timeout_s, poll_s=_POLL_S):
            raise KafkaError(
                f"partitions of topic {names[0]} and {len(names) - 1} others do not answer",
                remedy="Check that every partition has a leader, then run the command again.",
                topic=names[0],
            )
        return {name: dict(sorted(ends.items())) for name, ends in found.items()}

    def _request_offsets(
        self, topics: Mapping[str, TopicInfo], spec: ck_admin.OffsetSpec, level: ck.IsolationLevel
    ) -> list[tuple[ck.TopicPartition, ck_admin.ListOffsetsResultInfo]]:
        """Return the offset that ``spec`` describes, for each partition, by one request.

        Partitions that no broker knows yet are left out.
        """
        asked = places(topics, spec)
        found = self._client.call(
            "list offsets",
            lambda: self._admin.list_offsets(
                asked, isolation_level=level, request_timeout=self._client.timeout_s
            ),
            ignored=UNKNOWN_TOPIC,
        )
        return list(found.items())

    def _of_one(self, topic: str, found: Mapping[str, dict[int, int]]) -> dict[int, int]:
        """Return the offsets of one topic; raise an error if the topic does not exist."""
        if topic not in found:
            raise missing(topic)
        return found[topic]


def _kafka_record_time(milliseconds: int) -> datetime:
    """Return Kafka's timestamp of a record as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=min(milliseconds, _LATEST_MS))
