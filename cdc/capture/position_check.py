"""Checks that a table's stream continues from the lake, and that the lake can follow the catalog.

These functions only judge facts that the caller has gathered. They query nothing and repair
nothing. If the facts do not prove that the stream continues, a function raises an error, which
stops the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdc.capture.evidence import CaptureEvidence, known
from cdc.errors import (
    CaptureError,
    LostEventsError,
    LostHistoryError,
    LostLogError,
    PausedByPolicyError,
    SchemaChangeError,
)
from cdc.log.position import LogPosition
from cdc.sources.log_health import LogHealth
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import CopyView
from schemas.changes import Change, LoseEvents, NewFile, Verdict
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.sources.base import SourceLog
    from cdc.store.table_state import TableRecord
    from schemas.catalog import SourceKind


@dataclass(frozen=True)
class TopicFacts:
    """What Kafka reports about a topic now.

    Args:
        id: The topic's UUID; None if the topic does not exist.
        earliest: The first offset that the topic still has, for each partition.
        stable: The last stable offset, for each partition.
        epochs: The epoch of the partition's leader, for each partition. Partitions whose leader was
            not read are missing.
        policy: The topic's ``cleanup.policy``; ``delete`` if the policy was not read.
        lagging: Whether ``min.compaction.lag.ms`` is so long that compaction never removes a
            record.
        high: The offset after the last record, committed or not, for each partition. It was read
            before ``stable``; None if it was not read.
    """

    id: str | None
    earliest: Mapping[int, int]
    stable: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    policy: str = "delete"
    lagging: bool = False
    high: Mapping[int, int] | None = None

    def is_covered(self, offsets: Mapping[int, int]) -> bool:
        """Whether all records of the topic, committed or not, are below the given offsets.

        The result is False if ``high`` was not read.
        """
        ends = self.high  # a hanging transaction can hide a change that was captured long ago
        return ends is not None and all(offsets.get(one, 0) >= end for one, end in ends.items())

    @property
    def compacted(self) -> bool:
        """Whether Kafka can compact a captured topic's records by key."""
        return "compact" in self.policy


def check_topic(
    table: TableId, topic: str, *, topic_id: str | None, start: Mapping[int, int], now: TopicFacts
) -> None:
    """Check that a captured topic still has all changes that the lake has not read.

    The topic must also be the one from which the lake has read, not a new one of the same name.

    Args:
        table: The table.
        topic: The table's topic.
        topic_id: The UUID of the topic from which the lake has read; None if it is not known.
        start: For each partition, the next offset to read, from the lake's last commit.
        now: What Kafka reports about the topic now.

    Raises:
        LostHistoryError: The topic does not exist, was recreated, has another number of partitions,
            or may lack unread records. The error names the gap.
        CaptureError: The topic is compacted, but has not lost a record yet.
    """
    if now.id is None:
        raise _lost_history(table, f"topic {topic} no longer exists", topic=topic)
    if topic_id is not None and now.id != topic_id:
        raise _lost_history(
            table,
            f"topic {topic} was deleted and created again (its id was {topic_id}, is {now.id})",
            topic=topic,
        )
    if set(now.stable) != set(start):
        raise _lost_history(
            table,
            f"topic {topic} has {len(now.stable)} partitions, the lake has read {len(start)}",
            topic=topic,
        )
    for partition, offset in sorted(start.items()):
        first, end = now.earliest.get(partition, 0), now.stable[partition]
        if offset < first:
            raise _lost_history(
                table,
                f"offsets {offset} to {first - 1} of topic {topic} partition {partition} were"
                " deleted before they were read",
                topic=topic,
                partition=partition,
                offset=offset,
            )
        if offset > end:
            raise _lost_history(
                table,
                f"topic {topic} partition {partition} ends at offset {end}, and the lake has read"
                f" up to {offset}: the topic has lost records that were read",
                topic=topic,
                partition=partition,
                offset=offset,
            )
    _check_cleanup_policy(table, topic, now)


