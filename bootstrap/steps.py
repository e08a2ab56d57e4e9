"""Finds the next step of a bootstrap from the records, with pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bootstrap.errors import BootstrapError
from cdc.errors import onboard_again
from cdc.store.table_state import RESUMABLE, State, TableRecord


class Step(str, Enum):
    """The steps of a bootstrap, in the order in which a bootstrap takes the steps.

    The completion of each step is recorded before the next step begins.
    """

    BEGIN = "begin an attempt"
    BEGIN_ANOTHER = "begin another attempt beside one that is further in the lake than on record"
    BEGIN_AGAIN = "begin again, since the lake lacks chunks of a copy that was finished"
    RESUME = "go on with the attempt"
    WAIT_FOR_OLDER_TRANSACTIONS = "wait for transactions older than the capture"
    RECORD_START = "record the topic's offsets"
    COPY = "copy the snapshot"
    FIND_HANDOFF = "find the handoff offsets"
    COMMIT_HANDOFF = "commit the handoff"
    ENTER_CATCHING_UP = "enter catching up"
    CATCH_UP = "apply the changes since the snapshot began"
    PUBLISH = "publish"
    DONE = "done"


@dataclass(frozen=True)
class LakeFacts:
    """The facts of an attempt's Hudi timeline from which `next_step` finds the next step.

    The timeline, not the state store, determines which chunks are copied.

    Args:
        chunks: Ids of the attempt's chunks, from the metadata of commits in the active timeline.
            After the handoff, Hudi moves these commits to the archived timeline.
        handed_off: Whether the handoff of this attempt is committed.
        position: Next offset to read per partition, from the newest commit with offsets.
    """

    chunks: frozenset[int] = frozenset()
    handed_off: bool = False
    position: Mapping[int, int] | None = None


def next_step(record: TableRecord, lake: LakeFacts) -> Step:
    """Return the step that a table's bootstrap takes now.

    Args:
        record: The table's record in the state store.
        lake: What the attempt's Hudi timeline contains.

    Raises:
        BootstrapError: The table's state does not allow a bootstrap.
    """
    if record.state in (State.REGISTERED, State.NEEDS_BOOTSTRAP):
        return Step.BEGIN
    if record.state in RESUMABLE and record.resume_to in (State.BOOTSTRAPPING, State.CATCHING_UP):
        return Step.RESUME
    if record.state is State.BOOTSTRAPPING:
        return _step_of_copy(record, lake)
    if record.state is State.CATCHING_UP:
        return _step_of_catching_up(record, lake)
    if record.state is State.INCREMENTAL:
        return Step.DONE
    raise nothing_to_copy(record)


def nothing_to_copy(record: TableRecord) -> BootstrapError:
    """Return the error for a table in whose state there is nothing to copy or to continue."""
    return BootstrapError(
        f"table {record.table} is {record.state.name} and cannot be bootstrapped",
        remedy=_INSTEAD[record.state].format(table=record.table),
        table=record.table,
        state=record.state.name,
    )


_INSTEAD = {
    State.FAILED: "It follows its stream: `tributary retry {table}` continues where it stopped,"
    " and `tributary resync {table}` copies it again.",
    State.PAUSED: "Run `tributary resume {table}` first.",
    State.RETIRED: "Run `tributary onboard {table}`.",
}
"""The remedy for each state in which there is nothing to copy or to continue."""


def _step_of_copy(record: TableRecord, lake: LakeFacts) -> Step:
    """Return the next step of a bootstrap whose table is BOOTSTRAPPING."""
    attempt = record.attempt
    if attempt is None:
        raise BootstrapError(
            f"table {record.table} is {record.state.name} but its record holds no attempt",
            remedy=f"The state store was altered: {onboard_again(record.table)}.",
            table=record.table,
        )
    # The plan is recorded before the first chunk is committed, and H before the handoff. A record
    # that lacks one of them is from a backup of the state store, and the lake is further.
    if (lake.chunks and not attempt.chunks) or (
        lake.handed_off and attempt.handoff_offsets is None
    ):
        return Step.BEGIN_ANOTHER
    if attempt.x0 is None:
        return Step.WAIT_FOR_OLDER_TRANSACTIONS
    if attempt.start_offsets is None:
        return Step.RECORD_START
    if lake.handed_off:
        return Step.ENTER_CATCHING_UP
    planned = frozenset(chunk.id for chunk in attempt.chunks)
    copied = bool(planned) and planned <= lake.chunks and attempt.reads_upto is not None
    if attempt.handoff_offsets is None:
        return Step.FIND_HANDOFF if copied else Step.COPY
    # The capture was proven for the time up to H. A chunk that is copied again now could contain
    # changes from after H.
    return Step.COMMIT_HANDOFF if copied else Step.BEGIN_AGAIN


def _step_of_catching_up(record: TableRecord, lake: LakeFacts) -> Step:
    """Return the next step of a bootstrap whose table is CATCHING_UP."""
    handoff = record.attempt.handoff_offsets if record.attempt is not None else None
    if handoff is None or lake.position is None:
        raise BootstrapError(
            f"table {record.table} is {record.state.name} but its handoff is not in the lake",
            remedy=f"The lake or the state store was altered: {onboard_again(record.table)}.",
            table=record.table,
        )
    if not reaches(lake.position, handoff):
        return Step.CATCH_UP
    # The next generation of a resync is published after it has replaced the table's record.
    return Step.DONE if record.beside else Step.PUBLISH


def reaches(position: Mapping[int, int], target: Mapping[int, int]) -> bool:
    """Whether a bootstrap's position in a topic has reached the target offset of each partition."""
    return all(position.get(partition, 0) >= offset for partition, offset in target.items())
