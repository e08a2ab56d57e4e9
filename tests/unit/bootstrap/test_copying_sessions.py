"""When a copy takes its read sessions, and how many Spark tasks read at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import bootstrap.copying
from bootstrap.chunks import cut_chunks
from bootstrap.copying import Copying
from cdc.config import TableSettings
from cdc.errors import StoppedError
from cdc.runtime.copy_sessions import CopyRate, CopySessions
from cdc.runtime.cpu_shares import CpuShares
from cdc.runtime.progress import NullProgress, Task
from cdc.sources.source_facts import Boundaries, TableSize
from tests.records import table_record


class Sessions(CopySessions):
    """Sessions that note when they are taken and given back."""

    def __init__(self, most: int, events: list[str]) -> None:
        super().__init__(most)
        self._events = events

    @contextmanager
    def taken(self, wanted: int, **how: Any) -> Iterator[int]:
        with super().taken(wanted, **how) as got:
            self._events.append(f"take {got} of {wanted}")
            yield got
            self._events.append(f"give back {got}")


class Context(SimpleNamespace):
    """The parts of a `RunContext` that a copy uses."""

    @property
    def ending(self) -> bool:
        return bool(self.is_ending())


class Noting(NullProgress):
    """Notes each wait for the rate that begins."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def start(self, task: str, *total: Any, **unit: Any) -> Task:
        if task.startswith("wait to copy"):
            self._events.append(task)
        return super().start(task, *total, **unit)


@dataclass(frozen=True)
class Copy:
    """A fake `SnapshotCopy` that notes each read."""

    events: list[str]
    parallel: int | None = None
    table: None = None

    def copy(self, chunks: Any, *_: Any, **__: Any) -> int:
        self.events.append(f"read {len(chunks)} chunks, tasks {self.parallel}")
        return 0


def only_copies(monkeypatch: pytest.MonkeyPatch, events: list[str], planned: Any) -> None:
    """Replace a copy's parts, except its sessions, by fakes; they note its view and its reads."""
    view = SimpleNamespace(on_replica=True, warnings=(), split=None, upper_bound="0/1")

    @contextmanager
    def opened(*_: Any, **how: Any) -> Iterator[Any]:
        events.append(f"open the view for {how['sessions']}")
        yield view
        events.append("close the view")

    for name, stand_in in {
        "_open_snapshot_copy": lambda *_: Copy(events),
        "_planned": lambda *_: planned,
        "_opened": opened,
        "_note_plan": lambda *_: None,
        "_note_facts": lambda *_, **__: None,
        "_require_fingerprint": lambda *_: None,
        "_committed": lambda *_: frozenset(),
        "_attempt": SimpleNamespace(view=None),
    }.items():
        monkeypatch.setattr(Copying, name, stand_in)
    monkeypatch.setattr("bootstrap.copying.chunk_commit", lambda *_: None)
    unreported = dict.fromkeys(
        ("begin_wave", "end_wave", "done", "advance", "note"), lambda *_: None
    )
    monkeypatch.setattr(
        "bootstrap.copying.ReportedCopy.begin", lambda *_: SimpleNamespace(**unreported)
    )


def events_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    chunks: int,
    most: int,
    shares_views: bool,
    rate: CopyRate | None = None,
    ending: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> list[str]:
    """The sessions, views and reads of a copy on 4 cores, in their order."""
    events: list[str] = []
    sessions = Sessions(most, events)
    points = tuple((str(number),) for number in range(1, chunks))
    planned = cut_chunks(Boundaries(points, TableSize(chunks, chunks)))
    context = Context(
        is_ending=ending,
        copy_sessions=lambda _: sessions,
        copy_rate=lambda _: rate,
        progress=Noting(events),
        store=None,
        spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=4)),
        run_id="run",
    )
    source = SimpleNamespace(
        name="shop",
        shares_views=shares_views,
        table=lambda _: None,
        assert_view_alive=lambda _: events.append("check the view"),
    )
    copying = Copying(
        context=context,  # type: ignore[arg-type]
        source=source,  # type: ignore[arg-type]
        settings=TableSettings(**settings),
        record=table_record(),
        save=lambda _: table_record(),
        lease=SimpleNamespace(check=lambda: None),  # type: ignore[arg-type]
        replica_s=1,
        failures=1,
    )
    only_copies(monkeypatch, events, planned)
    assert copying._copy_under_view(
        SimpleNamespace(),  # type: ignore[arg-type]
        failed=0,
        one_view=True,
    )
    with sessions.taken(most, check=lambda: None, together=True):
        del events[-1]
    del events[-1]
    return events


