"""The order of a bootstrap's steps, resumed after a crash at every possible point."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.errors import BootstrapError
from bootstrap.steps import LakeFacts, Step, next_step, reaches
from cdc.errors import KafkaError
from cdc.store.attempt import Attempt, Chunk
from cdc.store.table_state import Cause, State, TableRecord, transition, with_attempt
from schemas.fingerprint import Fingerprint
from tests.records import table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
CHUNKS = tuple(Chunk(number, None, None, 1, 1) for number in range(3))
START, HANDOFF = {0: 10}, {0: 25}

ORDER = [
    Step.BEGIN,
    Step.WAIT_FOR_OLDER_TRANSACTIONS,
    Step.RECORD_START,
    Step.COPY,
    Step.FIND_HANDOFF,
    Step.COMMIT_HANDOFF,
    Step.ENTER_CATCHING_UP,
    Step.CATCH_UP,
    Step.PUBLISH,
    Step.DONE,
]


@dataclass
class World:
    """The only state that survives a crash: the table record and the lake's timeline."""

    record: TableRecord
    chunks: set[int] = field(default_factory=set)
    handed_off: bool = False
    position: Mapping[int, int] | None = None
    taken: list[Step] = field(default_factory=list)

    @property
    def lake(self) -> LakeFacts:
        return LakeFacts(frozenset(self.chunks), self.handed_off, self.position)

    @property
    def attempt(self) -> Attempt:
        assert self.record.attempt is not None
        return self.record.attempt

    def effects(self, step: Step) -> list[Callable[[], None]]:
        """The durable effects of a step in their order; a crash can fall between any two."""
        return {
            Step.BEGIN: [self._begin],
            Step.BEGIN_ANOTHER: [self._begin_another],
            Step.BEGIN_AGAIN: [self._begin_another],
            Step.RESUME: [self._resume],
            Step.WAIT_FOR_OLDER_TRANSACTIONS: [lambda: self._note(x0="7")],
            Step.RECORD_START: [lambda: self._note(topic_id="t", start_offsets=START)],
            Step.COPY: [
                lambda: self._note(marker_id=uuid.uuid4()),
                lambda: self._note(fingerprint=Fingerprint({"oid": 1})),
                lambda: self._note(chunks=CHUNKS),
                *(lambda number=number: self.chunks.add(number) for number in range(3)),
                lambda: self._note(reads_upto="0/10"),
            ],
            Step.FIND_HANDOFF: [lambda: self._note(handoff_offsets=HANDOFF)],
            Step.COMMIT_HANDOFF: [self._hand_off],
            Step.ENTER_CATCHING_UP: [lambda: self._move(State.CATCHING_UP)],
            Step.CATCH_UP: [lambda: self._reach({0: 17}), lambda: self._reach(HANDOFF)],
            Step.PUBLISH: [lambda: None, lambda: self._move(State.INCREMENTAL)],
        }[step]

    def run(self, *, crash_after: int | None = None) -> None:
        """Take steps to the end, or die after that many durable effects."""
        left = crash_after
        while (step := next_step(self.record, self.lake)) is not Step.DONE:
            self.taken.append(step)
            assert len(self.taken) < 100, f"no end: {self.taken[-5:]}"
            for effect in self.effects(step):
                if left == 0:
                    return
                effect()
                left = None if left is None else left - 1
        self.taken.append(Step.DONE)

    def _begin(self) -> None:
        self.record = transition(
            self.record, State.BOOTSTRAPPING, at=NOW, attempt=Attempt(uuid.uuid4(), NOW, "/lake/a")
        )

    def _begin_another(self) -> None:
        self.record = with_attempt(self.record, Attempt(uuid.uuid4(), NOW, "/lake/b"), at=NOW)
        self.chunks, self.handed_off, self.position = set(), False, None

    def _resume(self) -> None:
        assert self.record.resume_to is not None
        self._move(self.record.resume_to)

    def _move(self, to: State) -> None:
        self.record = transition(self.record, to, at=NOW)

    def _note(self, **facts: object) -> None:
        self.record = with_attempt(self.record, replace(self.attempt, **facts), at=NOW)  # type: ignore[arg-type]

    def _hand_off(self) -> None:
        self.handed_off, self.position = True, self.attempt.start_offsets

    def _reach(self, position: Mapping[int, int]) -> None:
        if reaches(position, self.position or {}):
            self.position = position


