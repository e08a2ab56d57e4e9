"""What `onboard 'public.*'` does with known tables if a schedule repeats the command."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.steps import LakeFacts, next_step
from cdc.errors import StateError
from cdc.sources.source_facts import SourceTable
from cdc.store.attempt import Attempt
from cdc.store.table_state import Cause, State, TableRecord, transition
from operate.context import Services
from operate.discover import at_source
from operate.dryrun import onboarding_steps
from operate.exit_codes import ExitCode
from operate.lost_capture import cut_off
from operate.onboard import onboard, register
from operate.table_outcome import Outcome, exit_code_of, for_each
from schemas.errors import TributaryError
from schemas.table import TableId
from tests.records import NOW
from tests.unit.operate.onboarding import Counted, capture_without_servers, found, some


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Services with a source of equal tables, and a capture that takes each table."""
    counted = Counted(tmp_path, monkeypatch)
    capture_without_servers(monkeypatch, lambda *_: {}, lambda _: None, ())
    yield counted.services
    counted.services.close()


def offboard(services: Services, table: TableId) -> None:
    record = services.store.get(table)
    assert record is not None
    services.store.put(transition(record, State.RETIRED, at=NOW))


def nightly(services: Services, tables: list[TableId]) -> dict[TableId, Outcome]:
    """Onboard tables that a wildcard selects."""
    outcomes = onboard(services, tables, with_bootstrap=False, by_wildcard=tables, in_bulk=tables)
    return {one.table: one for one in outcomes}


def put(services: Services, table: TableId, *path: State, **more: Any) -> TableRecord:
    """Store the record of a table that went through these states after its registration."""
    register(services, table)
    record = services.store.get(table)
    assert record is not None
    at = {0: 5}
    attempt = Attempt(uuid.uuid4(), NOW, "/a", start_offsets=at, handoff_offsets=at)
    cause = Cause("why", StateError("it is locked", remedy="Wait."))
    for state in path:
        new = attempt if state is State.BOOTSTRAPPING else None
        record = transition(record, state, at=NOW, attempt=new, cause=cause)
    return services.store.put(replace(record, **more))


def copying(monkeypatch: pytest.MonkeyPatch) -> list[TableId]:
    """Let copies do nothing; return the list that gets their tables."""
    copied = list[TableId]()

    def copy(_: Services, tables: Sequence[TableId]) -> list[Outcome]:
        copied.extend(tables)
        return [Outcome(one, "copied", State.INCREMENTAL) for one in tables]

    monkeypatch.setattr("operate.onboard.copy", copy)
    return copied


def planned_copies(
    services: Services, tables: list[TableId], patch: pytest.MonkeyPatch, *, again: bool = False
) -> object:
    """The tables that a dry run of a repeated command would copy."""
    patch.setattr("operate.dryrun._steps_of_group", lambda *_: [])
    planned = onboarding_steps(services, tables, with_bootstrap=True, in_bulk=tables, again=again)
    assert {one.table for one in planned.accepted} == set(tables)
    places = {services.config.table_path(one): one for one in tables}
    copies = (step.where for step in planned.steps if step.kind == "spark")
    return [places[where.removesuffix("/attempt=<uuid>")] for where in copies]


def state_of(services: Services, table: TableId) -> State | None:
    record = services.store.get(table)
    return None if record is None else record.state


def test_an_offboarded_table_comes_back_by_its_name_only(services: Services) -> None:
    gone, known, new = tables = some(3)
    for table in (gone, known):
        register(services, table)
    offboard(services, gone)

    (dry,) = onboarding_steps(services, [gone], with_bootstrap=False, in_bulk=[gone]).refused
    outcomes = nightly(services, tables)
    # A line of a list names the table, but a schedule can repeat the list, too.
    (line,) = onboard(services, [gone], with_bootstrap=False, in_bulk=[gone])
    for left in (dry, line, outcomes[gone]):
        assert (left.left_out, left.failed) == (True, False)
        assert exit_code_of([left]) is ExitCode.OK
        assert left.error is not None
        assert "was offboarded" in left.error.message
        assert f"`tributary onboard {gone}`" in left.error.remedy
    assert [outcomes[one].action for one in (known, new)] == [
        "is already on the plan, registered",
        "registered",
    ]
    assert state_of(services, gone) is State.RETIRED

    (outcome,) = onboard(services, [gone], with_bootstrap=False)
    assert outcome.action == "registered"
    assert state_of(services, gone) is State.REGISTERED


