"""The states of a table, and `transition`, which changes the state in a table's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from cdc.errors import StateError
from cdc.store.attempt import Attempt
from cdc.store.documents import NOT_STORED, Codec, Part
from cdc.store.error_record import ErrorRecord
from schemas.errors import TributaryError
from schemas.table import Shard, TableId

if TYPE_CHECKING:
    from uuid import UUID

STORE_REMEDY = (
    "Use the version of this tool that wrote the state store, or restore the store from a backup."
)
"""The remedy for a document of the state store that cannot be read."""


class State(str, Enum):
    """The state of a table in the state store.

    The docstring of each state names the commands that set it. A resync sets the same states as a
    bootstrap. ``resume`` and ``retry`` return a PAUSED or FAILED table to its former state.
    """

    REGISTERED = "registered"
    """Captured, nothing copied yet. Set by onboard, and by resync for the next generation."""
    BOOTSTRAPPING = "bootstrapping"
    """An attempt is being copied. Set by bootstrap."""
    CATCHING_UP = "catching_up"
    """Copied; the changes since the start of the attempt are being applied. Set by bootstrap."""
    INCREMENTAL = "incremental"
    """Published and kept up to date by runs. Set by bootstrap."""
    PAUSED = "paused"
    """Left alone until an operator resumes it. Set by pause, and by run if the settings say so."""
    NEEDS_BOOTSTRAP = "needs_bootstrap"
    """The topic's changes no longer continue the lake table. Set by run, copies and move."""
    FAILED = "failed"
    """Stopped by an error after which a retry can succeed. Set by run and bootstrap."""
    RETIRED = "retired"
    """No longer replicated. Set by offboard."""


RESUMABLE = frozenset({State.PAUSED, State.FAILED})
"""States whose record keeps the table's former state, in ``resume_to``."""

_ALLOWED: dict[State, set[State]] = {
    State.REGISTERED: {State.BOOTSTRAPPING},
    State.BOOTSTRAPPING: {State.CATCHING_UP, State.NEEDS_BOOTSTRAP, State.FAILED},
    State.CATCHING_UP: {State.INCREMENTAL, State.NEEDS_BOOTSTRAP, State.PAUSED, State.FAILED},
    State.INCREMENTAL: {State.PAUSED, State.NEEDS_BOOTSTRAP, State.FAILED},
    State.PAUSED: {State.CATCHING_UP, State.INCREMENTAL, State.NEEDS_BOOTSTRAP},
    State.NEEDS_BOOTSTRAP: {State.BOOTSTRAPPING},
    State.FAILED: {*State} - {State.REGISTERED, State.PAUSED, State.FAILED, State.RETIRED},
    State.RETIRED: {State.REGISTERED},
}

TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {state: frozenset(allowed | ({State.RETIRED} - {state})) for state, allowed in _ALLOWED.items()}
)
"""A mapping from each state to the states to which a table in this state can move.

`transition` has one more rule for a PAUSED or FAILED table: the table can only return to its former
state (``resume_to``), or move to NEEDS_BOOTSTRAP or RETIRED.
"""


@dataclass(frozen=True)
class LastRecord(Part):
    """The last record of a topic's partition that a run has read.

    Args:
        offset: The record's offset.
        sent_ms: Kafka's timestamp of the record, in milliseconds since 1970.
    """

    offset: int
    sent_ms: int


@dataclass(frozen=True)
class CommitWrites(Part):
    """What one commit of a run wrote to the lake, by Hudi's own figures.

    Args:
        seconds: How long the commit took, from the read of the topic on.
        bytes: Size of the data files that the commit wrote.
        inserts: Number of rows with a new key.
        updates: Number of rows that were replaced. In soft delete mode, deleted rows count here.
        deletes: Number of rows that were removed.
    """

    seconds: float
    bytes: int
    inserts: int
    updates: int
    deletes: int

    @property
    def bytes_per_row(self) -> float | None:
        """Written bytes per changed row; None if the commit changed no row."""
        changed = self.inserts + self.updates + self.deletes
        return self.bytes / changed if changed else None


@dataclass(frozen=True)
class LakeField(Part):
    """A column of the lake, as the state store describes it for programs other than Tributary.

    Args:
        name: The column's name.
        lake: The column's Spark SQL type in the lake.
        source: The column's type as the source prints it; ``dropped`` if the source no longer has
            the column.
        hide: How the lake hides the values: ``hash`` or ``mask``; empty if they are not hidden.
    """

    name: str
    lake: str
    source: str
    hide: str = ""


