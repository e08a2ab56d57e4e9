"""Faults right after a copy is published: runs must still follow the table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bootstrap.handoff import bootstrap_table
from bootstrap.steps import LakeFacts
from cdc.capture.remembered_losses import RememberedLossError
from cdc.config.lake import CatalogConfig
from cdc.store.table_state import State
from operate.context import Services
from operate.onboard import copied
from schemas.errors import SchemaError, TributaryError
from tests.unit.failing_command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command that has just moved the table's pointer."""
    monkeypatch.setattr(Services, "spark", None)
    command = Command(tmp_path, "failed")
    monkeypatch.setattr(
        "bootstrap.handoff._Bootstrap._lake_facts", lambda _: LakeFacts(position={0: 1})
    )
    monkeypatch.setattr("bootstrap.handoff.publish", lambda _c, record, *_: record.attempt)
    yield command
    command.services.close()


def test_a_metastore_and_a_state_store_that_fail_after_a_publication_stop_no_run(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = command.put(State.CATCHING_UP, handoff_offsets={0: 1})
    monkeypatch.setattr("cdc.run.metastore_name.show", command.fails)
    monkeypatch.setattr("cdc.run.context.RunContext.spark", None)
    catalog = CatalogConfig(metastore="thrift://metastore:9083")
    config = command.services.config.model_copy(update={"catalog": catalog})
    context = command.context(sources={"shop": cast("Any", None)}, config=config)
    (file,) = tmp_path.rglob("*.db")
    with sqlite3.connect(file) as state:
        state.execute("DROP TABLE tributary_quarantine")
    done = bootstrap_table(context, cast("Any", None), record)
    assert command.left() == (State.INCREMENTAL, 0)
    kept, unnamed = done.warnings
    assert "no such table: tributary_quarantine" in kept
    assert "Spark is gone" in unnamed
    assert copied(done, "").details["notes"] == [kept, unnamed]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RememberedLossError("deletes were lost", remedy="Copy it."), True),
        (SchemaError("it does not fit the other shards", remedy="Set its type."), False),
    ],
)
def test_a_copy_that_cannot_be_published_is_made_again_if_its_capture_has_lost_changes(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: TributaryError, *, again: bool
) -> None:
    """What a person has to repair first waits for `bootstrap`; `onboard` makes other copies."""

    def refuses(*_: object) -> None:
        raise error

    monkeypatch.setattr("bootstrap.handoff.publish", refuses)
    record = command.put(State.CATCHING_UP, handoff_offsets={0: 1})
    context = command.context(sources={"shop": cast("Any", None)})
    with pytest.raises(type(error)):
        bootstrap_table(context, cast("Any", None), record)
    (after,) = command.services.store.tables()
    assert (after.state, after.copy_discarded) == (State.NEEDS_BOOTSTRAP, again)
