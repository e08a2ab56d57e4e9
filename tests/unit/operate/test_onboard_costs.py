"""The cost of `onboard`, without the copies, grows at most with the number of new tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.errors import (
    ConfigError,
    ConnectError,
    KafkaError,
    LeaseHeldError,
    MissingTableError,
    RefusedError,
    SourceError,
    UnreachableError,
)
from cdc.store.lease import Lease
from cdc.store.state_store import Store
from cdc.store.table_state import State, transition
from operate import capture_undo, tier_capture
from operate import onboard as onboard_module
from operate.capture_undo import Found, withdraw, withdrawn
from operate.captured_tables import prepare_each
from operate.context import Services
from operate.onboard import _left_to_other_process, copy, onboard, refusals, register
from operate.readiness_check import Examined, examine_all, on_record
from operate.table_outcome import Outcome
from schemas.errors import TributaryError
from schemas.table import TableId
from tests.records import NOW, table_record
from tests.unit.operate.onboarding import Counted, capture_without_servers, some

SOURCE_LOOKS = ("table", "largest_row", "key_obstacle")


def test_tables_are_examined_with_as_many_reads_of_the_plan_whatever_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    for count in (10, 100):
        counted = Counted(tmp_path, monkeypatch)
        assert examine_all(counted.services, some(count)).replicable == some(count)
        reads.append({name: n for name, n in counted.calls.items() if name.startswith("store")})
        assert counted.calls["table"] == count
        counted.services.close()
    assert reads[0] == reads[1]
    assert sum(reads[0].values()) <= 10


def test_the_plan_is_read_once_for_all_tables_that_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    known = on_record(counted.services)
    for table in some(100):
        assert register(counted.services, table, known).action == "registered"
    assert counted.calls["store tables"] == 1
    assert counted.calls["store put"] == 100
    assert [one.table for one in counted.services.store.tables()] == some(100)
    again = register(counted.services, some(1)[0], known)
    assert again.action == "is already on the plan, registered"
    counted.services.close()


def test_the_source_is_not_asked_again_about_tables_that_a_wildcard_matches_and_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule can repeat `onboard 'public.*'` to find new tables."""
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(100))
    monkeypatch.setattr(
        "operate.onboard._capture_group", lambda _, group, *__: untouched(group.tables)
    )
    outcomes = onboard(counted.services, some(101), in_bulk=some(101))
    assert [one.table for one in outcomes if one.action == "is prepared"] == some(101)[100:]
    assert sum("already up to date" in one.action for one in outcomes) == 100
    assert {name: counted.calls[name] for name in SOURCE_LOOKS} == dict.fromkeys(SOURCE_LOOKS, 1)
    assert counted.calls["store transaction"] <= 12
    # A table that an argument names is examined.
    counted.calls.clear()
    onboard(counted.services, some(2), in_bulk=some(1))
    assert counted.calls["table"] == 1
    counted.services.close()


def untouched(tables: tuple[TableId, ...]) -> list[Any]:
    """The outcomes for tables whose capture needs no change; the one new table is paused."""
    from operate.table_outcome import Outcome

    return [
        Outcome(one, "is prepared", State.PAUSED if one == some(101)[100] else State.INCREMENTAL)
        for one in tables
    ]


def test_tables_that_are_done_start_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(100))
    monkeypatch.setattr(Services, "spark", property(lambda _: pytest.fail("Spark was started")))
    outcomes = copy(counted.services, some(100))
    assert [one.table for one in outcomes] == some(100)
    assert {one.state for one in outcomes} == {State.INCREMENTAL}
    assert counted.calls["store transaction"] == 1
    counted.services.close()


def test_the_settings_of_a_table_that_is_done_are_compared_in_each_onboarding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(2))
    counted.services.close()
    edited = Counted(tmp_path, monkeypatch, **{"public.t_0001": {"name": "elsewhere"}})
    examined = examine_all(edited.services, some(2), only_settings=some(2))
    assert list(examined.refused) == some(2)[1:]
    assert isinstance(examined.refused[some(2)[1]], ConfigError)
    edited.services.close()


def _prepared(
    services: Services, monkeypatch: pytest.MonkeyPatch, errors: dict[TableId, TributaryError]
) -> list[tuple[TableId, ...]]:
    """Let preparations fail for some tables; return the groups that were prepared, in order."""
    tried = list[tuple[TableId, ...]]()

    def prepare(_services: Services, group: tier_capture.Group) -> None:
        tried.append(group.tables)
        wrong = {table: errors[table] for table in group.tables if table in errors}
        if wrong:
            raise RefusedError.of(wrong)

    monkeypatch.setattr(tier_capture, "prepare", prepare)
    return tried


