"""Finds changes that a connector has left out, or sent twice, because its task ended.

Debezium's connector for PostgreSQL stores a position and the number of events at this position. A
later task skips what an earlier one has sent. It skips too much in two cases:

- The earlier task has sent one row of several that COPY inserted by one record of the log. The
  later task takes them all for sent.
- The earlier task has sent the delete of a changed key, but not its insert.

In an append table, it can also skip too little: the first record of a transaction also counts the
transaction's begin. So the last row before the end is sent again.

An end of a task is visible in a topic, since each event names its task. So each look searches the
offsets since the last look, and compares what is there with the table itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.debezium.task_ends import TaskEnds, moves_key, task_of
from cdc.errors import DecodeError, SourceError, UnreachableError
from cdc.log.continuity import LogMark
from cdc.store.log_marks import LogMarks
from cdc.store.loss_counts import Losses
from schemas.avro import field_name

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.debezium.task_ends import SentChange, TaskEnd
    from cdc.kafka import KafkaAdmin
    from cdc.sources.base import Source
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.registry import SchemaRegistry
    from schemas.table import TableId

_log = logging.getLogger(__name__)

_BEHIND = 5_000
"""Number of offsets behind the last row of a task in which the next row is looked for."""


@dataclass(frozen=True)
class TaskLook:
    """One look at the events of a connector, for ends of its tasks.

    Args:
        task: The task that sent the newest heartbeat.
        beat_at: Time of that heartbeat, by its sender's clock.
        ends: The end offsets of the tables' topics, read after the heartbeat.
    """

    task: str
    beat_at: datetime
    ends: Mapping[str, int]

    def mark(self) -> LogMark:
        """Return the look at a connector's tasks as a mark in the state store."""
        return LogMark(self.task, self.beat_at.isoformat(), json.dumps(dict(self.ends)))

    def only_settled(self, sent: Mapping[str, datetime], earlier: Mapping[str, int]) -> TaskLook:
        """Return the look without ends of tasks that a later task can have moved.

        Args:
            sent: The time of each topic's newest record, read after this look.
            earlier: The ends of the look before. They stay for topics with a newer record than the
                heartbeat, since its task can be a later one.
        """
        settled = {
            topic: end
            for topic, end in self.ends.items()
            if topic not in sent or sent[topic] <= self.beat_at
        }
        kept = {topic: end for topic, end in earlier.items() if topic in self.ends}
        return replace(self, ends={**kept, **settled})

    @classmethod
    def of(cls, mark: LogMark) -> TaskLook:
        """Return the look at a connector's tasks that a mark stands for."""
        return cls(mark.server, datetime.fromisoformat(mark.file), json.loads(mark.executed))


