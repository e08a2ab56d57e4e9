"""Finds rows that a MySQL connector without GTIDs has decoded by a later definition of their table.

`cdc.debezium.schema_history` explains how this happens. If the later definition has the same number
of columns, the connector does not fail: it assigns values to the wrong columns, or misreads values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from cdc.debezium.schema_history import LearnedDefinition, later_definition, learned_definitions
from cdc.errors import DecodeError
from cdc.store.kept_task_looks import first_offset

if TYPE_CHECKING:
    from cdc.capture.found_losses import Found
    from cdc.debezium import CaptureNames
    from cdc.debezium.task_ends import TaskEnd, TaskEnds
    from cdc.kafka import KafkaAdmin, KafkaRecord, RecordReader
    from cdc.store.table_state import TableRecord

_EARLIER = timedelta(minutes=10)
"""Longest time by which a Connect worker's clock may be behind the copying process's clock."""
_PART = 1000
"""Number of offsets in one read of the schema history."""


class LaterDecoding:
    """Finds tasks that decoded changes of a table by a later definition of the table.

    Only each task's first change of the table is examined: if a task decoded any change of the
    table by a later definition, it also decoded the first change by that definition.

    Args:
        names: The capture.
        kafka: The cluster.
        reader: Reads the schema history.
        ends: Reads the tables' topics.
    """

    def __init__(
        self, names: CaptureNames, kafka: KafkaAdmin, reader: RecordReader, ends: TaskEnds
    ) -> None:
        self._names, self._kafka, self._reader, self._ends = names, kafka, reader, ends

    def judge(
        self,
        record: TableRecord,
        searched: tuple[int, int],
        ends: Sequence[TaskEnd],
        found: Found,
    ) -> None:
        """Add a loss to ``found`` if a task decoded changes of a table by a later definition.

        Args:
            record: The table.
            searched: The range of offsets to search in the table's topic: the first offset, and
                the offset after the last one.
            ends: The ends of tasks in this range.
            found: Gets the loss, or a doubt if a record cannot be decoded.

        Raises:
            KafkaError: The topics cannot be read in time.
        """
        try:
            lost = self._loss(record, searched, ends)
        except DecodeError as error:
            first = searched[0]
            why = f"the definition of the changes from offset {first} on was not judged ({error})"
            found.doubt(record.table, first, why)
            return
        if lost is not None:
            found.lose(record.table, lost)

    def _loss(
        self, record: TableRecord, searched: tuple[int, int], ends: Sequence[TaskEnd]
    ) -> str | None:
        """Return a message if a task decoded changes of a table by a later definition, else None.

        Raises:
            DecodeError: A record in the table's topic is not a change event, or a record in the
                schema history's topic is malformed.
            KafkaError: The topics cannot be read in time.
        """
        attempt = record.attempt
        if self._names.kind != "mysql" or attempt is None:
            return None
        first, end = searched
        begins = [first, *(one.following.offset for one in ends if one.following is not None)]
        for offset in begins:
            change = self._ends.first_change(
                record.topic, max(offset, first_offset(record) or 0), end
            )
            if change is None or change.gtid is not None:
                continue
            since = attempt.started_at - _EARLIER
            if later := later_definition(change, record.table, self._learned, since):
                return (
                    f"connector {self._names.connector} restarted before {later.place}, where a"
                    " statement changes the table, but took the definition after it from its"
                    f" schema history: it decoded changes from {change.position} on by that"
                    " definition"
                )
        return None

    @cached_property
    def _learned(self) -> tuple[LearnedDefinition, ...]:
        return tuple(learned_definitions(self._history(), self._names.source))

    def _history(self) -> Iterator[KafkaRecord]:
        topic = self._names.schema_history_topic
        start = self._kafka.start_offsets_many([topic])[topic][0]
        end = self._kafka.stable_offsets_many([topic])[topic][0]
        for at in range(start, end, _PART):
            yield from self._reader.read(topic, at, min(at + _PART, end))
