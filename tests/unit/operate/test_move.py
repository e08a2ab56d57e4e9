"""The steps of `move`, the facts it records before each step, and captures that others need."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bootstrap.handoff import BootstrapResult
from cdc.capture.evidence import CaptureEvidence, ConnectorFacts
from cdc.capture.onboarded_names import captured_by
from cdc.config import parse
from cdc.debezium import CaptureNames
from cdc.errors import CaptureError, StateError
from cdc.log.continuity import LogMark
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.slot import NoSlot
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt
from cdc.store.log_marks import LogMarks
from cdc.store.statements import StatementRows, StoredRead, StoredRecord
from cdc.store.table_state import (
    TABLE_RECORDS,
    CaptureRecord,
    Cause,
    State,
    TableRecord,
    TierCapture,
    transition,
)
from operate.capture_names import unfinished_move
from operate.capture_removal import needed_by_others, remove_capture
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.lost_capture import dependent, not_retired, users_of
from operate.move import Next, joining, move, next_of, not_moved
from operate.table_outcome import exit_code_of
from operate.tier_capture import Group, heal_log, wanted_connector
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

FAST = TierCapture("fast", "shop_fast.public.orders", CaptureRecord("shop_fast", "c2", "p2", "s2"))
SLOW = TierCapture("slow", "shop_slow.public.orders", None)
OFFSETS = {0: 5}
LINES = TableId("shop", "public", "lines")
FAILURE = StateError("killed", remedy="none")


def in_state(*path: State) -> TableRecord:
    """The record of a table that went through these states, starting from REGISTERED."""
    record = table_record(state=State.REGISTERED)
    copy = Attempt(uuid.uuid4(), NOW, "/a", start_offsets=OFFSETS, handoff_offsets=OFFSETS)
    for state in path:
        new = copy if state is State.BOOTSTRAPPING else None
        record = transition(record, state, at=NOW, attempt=new, cause=Cause("why", FAILURE))
    return record


COPIED = (State.BOOTSTRAPPING, State.CATCHING_UP)
FOLLOWED = (*COPIED, State.INCREMENTAL)


@pytest.mark.parametrize(
    ("path", "tier", "other", "step"),
    [
        (FOLLOWED, "default", None, Next.NOTHING),
        (FOLLOWED, "fast", None, Next.MOVE),
        (FOLLOWED, "fast", FAST, Next.MOVE),
        (FOLLOWED, "fast", SLOW, Next.MOVE),
        (FOLLOWED, "default", FAST, Next.LEAVE),
        ((*FOLLOWED, State.PAUSED), "default", FAST, Next.LEAVE),
        (COPIED, "default", FAST, Next.COMPLETE),
        ((), "default", FAST, Next.COMPLETE),
        ((*FOLLOWED, State.NEEDS_BOOTSTRAP), "default", FAST, Next.COMPLETE),
    ],
)
def test_what_comes_next_follows_from_the_record_and_the_settings(
    path: tuple[State, ...], tier: str, other: TierCapture | None, step: Next
) -> None:
    record = in_state(*path)
    if other is not None:
        record = with_other(record, other)
    assert next_of(record, tier) is step


def with_other(record: TableRecord, other: TierCapture) -> TableRecord:

    return replace(record, other=other)


@pytest.mark.parametrize("path", [FOLLOWED, (*FOLLOWED, State.FAILED)])
def test_a_followed_table_stays_in_its_tier_until_its_next_generation_is_there(
    path: tuple[State, ...],
) -> None:
    before = in_state(*path)
    noted = joining(before, FAST, at=NOW)
    assert (noted.tier, noted.topic, noted.state) == (before.tier, before.topic, before.state)
    assert noted.other == FAST


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ((), State.REGISTERED),
        ((*FOLLOWED, State.NEEDS_BOOTSTRAP), State.NEEDS_BOOTSTRAP),
        ((State.BOOTSTRAPPING,), State.NEEDS_BOOTSTRAP),
        (COPIED, State.NEEDS_BOOTSTRAP),
        ((*COPIED, State.FAILED), State.NEEDS_BOOTSTRAP),
    ],
)
def test_offsets_of_the_former_topic_are_never_used_in_the_new_tier(
    path: tuple[State, ...], state: State
) -> None:
    """With them, an unpublished copy would apply events between O and H of the wrong topic."""
    before = in_state(*path)
    noted = joining(before, FAST, at=NOW)
    assert (noted.state, noted.captured, noted.other) == (state, FAST, before.captured)


def test_a_paused_table_is_not_moved() -> None:
    with pytest.raises(StateError, match="is paused") as refused:
        joining(in_state(*FOLLOWED, State.PAUSED), FAST, at=NOW)
    assert f"tributary resume {ORDERS}" in refused.value.remedy


def test_the_other_capture_is_stored_with_the_record() -> None:
    record = with_other(in_state(*FOLLOWED), FAST)
    assert TABLE_RECORDS.read(TABLE_RECORDS.write(record), "it") == record


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = minimal() | {"tables": {"public.orders": {"tier": "fast"}}}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def test_a_capture_stays_while_a_table_is_on_its_way_to_it_or_from_it(services: Services) -> None:
    """Else `offboard` of the capture's last table would remove slot and connector amid the move."""
    fast = services.capture(ORDERS)
    store = services.store
    assert fast.tier == "fast"
    assert not needed_by_others(services, fast, {LINES})

    record = store.put(with_other(in_state(*FOLLOWED), FAST))
    assert needed_by_others(services, fast, {LINES})
    assert users_of(services, fast) == {ORDERS}
    assert not needed_by_others(services, fast, {ORDERS})
    assert not_retired(services, fast) == []

    build = table_record(tier="fast", topic=FAST.topic, beside=True, state=State.REGISTERED)
    build = store.put(build)
    assert not_retired(services, fast) == [build]
    assert dependent(services, fast) == [build]
    store.put(joining(with_other(record, FAST), FAST, at=NOW))
    assert needed_by_others(services, fast, {LINES})