def test_a_view_whose_sessions_open_together_waits_for_all_of_them_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MySQL's replica is paused from the first session to the last, so these must not wait."""
    found = events_of(monkeypatch, chunks=3, most=8, shares_views=False, one_view=True)
    assert found == [
        "take 3 of 3",
        "open the view for 3",
        "read 3 chunks, tasks None",
        "check the view",
        "close the view",
        "give back 3",
    ]


def test_a_wave_takes_as_many_sessions_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = events_of(monkeypatch, chunks=9, most=8, shares_views=True)
    assert found == [
        "open the view for 9",
        "take 4 of 4",
        "read 9 chunks, tasks None",
        "give back 4",
        "check the view",
        "close the view",
    ]


@pytest.mark.parametrize(
    ("most", "settings", "tasks"),
    [(2, {}, 2), (8, {"parallel_chunks": 3}, 3), (2, {"parallel_chunks": 3}, 2)],
)
def test_fewer_sessions_are_fewer_tasks(
    monkeypatch: pytest.MonkeyPatch, most: int, settings: dict[str, Any], tasks: int
) -> None:
    found = events_of(monkeypatch, chunks=9, most=most, shares_views=True, **settings)
    assert f"take {tasks} of {tasks}" in found
    assert f"read 9 chunks, tasks {tasks}" in found


class Rate(CopyRate):
    """A rate of one megabyte a second, by a clock that only moves while somebody waits."""

    at = 1000.0

    def __init__(self, read: int = 0) -> None:
        super().__init__(1)
        self.begin(read, lambda _: None)

    def _now(self) -> float:
        return self.at

    def _pause(self, seconds: float) -> None:
        self.at += seconds


WAIT = f"wait to copy {table_record().table}"


@pytest.mark.parametrize("shares_views", [True, False])
def test_a_copy_waits_for_its_rate_before_its_view_and_sessions(
    monkeypatch: pytest.MonkeyPatch, shares_views: bool
) -> None:
    """On MySQL, an open view waits for sessions with all its locks, and only for a bounded time."""
    rate = Rate(read=90_000_000)
    how = {"shares_views": shares_views, "one_view": True}
    found = events_of(monkeypatch, chunks=3, most=8, rate=rate, **how)
    assert rate.at == pytest.approx(1090.0)
    opened = found.index("open the view for 3")
    assert found[0] == WAIT
    assert all(event.startswith("take") for event in found[1:opened])
    free = events_of(monkeypatch, chunks=3, most=8, rate=Rate(), **how)
    assert WAIT not in free, "nothing was read before"


def test_a_copy_that_waits_for_its_rate_ends_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rate = Rate(read=90_000_000)
    with pytest.raises(StoppedError, match="wait to copy"):
        events_of(
            monkeypatch,
            chunks=3,
            most=8,
            shares_views=True,
            rate=rate,
            ending=lambda: rate.at > 1003.0,
        )
    assert 1003.0 < rate.at < 1006.0


@pytest.mark.parametrize(
    ("rate", "settings", "one_view"),
    [
        (None, {}, True),
        (Rate(), {}, False),
        (Rate(), {"one_view": True}, True),
        (Rate(), {"mode": "append"}, True),
    ],
)
def test_with_a_rate_each_wave_has_a_view_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    rate: CopyRate | None,
    settings: dict[str, Any],
    one_view: bool,
) -> None:
    """But a table that needs one view for all its chunks has one."""
    under = list[bool]()

    def copy(_copying: Copying, _marker: Any, *, failed: int, one_view: bool) -> bool:
        under.append(one_view)
        return failed == 0 and len(under) == 3

    for name in ("_note_facts", "_require_fingerprint", "_leave_cut_short"):
        monkeypatch.setattr(Copying, name, lambda *_, **__: None)
    monkeypatch.setattr(Copying, "_committed", lambda *_: frozenset())
    monkeypatch.setattr(Copying, "_attempt", None)
    monkeypatch.setattr(Copying, "_copy_under_view", copy)
    monkeypatch.setattr(bootstrap.copying, "require_same_server", lambda *_: None)
    monkeypatch.setattr(bootstrap.copying, "forget_report", lambda *_: None)
    context = SimpleNamespace(
        copy_rate=lambda _: rate,
        cpu=CpuShares(),
        timeline=lambda _: SimpleNamespace(exists=True),
        progress=NullProgress(),
        store=None,
    )
    source = SimpleNamespace(
        name="shop",
        write_marker=lambda: SimpleNamespace(id="marker"),
        wait_for_marker_on_replica=lambda *_, **__: None,
    )
    copying = Copying(
        context=context,  # type: ignore[arg-type]
        source=source,  # type: ignore[arg-type]
        settings=TableSettings(**settings),
        record=table_record(),
        save=lambda _: table_record(),
        lease=SimpleNamespace(check=lambda: None),  # type: ignore[arg-type]
        replica_s=1,
        failures=1,
    )
    copying.run()
    assert under == [one_view] * 3
