from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cdc.capture.judgement import Severity
from cdc.capture.remembered_losses import (
    RememberedLossError,
    check_losses,
    loss_scopes,
    of_remembered_losses,
    table_scope,
    times,
)
from cdc.debezium import CaptureNames
from cdc.store.attempt import Attempt
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.records import READY, table_record

NAMES = CaptureNames("shop", "default", "p", "s", "c", "t", "postgres")
OTHER = CaptureNames("shop", "slow", "p2", "s2", "c2", "t2", "postgres")


def record(name: str, attempt: Attempt | None) -> TableRecord:
    return table_record(TableId("shop", "public", name), State.PAUSED, attempt=attempt)


def test_a_loss_stops_whoever_began_before_it_and_nobody_else(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    losses, early = Losses(store), record("orders", READY)
    check_losses(losses.seen(*loss_scopes(NAMES, early.table)), NAMES, early)
    following = replace(early, resume_to=State.INCREMENTAL)
    assert [*of_remembered_losses({}, NAMES, following)] == []
    losses.note(NAMES.resource, "deletes were not captured")

    seen = Losses(Store(store_url(tmp_path))).seen(*loss_scopes(NAMES, early.table))
    with pytest.raises(RememberedLossError, match="deletes were not captured") as stopped:
        check_losses(seen, NAMES, early)
    assert stopped.value.remedy.startswith("Copy the table again: `tributary bootstrap shop:")
    ago = datetime.now(timezone.utc) - seen[NAMES.resource].seen_at
    assert abs(ago) < timedelta(minutes=1)
    check_losses(seen, OTHER, early)
    (told,) = of_remembered_losses(seen, NAMES, following)
    assert (told.severity, told.message) == (Severity.LOST, stopped.value.message)
    assert [*of_remembered_losses(seen, NAMES, early)] == [], "it is copied again in any case"

    count = times(seen, NAMES, early.table)
    late = record("orders", Attempt(READY.id, READY.started_at, READY.path, losses=count))
    check_losses(seen, NAMES, late)
    losses.note(table_scope(NAMES, TableId("shop", "public", "lines")), "a partition was detached")
    check_losses(losses.seen(*loss_scopes(NAMES, early.table)), NAMES, late)
    losses.note(table_scope(NAMES, late.table), "its topic was compacted")
    with pytest.raises(RememberedLossError, match="its topic was compacted"):
        check_losses(losses.seen(*loss_scopes(NAMES, early.table)), NAMES, late)
    store.close()


def test_what_a_table_loses_in_one_capture_leaves_its_generation_of_another_one(
    tmp_path: Path,
) -> None:
    """During a move, runs follow the former topic, and the next generation follows the new one."""
    store = Store(store_url(tmp_path))
    losses, serving = Losses(store), record("orders", READY)
    losses.note(table_scope(OTHER, serving.table), "its topic is compacted")
    scopes = {*loss_scopes(NAMES, serving.table), *loss_scopes(OTHER, serving.table)}
    seen = losses.seen(*scopes)
    check_losses(seen, NAMES, serving)
    with pytest.raises(RememberedLossError, match="its topic is compacted"):
        check_losses(seen, OTHER, serving)
    store.close()


def test_no_loss_of_many_at_once_goes_uncounted(tmp_path: Path) -> None:
    Store(store_url(tmp_path)).close()

    def note(number: int) -> None:
        store = Store(store_url(tmp_path))
        Losses(store).note(NAMES.resource, f"loss {number}")
        store.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(24)))
    store = Store(store_url(tmp_path))
    assert [loss.times for loss in Losses(store).seen(NAMES.resource).values()] == [24]
    store.close()


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'state.db'}"
