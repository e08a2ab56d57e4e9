from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import KafkaError, StateError
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import (
    RESUMABLE,
    TABLE_RECORDS,
    TRANSITIONS,
    Cause,
    CommitSummary,
    LakeSize,
    State,
    TableRecord,
    transition,
    with_attempt,
    with_commit,
)
from schemas.table import Shard, TableId
from tests.records import READY, table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
LATER = NOW + timedelta(hours=1)
TABLE = TableId("shop", "public", "orders")
ERROR = KafkaError("broker is down", remedy="Start it.", topic="t")

FRESH = Attempt(id=UUID(int=9), started_at=LATER, path="s3a://lake/orders/attempt=9")
COMMIT = CommitSummary({0: 12}, "0/1:0/2", NOW, "20260102030405000", NOW)

# The table of the design, row by row, with "from any" and "where it was" written out.
HANDOFF_TABLE = {
    ("REGISTERED", "BOOTSTRAPPING"),
    ("BOOTSTRAPPING", "CATCHING_UP"),
    ("BOOTSTRAPPING", "NEEDS_BOOTSTRAP"),
    ("BOOTSTRAPPING", "FAILED"),
    ("CATCHING_UP", "INCREMENTAL"),
    ("CATCHING_UP", "NEEDS_BOOTSTRAP"),
    ("CATCHING_UP", "PAUSED"),
    ("CATCHING_UP", "FAILED"),
    ("INCREMENTAL", "PAUSED"),
    ("INCREMENTAL", "NEEDS_BOOTSTRAP"),
    ("INCREMENTAL", "FAILED"),
    ("PAUSED", "CATCHING_UP"),
    ("PAUSED", "INCREMENTAL"),
    ("PAUSED", "NEEDS_BOOTSTRAP"),
    ("NEEDS_BOOTSTRAP", "BOOTSTRAPPING"),
    ("FAILED", "BOOTSTRAPPING"),
    ("FAILED", "CATCHING_UP"),
    ("FAILED", "INCREMENTAL"),
    ("FAILED", "NEEDS_BOOTSTRAP"),
    ("RETIRED", "REGISTERED"),
    ("REGISTERED", "RETIRED"),
    ("BOOTSTRAPPING", "RETIRED"),
    ("CATCHING_UP", "RETIRED"),
    ("INCREMENTAL", "RETIRED"),
    ("PAUSED", "RETIRED"),
    ("NEEDS_BOOTSTRAP", "RETIRED"),
    ("FAILED", "RETIRED"),
}

EVERY_PAIR = [(origin, to) for origin in State for to in State]


def record(state: State, *, resume_to: State | None = None) -> TableRecord:
    return table_record(
        table=TABLE,
        state=state,
        base_path="s3a://lake/orders",
        topic="shop_default.public.orders",
        updated_at=NOW,
        generation=3,
        attempt=None if state is State.REGISTERED else READY,
        resume_to=resume_to,
        last_commit=COMMIT,
    )


def move(before: TableRecord, to: State) -> TableRecord:
    """The transition to a state, with all facts that the state may require."""
    return transition(before, to, at=LATER, attempt=_attempt(to), cause=Cause("why", ERROR))


def _attempt(to: State) -> Attempt | None:
    return FRESH if to is State.BOOTSTRAPPING else None


def test_the_transitions_are_those_of_the_design() -> None:
    assert {(a.name, b.name) for a, allowed in TRANSITIONS.items() for b in allowed} == (
        HANDOFF_TABLE
    )
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize(("origin", "to"), EVERY_PAIR, ids=lambda state: state.name)
def test_every_pair_of_states_moves_or_is_refused(origin: State, to: State) -> None:
    resume_to = to if to in TRANSITIONS[origin] else State.INCREMENTAL
    before = record(origin, resume_to=resume_to if origin in RESUMABLE else None)
    if (origin.name, to.name) in HANDOFF_TABLE:
        after = move(before, to)
        assert after.state is to
        assert after.updated_at == LATER
        assert after.table == TABLE
    else:
        with pytest.raises(StateError) as caught:
            move(before, to)
        assert f"{origin.name} and cannot become {to.name}" in caught.value.message
        assert "shop:public.orders" in caught.value.message


@pytest.mark.parametrize("stopped", sorted(RESUMABLE), ids=lambda state: state.name)
@pytest.mark.parametrize("was", [State.BOOTSTRAPPING, State.CATCHING_UP, State.INCREMENTAL])
@pytest.mark.parametrize("to", [State.BOOTSTRAPPING, State.CATCHING_UP, State.INCREMENTAL])
def test_a_stopped_table_goes_back_only_to_where_it_was(
    stopped: State, was: State, to: State
) -> None:
    before = record(stopped, resume_to=was)
    if was is to and to in TRANSITIONS[stopped]:
        after = transition(before, to, at=LATER)
        assert (after.state, after.resume_to, after.attempt) == (to, None, READY)
    else:
        with pytest.raises(StateError):
            transition(before, to, at=LATER)


def test_a_table_that_never_said_where_it_was_cannot_go_back() -> None:
    with pytest.raises(StateError, match="former state, nowhere"):
        transition(record(State.FAILED), State.INCREMENTAL, at=LATER)