def registered(state: State = State.REGISTERED) -> TableRecord:
    return table_record(
        state=state,
        topic="shop_default.public.orders",
        updated_at=NOW,
    )


def test_the_steps_come_in_the_order_that_the_proof_needs() -> None:
    world = World(registered())
    world.run()
    assert world.taken == ORDER


def effects_of_a_whole_run() -> int:
    world = World(registered())
    count = 0
    while (step := next_step(world.record, world.lake)) is not Step.DONE:
        for effect in world.effects(step):
            effect()
            count += 1
            assert count < 100, f"no end: {step}"
    return count


@pytest.mark.parametrize("crash_after", range(effects_of_a_whole_run() + 1))
def test_a_crash_after_any_durable_effect_is_gone_on_from(crash_after: int) -> None:
    world = World(registered())
    world.run(crash_after=crash_after)
    before = world.record
    world.run()
    assert world.record.state is State.INCREMENTAL
    assert world.taken[-1] is Step.DONE
    if before.attempt is not None:
        assert world.attempt.id == before.attempt.id, "what was copied is kept"
        assert world.attempt.start_offsets == START
    done = [step for step in world.taken if step is not Step.RESUME]
    assert [step for step in ORDER if step in done] == ORDER
    repeated = [step for index, step in enumerate(done) if step in done[:index]]
    assert len(repeated) <= 1, "only the step that was cut short is taken again"


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("backup_after", range(1, effects_of_a_whole_run()))
def test_a_store_from_a_backup_never_copies_into_a_table_that_is_handed_off(
    backup_after: int, archived: bool
) -> None:
    backup = World(registered())
    backup.run(crash_after=backup_after)
    world = replace(backup, chunks=set(backup.chunks))
    world.run()
    served = world.attempt.id
    world.record, world.taken = backup.record, []
    if archived:
        world.chunks.clear()

    world.run()

    assert world.record.state is State.INCREMENTAL
    if world.attempt.id == served:
        assert not {Step.COPY, Step.FIND_HANDOFF, Step.COMMIT_HANDOFF} & {*world.taken}
    else:
        assert world.taken == [Step.BEGIN_ANOTHER, *ORDER[1:]]


@pytest.mark.parametrize("went_on", range(1, 8))
@pytest.mark.parametrize("backup_after", range(1, effects_of_a_whole_run()))
def test_a_store_from_a_backup_never_keeps_chunks_of_a_plan_that_it_does_not_know(
    backup_after: int, went_on: int
) -> None:
    """The resumed copy would have another O and another plan than the chunks in the lake."""
    backup = World(registered())
    backup.run(crash_after=backup_after)
    world = replace(backup, chunks=set(backup.chunks))
    world.run(crash_after=went_on)
    copied = world.attempt.id
    unknown = bool(world.chunks) and not backup.attempt.chunks
    world.record, world.taken = backup.record, []

    world.run()

    assert world.record.state is State.INCREMENTAL
    if unknown:
        assert world.taken[0] is Step.BEGIN_ANOTHER
        assert world.attempt.id != copied


@given(st.lists(st.integers(0, 6), max_size=12))
def test_any_number_of_crashes_ends_in_the_same_state(crashes: list[int]) -> None:
    world = World(registered())
    for effects in crashes:
        world.run(crash_after=effects)
    world.run()
    assert world.record.state is State.INCREMENTAL
    assert (world.chunks, world.handed_off, world.position) == ({0, 1, 2}, True, HANDOFF)
    positions = [ORDER.index(step) for step in world.taken if step in ORDER]
    assert positions == sorted(positions), "no step is taken after a later one"


@pytest.mark.parametrize("failed_after", range(1, effects_of_a_whole_run()))
def test_a_failed_table_goes_on_where_it_was(failed_after: int) -> None:
    world = World(registered())
    world.run(crash_after=failed_after)
    if world.record.state not in (State.BOOTSTRAPPING, State.CATCHING_UP):
        return
    broken = KafkaError("no broker", remedy="Start it.")
    world.record = transition(world.record, State.FAILED, at=NOW, cause=Cause(error=broken))
    attempt = world.attempt.id
    world.taken.clear()
    world.run()
    assert world.taken[0] is Step.RESUME
    assert (world.record.state, world.attempt.id) == (State.INCREMENTAL, attempt)