def test_the_name_of_a_shared_lake_table_brings_no_offboarded_shard_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its repetition is how shards that are new are onboarded (docs/shards.md)."""
    pattern = {"sales.orders": {"from": ["public.t_*"]}}
    services = Counted(tmp_path, monkeypatch, **pattern).services
    capture_without_servers(monkeypatch, lambda *_: {}, lambda _: None, ())
    copied = copying(monkeypatch)
    gone, failed, new, refused = shards = some(4)
    monkeypatch.setattr(services.source("shop"), "table_names", lambda *_, **__: shards)
    keyless = replace(found(refused), primary_key=(), unique_indexes=())

    def described(one: TableId) -> SourceTable:
        return keyless if one == refused else found(one)

    monkeypatch.setattr(services.source("shop"), "table", described)
    put(services, gone)
    offboard(services, gone)
    begins = (State.BOOTSTRAPPING, State.CATCHING_UP, State.INCREMENTAL)
    put(services, failed, *begins, State.FAILED)

    wanted = at_source(services, ["sales.orders"])
    assert (wanted.by_wildcard, wanted.in_bulk) == (frozenset(), frozenset(shards))
    outcomes = onboard(
        services, wanted.tables, by_wildcard=wanted.by_wildcard, in_bulk=wanted.in_bulk
    )
    assert [one.left_out for one in outcomes] == [True, False, False, False]
    assert [one.failed for one in outcomes] == [False, False, False, True], "it is named"
    assert copied == [new]
    assert state_of(services, gone) is State.RETIRED

    named = at_source(services, ["sales.orders", "public.t_0000"])
    assert named.in_bulk == {failed, new, refused}
    services.close()


def test_all_offboarded_tables_of_a_command_come_back_if_it_says_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the command is repeated after an interruption, when some are on the plan again."""
    copied = copying(monkeypatch)
    tables = some(3)
    for one in tables:
        put(services, one)
    for one in tables[1:]:
        offboard(services, one)

    assert planned_copies(services, tables, monkeypatch, again=True) == tables
    outcomes = onboard(services, tables, by_wildcard=tables, in_bulk=tables, again=True)
    assert [one.failed or one.left_out for one in outcomes] == [False] * 3
    assert copied == tables
    assert {state_of(services, one) for one in tables} == {State.REGISTERED}


def test_the_name_of_a_lake_table_whose_shards_were_all_offboarded_brings_none_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated `onboard sales.orders` would else undo `offboard sales.orders`."""
    services = Counted(tmp_path, monkeypatch, **{"sales.orders": {"from": ["public.t_*"]}}).services
    shards = some(2)
    monkeypatch.setattr(services.source("shop"), "table_names", lambda *_, **__: shards)
    for one in shards:
        put(services, one)
        offboard(services, one)
    assert at_source(services, ["sales.orders"]).in_bulk == {*shards}
    services.close()


@pytest.mark.parametrize("in_bulk", [True, False])
def test_a_table_that_is_offboarded_amid_the_command_stays_so(
    services: Services, monkeypatch: pytest.MonkeyPatch, *, in_bulk: bool
) -> None:
    table, other = tables = some(2)
    register(services, table)
    removed = list[object]()

    def meanwhile(*_: object) -> dict[TableId, TributaryError]:
        offboard(services, table)
        return {}

    capture_without_servers(monkeypatch, meanwhile, removed.append, ())
    named = [] if in_bulk else tables
    outcomes = onboard(
        services,
        tables,
        with_bootstrap=False,
        by_wildcard=[one for one in tables if one not in named],
        in_bulk=[one for one in tables if one not in named],
    )
    assert [one.failed for one in outcomes] == [True, False]
    assert "offboarded by another command" in str(outcomes[0].error)
    assert removed == [{table}], "it leaves the capture again"
    assert state_of(services, table) is State.RETIRED
    assert state_of(services, other) is State.REGISTERED


def test_a_copy_that_was_discarded_with_its_slot_is_made_by_the_next_onboarding(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An onboarding of other tables of the tier has recreated the lost slot."""
    copied = copying(monkeypatch)
    begun, followed, paused = tables = some(3)
    begins = (State.BOOTSTRAPPING, State.CATCHING_UP)
    put(services, begun, State.BOOTSTRAPPING)
    put(services, followed, *begins, State.INCREMENTAL, State.NEEDS_BOOTSTRAP)
    put(services, paused, *begins, State.PAUSED)
    with cut_off(services, services.capture(begun), "slot s is gone"):
        pass
    assert {state_of(services, one) for one in tables} == {State.NEEDS_BOOTSTRAP}

    assert planned_copies(services, tables, monkeypatch) == [begun]
    outcomes = onboard(services, tables, by_wildcard=tables, in_bulk=tables)
    assert copied == [begun]
    assert [one.needs_bootstrap for one in outcomes] == [False, True, True]
    # Once another copy has begun, only its own end counts.
    record = services.store.get(begun)
    assert record is not None
    attempt = Attempt(uuid.uuid4(), NOW, "/b")
    again = transition(record, State.BOOTSTRAPPING, at=NOW, attempt=attempt)
    assert not again.copy_discarded


