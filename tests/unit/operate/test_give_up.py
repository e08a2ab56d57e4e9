"""Captures that retain too much log: which commands report it, and what a run gives up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from typer.testing import CliRunner

from cdc.capture.log_limits import Level, OverLimit, over_limit
from cdc.capture.remembered_losses import check_losses, loss_scopes
from cdc.config import parse
from cdc.errors import ConnectError, LostHistoryError, OtherConnectorError, SourceError
from cdc.log.position import Lsn
from cdc.runtime import failpoints
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql.binlog import NoBinlog
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.store.attempt import Attempt
from cdc.store.lease import Lease
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State, TableRecord
from operate import give_up as module
from operate import status as status_module
from operate.capture_status import CaptureStatus
from operate.check import _too_much
from operate.cli import app
from operate.conditions import Condition
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.give_up import give_up, over_limits
from operate.run import Runs
from operate.status import Status, TableStatus
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

PARTS = TableId("shop", "public", "parts")
GIB = 2**30
LIMITS = {"warn": 1 * GIB, "alarm": 2 * GIB, "give_up": 4 * GIB}
ATTEMPT = Attempt(UUID(int=1), NOW, "path", start_offsets={0: 1}, handoff_offsets={0: 2})


def slot(held: float | None) -> SlotHealth:
    size = None if held is None else int(held * GIB)
    lsn = Lsn.parse("0/9")
    return SlotHealth("s", True, "reserved", lsn, lsn, size, None, lsn, lambda: lsn)


@dataclass
class Server:
    """A fake source and Connect cluster with one capture, which note the requests they get."""

    held: float | None = 5.0
    connector: str | None = "RUNNING"
    away: bool = False
    in_use: bool = False
    of_another: bool = False
    asked: list[str] = field(default_factory=list)

    def capture(self, _: object) -> Server:
        return self

    @property
    def kept_log(self) -> Server:
        return self

    def log_health(self) -> SlotHealth | NoSlot:
        return NoSlot("s") if self.held is None else slot(self.held)

    def drop(self) -> bool:
        if self.in_use:
            raise SourceError("slot s is in use", remedy="stop its reader")
        self.asked.append("drop")
        self.held = None
        return True

    def reader(self) -> int | None:
        return 99 if self.in_use else None

    def status(self, _: str) -> str | None:
        if self.away:
            raise ConnectError("Kafka Connect does not answer", remedy="start it")
        return self.connector

    def require_own(self, name: str) -> None:
        if self.away:
            raise ConnectError("Kafka Connect does not answer", remedy="start it")
        if self.of_another:
            raise OtherConnectorError(f"{name} is of another installation", remedy="leave it")

    def stop(self, _: str, *, progress: object) -> None:
        self.asked.append("stop")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def services(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    limits = {"warn": "1GiB", "alarm": "2GiB", "give_up": "4GiB"}
    document["sources"]["shop"]["wal_limit"] = limits
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    opened.__dict__["connect"] = server
    monkeypatch.setattr(opened, "source", lambda _: server)
    yield opened
    opened.close()


def put(services: Services, table: TableId = ORDERS, **facts: Any) -> TableRecord:
    tier = services.capture(table).tier
    return services.store.put(table_record(table, **{"attempt": ATTEMPT, "tier": tier, **facts}))


def over(services: Services) -> OverLimit:
    (found,) = over_limits(services, services.store.tables())
    return found


@pytest.mark.parametrize(
    ("held", "level"),
    [
        (None, None),
        (1.0, None),
        (1.01, Level.WARN),
        (2.0, Level.WARN),
        (2.01, Level.ALARM),
        (4.01, Level.GIVE_UP),
    ],
)
def test_the_largest_limit_that_is_exceeded_counts(
    services: Services, held: float | None, level: Level | None
) -> None:
    found = over_limit(services.capture(ORDERS), slot(held), LIMITS)
    assert (None if found is None else found.level) == level


def test_a_limit_that_is_not_set_does_not_count(services: Services) -> None:
    names = services.capture(ORDERS)
    found = over_limit(names, slot(9), {"alarm": 2 * GIB})
    assert found is not None
    assert found.level is Level.ALARM
    assert over_limit(names, slot(9), {}) is None
    for log in (NoSlot("s"), NoBinlog("shop")):
        assert over_limit(names, log, LIMITS) is None


def test_a_message_names_slot_size_setting_and_remedy(services: Services) -> None:
    found = over_limit(services.capture(ORDERS), slot(2.5), LIMITS)
    assert found is not None
    assert found.message == (
        "replication slot s holds back 2.5 GiB of log on the primary, more than"
        " sources.shop.wal_limit.alarm (2.0 GiB)"
    )
    assert "tributary offboard" in found.remedy
    assert found.to_json()["level"] == "alarm"
    highest = over_limit(services.capture(ORDERS), slot(1500), LIMITS)
    assert highest is not None
    assert "holds back 1,500 GiB" in highest.message
    assert "drops the slot" in highest.remedy


def test_captures_are_looked_at_once_and_what_does_not_answer_is_left_out(
    services: Services, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(services)
    put(services, PARTS)
    put(services, TableId("shop", "public", "gone"), state=State.RETIRED)
    assert over(services).held_bytes == 5 * GIB
    server.held = 0.5
    assert over_limits(services, services.store.tables()) == []

    def away(_: str) -> Server:
        raise SourceError("the source does not answer", remedy="start it")

    monkeypatch.setattr(services, "source", away)
    assert over_limits(services, services.store.tables()) == []


STATES = {
    State.INCREMENTAL: State.NEEDS_BOOTSTRAP,
    State.CATCHING_UP: State.NEEDS_BOOTSTRAP,
    State.BOOTSTRAPPING: State.NEEDS_BOOTSTRAP,
    State.PAUSED: State.NEEDS_BOOTSTRAP,
    State.FAILED: State.NEEDS_BOOTSTRAP,
    State.REGISTERED: State.REGISTERED,
}


def test_a_capture_is_given_up_with_all_of_its_tables(services: Services, server: Server) -> None:
    for state in STATES:
        resumed = {"resume_to": State.INCREMENTAL} if state in (State.PAUSED, State.FAILED) else {}
        put(services, TableId("shop", "public", state.value), state=state, **resumed)
    put(services, TableId("shop", "public", "incremental"), beside=True, generation=2)
    done = give_up(services, over(services))
    assert done is not None
    assert server.asked == ["stop", "drop"]
    assert {one.table.name: one.state for one in services.store.tables()} == {
        state.value: after for state, after in STATES.items()
    }
    assert services.store.builds() == []
    record = services.store.get(TableId("shop", "public", "incremental"))
    assert record is not None
    assert record.reason is not None
    assert record.reason.endswith("so the capture was given up")
    assert "holds back 5.0 GiB of log" in record.reason
    assert record.remedy is not None
    assert "`tributary bootstrap shop:public.incremental`" in record.remedy


def test_an_onboarding_makes_copies_again_that_are_given_up_with_their_capture(
    services: Services, server: Server
) -> None:
    kept = {"paused": State.PAUSED, "failed": State.FAILED}
    for state in (State.CATCHING_UP, State.BOOTSTRAPPING, State.INCREMENTAL):
        put(services, TableId("shop", "public", state.value), state=state)
    for name, state in kept.items():
        table = TableId("shop", "public", name)
        put(services, table, state=state, resume_to=State.CATCHING_UP)
    assert give_up(services, over(services)) is not None
    again = {one.table.name for one in services.store.tables() if one.copy_discarded}
    assert again == {"catching_up", "bootstrapping", "failed"}, "an operator has paused one"


def test_a_capture_that_has_caught_up_meanwhile_is_kept(services: Services, server: Server) -> None:
    put(services)
    found = over(services)
    server.held = 3.9
    assert give_up(services, found) is None
    assert server.asked == []
    assert not Losses(services.store).seen(found.capture.resource)


def test_no_loss_is_counted_while_a_connector_reads_that_cannot_be_stopped(
    services: Services, server: Server
) -> None:
    put(services)
    found = over(services)
    server.away = server.in_use = True
    assert give_up(services, found) is None
    assert server.asked == []
    assert not Losses(services.store).seen(found.capture.resource)


def test_the_capture_of_another_installation_is_left(services: Services, server: Server) -> None:
    put(services)
    found = over(services)
    server.of_another = True
    assert give_up(services, found) is None
    assert server.asked == []
    assert not Losses(services.store).seen(found.capture.resource)


def test_nothing_is_done_while_another_process_changes_the_capture(
    services: Services, server: Server
) -> None:
    put(services)
    lease = Lease(services.store, services.capture(ORDERS).resource, "another process")
    lease.acquire()
    runs = Runs(services, services.store.tables)
    runs._look_at_logs([])
    assert server.asked == []
    assert [one.level for one in runs.over_limits] == [Level.GIVE_UP]
    assert runs.exit_code() is ExitCode.SOME_FAILED
    lease.release()
    runs._look_at_logs([])
    assert server.asked == ["stop", "drop"]


def test_a_table_that_another_process_works_on_is_marked_by_its_next_run(
    services: Services,
) -> None:
    record = put(services)
    lease = Lease(services.store, ORDERS, "another process")
    lease.acquire()
    assert give_up(services, over(services)) is not None
    left = services.store.newest(record)
    assert left.state is State.INCREMENTAL
    names = services.capture(ORDERS)
    with pytest.raises(LostHistoryError, match="the capture was given up"):
        check_losses(Losses(services.store).seen(*loss_scopes(names, ORDERS)), names, left)


class Killed(BaseException):
    """Stands for the death of the process at a crash point."""


@pytest.mark.parametrize("point", ["after_note", "after_stop", "after_drop"])
def test_whatever_a_killed_process_left_no_table_goes_on(
    services: Services, server: Server, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    record = put(services)

    def crash(name: str) -> None:
        if name == f"give_up.{point}":
            raise Killed

    assert f"give_up.{point}" in failpoints.FAILPOINTS
    monkeypatch.setattr(module, "crash", crash)
    with pytest.raises(Killed):
        give_up(services, over(services))
    names = services.capture(ORDERS)
    with pytest.raises(LostHistoryError, match="the capture was given up"):
        check_losses(Losses(services.store).seen(names.resource), names, record)
    monkeypatch.setattr(module, "crash", lambda _: None)
    runs = Runs(services, services.store.tables)
    runs._look_at_logs([])
    assert server.held is None, "the next run drops the slot if it is still there"
    if point != "after_drop":
        assert services.store.newest(record).state is State.NEEDS_BOOTSTRAP


def test_without_connect_the_slot_is_dropped_if_nothing_reads_it(
    services: Services, server: Server
) -> None:
    record = put(services)
    server.away = True
    assert give_up(services, over(services)) is not None
    assert server.asked == ["drop"]
    assert services.store.newest(record).state is State.NEEDS_BOOTSTRAP


def test_a_slot_that_cannot_be_dropped_is_tried_again(services: Services, server: Server) -> None:
    put(services)
    server.in_use = True
    runs = Runs(services, services.store.tables)
    runs._look_at_logs([])
    assert (runs.given_up, len(runs.over_limits)) == ([], 1)
    server.in_use = False
    runs._look_at_logs([])
    assert (len(runs.given_up), runs.over_limits) == (1, [])


@pytest.mark.parametrize(
    ("held", "code"),
    [(0.5, ExitCode.OK), (1.5, ExitCode.OK), (2.5, ExitCode.SOME_FAILED), (5, 4)],
)
def test_the_exit_code_of_a_run_shows_an_alarm(
    services: Services, server: Server, held: float, code: int
) -> None:
    put(services)
    server.held = held
    runs = Runs(services, services.store.tables)
    runs._look_at_logs([])
    assert runs.exit_code() == code
    alarms = runs.conditions().get(Condition.OVER_LIMIT)
    assert alarms == (["shop/default"] if held == 2.5 else None)


@pytest.mark.parametrize(
    ("held", "status", "code", "checked"),
    [(1.5, "warning", ExitCode.OK, 0), (2.5, "error", ExitCode.SOME_FAILED, 1)],
)
def test_status_and_check_show_the_limit(
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: float,
    status: str,
    code: ExitCode,
    checked: int,
) -> None:
    names = services.capture(ORDERS)
    found = over_limit(names, slot(held), LIMITS)
    assert found is not None
    line = _too_much(found)
    assert (line.name, line.status) == ("replication slot s", status)
    capture = CaptureStatus("shop", "default", slot(held), "running", NOW, None)
    shown = Status(
        (TableStatus(table_record(), 0, NOW, 5.0, 900),), (replace(capture, over_limit=found),)
    )
    assert shown.to_json()["captures"][0]["over_limit"]["limit_bytes"] == found.limit_bytes
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(status_module, "status", lambda *_: shown)
    ended = CliRunner().invoke(app, ["status"])
    assert ended.exit_code == code
    assert f"  {found.message}\n  What to do: Let the connector catch up" in ended.output
    assert CliRunner().invoke(app, ["status", "--check"]).exit_code == checked


def test_the_levels_are_the_settings() -> None:
    assert [one.value for one in Level] == list(LIMITS)