def check_cuts(table: TableId, topic: str, cuts: Mapping[int, str]) -> None:
    """Check that no partition of a captured topic was truncated below what the lake has read.

    Args:
        table: The table.
        topic: The table's topic.
        cuts: The truncated partitions, each with the leader's description of the truncation.

    Raises:
        LostHistoryError: A partition was truncated, for example by an unclean leader election or by
            a disk that was restored from a backup.
    """
    for partition, how in sorted(cuts.items()):
        raise _lost_history(
            table,
            f"topic {topic} partition {partition} was cut off below the lake's offset, and then"
            f" got other records: {how}",
            topic=topic,
            partition=partition,
        )


def _check_cleanup_policy(table: TableId, topic: str, now: TopicFacts) -> None:
    """Refuse a captured topic that is compacted.

    Compaction removes deletes, and all events of a key except the last. The last event can lack
    values of the row, for example unchanged TOAST values, so the lake would miss these values.

    Raises:
        LostEventsError: Kafka may already have removed changes that no run has read.
        CaptureError: The topic has not lost a record yet.
    """
    if not now.compacted:
        return
    what = f"topic {topic} has cleanup.policy={now.policy}"
    if not now.lagging:
        unread = f"{what}, so Kafka may have removed deletes and older changes unread"
        raise _lost_history(table, unread, LostEventsError, topic=topic)
    raise CaptureError(
        f"{what}; it has lost nothing, since min.compaction.lag.ms keeps all records",
        remedy=f"Set cleanup.policy=delete on topic {topic}; the table then goes on by itself.",
        table=table,
        topic=topic,
    )


def check_server(
    table: TableId, kind: SourceKind, *, known: CopyView | None, now: ServerIdentity | None
) -> None:
    """Check that the present primary is the server from which a captured table was copied.

    Args:
        table: The table.
        kind: The kind of the table's source.
        known: The view (image of the source) that was copied, with the identity and timeline of the
            view's server; None if there is no copy.
        now: The identity of the present primary; None if it was not read.

    Raises:
        CaptureError: The present primary lacks the row of Tributary that identifies a server.
        LostHistoryError: The primary is another server, or has another timeline. A new primary
            lacks the slot, so the topics may lack changes from around the switch of primaries.
    """
    if known is None or now is None:
        return
    if now.unknown and known.system_identifier is not None:
        raise CaptureError(
            f"table {table} was copied from server {known.system_identifier}, and the one that"
            " answers has lost the row of tributary.source_identity by which it is recognized",
            remedy="If it is that server, restore the row: `one` is 1, and `id` is"
            f" '{known.system_identifier.partition('@')[0]}'. Otherwise run `tributary bootstrap"
            f" {table}`.",
            table=table,
        )
    for name, recorded, found in (
        ("system_identifier", known.system_identifier, now.system_identifier),
        ("timeline", known.timeline, now.timeline),
    ):
        if recorded is not None and found is not None and recorded != found:
            error = _lost_history(
                table,
                f"source {table.source} is another server: its {name.replace('_', ' ')} was"
                f" {recorded}, is {found}",
                field=name,
            )
            if kind != "postgres":
                raise error
            raise error.advising(
                "If the former server still runs, its slot retains its log there: drop it, too. If"
                " primary.host was changed, `bootstrap` prints the statements."
            )


