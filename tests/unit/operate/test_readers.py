"""How far registered readers are, in commands, conditions and metrics; when files are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import parse
from cdc.lake.pointer import POINTER, Pointer, Published
from cdc.runtime.progress import NullProgress
from cdc.store.reader_looks import ReaderLooks
from cdc.store.reader_state import ReadersLook, ReaderState
from cdc.store.table_state import State, TableRecord
from operate import readers as module
from operate.cli import app
from operate.conditions import Condition
from operate.context import Services
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.readers import Progress, ReaderStatus, keep_looks, readers
from operate.status import Status
from schemas.table import Shard, TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal
from tests.unit.tributary_reader.hudi_folder import table
from tributary_reader import registered
from tributary_reader.registered import look
from tributary_reader.storage import LocalStorage

A, B = "20260101120000000", "20260101120001000"
ATTEMPT = "22222222-bbbb"
PARTS = TableId("shop", "public", "parts")
HOUR = timedelta(hours=1)


class Project:
    """A configuration, its state store, and a folder of a table with the commits A and B.

    Args:
        folder: Holds the state store and the lake.
        here: Whether the lake counts as a folder of this machine.
    """

    def __init__(self, folder: Path, *, here: bool = True, **settings: Any) -> None:
        document = minimal()
        document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
        document["lake"] = {"url": (folder / "lake").as_uri()}
        if not here:
            document["lake"]["hadoop"] = {"fs.defaultFS": "hdfs://namenode"}
        document["defaults"] = settings
        self.file = folder / "tributary.yaml"
        self.file.write_text(yaml.safe_dump(document))
        self.services = Services(parse(self.file.read_text(), base=folder), NullProgress())
        self.folder = self.published(folder / "lake/orders")
        self.services.store.put(self.record)

    @property
    def record(self) -> TableRecord:
        return table_record(base_path=str(self.folder))

    def published(self, folder: Path) -> Path:
        path = table(folder / f"attempt={ATTEMPT}", {A: {}, B: {}})
        (folder / POINTER).write_text(Pointer.of(Published(str(path), 1, ATTEMPT, NOW)).to_json())
        return folder

    def reads(self, name: str, instant: str, folder: Path | None = None) -> None:
        file = (folder or self.folder) / "_readers" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"instant": instant, "attempt": ATTEMPT}))

    def found(self) -> list[tuple[str, str, str]]:
        return [
            (one.table, one.state.name, one.progress.value)
            for one in readers(self.services, self.services.store.tables())
        ]

    def invoke(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "--config", str(self.file)])
        return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, readers={"billing": {"lag": "1h"}})
    yield made
    made.services.close()


def status(state: ReaderState, target_s: int | None = 3600) -> ReaderStatus:
    return ReaderStatus("shop:public.orders", state, NOW, target_s)


CURRENT = ReaderState("billing", B, read_at=NOW - 9 * HOUR)
BEHIND = ReaderState("billing", A, read_at=NOW - 9 * HOUR, unread_at=NOW - 2 * HOUR)
NEVER = ReaderState("billing", read_at=NOW - 2 * HOUR, unread_at=NOW - 2 * HOUR)
LOST = replace(BEHIND, unread_at=NOW, lost=True)
UNREADABLE = ReaderState("billing", problem="no JSON")


@pytest.mark.parametrize(
    ("state", "progress", "lag_h", "unread_h", "late"),
    [
        (CURRENT, Progress.CURRENT, 0, 0, False),
        (BEHIND, Progress.BEHIND, 9, 2, True),
        (replace(BEHIND, unread_at=NOW - HOUR), Progress.BEHIND, 9, 1, False),
        (NEVER, Progress.NEVER, 2, 2, True),
        (LOST, Progress.LOST, 9, 0, True),
        (UNREADABLE, Progress.UNREADABLE, None, None, True),
    ],
)
def test_the_lag_is_since_what_was_read_and_the_limit_is_of_what_was_not(
    state: ReaderState, progress: Progress, lag_h: int | None, unread_h: int | None, late: bool
) -> None:
    """If a table is idle for hours, its next commit must not make readers late at once."""
    found = status(state)
    assert (found.progress, found.late) == (progress, late)
    assert found.lag_s == (None if lag_h is None else lag_h * 3600)
    assert found.unread_s == (None if unread_h is None else unread_h * 3600)
    assert not status(state, None).late, "nobody asked for a limit"
    conditions = Status((), (), readers=(found,)).conditions
    assert conditions == ({Condition.READER_LATE: ["shop:public.orders billing"]} if late else {})


def test_metrics_say_what_is_known(project: Project) -> None:
    def shown(one: ReaderStatus) -> dict[str, float]:
        facts = Facts({("state_store", ""): True}, NOW, 0.1, Status((), (), readers=(one,)), None)
        return {
            sample.name.removeprefix("tributary_reader_"): sample.value
            for family in families(project.services.config, facts)
            for sample in family.samples
            if sample.labels == {"table": "shop:public.orders", "reader": "billing"}
        }

    behind = {"lag_seconds": 32400, "unread_seconds": 7200}
    assert shown(status(BEHIND)) == {**behind, "lag_target_seconds": 3600}
    assert shown(status(BEHIND, None)) == behind
    assert shown(status(CURRENT, None)) == {"lag_seconds": 0, "unread_seconds": 0}
    assert shown(status(LOST, None)) == {"lag_seconds": 32400, "unread_seconds": 0, "lost": 1}
    assert shown(status(UNREADABLE)) == {"lost": 1, "lag_target_seconds": 3600}


def test_the_settings_give_the_limit_of_each_reader(tmp_path: Path) -> None:
    project = Project(tmp_path, readers={"billing": {"lag": "90s"}, "*": {"lag": "2d"}})
    project.reads("search", B)
    found = readers(project.services, [project.record])
    assert {one.state.name: one.target_s for one in found} == {"billing": 90, "search": 172800}
    assert {one.progress for one in found} == {Progress.NEVER, Progress.CURRENT}
    project.services.close()


def test_a_shared_table_is_looked_at_once_under_its_own_name(project: Project) -> None:
    folder = project.published(project.folder.parent / "all")
    project.reads("billing", B, folder)
    shards = [
        replace(
            table_record(TableId("shop", name, "orders"), base_path=f"/{name}"),
            shard=Shard("sales.orders", "_shard", name, str(folder)),
        )
        for name in ("eu", "us")
    ]
    found = readers(project.services, shards)
    assert [(one.table, one.state.name) for one in found] == [("sales.orders", "billing")]


def test_a_folder_without_readers_is_not_listed_at_each_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    listed: list[str] = []
    names = LocalStorage.names

    def counted(self: LocalStorage, folder: str) -> list[str]:
        listed.append(folder)
        return names(self, folder)

    monkeypatch.setattr(LocalStorage, "names", counted)
    clock = [1000.0]
    now = SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr("operate.readers.time", now)
    for _ in range(20):
        assert project.found() == []
        clock[0] += 15
    assert len(listed) == 1
    project.reads("billing", A)
    assert readers(project.services, [project.record], all_known=True), "`readers` looks anew"
    clock[0] += module._SEARCH_S
    for _ in range(3):
        assert project.found() == [("shop:public.orders", "billing", "behind")]
    project.services.close()


def test_a_table_that_nobody_can_read_has_no_readers(project: Project) -> None:
    new = table_record(PARTS, State.BOOTSTRAPPING, base_path="/none")
    assert readers(project.services, [new, replace(project.record, state=State.RETIRED)]) == ()


def test_a_folder_that_cannot_be_read_hides_no_other(project: Project) -> None:
    broken = project.published(project.folder.parent / "broken")
    (broken / POINTER).write_text("{")
    project.reads("billing", B, broken)
    project.services.store.put(table_record(PARTS, base_path=str(broken)))
    assert project.found() == [("shop:public.orders", "billing", "never")]


def test_a_folder_that_this_user_may_not_list_hides_no_status(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_self: LocalStorage, folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(LocalStorage, "names", refused)
    assert project.found() == []


class FarProject(Project):
    """A project with a remote lake, which only runs can read, by Spark."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        super().__init__(folder, here=False, **settings)
        self.looks: list[str] = []

        def counted(storage: Any, url: str, **more: Any) -> ReadersLook:
            self.looks.append(Path(url).name)
            return look(storage, url, **more)

        monkeypatch.setattr(registered, "look", counted)
        monkeypatch.setattr(module, "SparkStorage", lambda _spark: LocalStorage())
        monkeypatch.setattr(Services, "spark", None)

    def age(self, by: timedelta) -> None:
        """Make the looks in the state store older."""
        looks = ReaderLooks(self.services.store)
        for one in looks.all().values():
            looks.keep(replace(one, at=one.at - by))


