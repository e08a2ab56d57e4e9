"""Topics with the events of several tasks, in memory."""

from __future__ import annotations

import io
import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import fastavro

from cdc.debezium import CaptureNames
from cdc.debezium.event_reader import EventReader
from cdc.debezium.task_ends import TaskEnds
from cdc.errors import KafkaError
from cdc.kafka import End, KafkaRecord, TopicInfo, TopicLook

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
START = datetime(2026, 1, 2, tzinfo=timezone.utc)

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
PLACE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "lsn", "type": "long"},
        {"name": "txId", "type": ["null", "long"]},
        {"name": "sequence", "type": ["null", "string"]},
    ],
}
NUMBERED = {
    "type": "record",
    "name": "Transaction",
    "fields": [{"name": "total_order", "type": "long"}],
}
IN_BINLOG = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"},
        {"name": "row", "type": "int"},
        {"name": "gtid", "type": ["null", "string"]},
    ],
}


def _envelope(source: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "op", "type": "string"},
            {"name": "source", "type": source},
            {"name": "after", "type": ["null", "string"]},
            {"name": "transaction", "type": ["null", NUMBERED]},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }


VALUE, BINLOG_VALUE = _envelope(PLACE), _envelope(IN_BINLOG)
SCHEMAS = [KEY, VALUE, BINLOG_VALUE]


class Registry:
    """A registry with the schemas above."""

    def schema(self, schema_id: int) -> str:
        return json.dumps(SCHEMAS[schema_id])