@pytest.mark.parametrize(
    ("origin", "to", "lacks"),
    [
        (State.REGISTERED, State.BOOTSTRAPPING, "a new attempt is needed"),
        (State.NEEDS_BOOTSTRAP, State.BOOTSTRAPPING, "a new attempt is needed"),
        (State.INCREMENTAL, State.PAUSED, "no reason is given"),
        (State.INCREMENTAL, State.NEEDS_BOOTSTRAP, "no reason is given"),
        (State.INCREMENTAL, State.FAILED, "no error is given"),
    ],
    ids=str,
)
def test_a_move_without_what_its_state_carries_is_refused(
    origin: State, to: State, lacks: str
) -> None:
    with pytest.raises(StateError, match=lacks):
        transition(record(origin), to, at=LATER)


@pytest.mark.parametrize(
    "attempt", [replace(READY, start_offsets=None), replace(READY, handoff_offsets=None)]
)
def test_catching_up_needs_o_and_h(attempt: Attempt) -> None:
    with pytest.raises(StateError, match="has not recorded O and H"):
        transition(record(State.BOOTSTRAPPING), State.CATCHING_UP, at=LATER, attempt=attempt)


def test_a_new_bootstrap_is_the_next_generation_with_an_attempt_of_its_own() -> None:
    after = transition(record(State.NEEDS_BOOTSTRAP), State.BOOTSTRAPPING, at=LATER, attempt=FRESH)
    assert (after.generation, after.attempt, after.last_commit) == (4, FRESH, None)


def test_the_last_attempt_is_not_taken_for_a_new_one() -> None:
    grown = replace(READY, x0="901")
    with pytest.raises(StateError, match="a new attempt is needed"):
        transition(record(State.NEEDS_BOOTSTRAP), State.BOOTSTRAPPING, at=LATER, attempt=grown)


def test_the_first_bootstrap_keeps_the_generation() -> None:
    after = transition(record(State.REGISTERED), State.BOOTSTRAPPING, at=LATER, attempt=FRESH)
    assert after.generation == 3


def test_a_retired_table_comes_back_as_the_next_generation() -> None:
    after = transition(record(State.RETIRED), State.REGISTERED, at=LATER)
    assert (after.generation, after.attempt, after.last_commit) == (4, None, None)


def test_a_failure_carries_its_error_and_counts_until_a_commit() -> None:
    failed = transition(
        record(State.INCREMENTAL), State.FAILED, at=LATER, cause=Cause(error=ERROR, retry_at=LATER)
    )
    assert failed.error == ErrorRecord.of(ERROR)
    assert failed.remedy == "Start it."
    assert (failed.retry_at, failed.failures) == (LATER, 1)
    retried = transition(failed, State.INCREMENTAL, at=LATER)
    assert (retried.error, retried.remedy, retried.retry_at) == (None, None, None)
    again = transition(retried, State.FAILED, at=LATER, cause=Cause(error=ERROR))
    assert again.failures == 2
    assert with_commit(transition(again, State.INCREMENTAL, at=LATER), COMMIT, at=LATER) == replace(
        retried, failures=0
    )


def test_the_attempt_grows_only_while_it_runs() -> None:
    for state in State:
        before = record(state)
        if state in (State.BOOTSTRAPPING, State.CATCHING_UP):
            assert with_attempt(before, FRESH, at=LATER).attempt == FRESH
        else:
            with pytest.raises(StateError, match="no attempt to continue"):
                with_attempt(before, FRESH, at=LATER)


@given(st.lists(st.sampled_from(sorted(State)), max_size=30))
def test_whatever_is_tried_the_record_stays_consistent(moves: list[State]) -> None:
    current = record(State.REGISTERED)
    for number, to in enumerate(moves):
        before = current
        try:
            attempt = replace(FRESH, id=UUID(int=number)) if to is State.BOOTSTRAPPING else None
            if to is State.CATCHING_UP and before.attempt is not None:
                attempt = replace(before.attempt, start_offsets={0: 1}, handoff_offsets={0: 2})
            current = transition(before, to, at=LATER, attempt=attempt, cause=Cause("why", ERROR))
        except StateError:
            assert current is before
            continue
        assert (before.state.name, to.name) in HANDOFF_TABLE
        assert (current.resume_to is not None) == (to in RESUMABLE)
        assert current.generation >= before.generation
        if to in (State.BOOTSTRAPPING, State.CATCHING_UP, State.INCREMENTAL):
            assert current.attempt is not None
        if to in (State.CATCHING_UP, State.INCREMENTAL):
            assert current.attempt is not None
            assert current.attempt.handoff_offsets is not None
        assert TABLE_RECORDS.read(TABLE_RECORDS.write(current), "it") == current


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_a_record_survives_json(state: State) -> None:
    full = replace(
        record(state, resume_to=State.INCREMENTAL),
        shard=Shard("orders", "eu", "_shard", "file:///lake/orders"),
        reason="why",
        error=ErrorRecord.of(ERROR),
        remedy="do",
        retry_at=LATER,
        failures=2,
        size=LakeSize(1, 2, 3, NOW),
    )
    for value in (full, replace(full, last_commit=None, attempt=FRESH, retry_at=None)):
        read = TABLE_RECORDS.read(TABLE_RECORDS.write(replace(value, version=4)), "it")
        assert read == value
        assert read.version == 0, "the store keeps it beside the document"
