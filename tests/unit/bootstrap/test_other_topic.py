"""A next generation from another topic replaces the serving one only after it has caught up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap import resync as module
from bootstrap.handoff import Limits
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.lease import Lease, Leases
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord, TierCapture
from tests.records import ORDERS, table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
FAST = TierCapture("fast", "fast_topic", None)
SLOW = TierCapture("slow", "slow_topic", None)


def attempt(number: int) -> Attempt:
    return Attempt(uuid.UUID(int=number), NOW, f"/lake/attempt={number}", settings_digest="same")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


class Steps:
    """Notes each step with a next generation, and whether the table's lease is held at the step."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, bool]] = []
        self._leases = Leases(store, progress=NullProgress())
        self.context = cast(
            "Any",
            SimpleNamespace(
                store=store,
                leases=self._leases,
                newest_settings=lambda _: None,
                kafka=SimpleNamespace(high_watermarks=lambda topic: {0: len(topic)}),
            ),
        )
        source = SimpleNamespace(write_marker=self._marker)
        capture = SimpleNamespace(
            source=source,
            wait_until_captured=lambda upto, **_: self._note(f"captured {upto}"),
            wait_until_readable=lambda upto, **_: self._note(f"readable {upto}"),
        )
        monkeypatch.setattr("bootstrap.capture_proof.Capture.of", lambda *_: capture)
        monkeypatch.setattr(module, "catch_up", self._catch_up)

    def _marker(self) -> Any:
        self._note("marker")
        return SimpleNamespace(position="M")

    def _catch_up(self, _: Any, build: TableRecord, upto: Any = None) -> TableRecord:
        self._note(f"catch up to {upto}")
        return build

    def _note(self, what: str) -> None:
        held = Lease(self.context.store, ORDERS, "").held_by_other()
        self.done.append((what, held is not None))


LEVEL = ["marker", "captured M", "readable {0: 10}", "catch up to {0: 10}"]


def test_all_that_readers_can_have_seen_is_in_the_next_generation_before_it_serves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker is written again after runs can no longer commit to the serving generation."""
    store.put(table_record(attempt=attempt(1), other=FAST, shown_as="a.b"))
    build = store.put(
        table_record(
            state=State.CATCHING_UP, tier="fast", topic=FAST.topic, beside=True, attempt=attempt(2)
        )
    )
    steps = Steps(store, monkeypatch)

    swapped = module._replace_serving_generation(
        steps.context, cast("Any", None), build, Limits(lease_s=1)
    )

    assert steps.done == [(what, False) for what in LEVEL] + [(what, True) for what in LEVEL]
    assert store.get(ORDERS) == swapped
    assert store.builds() == []
    assert (swapped.captured, swapped.other) == (FAST, table_record().captured)
    assert (swapped.attempt, swapped.shown_as) == (attempt(2), "a.b")


def test_a_resync_of_one_topic_writes_no_marker_and_keeps_what_a_move_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(table_record(attempt=attempt(1), other=SLOW))
    build = store.put(
        table_record(state=State.CATCHING_UP, beside=True, attempt=attempt(2), generation=2)
    )
    steps = Steps(store, monkeypatch)

    swapped = module._replace_serving_generation(
        steps.context, cast("Any", None), build, Limits(lease_s=1)
    )

    assert steps.done == [("catch up to None", False), ("catch up to None", True)]
    assert (swapped.captured, swapped.other) == (table_record().captured, SLOW)


def test_a_generation_that_is_built_for_another_capture_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation's offsets belong to another topic than the one that the resync follows."""
    record = store.put(table_record(attempt=attempt(1)))
    build = module._begin_next_generation(Steps(store, monkeypatch).context, record, FAST)
    assert (build.captured, build.generation, build.beside) == (FAST, 2, True)
    context = Steps(store, monkeypatch).context
    assert module._begun_generation(context, record, FAST) == build
    assert module._begun_generation(context, record, record.captured) is None
    assert store.builds() == []