def encoded(schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + SCHEMAS.index(schema).to_bytes(4, "big") + out.getvalue()


def headers(task: str | None, *more: str) -> tuple[tuple[str, bytes | None], ...]:
    named = () if task is None else (("__debezium.context.runId", task.encode()),)
    return (*named, *((name, b"") for name in more))


def sent(offset: int, task: str | None, *more: str) -> KafkaRecord:
    """A record without contents, for tests of its headers."""
    return KafkaRecord("t", 0, offset, b"", b"", None, headers(task, *more))


def event(offset: int, transaction: int, op: str, key: int, **more: Any) -> KafkaRecord:
    """An event for the row with this key; ``at`` is the number of seconds since START."""
    place = {"lsn": more.get("lsn", 5), "txId": transaction, "sequence": more.get("sequence")}
    value = {"op": op, "source": place, "after": more.get("after"), "transaction": None}
    if "number" in more:
        value["transaction"] = {"total_order": more["number"]}
    return KafkaRecord(
        more.get("topic", "t"),
        0,
        offset,
        encoded(KEY, {"id": key}),
        encoded(VALUE, value),
        START + timedelta(seconds=more.get("at", 0)),
        headers(more.get("task"), *more.get("headers", ())),
    )


def in_binlog(offset: int, pos: int, row: int, op: str, **more: Any) -> KafkaRecord:
    """An event with a change from a binlog of MySQL or MariaDB."""
    place = {"file": "binlog.000007", "pos": pos, "row": row, "gtid": more.get("gtid")}
    value = {"op": op, "source": place, "after": more.get("after"), "transaction": None}
    if "decoded" in more:
        decoded = START + timedelta(seconds=more.pop("decoded"))
        value["ts_ms"] = int(decoded.timestamp() * 1000)
    as_logged = event(offset, 0, op, more.pop("key", 1), **more)
    return replace(as_logged, value=encoded(BINLOG_VALUE, value))


def learned(offset: int, pos: int, at: int, **more: Any) -> KafkaRecord:
    """A schema history's record of a definition of ``orders``, ``at`` seconds after START."""
    columns = [
        {"name": name, "typeName": "INT", "charsetName": None, "position": place, "optional": True}
        for place, name in enumerate(more.get("columns", ("id", "a", "b")), start=1)
    ]
    table = {
        "type": "ALTER",
        "id": more.get("table", '"public"."orders"'),
        "table": {"columns": columns},
    }
    position = {"file": "binlog.000007", "pos": pos, "server_id": 1, **more.get("position", {})}
    document = {"position": position, "ddl": "ALTER ...", "tableChanges": [table]}
    value, written = json.dumps(document).encode(), START + timedelta(seconds=at)
    return KafkaRecord(more["topic"], 0, offset, None, value, written)


@dataclass
class Topics:
    """Fake topics with records by offset; an offset without a record is a transaction marker."""

    records: dict[str, dict[int, KafkaRecord]] = field(default_factory=dict)
    offsets: dict[str, list[int]] = field(default_factory=dict)
    ahead: dict[str, tuple[int, int]] = field(default_factory=dict)
    reads: int = 0
    asked: int = 0
    readers: int = 0
    unread: set[str] = field(default_factory=set)
    before_times: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, records: Iterable[KafkaRecord]) -> Topics:
        made = cls()
        for one in records:
            made.add(one)
        return made

    def add(self, record: KafkaRecord) -> None:
        """Append a record to its topic."""
        self.records.setdefault(record.topic, {})[record.offset] = record
        self.offsets.setdefault(record.topic, []).append(record.offset)

    def reader(self) -> Topics:
        self.readers += 1
        return self

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_ahead(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        self.asked += 1
        self.ahead = dict(ranges)

    def read(self, topic: str, start: int, end: int) -> Iterator[KafkaRecord]:
        self._ask(topic, start, end)
        for offset in self._between(topic, start, end):
            self.reads += 1
            yield self.records[topic][offset]

    def last(self, topic: str, start: int, end: int) -> KafkaRecord | None:
        found = self._between(topic, start, end)[-1:]
        self._ask(topic, found[0] if found else start, end)
        self.reads += 1
        return self.records[topic][found[0]] if found else None

    def _between(self, topic: str, start: int, end: int) -> list[int]:
        offsets = self.offsets.get(topic, [])
        return offsets[bisect_left(offsets, start) : bisect_left(offsets, end)]

    def _ask(self, topic: str, start: int, end: int) -> None:
        """Count a read, unless its range was read ahead; refuse expired offsets, as Kafka does."""
        assert start >= self.start(topic)
        first, last = self.ahead.get(topic, (0, 0))
        self.asked += start < end and not first <= start < end <= last

    def start(self, topic: str) -> int:
        return min(self.offsets.get(topic, [])[:1], default=0)

    def end(self, topic: str) -> int:
        return max(self.offsets.get(topic, [])[-1:], default=-1) + 1

    def start_offsets_many(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: self.start(topic)} for topic in topics}

    def stable_offsets_many(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: self.end(topic)} for topic in topics}

    def looks(self, topics: Iterable[str]) -> dict[str, TopicLook | KafkaError]:
        return {
            topic: KafkaError(f"topic {topic} has no leader", remedy="Elect one.")
            if topic in self.unread
            else TopicLook(
                TopicInfo(topic, "T1", 1, 1),
                {0: self.start(topic)},
                {0: End(self.end(topic), 0)},
                {0: self.end(topic)},
            )
            for topic in topics
        }

    def newest_times_each(self, topics: Iterable[str]) -> dict[str, datetime | KafkaError]:
        self.before_times()
        assert self.unread.isdisjoint(topics), "a topic without a leader is not asked again"
        newest = {topic: self.latest_record(topic) for topic in topics}
        return {
            topic: one.timestamp
            for topic, one in newest.items()
            if one is not None and one.timestamp is not None
        }

    def latest_record(self, topic: str) -> KafkaRecord | None:
        return self.records.get(topic, {}).get(self.end(topic) - 1)

    def ends(self) -> TaskEnds:
        starts = {topic: self.start(topic) for topic in self.records}
        events = EventReader(cast("Any", Registry()))
        return TaskEnds(cast("Any", self), events, starts)


@dataclass
class Sender:
    """Writes the events of a connector's tasks; each event is one transaction of the source."""

    topics: Topics = field(default_factory=Topics)
    second: float = 0.0

    def send(self, task: str, loaded: int, ends: Sequence[int], **more: Any) -> None:
        """Send transactions that end at these positions.

        Args:
            task: The task that sends.
            loaded: The position from which the task starts; without a gap, ``ends`` follow it.
            ends: The ends of the transactions.
            more: ``topic``, ``rows`` and ``every_s``, if not the defaults.
        """
        topic, before = more.get("topic", NAMES.heartbeat_topic), loaded
        for end in ends:
            place = {"sequence": f'["{before}","{end - more.get("rows", 5)}"]', "task": task}
            offset = self.topics.end(topic)
            self.topics.add(event(offset, end, "c", 1, topic=topic, at=self.second, **place))
            self.second += more.get("every_s", 1.0)
            before = end