class TaskLooks:
    """The looks at the events of connectors, by all processes that share a state store.

    Args:
        store: The state store.
        kafka: The cluster.
        registry: The writers' schemas.
    """

    def __init__(self, store: Store, kafka: KafkaAdmin, registry: SchemaRegistry) -> None:
        self._marks, self._losses = LogMarks(store), Losses(store)
        self._kafka, self._ends = kafka, TaskEnds(kafka, registry)

    def follow(
        self, names: CaptureNames, records: Iterable[TableRecord], source: Callable[[], Source]
    ) -> None:
        """Search a connector's events since the last look; count each table's loss at a task's end.

        Args:
            names: The capture.
            records: The capture's tables.
            source: Opens the source.

        Raises:
            TributaryError: A server does not answer, or the state store cannot be used.
        """
        if names.kind != "postgres":
            return
        scope = f"tasks of {names.connector}"
        earlier = self._marks.of(scope)
        known = None if earlier is None else TaskLook.of(earlier)
        begun = {one.topic: one for one in records if _first_offset(one) is not None}
        now = self._look(names, begun)
        if now is None:
            return
        sent = self._kafka.newest_times(begun)
        if known is None or known.task == now.task:
            now = now.only_settled(sent, {} if known is None else known.ends)
        else:
            # If the connector has sent a heartbeat later than a record, it does not skip after it.
            lively = [topic for topic, at in sent.items() if at >= known.beat_at]
            if any(self._has_later_task(topic, now) for topic in lively):
                return  # its first heartbeat is still to come
            for topic in lively:
                self._search(names, begun[topic], known, now, source)
        self._marks.move(scope, earlier, now.mark())

    def _look(self, names: CaptureNames, topics: Iterable[str]) -> TaskLook | None:
        """Return a look at a connector's tasks; None without a heartbeat that names one."""
        beat = self._kafka.latest_record(names.heartbeat_topic)
        task = None if beat is None else task_of(beat)
        if beat is None or task is None or beat.timestamp is None:
            return None
        ends = self._kafka.stable_offsets_many(topics)
        return TaskLook(task, beat.timestamp, {topic: of[0] for topic, of in ends.items()})

    def _has_later_task(self, topic: str, now: TaskLook) -> bool:
        """Return whether a task after that of the newest heartbeat has sent a topic's last record.

        Only after its first heartbeat, a task has sent the transaction within which it began.
        """
        last = self._ends.last(topic, now.ends.get(topic, 0))
        if last is None or last.timestamp is None or task_of(last) == now.task:
            return False
        return last.timestamp > now.beat_at

    def _search(
        self,
        names: CaptureNames,
        record: TableRecord,
        known: TaskLook,
        now: TaskLook,
        source: Callable[[], Source],
    ) -> None:
        """Count a loss for each end of a task in a table's topic that lost changes."""
        topic, copied = record.topic, _first_offset(record) or 0
        searched, end = known.ends.get(topic, 0), now.ends.get(topic, 0)
        # The topic of a table that was onboarded again has begun again.
        first = max(copied, searched if searched <= end else 0)
        for ended in self._ends.between(topic, first, end, now.task):
            if ended.last.offset < copied:
                continue  # the copy has the whole transaction
            try:
                lost = self._lost(names, record.table, ended, end, source)
            except UnreachableError:
                raise  # the next look searches the same offsets again
            except (DecodeError, SourceError) as error:
                _warn(
                    f"the end of a task at {_place(ended)} was not judged ({error})", record.table
                )
                lost = None
            if lost is not None:
                _log.warning("table %s: %s", record.table, lost)
                self._losses.note(str(record.table), lost)

    def _lost(
        self,
        names: CaptureNames,
        table: TableId,
        ended: TaskEnd,
        end: int,
        source: Callable[[], Source],
    ) -> str | None:
        """Return what the end of a task has lost or doubled; None if it was nothing."""
        where = f"connector {names.connector} restarted after {_place(ended)}"
        last = self._ends.before(ended.last) if ended.last.value is None else ended.last
        if last is None or last.value is None:
            return None
        change = self._ends.change(last)
        more = ended.following
        after = None if more is None or more.value is None else self._ends.change(more)
        if moves_key(ended.last):
            goes_on = after is not None and after.position == change.position
            return None if goes_on else f"{where}, and left out the row with the changed key"
        if names.append and is_doubled(change, after):
            return f"{where}, and sent that row again"
        before = self._ends.before(last)
        if not begins_group(change, None if before is None else self._ends.change(before), after):
            return None
        opened = source()
        described = opened.table(table)
        columns = {field_name(one.name): one.name for one in described.columns}
        key = {columns.get(name, name): value for name, value in change.key.items()}
        behind = opened.next_inserted(described, key, change.transaction or 0)
        if not behind.known:
            _warn(f"{where}, perhaps within the rows of a COPY", table)
            return None
        if behind.key is None:
            return None
        sent = self._ends.sends_later(last, behind.key, end, offsets=_BEHIND)
        if sent is None:
            _warn(f"{where}, within a transaction of more than {_BEHIND} events", table)
        if sent is not False:
            return None
        shown = ", ".join(behind.key)
        return f"{where}, and left out rows that COPY inserted after that one, as key {shown}"


def begins_group(change: SentChange, before: SentChange | None, after: SentChange | None) -> bool:
    """Return whether a task ended after the first of several rows of one change event.

    Args:
        change: The last change of the task.
        before: The task's change before it in the topic; None if there is none.
        after: The next task's first change in the topic; None if there is none.
    """
    around = {one.position for one in (before, after) if one is not None}
    return change.op == "c" and change.position not in around


def is_doubled(change: SentChange, after: SentChange | None) -> bool:
    """Return whether the next task has sent the last change of a task again.

    Args:
        change: The last change of the task.
        after: The next task's first change in the topic; None if there is none.
    """
    return after is not None and (after.position, after.after) == (change.position, change.after)


def _place(ended: TaskEnd) -> str:
    """Return the place of a task's last record, as text."""
    return f"offset {ended.last.offset} of topic {ended.last.topic}"


def _warn(what: str, table: TableId) -> None:
    """Log that rows can be missing since a task's end, and how an operator finds out."""
    _log.warning(
        "%s: rows of table %s can be missing; run `tributary verify %s`", what, table, table
    )


def _first_offset(record: TableRecord) -> int | None:
    """Return O of a captured table that follows its topic; None if it has none."""
    attempt = record.attempt
    if attempt is None or attempt.start_offsets is None:
        return None
    return attempt.start_offsets.get(0, 0)
