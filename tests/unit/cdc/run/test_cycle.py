"""What makes a table without new offsets due."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.log.position import LogPosition, Lsn
from cdc.run import cycle
from cdc.store.attempt import Attempt
from cdc.store.table_state import CommitSummary
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


@pytest.mark.parametrize(("ends_at", "broken"), [(9, False), (8, True)])
def test_an_idle_table_rests_on_its_newest_commit(
    monkeypatch: pytest.MonkeyPatch, ends_at: int, *, broken: bool
) -> None:
    """A server that was put back to an earlier state may be beyond the copy of the table."""

    def problem(_stored: object, recorded: LogPosition | None) -> str | None:
        return "it ends before" if recorded is not None and recorded > Lsn(ends_at) else None

    log = SimpleNamespace(title="the log", problem=problem)
    evidence = SimpleNamespace(
        names=SimpleNamespace(resource="capture"),
        server=SimpleNamespace(),
        log=log,
        stored_position=None,
        statements=(),
        starts=(),
    )
    monkeypatch.setattr(cycle, "of_capture", lambda _: [])
    monkeypatch.setattr(cycle, "of_table", lambda *_: [])
    record = table_record(
        updated_at=NOW,
        attempt=Attempt(UUID(int=1), NOW, "/lake/orders/a", reads_upto="0/5"),
        last_commit=CommitSummary({0: 7}, "0/9", NOW, "20260102030405006", NOW),
    )
    context = SimpleNamespace(sources={"shop": SimpleNamespace(position=Lsn.parse)})
    captures = SimpleNamespace(evidence=lambda _: evidence, losses=lambda _: {})
    assert cycle._capture_broken(cast("Any", context), cast("Any", captures), record) is broken
