"""Finds changes that a connector has left out, or sent twice, because one of its tasks ended.

A connector stores the position of a record in the log, and how much of this record it has sent: on
PostgreSQL, the number of events from a record of the WAL; on MySQL and MariaDB, the number of rows
from an event of the binlog. The next task skips this number of events or rows. In two cases the
next task skips too much:

- The earlier task has sent the delete for an UPDATE of a key, but not the insert. The delete and
  the insert have the same position, and in a binlog they are one row.
- On PostgreSQL, COPY inserted several rows by one record of the WAL, and the earlier task has sent
  only the first of these rows. The next task skips all of these rows.

On MySQL without GTIDs, the next task can also decode rows by a later definition of their table
(`cdc.capture.later_decoding`).

In an append table of PostgreSQL, the next task can also skip too little:

- In a transaction's first record, the stored number includes the transaction's begin. If the
  earlier task has sent two or more rows of this record, the next task sends the last row again.
- A task can be without a stored position, for example after a move to another Connect cluster. Then
  it starts at the position that the slot has confirmed, and sends all later rows a second time.

Each event names its task, so a topic shows where a task ended. A look is one search of the topics
for ends of tasks. It searches the offsets since the previous look. It compares the events around an
end with the rows of the source table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.found_losses import Found
from cdc.capture.later_decoding import LaterDecoding
from cdc.capture.task_end_events import begins_group, has_later_task, is_doubled, place_of
from cdc.capture.task_look_scope import (
    is_worth_keeping,
    of_same_topics,
    postponed,
    remaining,
    search_range,
    to_await,
    to_search,
    with_certain_ends,
)
from cdc.debezium.event_reader import EventReader
from cdc.debezium.task_ends import TaskEnds, moves_key, takes_key, task_of
from cdc.errors import DecodeError, KafkaError, SourceError, UnreachableError
from cdc.store.kept_task_looks import KeptLooks, NextLook, TaskLook, first_offset
from schemas.avro import field_name

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.debezium.task_ends import SentChange, TaskEnd
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from cdc.sources.base import Source
    from cdc.sources.source_facts import NextInserted
    from cdc.store.looks import KeptLook
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.registry import SchemaRegistry
    from schemas.table import TableId

_log = logging.getLogger(__name__)

_BEHIND = 5_000
"""Most offsets that are searched after a task's last row, or before it for a repeated change."""
_AT_ONCE = 100
"""Number of topics whose newest records are read at once."""
_NO_LOOK = TaskLook("", datetime.min.replace(tzinfo=timezone.utc), {})
"""Takes the place of the previous look if there is none. It names no task and no topic."""