def test_runs_keep_what_only_they_can_read_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = FarProject(tmp_path, monkeypatch)
    project.reads("billing", A)
    assert project.found() == [], "no run has looked yet, and a look starts no Spark"
    for _ in range(5):
        keep_looks(project.services)
        assert project.found() == [("shop:public.orders", "billing", "behind")]
    assert project.looks == ["orders"]
    project.reads("billing", B)
    project.age(timedelta(minutes=1))
    keep_looks(project.services)
    assert project.found() == [("shop:public.orders", "billing", "current")]
    project.age(timedelta(minutes=61))
    assert project.found() == [], "an old look says nothing about now"
    assert readers(project.services, [project.record], all_known=True)
    (project.folder / "_readers/billing.json").unlink()
    keep_looks(project.services)
    assert ReaderLooks(project.services.store).all() == {}
    project.services.close()


def test_runs_forget_the_readers_of_tables_that_left_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = FarProject(tmp_path, monkeypatch, readers={"billing": {"lag": "1h"}})
    keep_looks(project.services)
    assert project.found() == [("shop:public.orders", "billing", "never")]
    project.services.store.delete(ORDERS)
    keep_looks(project.services)
    assert ReaderLooks(project.services.store).all() == {}
    project.services.close()


def test_runs_search_some_tables_at_a_time_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEARCHED_AT_ONCE", 2)
    project = FarProject(tmp_path, monkeypatch)
    for number in range(4):
        place = TableId("shop", "public", f"t{number}")
        folder = tmp_path / "lake" / place.name
        project.services.store.put(table_record(place, base_path=str(folder)))
    for _ in range(5):
        keep_looks(project.services)
    assert sorted(project.looks) == sorted(["orders", "t0", "t1", "t2", "t3"] * 2)
    project.services.close()


