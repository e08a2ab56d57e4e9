"""Finds the tables that have work, with the facts that their runs need."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.gathering import Captures
from cdc.capture.topic_facts import cut_off, topic_facts, with_settings
from cdc.errors import KafkaError
from cdc.run import plan
from cdc.run.context import Turn
from cdc.run.idle_tables import idle_tables_that_changed
from cdc.run.overdue import note_freshness
from cdc.run.schedule import TURN_S
from cdc.run.workers import Work
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.position_check import TopicFacts
    from cdc.config import TableSettings
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


class WorkFinder:
    """The tables that a round finds to have work: by new events, and by changes without events.

    Args:
        context: The runs' context.
        wanted: The tables that a run may work on now, except those that run already.
        look_at_idle: As in `run_tables`.
        spaced: As in `run_tables`.

    Raises:
        KafkaError: The offsets cannot be read from the cluster.
    """

    def __init__(
        self,
        context: RunContext,
        wanted: Sequence[TableRecord],
        *,
        look_at_idle: bool,
        spaced: bool,
    ) -> None:
        self.captures = Captures(context)
        self._context, self._wanted = context, wanted
        self._turn_s = TURN_S if spaced else math.inf
        self._now = datetime.now(timezone.utc)
        self._topics: dict[str, TopicFacts | KafkaError] = {}
        self._found: set[TableId] = set()
        if wanted:
            self._topics = topic_facts(context, [record.topic for record in wanted])
        behind = plan.due(wanted, self._topics)
        if wanted and look_at_idle:  # a topic that somebody compacts is work, too
            self._topics = with_settings(context, self._topics)
            by_events = {one.table for one in behind}
            behind = plan.due(wanted, self._topics)
            # Other rounds do not see this work, so it must not be dropped by them.
            self._found = {one.table for one in behind} - by_events
        self._settings = {one.table: _settings_if_valid(context, one) for one in behind}
        self._working = {one.table for one in behind if not (spaced and self._waits(one))}
        if wanted:
            self._note_freshness()
        if self._working and not look_at_idle:
            due = {
                one.topic: self._topics[one.topic] for one in wanted if one.table in self._working
            }
            self._topics |= with_settings(context, due)

    def look_at_idle(self) -> None:
        """Find the tables that changed without events."""
        context, topics = self._context, self._topics
        idle = [record for record in self._wanted if record.table not in self._working]
        if self._wanted:
            self._found |= idle_tables_that_changed(context, self.captures, idle)
            self._found |= context.served.differing_from_lake(context, idle)
            self._found |= cut_off(context, idle, topics)

    def work(self) -> list[Work]:
        """Return all work that was found so far, in the order of the tables."""
        return self._work_of_tables(self._working | self._found)

    def found(self) -> list[Work]:
        """Return the work that `look_at_idle` has found, in the order of the tables."""
        return self._work_of_tables(self._found)

    def _work_of_tables(self, due: Collection[TableId]) -> list[Work]:
        return [self._work_of(record) for record in self._wanted if record.table in due]

    def _work_of(self, record: TableRecord) -> Work:
        context, turn_s = self._context, self._turn_s
        known = self._settings.get(record.table) or _settings_if_valid(context, record)
        topic = self._topics[record.topic]
        entry = context.predictions.entry(record, known, topic, turn_s)
        limit = None if math.isinf(turn_s) else turn_s
        turn = Turn(limit, context.predictions.events_of_turn(record.table, turn_s))
        facts = (record, topic, self.captures, entry, turn, self._now.timestamp())
        return Work(*facts, found=record.table in self._found)

    def _note_freshness(self) -> None:
        """Note up to which time the lake has all events, as far as the topics' ends show it."""
        context, now = self._context, self._now.timestamp()
        targets: dict[TableId, tuple[TableRecord, float]] = {}
        for record in self._wanted:
            settings, topic = self._settings.get(record.table), self._topics[record.topic]
            if record.table not in self._settings:
                if plan.is_whole(record, topic):
                    context.predictions.note_whole(record.table, now)
            elif settings is not None and not isinstance(topic, KafkaError):
                targets[record.table] = (record, float(settings.freshness_target_s))
        note_freshness(context.kafka, context.predictions, targets, now)

    def _waits(self, record: TableRecord) -> bool:
        """Whether the table waits for a later run.

        A table waits if it has committed recently, is not late, and has less than a full batch.
        """
        settings, topic = self._settings[record.table], self._topics[record.topic]
        if isinstance(topic, KafkaError) or settings is None:
            return False
        done = record.applied_offsets or {}
        behind = sum(end - done.get(partition, 0) for partition, end in topic.stable.items())
        return 0 <= behind < settings.max_events_per_run and plan.waits_for_later_run(
            record, settings, self._now
        )


def _settings_if_valid(context: RunContext, record: TableRecord) -> TableSettings | None:
    """Return a table's settings; None if they are invalid, which the table's run reports."""
    try:
        return context.config.settings_on_plan(record.table, record.tier)
    except TributaryError:
        return None