class TaskLooks:
    """Searches the topics of captures for ends of tasks, and stores each search as a look.

    All processes that use the same state store share the looks.

    Args:
        store: The state store.
        kafka: The cluster.
        registry: The writers' schemas.
        exactly_once: Whether connectors write to Kafka in transactions.
    """

    def __init__(
        self, store: Store, kafka: KafkaAdmin, registry: SchemaRegistry, *, exactly_once: bool
    ) -> None:
        self._looks = KeptLooks(store)
        self._exactly_once = exactly_once
        self._kafka, self._events = kafka, EventReader(registry)

    def follow(
        self,
        names: CaptureNames,
        records: Iterable[TableRecord],
        source: Callable[[], Source],
        beat: KafkaRecord | None = None,
    ) -> TaskLook | None:
        """Search a capture's topics for ends of tasks in the offsets since the last look.

        If a table has lost changes or got rows twice at such an end, the state store counts a loss.

        Args:
            names: The capture.
            records: The capture's tables.
            source: Opens the source.
            beat: The newest heartbeat; None if the caller does not have it. Then it is read.

        Returns:
            The newest look. None if no look is stored, and no heartbeat allows a first look. The
            look's doubts are the ends at which a table may have lost rows or got rows twice.
            `TaskLook.unjudged` says whether an end that may concern a table is not judged yet.

        Raises:
            TributaryError: A server does not answer, or the state store cannot be used.
        """
        earlier = self._looks.of(names.connector)
        kept = None if earlier is None else earlier.look
        begun = {one.topic: one for one in records if first_offset(one) is not None}
        known = _NO_LOOK if kept is None else of_same_topics(kept, begun)
        following = tuple(begun.values())
        beat = beat or self._kafka.latest_record(names.heartbeat_topic)
        look = self._look(beat, begun, known.ends)
        if look is None:
            return None if kept is None else postponed(kept, begun, kept.beat_at)
        now, sent = look.look, look.sent
        searched, behind = to_search(known, now, sent, look.unread)
        of_mysql = names.kind == "mysql"
        grown, awaited = to_await(known, now, searched, look.unread) if of_mysql else ({}, {})
        found = Found()
        if searched or grown or known.task != now.task:
            lively = [begun[topic] for topic in searched]
            look = replace(look, grown=tuple((begun[topic], at) for topic, at in grown.items()))
            search = self._search(_Capture(names, following, source), lively, (known, look), beat)
            if search is None:
                return self._postpone(names, earlier, (*searched, *grown), now.beat_at)
            found = search.found
            awaited |= search.awaited if of_mysql else {}
        if known.task == now.task:
            ends = {topic: now.ends[topic] for topic in searched}
            now = with_certain_ends(now, sent, known.ends)
            now = replace(now, ends={**now.ends, **ends})
        doubts = {**remaining(known, following), **found.doubts}
        now = replace(now, doubts=doubts, behind=behind, awaited=awaited)
        if not is_worth_keeping(now, known):
            return known
        if not self._looks.move(names.connector, earlier, NextLook(now, found.by_scope(names))):
            newest = self._looks.of(names.connector)  # another process has looked meanwhile
            return None if newest is None else newest.look
        found.log()
        return now

    def _postpone(
        self,
        names: CaptureNames,
        earlier: KeptLook[TaskLook] | None,
        topics: Iterable[str],
        beat_at: datetime,
    ) -> TaskLook:
        """Record in the stored look which topics have unjudged ends of tasks; return the look."""
        known = _NO_LOOK if earlier is None else earlier.look
        look = postponed(known, topics, beat_at)
        if look != known and self._looks.move(names.connector, earlier, NextLook(look)):
            _log.info("ends of the tasks of %s are judged by a later look", names.connector)
        return look

    def _look(
        self,
        beat: KafkaRecord | None,
        begun: Mapping[str, TableRecord],
        earlier: Mapping[str, int],
    ) -> _Look | None:
        """Return a new look; None if there is no heartbeat, or if it names no task or has no time.

        For a topic that cannot be read, the new look has the end offset of the previous look.
        """
        task = None if beat is None else task_of(beat)
        if beat is None or task is None or beat.timestamp is None:
            return None
        seen = self._kafka.looks(begun)
        there = {topic: one for topic, one in seen.items() if not isinstance(one, KafkaError)}
        sent = self._kafka.newest_times_each(there)
        times = {topic: at for topic, at in sent.items() if not isinstance(at, KafkaError)}
        failed = {topic: it for topic, it in {**seen, **sent}.items() if isinstance(it, KafkaError)}
        for topic, error in failed.items():
            _log.warning("ends of tasks in topic %s are judged by a later look: %s", topic, error)
        attempts = {topic: one.attempt for topic, one in begun.items()}
        ids = {topic: one.topic_id for topic, one in attempts.items() if one is not None}
        ends = {topic: one.ends[0].offset for topic, one in there.items() if topic not in failed}
        look = TaskLook(
            task,
            beat.timestamp,
            {**ends, **{topic: earlier[topic] for topic in failed if topic in earlier}},
            topic_ids={topic: one for topic, one in ids.items() if one is not None},
        )
        starts = {topic: one.earliest[0] for topic, one in there.items()}
        return _Look(look, starts, times, frozenset(failed))

    def _search(
        self,
        capture: _Capture,
        lively: Sequence[TableRecord],
        looks: tuple[TaskLook, _Look],
        beat: KafkaRecord | None,
    ) -> _Search | None:
        """Search for losses and doubts (possible losses) between two looks, and return the search.

        The result is None if the end of a task cannot be judged yet, because the next task has
        sent too few records.
        """
        known, now = looks
        with self._kafka.reader() as reader:
            ends = TaskEnds(reader, self._events, now.starts)
            needed = not self._exactly_once or capture.takes_rows_twice
            reached = ends.change(beat) if needed and beat is not None else None
            later = LaterDecoding(capture.names, self._kafka, reader, ends)
            search = _Search(capture, ends, known, now.look, self._exactly_once, reached, later)
            try:
                search.search(lively)
                search.judge_first_changes(now.grown)
            except _EarlyError:
                return None
        return search


@dataclass(frozen=True)
class _Look:
    """A new look at a connector's tasks, before the topics are searched for ends of tasks.

    Args:
        look: The look.
        starts: The first offset of each topic that can be read.
        sent: The time of each topic's newest record, read after the look.
        unread: The topics that cannot be read.
        grown: The tables whose topics were in `TaskLook.awaited` and have new records since then,
            each with the offset from `TaskLook.awaited`.
    """

    look: TaskLook
    starts: Mapping[str, int]
    sent: Mapping[str, datetime]
    unread: frozenset[str]
    grown: tuple[tuple[TableRecord, int], ...] = ()


