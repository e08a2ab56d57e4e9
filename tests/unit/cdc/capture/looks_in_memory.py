"""Looks at the tasks of a connector, whose topics are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from cdc.capture.remembered_losses import table_scope
from cdc.capture.task_looks import TaskLooks
from cdc.debezium import CaptureNames
from cdc.store.attempt import Attempt
from cdc.store.loss_counts import Loss, Losses
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from schemas.table import TableId
from tests.records import READY, table_record
from tests.unit.cdc.task_topics import NAMES, Registry, Topics, event

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
MOVED = ("__debezium.newkey",)


def record(name: str = "orders", topic_id: str | None = None) -> TableRecord:
    """The record of a table whose topic has its name."""
    attempt = Attempt(READY.id, AT, "p", start_offsets={0: 0}, topic_id=topic_id)
    return table_record(TableId("shop", "public", name), topic=name, attempt=attempt)


def beat(topics: Topics, task: str, at: int, names: CaptureNames = NAMES) -> None:
    """Add a heartbeat of a task, ``at`` seconds after the start."""
    offset = topics.end(names.heartbeat_topic)
    topics.add(event(offset, 1, "c", 1, topic=names.heartbeat_topic, task=task, at=at))


def looks_at(folder: Path, topics: Topics, *, exactly_once: bool = True) -> TaskLooks:
    """Looks of a process that has not looked before."""
    store, registry = Store(f"sqlite:///{folder / 'state.db'}"), cast("Any", Registry())
    return TaskLooks(store, cast("Any", topics), registry, exactly_once=exactly_once)


def kept(folder: Path, *scopes: str) -> Mapping[str, Loss]:
    """The losses that the state store has."""
    return Losses(Store(f"sqlite:///{folder / 'state.db'}")).seen(*scopes)


def asked() -> Any:
    """Fail, in place of opening the source."""
    raise AssertionError("the source is not needed")


def losses(folder: Path) -> dict[str, int]:
    """The number of losses that count for each table, in any tier."""
    tables, tiers = ("orders", "lines"), ("default", "default_append")
    named = [(record(table).table, replace(NAMES, tier=tier)) for table in tables for tier in tiers]
    scopes = {table_scope(names, table): str(table) for table, names in named}
    return {scopes[scope]: loss.times for scope, loss in kept(folder, *scopes).items()}