def test_a_look_takes_the_place_of_the_former_one(project: Project) -> None:
    looks = ReaderLooks(project.services.store)
    one = ReadersLook("/lake/orders", NOW, (BEHIND,))
    other = ReadersLook("/lake/" + "parts" * 900, NOW, (UNREADABLE, LOST))
    for kept in (one, other, replace(one, readers=(CURRENT,))):
        looks.keep(kept)
    assert looks.all() == {other.folder: other, one.folder: replace(one, readers=(CURRENT,))}
    looks.forget(one.folder)
    assert looks.all() == {other.folder: other}


def test_the_commands_record_list_and_remove(project: Project) -> None:
    wrong = project.invoke("readers", "record", "public.orders", "../x", "--instant", A)
    assert wrong[0] == 1
    assert "'../x' is no name of a reader" in wrong[1]
    assert "not on the plan" in project.invoke("readers", "remove", "public.none", "search")[1]
    code, shown = project.invoke("readers", "record", "public.orders", "search", "--instant", A)
    assert (code, shown) == (0, f"shop:public.orders: reader search has read commit {A}")
    for arguments in (("readers",), ("readers", "list", "public.orders")):
        code, shown = project.invoke(*arguments)
        assert code == 0
        assert "search behind 2026-01-01 12:00:00" in shown
        assert "reader billing has not read a commit that is" in shown
    code, document = project.invoke("readers", "--output", "json")
    assert (code, [one["reader"] for one in json.loads(document)["readers"]]) == (
        0,
        ["billing", "search"],
    )
    assert "search is removed" in project.invoke("readers", "remove", "public.orders", "search")[1]
    assert "no reader search" in project.invoke("readers", "remove", "public.orders", "search")[1]
    assert project.found() == [("shop:public.orders", "billing", "never")]


def test_times_are_those_of_the_look() -> None:
    assert status(BEHIND).to_json()["looked_at"] == NOW
    later = replace(status(BEHIND), looked_at=datetime(2026, 1, 2, 4, 4, 5, tzinfo=timezone.utc))
    assert later.unread_s == 3 * 3600