@dataclass(frozen=True)
class _Capture:
    """A capture whose topics are searched for ends of tasks.

    Args:
        names: The capture's names.
        following: The capture's tables that have recorded O, from which on the stream is applied.
        source: Opens the capture's source.
    """

    names: CaptureNames
    following: tuple[TableRecord, ...]
    source: Callable[[], Source]

    @property
    def takes_rows_twice(self) -> bool:
        """Whether looks must find the rows that the connector has sent twice.

        Looks must find such rows of append tables of PostgreSQL, because the lake would have these
        rows twice. For MySQL and MariaDB, another check finds the cause: a task of the connector
        that starts without a stored position counts as a loss
        (`cdc.debezium.definitions.fresh_starts`).
        """
        return self.names.append and self.names.kind == "postgres"


@dataclass(frozen=True)
class _Search:
    """The search for ends of tasks in the topics of a capture.

    Args:
        capture: The capture.
        ends: Reads the topics.
        known: The previous look.
        now: The new look.
        exactly_once: Whether the connector writes to Kafka in transactions.
        beat: The newest heartbeat, which shows the log position the connector has reached. None
            if this position is not needed: the connector writes in Kafka transactions, and an event
            that the connector sends twice changes nothing in the lake.
        later: Finds changes that a task decoded by a later definition of their table.
        found: Collects the losses and the doubts.
        awaited: Collects the searched topics in which the present task has sent nothing, in the
            form of `TaskLook.awaited`.
    """

    capture: _Capture
    ends: TaskEnds
    known: TaskLook
    now: TaskLook
    exactly_once: bool
    beat: SentChange | None
    later: LaterDecoding
    found: Found = field(default_factory=Found)
    awaited: dict[str, int] = field(default_factory=dict)

    def search(self, lively: Sequence[TableRecord]) -> None:
        """Check whether changes were lost at the ends of tasks since the previous look.

        Only topics with events since then are searched.

        Raises:
            _EarlyError: The end of a task cannot be judged yet, because the next task has sent too
                few records.
        """
        for number in range(0, len(lively), _AT_ONCE):
            some = lively[number : number + _AT_ONCE]
            ranges = {one.topic: search_range(one, self.known, self.now) for one in some}
            self.ends.read_ahead(ranges)
            if any(has_later_task(self.ends, one.topic, self.now) for one in some):
                raise _EarlyError  # the first heartbeat of that task is still to come
            for record in some:
                self.judge_all(record, *ranges[record.topic])

    def judge_first_changes(self, grown: Sequence[tuple[TableRecord, int]]) -> None:
        """Check by which definition the present task decoded its first change in awaited topics."""
        if grown:
            self.ends.read_ahead({one.topic: (at, self.now.ends[one.topic]) for one, at in grown})
        for record, first in grown:
            end = self.now.ends[record.topic]
            ends = [*self.ends.between(record.topic, first, end, self.now.task)]
            self._note_silence(record, ends, end)
            self.later.judge(record, (first, end), ends, self.found)

    def _note_silence(self, record: TableRecord, ends: Sequence[TaskEnd], end: int) -> None:
        if ends and ends[-1].following is None:
            self.awaited[record.topic] = end

    def judge_all(self, record: TableRecord, first: int, end: int) -> None:
        """Add to ``found`` the losses and doubts at the ends of tasks in a table's topic.

        Args:
            record: The table.
            first: The first offset to search.
            end: The offset after the last one to search.
        """
        table = record.table
        ends = [*self.ends.between(record.topic, first, end, self.now.task)]
        self._note_silence(record, ends, end)
        self.later.judge(record, (first, end), ends, self.found)
        for ended in ends:
            if ended.last.offset < (first_offset(record) or 0):
                continue  # the copy has the whole transaction
            try:
                lost = self._repeated(table, ended) or self._lost(table, ended, end)
            except UnreachableError:
                raise  # the next look searches the same offsets again
            except (DecodeError, SourceError) as error:
                why = f"the end of a task at {place_of(ended)} was not judged ({error})"
                self.found.doubt(table, ended.last.offset, why)
                continue
            if lost is not None:
                self.found.lose(table, lost)

    def _repeated(self, table: TableId, ended: TaskEnd) -> str | None:
        """Return a message if the next task sent rows of an append table of PostgreSQL again.

        The result is None if the next task sent no row again, or if the table is of another kind.
        If rows were perhaps sent again, the result is None, and a doubt is added to ``found``.

        Raises:
            _EarlyError: The next task has perhaps not reached the last change of the ended task.
        """
        last = self.ends.before(ended.last) if ended.last.value is None else ended.last
        if not self.capture.takes_rows_twice or last is None or last.value is None:
            return None
        change, more = self.ends.change(last), ended.following
        if more is None or more.value is None:
            self._is_sent_again(change, None)
            return None
        after = self.ends.change(more)
        again = self.ends.sends_again(last, change, after, offsets=_BEHIND)
        if again is False:
            return None
        where = f"connector {self.capture.names.connector} restarted after {place_of(ended)}"
        if again is None:
            what = f"{where} without its stored position"
            self.found.doubt(table, ended.last.offset, what, "doubled")
            return None
        return f"{where}, and sent rows again, from offset {more.offset}"

    def _lost(self, table: TableId, ended: TaskEnd, end: int) -> str | None:
        """Return a message if rows were lost or sent twice at the end of a task, else None."""
        where = f"connector {self.capture.names.connector} restarted after {place_of(ended)}"
        last = self.ends.before(ended.last) if ended.last.value is None else ended.last
        if last is None or last.value is None:
            return None
        change, more = self.ends.change(last), ended.following
        after = None if more is None or more.value is None else self.ends.change(more)
        if not self.exactly_once and self._is_sent_again(change, after):
            return None
        if moves_key(ended.last):
            # Runs of append tables leave out rows that had another key.
            goes_on = self.capture.names.append or (more is not None and takes_key(more))
            return None if goes_on else f"{where}, and left out the row with the changed key"
        if self.capture.names.kind != "postgres":
            return None  # the binlog numbers the rows of an event, and the connector skips by it
        if self.capture.names.append and is_doubled(change, after):
            doubled = self.ends.first_in_transaction(last, change)
            return f"{where}, and sent that row again" if doubled else None
        # Without Kafka transactions, the stored position can be before that of the last event.
        before = self.ends.before(last) if self.exactly_once else None
        if not begins_group(change, None if before is None else self.ends.change(before), after):
            return None
        behind = self._behind(table, last, change, end)
        if behind is None:
            self.found.doubt(
                table, ended.last.offset, f"{where}, perhaps within the rows of a COPY"
            )
        if behind is None or behind.key is None:
            return None
        sent = self.ends.sends_later(last, behind.key, end, offsets=_BEHIND)
        if sent is None:
            what = f"{where}, within a transaction of more than {_BEHIND} events"
            self.found.doubt(table, ended.last.offset, what)
        if sent is not False:
            return None
        shown = ", ".join(behind.key)
        return f"{where}, and left out rows that COPY inserted after that one, as key {shown}"

    def _is_sent_again(self, change: SentChange, after: SentChange | None) -> bool:
        """Return whether the next task sends the last change of the ended task again.

        The next task does so if it started at a position before this change. Without Kafka
        transactions, the stored position can be older than the last events. The stored position can
        also have been deleted.

        Args:
            change: The last change of the ended task.
            after: The next task's first change in the topic; None if there is none.

        Raises:
            _EarlyError: The next task has perhaps not reached ``change`` yet.
        """
        reached = self.beat if after is None else after
        if reached is None or reached.order is None or change.order is None:
            return False
        if reached.order > change.order:
            return False
        if after is None:
            raise _EarlyError
        return True

    def _behind(
        self, table: TableId, last: KafkaRecord, change: SentChange, end: int
    ) -> NextInserted | None:
        """Return the next row that the transaction of ``change`` inserted into the same table.

        ``change`` itself is an insert into the table.

        The ``key`` of the result is None if the transaction inserted no further row. The result is
        None if neither the source nor the topic shows whether there is a further row.
        """
        source = self.capture.source()
        described = source.table(table)
        columns = {field_name(one.name): one.name for one in described.columns}
        key = {columns.get(name, name): value for name, value in change.key.items()}
        behind = source.next_inserted(described, key, change.transaction or 0)
        if behind.known:
            return behind
        if not key or self.ends.changes_later(last, end, offsets=_BEHIND) is not False:
            return None
        # Behind a savepoint, the row has another transaction's id than its event.
        behind = source.next_inserted(described, key, None)
        if not behind.known or behind.key is None:
            return behind if behind.known else None
        # A change that is not captured yet could have moved both rows.
        sent = self.ends.sends_later(last, behind.key, end, offsets=_BEHIND)
        return behind if sent else None


class _EarlyError(Exception):
    """The end of a task cannot be judged yet: the next task has sent too few records."""