def test_a_resync_in_the_same_tier_counts_once(services: Services) -> None:
    fast = services.capture(ORDERS)
    record = services.store.put(table_record(tier="fast"))
    services.store.put(table_record(tier="fast", beside=True, state=State.REGISTERED))
    assert not_retired(services, fast) == [record]


@pytest.mark.parametrize(
    ("tier", "other", "told"),
    [
        ("fast", None, None),
        ("default", None, "is on the plan in tier default, but its settings have tier fast"),
        ("default", FAST, "is on the plan in tier default, but its settings have tier fast"),
        ("fast", SLOW, "is in tier fast, and has not left the capture of tier slow yet"),
    ],
)
def test_a_move_that_is_to_be_made_or_completed_is_told(
    services: Services, tier: str, other: TierCapture | None, told: str | None
) -> None:
    error = unfinished_move(services.config, table_record(tier=tier, other=other))
    if told is None:
        assert error is None
    else:
        assert error is not None
        assert told in error.message
        assert f"tributary move {ORDERS}" in error.remedy


class Left:
    """Replaces the removal of tables from captures, and notes the removed tables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables: list[tuple[str, list[TableId]]] = []
        self.error: StateError | None = None
        monkeypatch.setattr("operate.move.depart", self._depart)

    def _depart(
        self, _: Services, names: CaptureNames, tables: list[TableId], *, delete_topics: bool
    ) -> list[str]:
        if self.error is not None:
            raise self.error
        self.tables.append((names.tier, tables))
        return ["connector c"]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    return Left(monkeypatch)


def test_what_is_left_of_a_move_is_done_until_it_succeeds(services: Services, left: Left) -> None:
    fast = captured_by(services.capture(ORDERS), ORDERS)
    moved = replace(in_state(*FOLLOWED), tier="fast", topic=fast.topic, capture=fast.capture)
    services.store.put(with_other(moved, SLOW))
    left.error = StateError("the connector does not stop", remedy="Look at it.")

    (failed,) = move(services, [ORDERS])

    assert failed.error is not None
    assert f"Look at it. Then run `tributary move {ORDERS}` again" in failed.error.remedy
    assert services.store.get(ORDERS).other == SLOW  # type: ignore[union-attr]
    left.error = None
    (done,) = move(services, [ORDERS])
    assert done.error is None
    assert done.action.endswith("left the capture of shop, tier slow; dropped connector c")
    assert services.store.get(ORDERS).other is None  # type: ignore[union-attr]
    (again,) = move(services, [ORDERS])
    assert again.action == "is in tier fast already"
    assert left.tables == [("slow", [ORDERS])]


def test_a_move_that_is_called_off_gives_up_what_was_built_for_it(
    services: Services, left: Left
) -> None:
    lines = replace(in_state(*FOLLOWED), table=LINES, base_path="/lake/lines")
    services.store.put(with_other(lines, FAST))
    build = replace(lines, beside=True, tier="fast", topic=FAST.topic, state=State.BOOTSTRAPPING)
    services.store.put(build)

    (done,) = move(services, [LINES])

    assert done.error is None
    assert services.store.builds() == []
    record = services.store.get(LINES)
    assert record is not None
    assert (record.tier, record.other, record.state) == ("default", None, State.INCREMENTAL)
    assert left.tables == [("fast", [LINES])]


def test_a_resync_that_was_begun_in_the_present_tier_is_not_given_up(
    services: Services, left: Left
) -> None:
    lines = replace(in_state(*FOLLOWED), table=LINES, base_path="/lake/lines")
    services.store.put(with_other(lines, FAST))
    build = services.store.put(replace(lines, beside=True, state=State.BOOTSTRAPPING))
    (done,) = move(services, [LINES])
    assert done.error is None
    assert services.store.builds() == [build]
    assert left.tables == [("fast", [LINES])]


def moved(*path: State, **facts: object) -> TableRecord:
    """The record of the table in tier ``fast``, after it went through these states."""
    return replace(in_state(*path), tier="fast", topic=FAST.topic, capture=FAST.capture, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "told", "remedy"),
    [
        (in_state(*FOLLOWED), moved(*FOLLOWED), None, ""),
        (in_state(), moved(), None, ""),
        (moved(*FOLLOWED), moved(*FOLLOWED, State.FAILED), None, ""),
        (moved(*FOLLOWED, State.PAUSED, other=SLOW), moved(*FOLLOWED, State.PAUSED), None, ""),
        (
            in_state(*FOLLOWED),
            in_state(*FOLLOWED),
            "has not moved to tier fast: it is in tier default",
            "Run `tributary move {}` again.",
        ),
        (
            in_state(*FOLLOWED),
            in_state(*FOLLOWED, State.NEEDS_BOOTSTRAP),
            "it is in tier default, needs_bootstrap since 2026-01-02 03:04:05 UTC: killed",
            "Run `tributary move {}` again.",
        ),
        (
            in_state(*FOLLOWED),
            in_state(*FOLLOWED, State.PAUSED),
            "it is in tier default, paused since",
            "Run `tributary resume {0}`, then `tributary move {0}` again.",
        ),
        (
            in_state(*FOLLOWED),
            moved(*FOLLOWED, other=SLOW),
            "has not left the capture of tier slow",
            "Run `tributary move {}` again.",
        ),
        (
            in_state(*FOLLOWED),
            moved(*FOLLOWED, State.FAILED),
            "is in tier fast, but failed since 2026-01-02 03:04:05 UTC: killed",
            "none",
        ),
        (
            in_state(*FOLLOWED, State.NEEDS_BOOTSTRAP),
            moved(*FOLLOWED, State.NEEDS_BOOTSTRAP),
            "is in tier fast, but needs_bootstrap",
            "none",
        ),
        (
            moved(*FOLLOWED, other=SLOW),
            moved(*FOLLOWED, State.PAUSED),
            "is in tier fast, but paused",
            "none",
        ),
        (in_state(*FOLLOWED), None, "was taken off the plan", "Run `tributary onboard {}`"),
        (in_state(*FOLLOWED), in_state(State.RETIRED), "was taken off the plan", ""),
    ],
)
def test_a_move_that_did_not_end_where_it_was_to_end_is_an_error(
    before: TableRecord, now: TableRecord | None, told: str | None, remedy: str
) -> None:
    error = not_moved(before, now, "fast")
    if told is None:
        assert error is None
        return
    assert error is not None
    assert told in error.message
    assert error.remedy.startswith(remedy.format(ORDERS))


@pytest.mark.parametrize("marked_at", ["capture", "copy"])
def test_a_table_that_a_run_marks_meanwhile_is_not_reported_as_moved(
    services: Services, left: Left, monkeypatch: pytest.MonkeyPatch, marked_at: str
) -> None:
    """A run stops the table while its new capture is created, or after its copy is published."""
    store = services.store
    store.put(in_state(*FOLLOWED))

    def mark() -> None:
        record = store.get(ORDERS)
        assert record is not None
        store.put(transition(record, State.NEEDS_BOOTSTRAP, at=NOW, cause=Cause("a slot is gone")))

    def copied(_context: object, _connect: object, record: TableRecord, **_: object) -> object:
        """A replacement for the copy of a table; it stores the record that the copy would leave."""
        if record.state is State.NEEDS_BOOTSTRAP:
            record = store.put(replace(record, state=State.INCREMENTAL))
        else:
            to = captured_by(services.capture(ORDERS), ORDERS)
            facts = {"tier": to.tier, "topic": to.topic, "other": record.captured}
            record = store.put(replace(record, **facts))  # type: ignore[arg-type]
            mark()
        return BootstrapResult(record, 5, 1, 0.1)

    monkeypatch.setattr("operate.move.examine", lambda *_, **__: ())
    monkeypatch.setattr("operate.move.examine_group", lambda *_: None)
    prepared = mark if marked_at == "capture" else lambda: None
    monkeypatch.setattr("operate.tier_capture.prepare", lambda *_: prepared())
    monkeypatch.setattr("bootstrap.resync.resync_table", copied)
    monkeypatch.setattr("operate.move.clean", lambda *_: None)
    vars(services).update(run_context=None, connect=SimpleNamespace(require_own=lambda _: None))

    (outcome,) = move(services, [ORDERS])

    assert outcome.failed
    assert outcome.error is not None
    assert "needs_bootstrap since" in outcome.error.message
    assert "a slot is gone" in outcome.error.message
    assert exit_code_of([outcome]) is ExitCode.NEEDS_BOOTSTRAP
    record = store.get(ORDERS)
    assert record is not None
    if marked_at == "capture":
        assert f"tributary move {ORDERS}" in outcome.error.remedy
        assert (record.tier, left.tables) == ("default", []), "it stays in the new capture"
        monkeypatch.setattr("operate.tier_capture.prepare", lambda *_: None)
        (again,) = move(services, [ORDERS])
        record = store.get(ORDERS)
        assert record is not None
        assert (again.error, record.tier, record.state) == (None, "fast", State.INCREMENTAL)
        assert left.tables == [("default", [ORDERS])]


class Log:
    """A fake slot that can be dropped."""

    title = "slot s"

    def __init__(self, *, there: bool) -> None:
        self.there = there

    def drop(self) -> bool:
        self.there, gone = False, self.there
        return gone


@pytest.mark.parametrize("lost", ["does not exist", None])
def test_a_slot_that_the_product_creates_again_is_no_loss(
    services: Services, monkeypatch: pytest.MonkeyPatch, lost: str | None
) -> None:
    """The tables of the new slot no longer depend on the former slot.

    If a connector itself created a slot, changes might be lost.
    """
    fast, marks = services.capture(ORDERS), LogMarks(services.store)
    mark, slot = LogMark("server", "", "9 900"), Log(there=True)
    marks.move(fast.resource, None, mark)
    server = ServerIdentity("7", 1, in_recovery=False)
    evidence = CaptureEvidence(fast, NoSlot("s"), lost, None, (), server, {}, None, None)
    monkeypatch.setattr(services, "evidence", lambda _: evidence)
    source = SimpleNamespace(
        capture=lambda _: SimpleNamespace(kept_log=slot), identity=lambda: server
    )
    heal_log(services, Group(fast, (ORDERS,)), source)  # type: ignore[arg-type]
    assert slot.there is (lost is None)
    assert marks.of(fast.resource) == (mark if lost is None else None)
    services.store.put(replace(in_state(*FOLLOWED), tier="fast"))
    if lost is not None:
        marks.move(fast.resource, None, mark)
        with pytest.raises(CaptureError, match="no run has marked these tables yet"):
            heal_log(services, Group(fast, (ORDERS,)), source)  # type: ignore[arg-type]
        assert marks.of(fast.resource) == mark, "a run must see the loss of this table"


@pytest.mark.parametrize("former", ["former-db", "localhost", None])
def test_a_slot_that_is_left_on_the_former_server_is_named(
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    former: str | None,
) -> None:
    """Nothing watches such a slot, because the configuration no longer names that server."""
    fast, slot = services.capture(ORDERS), Log(there=False)
    wanted = wanted_connector(services, fast)
    running = None if former is None else {**wanted, "database.hostname": former}
    server = ServerIdentity("7", 1, in_recovery=False)
    made = None if running is None else ConnectorFacts(running, (), None, None)
    evidence = CaptureEvidence(fast, NoSlot("s"), "is gone", None, (), server, {}, made, None)
    monkeypatch.setattr(services, "evidence", lambda _: evidence)
    deleted: list[str] = []
    vars(services)["connect"] = SimpleNamespace(delete=lambda name, **_: deleted.append(name))
    on_source = SimpleNamespace(kept_log=slot, removal=lambda _, last: [f"DROP all={last};"])
    source = SimpleNamespace(capture=lambda _: on_source, identity=lambda: server)
    monkeypatch.setattr(services, "source", lambda _: source)

    heal_log(services, Group(fast, (ORDERS,)), source)  # type: ignore[arg-type]

    assert deleted == ([fast.connector] if running else [])
    left = services.left_behind.get(fast.resource, "")
    assert left in caplog.text
    assert bool(left) == (former == "former-db")
    if left:
        assert "has read former-db:5432/shop until now" in left
        assert "Run there: DROP all=True;" in left


def test_what_is_kept_of_a_capture_goes_with_it(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If tables moved back to the tier later, its new capture would seem to begin with a loss."""
    fast, marks = services.capture(ORDERS), LogMarks(services.store)
    marks.move(fast.resource, None, LogMark("server", "", "9 900"))
    statements, read = StatementRows(services.store), StoredRead("A", 0, 0, 0, 1)
    assert statements.add(fast.schema_change_topic, None, read, {0: StoredRecord(())})
    slot = Log(there=True)
    source = SimpleNamespace(capture=lambda _: SimpleNamespace(kept_log=slot, sent_tables=None))
    monkeypatch.setattr(services, "source", lambda _: source)
    vars(services)["connect"] = SimpleNamespace(delete=lambda *_, **__: True)
    assert remove_capture(services, fast) == [f"connector {fast.connector}", "slot s"]
    assert not slot.there
    assert marks.of(fast.resource) is None
    assert statements.of(fast.schema_change_topic) is None