@dataclass(frozen=True)
class CommitSummary(Part):
    """The metadata of a table's last lake commit, as the state store caches it.

    If the summary differs from the lake's timeline, the timeline is right.

    Args:
        offsets: Next offset to read, per partition.
        epochs: Per partition, the epoch of a leader that had all records below the offset in
            ``offsets``. If the partition's leader has another epoch now, a run checks that this
            leader has these records, too.
        position: The position of the source's log, as text, up to which the lake has all the
            table's transactions.
        watermark: Event time up to which the table is complete.
        instant: Hudi instant of the commit.
        committed_at: The time that ``instant`` names, aware UTC.
        last_records: Per partition, the last record below ``offsets`` that a run has read. Empty
            until a run has read a record.
        writes: What the commit wrote. None if the commit changes no data, if the table is a shard,
            or if the process that committed died before it had stored the summary.
        columns: The lake's columns; empty if the commit has no handoff document.
    """

    offsets: Mapping[int, int]
    position: str | None
    watermark: datetime | None
    instant: str
    committed_at: datetime
    epochs: Mapping[int, int] = field(default_factory=dict)
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    writes: CommitWrites | None = None
    columns: tuple[LakeField, ...] = ()


@dataclass(frozen=True)
class LakeSize(Part):
    """The size of a table in the lake, as the state store caches it.

    Args:
        image_bytes: Size of the files that a reader of the newest commit opens.
        kept_bytes: Size of the other files in the generation's folder: the timeline, and older file
            versions that are retained for readers.
        other_generations_bytes: Size of former generations and of the next generation.
        measured_at: When the sizes were measured.
    """

    image_bytes: int
    kept_bytes: int
    other_generations_bytes: int
    measured_at: datetime


@dataclass(frozen=True)
class CaptureRecord(Part):
    """The names that a table's capture had when the table was onboarded.

    Args:
        topic_prefix: Prefix of the capture's topics.
        connector: The connector.
        publication: The publication; None if the kind of source has no publications.
        slot: The replication slot; None if the kind of source has no slots.
    """

    topic_prefix: str
    connector: str
    publication: str | None
    slot: str | None


@dataclass(frozen=True)
class TierCapture(Part):
    """A tier's capture and a table's topic in this capture, as the table's record names both.

    Args:
        tier: The tier.
        topic: The topic of the table's changes.
        capture: The names of the tier's capture; None if no names are recorded.
    """

    tier: str
    topic: str
    capture: CaptureRecord | None


_COPYING = frozenset({State.BOOTSTRAPPING, State.CATCHING_UP})
_UNPUBLISHED = _COPYING | {State.REGISTERED}


