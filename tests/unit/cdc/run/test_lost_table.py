"""A run whose table another process takes over, and perhaps copies again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc.capture.remembered_losses import loss_scopes
from cdc.errors import FencedError, LostHistoryError, MissingFolderError
from cdc.lake.pointer import read_local
from cdc.run import run_table
from cdc.run.commits import keep_size
from cdc.store.lease import Lease
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from cdc.store.table_state import LakeSize, State, TableRecord
from cdc.store.tables import leases, loss_rows
from tests.records import NOW
from tests.unit.failing_command import TABLE, Command


def copied_again(store: Store) -> TableRecord:
    """Let another process replace the table by its next generation."""
    record = store.get(TABLE)
    assert record is not None
    assert record.attempt is not None
    attempt = replace(record.attempt, id=UUID(int=2), path="/lake/b")
    return store.put(replace(record, attempt=attempt, generation=2))


def taken(store: Store) -> None:
    """Let the table's lease expire, and another process take it."""
    with store.transaction() as connection:
        connection.execute(sa.update(leases).values(expires_at=0.0))
    Lease(store, TABLE, "another").acquire()


@pytest.mark.parametrize(
    ("lease", "record"), [(True, True), (True, False), (False, True)], ids=("both", "lease", "copy")
)
def test_a_run_that_lost_its_table_leaves_its_verdict_nowhere(
    command: Command, monkeypatch: pytest.MonkeyPatch, lease: bool, record: bool
) -> None:
    store = command.services.store
    first = command.put(State.INCREMENTAL, handoff_offsets={0: 1})
    left = [first]

    def loses(*_: object) -> None:
        if lease:
            taken(store)
        if record:
            left.append(copied_again(store))
        raise LostHistoryError("the former lake is gone", remedy="Copy it again.")

    monkeypatch.setattr("cdc.run.table.check_serving", loses)
    result = run_table(command.context(), first)
    assert result.error is not None
    assert result.error.error == FencedError.__name__
    assert store.get(TABLE) == left[-1]
    with store.transaction() as connection:
        assert connection.execute(sa.select(loss_rows)).all() == []


def test_a_change_that_another_process_copies_over_is_dropped(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process copies the table after the run has read its record and before it writes."""
    store = command.services.store
    first = command.put(State.INCREMENTAL, handoff_offsets={0: 1})
    put = Store.put
    left: list[TableRecord] = []

    def late(self: Store, record: TableRecord, *args: object, **more: object) -> TableRecord:
        monkeypatch.setattr(Store, "put", put)
        left.append(copied_again(store))
        return put(self, record, *args, **more)  # type: ignore[arg-type]  # as it was called

    def fails(*_: object) -> None:
        monkeypatch.setattr(Store, "put", late)
        raise LostHistoryError("the former lake is gone", remedy="Copy it again.")

    monkeypatch.setattr("cdc.run.table.check_serving", fails)
    result = run_table(command.context(), first)
    assert result.error is not None
    assert result.error.error == FencedError.__name__
    assert [store.get(TABLE)] == left


@pytest.mark.parametrize("mounted", [True, False])
def test_a_table_without_its_folder_is_not_lost(
    command: Command, monkeypatch: pytest.MonkeyPatch, mounted: bool
) -> None:
    """The test reads the local folder with Python, in place of Hadoop."""
    module = "cdc.run.published_generation"
    monkeypatch.setattr(f"{module}.read_pointer", lambda _, base: read_local(Path(base)))
    monkeypatch.setattr(f"{module}.folder_exists", lambda _, base: Path(base).exists())
    store = command.services.store
    first = command.put(State.INCREMENTAL, handoff_offsets={0: 1})
    folder = Path(first.base_path)
    if mounted:
        folder.mkdir(parents=True)
    else:
        served = command.context().served
        assert served.differing_from_lake(command.context(), [first]) == {TABLE}, "it has its run"
    result = run_table(command.context(), first)
    assert result.error is not None
    state, error = (
        (State.NEEDS_BOOTSTRAP, LostHistoryError) if mounted else (State.FAILED, MissingFolderError)
    )
    assert (result.state, result.error.error) == (state, error.__name__)
    (_, scope) = loss_scopes(command.context().capture(first), TABLE)
    assert len(Losses(store).seen(scope)) == int(mounted)


def test_a_size_is_kept_for_the_generation_that_was_measured(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, size = command.services.store, LakeSize(1, 2, 3, NOW)
    monkeypatch.setattr("cdc.run.commits.measure", lambda *_: size)
    first = command.put(State.INCREMENTAL)
    measured = keep_size(command.context().spark, store, first)
    assert measured.size == size
    second = copied_again(store)
    assert keep_size(command.context().spark, store, replace(measured, size=None)).size is None
    assert store.get(TABLE) == second


@pytest.mark.parametrize(("image", "times"), [(1, 2), (2**30, 1)])
def test_a_large_table_is_measured_once_an_hour(
    command: Command, monkeypatch: pytest.MonkeyPatch, image: int, times: int
) -> None:
    """The measurement lists all files of the table."""
    measured = list[object]()

    def measure(*_: object) -> LakeSize:
        measured.append(1)
        return LakeSize(image, 2, 3, datetime.now(timezone.utc))

    monkeypatch.setattr("cdc.run.commits.measure", measure)
    context = command.context()
    record = keep_size(context.spark, command.services.store, command.put(State.INCREMENTAL))
    record = keep_size(context.spark, command.services.store, record)
    assert len(measured) == times
    assert record.size is not None
    old = replace(record.size, measured_at=NOW - timedelta(days=1))
    keep_size(context.spark, command.services.store, replace(record, size=old))
    assert len(measured) == times + 1
