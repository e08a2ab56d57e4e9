"""Copies on the real stack with a limit of what they read per second."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from bootstrap.copying import Copying
from bootstrap.snapshot import SnapshotCopy
from cdc.runtime.copy_sessions import CopyBudget
from cdc.runtime.progress import NullProgress, Task
from cdc.sources.base import Marker
from cdc.store.attempt import Chunk
from operate.context import Services
from operate.onboard import onboard
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop


class Waits(NullProgress):
    """Notes the tasks that begin to wait for the rate of copies."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        self.names += [task] * task.startswith("wait to copy")
        return super().start(task, total, unit)

    def check(self, _why: str) -> None:
        """Let a copy of the test wait."""


def test_a_copy_begins_when_the_rate_allows_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.create("orders", 40_000)
    waits, planned, allowed = Waits(), Copying._planned, list[datetime]()
    services = Services(shop.config(), waits, spark=shop.spark)
    services.copy_budget = CopyBudget(mb_per_s=1)

    def beside_another(copying: Copying, copy: SnapshotCopy) -> tuple[Chunk, ...]:
        found = planned(copying, copy)
        rate = services.run_context.copy_rate(shop.database.name)
        assert rate is not None
        rate.begin(8_000_000, waits.check)  # the read of another copy, just before
        allowed.append(datetime.now(timezone.utc) + timedelta(seconds=8))
        return found

    monkeypatch.setattr(Copying, "_planned", beside_another)
    try:
        succeeded(onboard(services, [shop.table("orders")]))
        timeline = services.run_context.timeline(shop.record("orders").attempt)
        first = f"{min(timeline.completed_instants())[:14]}+0000"
        assert datetime.strptime(first, "%Y%m%d%H%M%S%z") >= allowed[0] - timedelta(seconds=1)
    finally:
        services.close()
    assert len(waits.names) == len(allowed) == 1
    found = shop.verify("orders")
    assert (found.equal, found.rows_compared) == (True, 40_000)


@pytest.mark.breadth
def test_each_part_of_a_copy_has_a_view_of_its_own(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table changes between the parts, and the copy is exact nevertheless."""
    shop.create("lines", 60_000)
    services = Services(shop.config(), NullProgress(), spark=shop.spark)
    services.copy_budget = CopyBudget(mb_per_s=50)
    opened, under_view = list[int](), Copying._copy_under_view
    monkeypatch.setattr("bootstrap.chunks.SINGLE_WAVE_BYTES", 1)
    monkeypatch.setattr("bootstrap.copying.SINGLE_WAVE_BYTES", 1)

    def changing(copying: Copying, marker: Marker, *, failed: int, one_view: bool) -> bool:
        shop.database.execute("UPDATE lines SET v = v + 1 WHERE id % 7 = 0")
        opened.append(len(copying._committed()))
        return under_view(copying, marker, failed=failed, one_view=one_view)

    monkeypatch.setattr(Copying, "_copy_under_view", changing)
    try:
        succeeded(onboard(services, [shop.table("lines")]))
    finally:
        services.close()
    assert opened[0] == 0
    assert len(opened) > 1
    assert opened == sorted(set(opened)), "each view has read another part"
    assert [result.error for result in shop.run()] in ([], [None])
    found = shop.verify("lines")
    assert (found.equal, found.rows_compared) == (True, 60_000)