def test_a_followed_table_that_has_failed_is_left_to_the_runs_that_try_it_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copying(monkeypatch)
    followed, copies, paused = tables = some(3)
    begins = (State.BOOTSTRAPPING, State.CATCHING_UP)
    put(services, followed, *begins, State.INCREMENTAL, State.FAILED)
    put(services, copies, *begins, State.FAILED)
    put(services, paused, *begins, State.INCREMENTAL, State.PAUSED)
    asked = list[TableId]()
    find = services.source("shop").table
    monkeypatch.setattr(
        services.source("shop"), "table", lambda table: (asked.append(table), find(table))[1]
    )

    assert planned_copies(services, tables, monkeypatch) == [copies]
    assert asked == [copies]
    asked.clear()
    outcomes = onboard(services, tables, by_wildcard=tables, in_bulk=tables)
    assert [one.action for one in outcomes] == [
        "is already on the plan, failed",
        "copied",
        "is already on the plan, paused",
    ]
    assert exit_code_of(outcomes) is ExitCode.OK
    assert (copied, asked) == ([copies], [copies])
    # If an argument names the table, the command tries to copy it, and its error has the remedy.
    onboard(services, [followed])
    assert copied == [copies, followed]


@pytest.mark.parametrize("with_bootstrap", [True, False])
def test_a_dry_run_ends_with_the_exit_code_of_the_command(
    services: Services, monkeypatch: pytest.MonkeyPatch, *, with_bootstrap: bool
) -> None:
    monkeypatch.setattr("operate.dryrun._steps_of_group", lambda *_: [])
    needs, failed, discarded, paused = tables = some(4)
    begins = (State.BOOTSTRAPPING, State.CATCHING_UP)
    followed = (*begins, State.INCREMENTAL)
    put(services, needs, *followed, State.NEEDS_BOOTSTRAP)
    put(services, failed, *followed, State.FAILED)
    put(services, discarded, State.BOOTSTRAPPING, State.NEEDS_BOOTSTRAP, copy_discarded=True)
    put(services, paused, *followed, State.PAUSED)

    def copy(_: Services, copied: Sequence[TableId]) -> list[Outcome]:
        def one(table: TableId) -> Outcome:
            record = services.store.get(table)
            assert record is not None
            next_step(record, LakeFacts())  # refuses a table that runs follow
            return Outcome(table, "copied", State.INCREMENTAL)

        return for_each(copied, one, action="bootstrap")

    monkeypatch.setattr("operate.onboard.copy", copy)
    for table, code in {
        needs: ExitCode.NEEDS_BOOTSTRAP,
        failed: ExitCode.SOME_FAILED if with_bootstrap else ExitCode.OK,
        discarded: ExitCode.OK if with_bootstrap else ExitCode.NEEDS_BOOTSTRAP,
        paused: ExitCode.OK,
    }.items():
        for in_bulk in ([], tables):
            more: Any = {"with_bootstrap": with_bootstrap, "in_bulk": in_bulk}
            planned = onboarding_steps(services, [table], **more)
            done = onboard(services, [table], **more)
            expected = ExitCode.OK if in_bulk and table == failed else code
            assert exit_code_of(done) is expected
            assert exit_code_of([*planned.refused, *planned.accepted]) is expected
            assert [str(one.error) for one in planned.refused] == [
                str(one.error) for one in done if one.failed
            ]
            copies = [step for step in planned.steps if step.kind == "spark"]
            assert bool(copies) is (with_bootstrap and table == discarded)