def copied(**facts: object) -> World:
    world = World(registered())
    world.run(crash_after=10)
    assert next_step(world.record, world.lake) is Step.FIND_HANDOFF
    world._note(**facts)
    return world


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_only_the_lake_says_what_was_copied(missing: int) -> None:
    world = copied()
    world.chunks.remove(missing)
    assert next_step(world.record, world.lake) is Step.COPY


def test_chunks_of_another_plan_do_not_count() -> None:
    world = copied(chunks=(replace(CHUNKS[0], id=7),))
    assert next_step(world.record, world.lake) is Step.COPY


def test_the_copy_is_not_over_before_its_upper_bound_is_known() -> None:
    assert next_step(copied(reads_upto=None).record, copied().lake) is Step.COPY


def test_nothing_is_copied_after_the_handoff_is_found() -> None:
    world = copied(handoff_offsets=HANDOFF)
    assert next_step(world.record, world.lake) is Step.COMMIT_HANDOFF
    world.chunks.remove(1)
    assert next_step(world.record, world.lake) is Step.BEGIN_AGAIN
    before = world.attempt.id
    world.run()
    assert world.record.state is State.INCREMENTAL
    assert world.attempt.id != before


def test_nothing_is_published_before_the_handoff_is_reached() -> None:
    world = World(registered())
    world.run()
    world.record = replace(world.record, state=State.CATCHING_UP)
    for position, step in ((10, Step.CATCH_UP), (24, Step.CATCH_UP), (25, Step.PUBLISH)):
        world.position = {0: position}
        assert next_step(world.record, world.lake) is step


def test_a_generation_beside_another_is_done_when_it_is_complete() -> None:
    world = World(replace(registered(), beside=True))
    world.run()
    assert world.taken == [step for step in ORDER if step is not Step.PUBLISH]
    assert world.record.state is State.CATCHING_UP


def test_a_table_that_needs_a_bootstrap_begins_another_attempt() -> None:
    world = World(registered())
    world.run()
    first = world.attempt.id
    world.record = transition(
        world.record,
        State.NEEDS_BOOTSTRAP,
        at=NOW,
        cause=Cause(reason="the topic was created again"),
    )
    assert next_step(world.record, world.lake) is Step.BEGIN
    world.effects(Step.BEGIN)[0]()
    assert (world.record.generation, world.attempt.start_offsets) == (2, None)
    assert world.attempt.id != first


@pytest.mark.parametrize("state", [State.RETIRED, State.PAUSED])
def test_other_states_are_refused(state: State) -> None:
    record = replace(registered(state), resume_to=State.INCREMENTAL)
    with pytest.raises(BootstrapError) as refused:
        next_step(record, LakeFacts())
    assert "shop:public.orders" in refused.value.message
    assert refused.value.remedy


def test_catching_up_without_a_handoff_in_the_lake_is_refused() -> None:
    world = World(registered())
    world.run()
    record = replace(world.record, state=State.CATCHING_UP)
    with pytest.raises(BootstrapError, match="not in the lake"):
        next_step(record, LakeFacts())


def test_a_bootstrap_without_an_attempt_is_refused() -> None:
    with pytest.raises(BootstrapError, match="no attempt"):
        next_step(registered(State.BOOTSTRAPPING), LakeFacts())


def test_every_partition_has_to_reach_its_target() -> None:
    assert reaches({0: 5, 1: 9}, {0: 5, 1: 9})
    assert not reaches({0: 5, 1: 8}, {0: 5, 1: 9})
    assert not reaches({0: 5}, {0: 5, 1: 1})
    assert reaches({0: 5}, {0: 5, 1: 0})


def test_a_table_that_failed_on_its_stream_is_sent_to_what_helps_it() -> None:
    """Nothing is to be copied or resumed, so `bootstrap` refers to the command that helps."""
    failed = replace(registered(), state=State.FAILED, resume_to=State.INCREMENTAL)
    with pytest.raises(BootstrapError) as caught:
        next_step(failed, LakeFacts())
    for command in (f"tributary retry {failed.table}", f"tributary resync {failed.table}"):
        assert command in caught.value.remedy
