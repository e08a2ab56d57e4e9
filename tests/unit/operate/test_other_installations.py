"""New tables are refused if another installation uses their folders; others are not checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc.config import Config
from cdc.errors import LakeError, OtherInstallationError
from cdc.lake.ownership import Ownership
from cdc.lake.pointer import Pointer, Published, read_local, replace_local
from cdc.runtime.progress import NullProgress
from cdc.store.installation import Installation
from operate.context import Services
from operate.onboard import onboard, refusals, register
from operate.other_installations import refuse_other_lakes, take_over_folders
from operate.readiness_check import Examined
from operate.table_outcome import Outcome
from operate.tier_capture import Group
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS, ITEMS = (TableId("shop", "public", name) for name in ("orders", "items"))


class Opened(Services):
    """Services on a machine where Spark does not start."""

    @property
    def spark(self) -> Any:
        raise AssertionError("Spark was asked")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = {**minimal(), "lake": {"url": str(tmp_path / "lake")}}
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    opened = Opened(Config.model_validate(document), NullProgress())
    yield opened
    opened.close()


def publish(services: Services, table: TableId, who: Installation) -> str:
    attempt, base = str(who.new_attempt()), services.config.table_path(table)
    pointer = Pointer.of(Published(f"{base}/attempt={attempt}", 4, attempt))
    replace_local(Path(base), pointer.to_json())
    return attempt


def refused(services: Services) -> dict[TableId, OtherInstallationError]:
    return refuse_other_lakes(services, [ORDERS, ITEMS], with_spark=True)


def test_only_the_tables_whose_folders_another_installation_uses_are_refused(
    services: Services,
) -> None:
    assert refused(services) == {}
    publish(services, ITEMS, services.store.installation)
    theirs = publish(services, ORDERS, Installation.new())
    found = refused(services)
    assert list(found) == [ORDERS]
    assert f"generation 4, attempt {theirs}" in found[ORDERS].message

    examined = Examined(notes={ORDERS: [], ITEMS: []})
    examined.refuse(found)
    (outcome,) = refusals(services, examined, by_wildcard=[ORDERS, ITEMS])
    assert (outcome.table, outcome.left_out) == (ORDERS, False), "a wildcard does not hide it"


def test_a_table_on_the_plan_is_left_to_its_copy_and_its_runs(services: Services) -> None:
    register(services, ORDERS)
    publish(services, ORDERS, Installation.new())
    assert refused(services) == {}


def test_what_is_taken_over_is_what_is_there_then(services: Services) -> None:
    register(services, ORDERS)
    register(services, ITEMS)
    other, mine = Installation.new(), services.store.installation
    shown, unfinished, own = (
        publish(services, ORDERS, other),
        other.new_attempt(),
        mine.new_attempt(),
    )
    for attempt in (unfinished, own):
        (Path(services.config.table_path(ORDERS)) / f"attempt={attempt}").mkdir()
    take_over_folders(services, [ORDERS, ITEMS])
    records = {one.table: one for one in services.store.tables()}
    assert records[ORDERS].taken_over == (shown, str(unfinished))
    assert records[ITEMS].taken_over == ()

    later = publish(services, ORDERS, other)
    with pytest.raises(OtherInstallationError, match=later):
        Ownership.of(records[ORDERS], mine).require(
            read_local(Path(records[ORDERS].base_path)), records[ORDERS].base_path
        )
    take_over_folders(services, [ORDERS])
    newest = services.store.newest(records[ORDERS])
    assert newest.taken_over == (shown, str(unfinished), later)


def test_a_folder_that_cannot_be_taken_over_fails_its_table_only(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thousand tables would have no outcome, although all are on the plan."""
    copied = list[TableId]()

    def registered(_: Services, group: Group, __: object) -> list[Outcome]:
        return [register(services, table) for table in group.tables]

    def copies(_: Services, tables: Sequence[TableId]) -> list[Outcome]:
        copied.extend(tables)
        return [Outcome(one, "copied") for one in tables]

    examined = Examined({ORDERS: [], ITEMS: []})
    monkeypatch.setattr("operate.onboard.examine_all", lambda *_, **__: examined)
    monkeypatch.setattr("operate.onboard._capture_group", registered)
    monkeypatch.setattr("operate.onboard.copy", copies)
    (Path(services.config.table_path(ORDERS)) / "_current.json").mkdir(parents=True)
    theirs = publish(services, ITEMS, Installation.new())
    services.take_over = True
    first, second = onboard(services, [ORDERS, ITEMS])
    assert (first.action, type(first.error)) == ("take over", LakeError)
    assert (second.action, copied) == ("copied", [ITEMS])
    record = services.store.get(ITEMS)
    assert record is not None
    assert record.taken_over == (theirs,)


def test_a_lake_that_does_not_answer_is_left_to_the_copy(services: Services) -> None:
    base = Path(services.config.table_path(ORDERS))
    base.mkdir(parents=True)
    (base / "_current.json").mkdir()
    assert refused(services) == {}