@dataclass(frozen=True)
class Rests:
    """The copy and the positions of a lake table, from which the table's stream must continue.

    Args:
        view: The view (image of the source) that was copied.
        reads_upto: R of the copy, up to which the copy can contain changes, as a string that the
            source can parse.
        committed: The position of the newest commit, as a string that the source can parse.
        statements_upto: The end offset of the connector's topic of DDL statements, recorded before
            O, from which on the stream is applied; None if the connector has no such topic.
        statements_topic_id: The UUID of the topic of DDL statements when O was recorded; None if
            the connector has no such topic.
    """

    view: CopyView | None
    reads_upto: str | None
    committed: str | None
    statements_upto: int | None
    statements_topic_id: str | None

    @classmethod
    def of(cls, record: TableRecord) -> Rests:
        """Return the copy and the positions that a table's record in the state store has."""
        attempt, commit = record.attempt, record.last_commit
        return cls(
            view=attempt.view if attempt is not None else None,
            reads_upto=attempt.reads_upto if attempt is not None else None,
            committed=commit.position if commit is not None else None,
            statements_upto=attempt.statements_upto if attempt is not None else None,
            statements_topic_id=attempt.statements_topic_id if attempt is not None else None,
        )


def check_stream(
    table: TableId, rests: Rests, evidence: CaptureEvidence, source: SourceLog
) -> None:
    """Check that a table's stream has every change that its lake table lacks.

    Args:
        table: The table.
        rests: The positions from which the stream must continue.
        evidence: The evidence of the table's capture. The stored position is left out of the check
            if it could not be read. The statements are left out if they could not be read.
        source: The table's source, which parses positions.

    Raises:
        LostHistoryError: The stream lacks, or may lack, a change that the lake table lacks.
        TributaryError: The source did not answer.
    """
    check_server(table, evidence.names.kind, known=rests.view, now=known(evidence.server))
    recorded = rests_on(source, rests.reads_upto, rests.committed)
    check_log(table, known(evidence.log), stored=evidence.stored_position, recorded=recorded)
    check_starts(table, evidence.starts, rests.statements_upto)
    check_statements(table, rests, evidence)


def rests_on(
    source: SourceLog, reads_upto: str | None, committed: str | None
) -> LogPosition | None:
    """Return the position from which a captured stream must continue; None if not recorded.

    A lake table has all changes up to this position.

    The result covers both R, up to which the copy can contain changes, and the position of the
    newest commit, which is usually later than R. So a source that was restored to a position
    between these two positions is also noticed: the source's log ends before the result.

    Args:
        source: The source, which parses positions.
        reads_upto: R of the copy, as a string; None if it is not recorded.
        committed: The position of the newest commit, as a string; None if it is not recorded.
    """
    known = [source.position(text) for text in (reads_upto, committed) if text]
    return known[0].joined(known[-1]) if known else None


def check_log(
    table: TableId,
    log: LogHealth,
    *,
    stored: LogPosition | None = None,
    recorded: LogPosition | None = None,
) -> None:
    """Check that the source's log still has everything that the connector has not captured.

    Args:
        table: The table.
        log: The health of the source's log for the table's capture.
        stored: The position that Connect has stored; None if it is not known.
        recorded: The position up to which the lake table has all changes; None if not recorded.

    Raises:
        LostLogError: The log lacks uncaptured changes.
    """
    if (problem := log.problem(stored, recorded)) is not None:
        raise _lost_history(table, f"{log.title} {problem}", LostLogError)


def check_starts(table: TableId, starts: Sequence[int], statements_upto: int | None) -> None:
    """Check that, since O, a capture's connector has not started without its stored position.

    O is the offset from which on the table's stream is applied.

    Args:
        table: The table.
        starts: For each start without a stored position, the offset of the first record after this
            start in the topic of DDL statements.
        statements_upto: The end offset of the topic of DDL statements, recorded before O; None if
            the connector has no such topic.

    Raises:
        LostHistoryError: The connector has started without a stored position. The changes from
            right before this start are in no topic, and no other check finds this loss.
    """
    later = [
        offset for offset in starts if statements_upto is not None and offset >= statements_upto
    ]
    if later:
        raise _lost_history(
            table,
            "its connector started without its stored position, which was deleted: it missed what"
            " was written in the meantime",
            offset=later[0],
        )