@dataclass(frozen=True)
class TableRecord(Part):
    """The state store's record of one table.

    Args:
        table: The table.
        state: The table's state.
        generation: Number of the generation, from 1. A copy after NEEDS_BOOTSTRAP or RETIRED begins
            the next generation, and so does a resync.
        base_path: Base path of the table in the lake; attempts are folders below it.
        tier: The table's tier. Tables of one source and tier share connector, slot and publication.
        topic: The topic of the table's changes.
        updated_at: When the record last changed.
        shard: The shard of a shared lake table that this table feeds; None if it feeds none.
        attempt: The current attempt to build the generation; None before the copy begins.
        resume_to: The former state of a PAUSED or FAILED table.
        reason: Why the table is PAUSED or NEEDS_BOOTSTRAP.
        error: The error that stopped the table.
        remedy: What a person can do next.
        retry_at: When a run retries a FAILED table, by the state store's clock; ``None`` if no run
            retries it.
        failures: Number of failures in a row.
        last_commit: Summary of the table's newest recorded lake commit; None before the first one.
        beside: Whether this is a second record of the table, for the next generation that a resync
            builds. The resync later replaces the table's first record by this second one.
        size: The table's size in the lake, as last measured after a copy or an upkeep.
        capture: The names of the table's capture at onboarding. If None, no names are recorded, and
            every configured name is accepted.
        named: The table's entry in the Hive Metastore, as written after the last commit: metastore,
            name and path in one string. None if no metastore is configured, or if the next run must
            write the entry or check it.
        shown_as: Database and name of the table's newest entry in the Hive Metastore, as
            ``database.name``. None if the table never had an entry. If the settings now give
            another name, a run removes this entry.
        other: During an unfinished move to another tier, the second capture that can have the
            table: the capture to which the table moves, or the capture from which the table came.
            None if there is no such move. This field is set before the table joins or leaves the
            second capture.
        taken_over: UUIDs of another installation's attempts that this table has taken over. If the
            readers' pointer names one of these attempts, this table's publication may replace the
            pointer. Commands for the table may also remove the folders of these attempts.
        copy_discarded: Whether an unfinished copy was discarded, since its capture has lost
            changes. `onboard` then goes on with another copy.
        version: Number of times that the stored record was changed; 0 if no record is stored yet.
            The state store keeps this number beside the document, not in the document.
        format: Version of this document.
    """

    table: TableId
    state: State
    base_path: str
    tier: str
    topic: str
    updated_at: datetime
    generation: int = 1
    shard: Shard | None = None
    attempt: Attempt | None = None
    resume_to: State | None = None
    reason: str | None = None
    error: ErrorRecord | None = None
    remedy: str | None = None
    retry_at: datetime | None = None
    failures: int = 0
    last_commit: CommitSummary | None = None
    beside: bool = False
    size: LakeSize | None = None
    capture: CaptureRecord | None = None
    named: str | None = None
    shown_as: str | None = None
    other: TierCapture | None = None
    taken_over: tuple[str, ...] = ()
    copy_discarded: bool = False
    version: int = field(default=0, compare=False, metadata=NOT_STORED)
    format: Literal[1] = 1

    @property
    def resource(self) -> TableId | str:
        """What a process must lease before it writes this record or its attempt's files."""
        return f"the next generation of table {self.table}" if self.beside else self.table

    @property
    def is_copying(self) -> bool:
        """Whether the copy of the record's table has begun, but is not published yet."""
        return self.state in _COPYING or self.resume_to in _COPYING

    @property
    def attempt_id(self) -> UUID | None:
        """Identity of the table's current attempt; None before the generation's copy begins."""
        return None if self.attempt is None else self.attempt.id

    @property
    def applied_offsets(self) -> Mapping[int, int] | None:
        """A mapping from partition to the offset below which the lake table has all events.

        These are the offsets of ``last_commit``. If it is None, the result is O, the offsets from
        which on the stream is applied, or None if the attempt's copy has not ended.
        """
        if self.last_commit is not None:
            return self.last_commit.offsets
        copied = self.attempt is not None and self.attempt.handoff_offsets is not None
        return self.attempt.start_offsets if self.attempt is not None and copied else None

    @property
    def applied_at(self) -> datetime | None:
        """When the lake table last got rows: the time of ``last_commit``.

        If ``last_commit`` is None, this is the time at which the copy's view opened, or the
        attempt's start if no view is recorded. It is None if the attempt's copy has not ended.
        """
        if self.last_commit is not None:
            return self.last_commit.committed_at
        if self.attempt is None or self.applied_offsets is None:
            return None
        view = self.attempt.view
        return self.attempt.started_at if view is None else view.opened_at

    @property
    def captured(self) -> TierCapture:
        """The capture and the topic that the table, or its next generation, follows."""
        return TierCapture(self.tier, self.topic, self.capture)

    @property
    def paused_by_policy(self) -> bool:
        """Whether a setting such as ``on_truncate`` has paused the table, and not a person."""
        return self.state is State.PAUSED and self.error is not None

    @property
    def captures(self) -> tuple[TierCapture, ...]:
        """All captures that can have the table: `captured` and, during a move, ``other``."""
        return (self.captured,) if self.other is None else (self.captured, self.other)

    @property
    def never_published(self) -> bool:
        """Whether the first generation is not published yet, so that the table has no readers."""
        return self.generation == 1 and (self.resume_to or self.state) in _UNPUBLISHED