def test_one_table_that_cannot_be_captured_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has two partitions, or a long migration has locked two of a hundred tables."""
    services = Counted(tmp_path, monkeypatch).services
    tables = tuple(some(100))
    group = tier_capture.Group(services.capture(tables[0]), tables)
    locked = {
        one: SourceError(f"table {one} is locked", remedy="Wait.", table=one) for one in tables[:2]
    }
    topic = group.capture.topic(tables[2])
    of_topic = KafkaError(f"topic {topic} has 2 partitions", remedy="Delete it.", topic=topic)
    for errors in ({tables[2]: of_topic}, locked):
        tried = _prepared(services, monkeypatch, dict(errors))
        refused = prepare_each(services, group)
        assert {one: str(why) for one, why in refused.items()} == {
            one: str(why) for one, why in errors.items()
        }
        assert [len(one) for one in tried] == [100, 100 - len(errors)]
    services.close()


def test_an_error_of_the_whole_capture_stops_all_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Counted(tmp_path, monkeypatch).services
    tables = tuple(some(3))
    group = tier_capture.Group(services.capture(tables[0]), tables)
    down = ConnectError("Kafka Connect does not answer", remedy="Start it.")
    monkeypatch.setattr(tier_capture, "prepare", lambda *_: (_ for _ in ()).throw(down))
    with pytest.raises(ConnectError):
        prepare_each(services, group)
    alone = replace(group, tables=tables[:1])
    own = SourceError("it is locked", remedy="Wait.", table=tables[0])
    _prepared(services, monkeypatch, {tables[0]: own})
    with pytest.raises(SourceError, match="it is locked"):
        prepare_each(services, alone)
    services.close()


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(
            "too many changes of topics", remedy="Wait.", topic="shop_default.public.t_0000"
        ),
        UnreachableError("the source does not answer", remedy="Wait.", table=some(1)[0]),
    ],
)
def test_an_error_of_a_server_is_about_all_tables_although_it_names_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TributaryError
) -> None:
    """Else 500 new topics at an exhausted quota would be tried for two minutes each."""
    services, tried = Counted(tmp_path, monkeypatch).services, list[object]()

    def prepare(*_: object) -> None:
        tried.append(1)
        raise error

    monkeypatch.setattr(tier_capture, "prepare", prepare)
    tables = tuple(some(3))
    capture = services.capture(tables[0])
    assert capture.topic(tables[0]) == "shop_default.public.t_0000"
    with pytest.raises(type(error)):
        prepare_each(services, tier_capture.Group(capture, tables))
    assert len(tried) == 1
    services.close()


@pytest.mark.parametrize("stuck", [False, True])
def test_refused_tables_leave_the_capture_in_one_step_unless_they_were_in_it_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stuck: bool
) -> None:
    """A person made the publication by hand."""
    services = Counted(tmp_path, monkeypatch).services
    tables = tuple(some(4))
    theirs, ours, other, well = tables
    error = KafkaError("two partitions", remedy="Delete it.")
    removed = list[Collection[TableId]]()

    def remove(tables: Collection[TableId]) -> None:
        removed.append(tables)
        if stuck:
            raise SourceError("must be owner of publication", remedy="Ask.")

    refused = dict.fromkeys((theirs, ours, other), error)
    members = frozenset({theirs})
    found = Found(connector=True, kept_log=True, tables=members)
    capture_without_servers(monkeypatch, lambda *_: refused, remove, members, before=found)
    monkeypatch.setattr(onboard_module, "undo", lambda *_: "The slot is left.")
    group = tier_capture.Group(services.capture(well), tables)
    outcomes = {one.table: one for one in onboard_module._capture_group(services, group, ())}
    assert outcomes[well].action == "registered"
    assert removed == [{ours, other}]
    for table, is_ours in ((theirs, False), (ours, True), (other, True)):
        why = outcomes[table].error
        assert why is not None
        assert ("could not be removed: must be owner" in why.remedy) == (stuck and is_ours)
        assert why.remedy.endswith("The slot is left.")
    services.close()


@pytest.mark.parametrize("ends_by", [ConnectError("it does not answer", remedy="Start it."), None])
def test_tables_of_an_onboarding_that_fails_leave_the_capture_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_by: ConnectError | None
) -> None:
    """Without a record, nobody would know why the capture sends them; Ctrl-C can end it, too."""
    services = Counted(tmp_path, monkeypatch).services
    known, new, later = tables = tuple(some(3))
    removed = list[Collection[TableId]]()

    def fails(*_: object) -> dict[TableId, TributaryError]:
        raise ends_by or KeyboardInterrupt

    capture_without_servers(monkeypatch, fails, removed.append, {known})
    group = tier_capture.Group(services.capture(later), tables)
    if ends_by is None:
        with pytest.raises(KeyboardInterrupt):
            onboard_module._capture_group(services, group, ())
    else:
        outcomes = onboard_module._capture_group(services, group, ())
        assert [str(one.error) for one in outcomes] == [ends_by.message] * 3
    assert removed == [{new, later}]
    services.close()


def test_a_signal_amid_the_registration_leaves_only_registered_tables_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Counted(tmp_path, monkeypatch).services
    first, second = tables = tuple(some(2))
    removed = list[Sequence[TableId]]()

    def register(_services: Services, table: TableId, *_: object) -> Outcome:
        if table == second:
            raise KeyboardInterrupt
        services.store.put(table_record(table))
        return Outcome(table, "registered")

    found = Found(connector=False, kept_log=False, tables=frozenset())
    capture_without_servers(monkeypatch, lambda *_: {}, lambda _: None, (), before=found)
    monkeypatch.setattr(capture_undo, "withdraw", withdraw)
    monkeypatch.setattr(capture_undo, "remove_tables", lambda *given: removed.append(given[2]))
    monkeypatch.setattr(onboard_module, "undo", lambda *_: "")
    monkeypatch.setattr(onboard_module, "register", register)
    group = tier_capture.Group(services.capture(first), tables)
    with pytest.raises(KeyboardInterrupt):
        onboard_module._capture_group(services, group, ())
    assert removed == [[second]]
    services.close()


def test_only_the_tables_that_could_not_be_removed_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _first, second = tables = tuple(some(2))
    stuck = SourceError("it is locked", remedy="Wait.")

    def refuse(*_: object) -> None:
        raise RefusedError.of({second: stuck})

    monkeypatch.setattr(capture_undo, "withdraw", refuse)
    failed = [Outcome(one, "capture", error=KafkaError("no", remedy="Try.")) for one in tables]
    found = withdrawn(cast("Any", None), cast("Any", None), failed, ())
    remedies = [one.error.remedy for one in found if one.error is not None]
    assert remedies[0] == "Try."
    assert "could not be removed: it is locked" in remedies[1]


def test_tables_on_the_plan_are_not_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Counted(tmp_path, monkeypatch).services
    on_plan, left, failed = tables = tuple(some(3))
    services.store.put(table_record(on_plan))
    services.store.put(transition(table_record(left), State.RETIRED, at=NOW))
    removed = list[Sequence[TableId]]()
    monkeypatch.setattr(capture_undo, "remove_tables", lambda *given: removed.append(given[2]))
    group = tier_capture.Group(services.capture(failed), tables)
    withdraw(services, group, tables)
    withdraw(services, group, ())
    assert removed == [[left, failed]]
    services.close()


def test_several_refused_tables_are_one_error_that_names_the_first() -> None:
    first, second = some(2)
    errors = {
        one: SourceError(f"{one} is locked", remedy="Wait.", table=one) for one in (first, second)
    }
    alone = RefusedError.of({first: errors[first]})
    assert (type(alone), alone.message) == (SourceError, f"{first} is locked")
    assert alone.context["refused"] == first
    both = RefusedError.of(errors)
    assert isinstance(both, RefusedError)
    assert both.message == f"{first} is locked; 1 more tables or topics are refused, too"
    assert both.errors == errors


def test_a_table_that_another_onboarding_copies_is_left_to_it() -> None:
    """On a schedule, a long onboarding and the next one meet at the same tables."""
    one, other = some(2)
    held = LeaseHeldError(f"table {one} is held by another process", remedy="Wait.", table=one)
    left = _left_to_other_process(Outcome(one, "bootstrap", error=held), {one})
    assert (left.failed, left.unchanged) == (False, True)
    assert "is left to another process" in left.action
    named = Outcome(other, "bootstrap", error=held.naming(table=other))
    assert _left_to_other_process(named, {one}) is named
    failed = Outcome(one, "bootstrap", error=SourceError("away", remedy="Wait."))
    assert _left_to_other_process(failed, {one}) is failed


@pytest.mark.parametrize("resource", ["lake table /lake/orders", "capture shop/default", "other"])
def test_a_table_is_not_left_to_a_process_that_holds_another_lease(
    tmp_path: Path, resource: str
) -> None:
    """That process need not copy the table, and then nobody would."""
    one, other = some(2)
    what = other if resource == "other" else resource
    with closing(Store(f"sqlite:///{tmp_path / 'state.db'}")) as store:
        theirs, mine = (Lease(store, what, owner) for owner in ("theirs", "mine"))
        theirs.acquire()
        with pytest.raises(LeaseHeldError) as held:
            mine.acquire()
    failed = Outcome(one, "bootstrap", error=held.value)
    assert _left_to_other_process(failed, {one}) is failed


@pytest.mark.parametrize(("error", "left_out"), [(MissingTableError, True), (SourceError, False)])
def test_a_table_that_was_dropped_after_a_wildcard_matched_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[SourceError], left_out: bool
) -> None:
    services = Counted(tmp_path, monkeypatch).services
    (one,) = some(1)
    examined = Examined(refused={one: error("it is gone", remedy="Nothing.")})
    (outcome,) = refusals(services, examined, {one})
    assert outcome.left_out is left_out
    services.close()