def check_statements(table: TableId, rests: Rests, evidence: CaptureEvidence) -> None:
    """Check that the connector's topic of DDL statements has every statement since O.

    O is the offset from which on the table's stream is applied.

    Some changes of a table have no event. Only a DDL statement in this topic shows such a change.

    Args:
        table: The table.
        rests: The positions from which the stream must continue.
        evidence: The evidence of the table's capture.

    Raises:
        LostHistoryError: The topic was recreated, or lacks records.
    """
    upto, now = rests.statements_upto, evidence.statements
    known_id = rests.statements_topic_id
    if upto is None or now is None or isinstance(now, TributaryError):
        return
    name = evidence.names.schema_change_topic
    if known_id is not None and now.topic_id != known_id:
        lost = f"it was deleted and created again (its id was {known_id}, is {now.topic_id})"
    elif upto < now.first:
        lost = f"its offsets {upto} to {now.first - 1} were deleted"
    elif upto > now.end:
        lost = f"it ends at offset {now.end}, and ended at {upto} when the copy began"
    else:
        return
    what = f"statements on it may be missing from topic {name}: {lost}"
    raise _lost_history(table, what, topic=name, partition=0, offset=upto)


def check_capture(table: TableId, problems: Sequence[str]) -> None:
    """Refuse a table whose capture has a problem, because the table's topic could lack changes.

    Args:
        table: The table.
        problems: The capture's problems, as sentences.

    Raises:
        LostEventsError: There is a problem.
    """
    if problems:
        what = f"changes of table {table} are not captured in full: {'; '.join(problems)}"
        raise _lost_history(table, what, LostEventsError)


def check_changes(
    table: TableId, changes: Sequence[Change], on_schema_change: str
) -> tuple[str, ...]:
    """Check that a captured stream can still be applied to the lake after schema changes.

    The lake must be able to follow the changes in place, and the policy must allow them.

    Args:
        table: The table.
        changes: The schema changes, from `schemas.evolution.diff`.
        on_schema_change: The table's setting ``on_schema_change``, which is the policy.

    Returns:
        Warnings for the operator, one sentence each.

    Raises:
        LostEventsError: Rows could have changed without any event.
        SchemaChangeError: A change cannot be applied in place.
        PausedByPolicyError: The lake could follow the changes, but the policy requires that an
            operator decides.
    """
    grave = [change for change in changes if change.verdict is Verdict.BOOTSTRAP]
    lost = [change for change in grave if isinstance(change, LoseEvents)]
    if lost:
        what = f"the table changed on the source: {_listed_changes(lost)}"
        raise _lost_history(table, what, LostEventsError)
    if grave:
        raise SchemaChangeError(
            f"table {table} changed on the source: {_listed_changes(grave)}",
            remedy=f"Copy the table again: `tributary bootstrap {table}`. Until then readers keep"
            " what was committed.",
            table=table,
        )
    moving = [change for change in changes if change.moves_lake]
    if moving and on_schema_change == "pause":
        raise PausedByPolicyError(
            f"table {table} changed on the source, and on_schema_change is pause:"
            f" {_listed_changes(moving)}",
            remedy="Set on_schema_change to evolve or freeze for this table, then"
            f" `tributary resume {table}`.",
            table=table,
        )
    return tuple(f"table {table}: {change}" for change in changes if isinstance(change, NewFile))


def _listed_changes(changes: Sequence[Change]) -> str:
    """Describe the schema changes in an error about a captured stream, as a list."""
    return "; ".join(str(change) for change in changes)


def _lost_history(
    table: TableId, what: str, kind: type[LostHistoryError] = LostHistoryError, **context: Any
) -> LostHistoryError:
    """Return the error for a captured stream that does not continue from the lake."""
    return kind(
        f"the stream of table {table} no longer continues from the lake: {what}",
        remedy=f"Copy the table again: `tributary bootstrap {table}`. Until then readers keep what"
        " was committed.",
        table=table,
        **context,
    )
