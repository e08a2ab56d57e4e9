"""Stores each connector's newest look at its tasks; the next look is compared with it.

A look reads the topics' events to find out whether changes were lost when one Kafka Connect task
ended and another one replaced it (`cdc.capture.task_looks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.looks import StoredLooks
from cdc.store.loss_counts import count_loss
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import task_look_rows

if TYPE_CHECKING:
    from cdc.store.looks import KeptLook
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


@dataclass(frozen=True)
class Doubt(Part):
    """The suspicion that a table's changes were lost when a connector's task ended.

    Args:
        offset: Offset of the ended task's last record in the table's topic.
        what: What could have been lost, and the next step, as a sentence without a period.
    """

    offset: int
    what: str


@dataclass(frozen=True)
class TaskLook(Part):
    """The result of one look at the tasks of a connector.

    Args:
        task: The task that sent the newest heartbeat.
        beat_at: The Kafka timestamp of that heartbeat.
        ends: The end offset of each topic by the topic's name, read after that heartbeat was sent.
        doubts: By table, the newest doubt. A look records a doubt if it cannot find out whether
            changes of the table were lost when a task ended.
        topic_ids: The UUID of each topic in ``ends``, as the attempt of the topic's table has
            recorded it. Looks of Tributary versions without this field have no UUIDs. Such a look
            counts for any topic with the same name.
        behind: The topics that could not be read when a look found that the connector had a new
            task. A later look must search each such topic from its offset in ``ends`` on. The value
            is the ``beat_at`` of the look that searched the topic up to that offset.
        awaited: The topics to which the current task of a MySQL connector has sent nothing yet,
            each with its end offset at the first look at that task. The first change that the task
            sends to such a topic is still to be judged (`cdc.capture.later_decoding`).
        postponed: The topics in which looks could not judge whether changes were lost when a task
            ended, because the next task had sent too few records. The value is the time of the
            heartbeat at the first of these looks.
        format: Version of this document.
    """

    task: str
    beat_at: datetime
    ends: Mapping[str, int]
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    behind: Mapping[str, datetime] = field(default_factory=dict)
    awaited: Mapping[str, int] = field(default_factory=dict)
    postponed: Mapping[str, datetime] = field(default_factory=dict)
    format: Literal[1] = 1

    def is_of(self, record: TableRecord) -> bool:
        """Whether the offsets in this `TaskLook` are offsets of the table's present topic.

        The result is False if the topic was deleted and created again after this look, for example
        by ``offboard --delete-data`` and then ``onboard``.
        """
        known = self.topic_ids.get(record.topic)
        return known is None or (record.attempt is not None and record.attempt.topic_id == known)

    def doubt(self, record: TableRecord) -> str | None:
        """Return a sentence on what a table could have lost after its start offset O, or None.

        The result is None if this `TaskLook` has no doubt about changes at or after O, if O is not
        known, or if the look is of another topic.
        """
        found, first = self.doubts.get(str(record.table)), first_offset(record)
        if found is None or first is None or found.offset < first or not self.is_of(record):
            return None
        return found.what

    def unjudged(self, record: TableRecord) -> str | None:
        """Return a message if no look could judge yet whether a task's end lost a table's changes.

        The result is None in all other cases. A later `TaskLook` judges the end of the task, and no
        person has to help.
        """
        since = self.postponed.get(record.topic, self.behind.get(record.topic))
        if since is None or first_offset(record) is None or not self.is_of(record):
            return None
        return (
            f"an end of the connector's tasks in topic {record.topic} is not judged yet, since the"
            f" heartbeat of {since:%Y-%m-%d %H:%M:%S} UTC; the next looks of runs judge it"
        )


def first_offset(record: TableRecord) -> int | None:
    """Return O, the first offset to apply, from a table's record; None if O is not known yet."""
    attempt = record.attempt
    if attempt is None or attempt.start_offsets is None:
        return None
    return attempt.start_offsets.get(0, 0)


TASK_LOOKS = Codec(TaskLook, error=StateError, remedy=STORE_REMEDY)
"""The codec with which the state store reads and writes looks at tasks (`TaskLook`)."""


_TRIES = 5
"""Maximum number of tries to replace a stored look.

A try fails if another process replaces the look first.
"""


@dataclass(frozen=True)
class NextLook:
    """A new look at a connector's tasks, with the losses that no earlier look has found.

    Args:
        look: The look.
        losses: The losses. Each key is the name under which the state store counts a loss. The
            value says what was lost, as a sentence without a period.
    """

    look: TaskLook
    losses: Mapping[str, str] = field(default_factory=dict)


class KeptLooks(StoredLooks[TaskLook]):
    """Each connector's newest `TaskLook`; all processes of a state store share these looks.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, task_look_rows, TASK_LOOKS, "tasks")

    def all(self, connectors: Iterable[str]) -> dict[str, TaskLook]:
        """Return the newest look of each given connector; connectors without a look are left out.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a look.
        """
        kept = {connector: self.of(connector) for connector in connectors}
        return {connector: one.look for connector, one in kept.items() if one is not None}

    def move(self, connector: str, earlier: KeptLook[TaskLook] | None, now: NextLook) -> bool:
        """Replace a connector's look and count the new look's losses, in one transaction.

        If another process has already replaced the earlier look, nothing is stored or counted. So
        each loss is counted only once, although several processes can find it.

        Args:
            connector: The connector.
            earlier: The stored look that this process has read; None if none was stored.
            now: The new look.

        Returns:
            Whether the look was replaced.

        Raises:
            StateError: The state store cannot be used.
        """
        for _ in range(2):
            try:
                return self._move(connector, earlier, now)
            except IntegrityError:
                # Another process has just left the first look, or has counted a table's first loss.
                continue
        return False

    def clear_doubt(self, connector: str, table: TableId, end: int) -> None:
        """Delete a table's doubt from the stored look, because lake and source were found equal.

        Args:
            connector: The connector.
            table: The table.
            end: The first offset in the table's topic that the comparison with the source did not
                cover. A doubt about this offset or a later one stays.

        Raises:
            StateError: The state store cannot be used, or the stored document is not a look.
        """
        for _ in range(_TRIES):
            kept = self.of(connector)
            doubt = None if kept is None else kept.look.doubts.get(str(table))
            if kept is None or doubt is None or doubt.offset >= end:
                return
            others = {name: one for name, one in kept.look.doubts.items() if name != str(table)}
            if self.move(connector, kept, NextLook(replace(kept.look, doubts=others))):
                return

    def _move(self, connector: str, earlier: KeptLook[TaskLook] | None, now: NextLook) -> bool:
        """Replace a look and count losses; return False if another process replaced the look first.

        Raises:
            IntegrityError: Another process has just inserted the row of the look or of a loss.
        """
        with self._store.transaction() as connection:
            if not self.replace(connection, connector, earlier, now.look):
                return False
            for scope, what in sorted(now.losses.items()):
                count_loss(connection, self._store.clock, scope, what)
        return True
