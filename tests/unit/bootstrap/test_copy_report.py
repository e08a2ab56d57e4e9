"""The progress of a copy, as the copying process reports it and other processes read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from bootstrap.copy_report import ReportedCopy, forget_report
from cdc.errors import StateError
from cdc.runtime.progress import NullTask
from cdc.store.attempt import Attempt, Chunk
from cdc.store.copy_progress import CopyProgress, CopyReports
from cdc.store.state_store import Store
from cdc.store.table_state import State
from tests.records import NOW, ORDERS, table_record

ATTEMPT = Attempt(UUID(int=7), NOW, "/lake/orders/7")
CHUNKS = [Chunk(number, None, None, 100, 1000) for number in range(4)]
WAVES = [CHUNKS[1:3], CHUNKS[3:]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


def begun(store: Store) -> ReportedCopy:
    record = table_record(state=State.BOOTSTRAPPING)
    return ReportedCopy.begin(NullTask(), store, record, ATTEMPT, {0}, WAVES)


def only(store: Store) -> CopyProgress:
    (found,) = CopyReports(store).all()
    return found


def test_a_copy_reports_its_chunks_and_rows(store: Store) -> None:
    copy = begun(store)
    copy.begin_wave(WAVES[0])
    copy.advance(120)
    first = only(store)
    assert (first.planned, first.committed, first.writing) == (4, (0,), (1, 2))
    assert first.rows_expected == 300
    copy.end_wave()
    assert (only(store).committed, only(store).rows, only(store).writing) == ((0, 1, 2), 120, ())
    forget_report(store, table_record())
    assert CopyReports(store).all() == []


def test_a_report_of_rows_waits_for_its_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[CopyProgress] = []
    monkeypatch.setattr(CopyReports, "keep", lambda self, report: kept.append(report))
    copy = begun(store)
    for _ in range(50):
        copy.advance(1)
    assert [report.rows for report in kept] == [1]
    copy.done()
    assert kept[-1].rows == 50


def test_a_copy_goes_on_without_a_state_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: CopyReports, *report: object, **facts: object) -> None:
        raise StateError("the state store does not answer", remedy="Wait.")

    monkeypatch.setattr(CopyReports, "keep", away)
    monkeypatch.setattr(CopyReports, "forget", away)
    copy = begun(store)
    copy.begin_wave(WAVES[0])
    copy.advance(1)
    copy.end_wave()
    copy.done()
    forget_report(store, table_record())


def test_rate_and_time_left_come_from_what_was_read() -> None:
    report = CopyProgress(
        *(ORDERS, False, "7", 4, (), (0,), 600, 1000, NOW, NOW + timedelta(seconds=30)),
    )
    assert (report.rows_per_s, report.seconds_left) == (20.0, 20.0)


def test_a_removed_record_of_a_next_generation_takes_its_report_along(store: Store) -> None:
    build = table_record(state=State.BOOTSTRAPPING, beside=True)
    ReportedCopy.begin(NullTask(), store, build, ATTEMPT, (), WAVES).done()
    begun(store).done()
    store.delete(ORDERS, beside=True)
    assert [one.beside for one in CopyReports(store).all()] == [False]