TABLE_RECORDS = Codec(TableRecord, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's records."""


@dataclass(frozen=True)
class Cause:
    """Why a table's record moves to another state.

    Args:
        reason: The reason in words. The states PAUSED and NEEDS_BOOTSTRAP require it.
        error: The error. The state FAILED requires it.
        remedy: The next step for a person. If ``error`` is given, the error's remedy is used.
        retry_at: Time at which a run retries a FAILED table.
        capture_lost: Whether the capture has lost changes. An unfinished copy is then discarded
            (`TableRecord.copy_discarded`), unless an operator has paused the table.
    """

    reason: str | None = None
    error: TributaryError | None = None
    remedy: str | None = None
    retry_at: datetime | None = None
    capture_lost: bool = False


_AS_PLANNED = Cause()


def transition(
    record: TableRecord,
    to: State,
    *,
    at: datetime,
    attempt: Attempt | None = None,
    cause: Cause = _AS_PLANNED,
) -> TableRecord:
    """Return a table's record after a move to another state, which `TRANSITIONS` must allow.

    Args:
        record: The table's record before the move.
        to: The new state.
        at: The current time, in UTC.
        attempt: The attempt that the record gets; None keeps the record's attempt. BOOTSTRAPPING
            needs a new attempt, except when a copy is resumed. CATCHING_UP needs an attempt with
            ``start_offsets`` (O) and ``handoff_offsets`` (H).
        cause: Why the table moves.

    Raises:
        StateError: The move is not allowed, or an argument that the new state needs is missing.
    """
    attempt = attempt or record.attempt
    if (obstacle := _transition_obstacle(record, to, attempt, cause)) is not None:
        raise _refused_transition(record, to, obstacle)
    origin, error = record.state, cause.error
    if to is State.RETIRED and attempt is not None:
        attempt = attempt.retired()
    discarded = cause.capture_lost and record.is_copying and origin is not State.PAUSED
    next_generation = origin in (State.NEEDS_BOOTSTRAP, State.RETIRED)
    return replace(
        record,
        state=to,
        generation=record.generation + (1 if next_generation else 0),
        attempt=None if to is State.REGISTERED else attempt,
        resume_to=origin if to in RESUMABLE else None,
        reason=cause.reason,
        error=None if error is None else ErrorRecord.of(error),
        remedy=cause.remedy if error is None else error.remedy,
        retry_at=cause.retry_at if to is State.FAILED else None,
        failures=_failures_in_a_row(record, to),
        copy_discarded=to is State.NEEDS_BOOTSTRAP and discarded,
        last_commit=None if next_generation else record.last_commit,
        size=None if next_generation else record.size,
        named=None if next_generation else record.named,
        updated_at=at,
    )


def _transition_obstacle(
    record: TableRecord, to: State, attempt: Attempt | None, cause: Cause
) -> str | None:
    """Return why a table's record cannot move to a state; None if it can."""
    origin = record.state
    if to not in TRANSITIONS[origin]:
        allowed = ", ".join(sorted(state.name for state in TRANSITIONS[origin]))
        return f"from there it can become {allowed}"
    back = origin in RESUMABLE and to not in (State.RETIRED, State.NEEDS_BOOTSTRAP)
    if back and to is not record.resume_to:
        was = record.resume_to.name if record.resume_to else "nowhere"
        return f"it can only return to its former state, {was}"
    last = record.attempt.id if record.attempt else None
    if to is State.BOOTSTRAPPING and not back and (attempt is None or attempt.id == last):
        return "a new attempt is needed"
    if to is State.CATCHING_UP and (
        attempt is None or attempt.start_offsets is None or attempt.handoff_offsets is None
    ):
        return "its attempt has not recorded O and H"
    if to in (State.PAUSED, State.NEEDS_BOOTSTRAP) and not cause.reason:
        return "no reason is given"
    if to is State.FAILED and cause.error is None:
        return "no error is given"
    return None


def with_attempt(record: TableRecord, attempt: Attempt, *, at: datetime) -> TableRecord:
    """Return the record to store when a BOOTSTRAPPING or CATCHING_UP table's attempt has changed.

    Raises:
        StateError: The table is in another state.
    """
    if record.state not in _COPYING:
        raise StateError(
            f"table {record.table} is {record.state.name} and has no attempt to continue",
            remedy=f"See `tributary status {record.table}` for what can be done with it now.",
            table=record.table,
            state=record.state.name,
        )
    return replace(record, attempt=attempt, updated_at=at)


def with_commit(record: TableRecord, commit: CommitSummary, *, at: datetime) -> TableRecord:
    """Return the table's record to store, with a new last commit and with zero failures in a row.

    The commit can have added a column or a partition. So the table's entry in the Hive Metastore
    counts as out of date, and ``named`` becomes None.
    """
    return replace(record, last_commit=commit, failures=0, named=None, updated_at=at)


def _failures_in_a_row(record: TableRecord, to: State) -> int:
    """Return the failures in a row after a move: one more if it failed; a retry keeps them."""
    if to is State.FAILED:
        return record.failures + 1
    return record.failures if record.state is State.FAILED else 0


def _refused_transition(record: TableRecord, to: State, reason: str) -> StateError:
    """Return the error for a change of a table's state that `TRANSITIONS` or the record forbids."""
    return StateError(
        f"table {record.table} is {record.state.name} and cannot become {to.name}: {reason}",
        remedy=f"See `tributary status {record.table}` for what can be done with it now.",
        table=record.table,
        state=record.state.name,
        to=to.name,
    )
