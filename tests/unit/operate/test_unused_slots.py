"""Slots that no table needs: an interrupted command removes its own; runs and `check` name any."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cdc.config import parse
from cdc.errors import SourceError
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Leases
from cdc.store.table_state import State, transition
from operate import check as check_module
from operate import tier_capture
from operate.context import Services
from operate.onboard import onboard, register
from operate.readiness_check import Examined
from operate.unused_slots import UnusedSlotWarnings, unused_captures, unused_slots
from schemas.table import TableId
from tests.records import NOW
from tests.unit.cdc.configuration import minimal

TABLE = TableId("shop", "public", "orders")


class Place:
    """A fake source and Kafka Connect of a project, with the slots and connectors that exist."""

    def __init__(self) -> None:
        self.slots: set[str] = set()
        self.connectors: set[str] = set()
        self.answers = True

    def capture(self, names: object) -> SimpleNamespace:
        slot = names.slot  # type: ignore[attr-defined]

        def exists() -> bool:
            if not self.answers:
                raise SourceError("the source is away", remedy="r")
            return slot in self.slots

        kept = SimpleNamespace(
            title=f"slot {slot}", exists=exists, drop=lambda: self.slots.discard(slot)
        )
        sent = SimpleNamespace(title="publication p", tables=list, drop=lambda: None)
        return SimpleNamespace(
            kept_log=kept, sent_tables=sent, removal=lambda _, last: [f"DROP {slot} {last};"]
        )

    def connector(self, name: str) -> dict[str, str] | None:
        return {} if name in self.connectors else None

    def require_own(self, _: str) -> None:
        """Accept any connector: none belongs to another installation in these tests."""

    def delete(self, name: str, **_: object) -> None:
        self.connectors.discard(name)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def services(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    made = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    monkeypatch.setattr(made, "source", lambda _: place)
    vars(made)["connect"] = place
    yield made
    made.close()


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)], ids=repr)
@pytest.mark.parametrize("away", [False, True])
def test_a_signal_during_the_first_onboarding_leaves_no_slot(
    services: Services,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    signal: BaseException,
    away: bool,
) -> None:
    """No table is on the plan yet, so nothing would watch such a slot."""
    names = services.capture(TABLE)

    def interrupted(*_: object) -> None:
        place.slots.add(names.slot or "")
        place.connectors.add(names.connector)
        if away:
            monkeypatch.setattr(place, "delete", _is_away)
        raise signal

    monkeypatch.setattr("operate.onboard.examine_all", lambda *_, **__: Examined({TABLE: []}))
    monkeypatch.setattr(tier_capture, "prepare", interrupted)
    with pytest.raises(type(signal)):
        onboard(services, [TABLE], with_bootstrap=False)
    assert (place.slots, bool(place.connectors)) == (set(), away)


def _is_away(*_: object, **__: object) -> None:
    raise SourceError("away", remedy="r")


def test_a_signal_removes_nothing_that_a_table_needs(
    services: Services, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = services.capture(TABLE)

    def interrupted(*_: object) -> None:
        place.slots.add(names.slot or "")
        register(services, TABLE)
        raise KeyboardInterrupt

    monkeypatch.setattr("operate.onboard.examine_all", lambda *_, **__: Examined({TABLE: []}))
    monkeypatch.setattr(tier_capture, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        onboard(services, [TABLE], with_bootstrap=False)
    assert place.slots == {names.slot}


def test_a_slot_that_no_table_needs_is_named(
    services: Services,
    place: Place,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = services.capture(TABLE)
    slot = names.slot or ""
    assert [*unused_slots(services, "shop")] == []
    place.slots.add(slot)
    (found,) = unused_slots(services, "shop")
    assert found.title == f"slot {slot}"
    assert "no table on the plan needs it" in found.message
    assert f"delete connector {names.connector} in Kafka Connect" in found.remedy
    assert f"DROP {slot} True;" in found.remedy
    (line,) = check_module._slots(services, "shop")
    assert (line.name, line.status) == (found.title, "warning")

    warnings = UnusedSlotWarnings(services)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            warnings.look()
        assert caplog.text.count(found.message) == 1
        now = time.monotonic()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now + 3601)
            warnings.look()
    assert caplog.text.count(found.message) == 2, "a process that runs for days finds later ones"

    with Leases(services.store, owner="another").hold(names.resource):
        assert [*unused_slots(services, "shop")] == [], "a command makes or removes it now"
    register(services, TABLE)
    assert [*unused_slots(services, "shop")] == []
    (record,) = services.store.tables()
    services.store.put(transition(record, State.RETIRED, at=NOW))
    assert [*unused_slots(services, "shop")] == [found], "`offboard` was interrupted"

    place.answers = False
    assert check_module._slots(services, "shop") == []
    UnusedSlotWarnings(services).look()


def test_a_slot_of_former_names_is_searched_for_too(services: Services, tmp_path: Path) -> None:
    register(services, TABLE)
    (record,) = services.store.tables()
    retired = transition(record, State.RETIRED, at=NOW)
    document = minimal()
    document["sources"]["shop"]["slot"] = "v2_{tier}"
    now = parse(yaml.safe_dump(document), base=tmp_path)
    default = [one for one in unused_captures(now, [retired]) if one.tier == "default"]
    assert [one.slot for one in default] == ["v2_default", services.capture(TABLE).slot]
    assert "v2_default" in [one.slot for one in unused_captures(now, [record])]
    assert services.capture(TABLE).slot not in [one.slot for one in unused_captures(now, [record])]
