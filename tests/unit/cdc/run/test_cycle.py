"""What makes a table without new offsets due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.log.gtid import MysqlGtidSet
from cdc.log.position import LogPosition, Lsn
from cdc.run import cycle
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import CommitSummary
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


LOG = SimpleNamespace(title="the log", problem=lambda *_: None)
VIEW = CopyView("", "0/5", NOW, on_replica=False, system_identifier="7", timeline=None)


def broken(log: object = LOG, server: ServerIdentity | None = None) -> bool:
    """Whether an idle table is due, by the log and the server that its capture has now."""
    evidence = SimpleNamespace(
        names=SimpleNamespace(resource="capture"),
        server=server,
        log=log,
        stored_position=None,
        statements=None,
        starts=(),
    )
    record = table_record(
        updated_at=NOW,
        attempt=Attempt(UUID(int=1), NOW, "/lake/orders/a", reads_upto="0/5", view=VIEW),
        last_commit=CommitSummary({0: 7}, "0/9", NOW, "20260102030405006", NOW),
    )
    context = SimpleNamespace(sources={"shop": SimpleNamespace(position=Lsn.parse)})
    captures = SimpleNamespace(evidence=lambda _: evidence, losses=lambda _: {})
    return cycle._capture_broken(cast("Any", context), cast("Any", captures), record)


@pytest.fixture(autouse=True)
def _nothing_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "of_capture", lambda _: [])
    monkeypatch.setattr(cycle, "of_table", lambda *_: [])


@pytest.mark.parametrize("ends_at", [9, 8])
def test_an_idle_table_rests_on_its_newest_commit(ends_at: int) -> None:
    """A server that was put back to an earlier state may be beyond the copy of the table."""

    def problem(_stored: object, recorded: LogPosition | None) -> str | None:
        return "it ends before" if recorded is not None and recorded > Lsn(ends_at) else None

    assert broken(SimpleNamespace(title="the log", problem=problem)) is (ends_at < 9)


def test_an_idle_table_is_due_if_its_server_or_position_cannot_be_told() -> None:
    """Its own run reports that by name; otherwise all idle tables of the capture go unchecked."""
    known = ServerIdentity("7", None, in_recovery=False)
    assert not broken(server=known)
    assert broken(server=replace(known, unknown=True)), "MariaDB's row of identity is gone"

    def compared(_stored: object, recorded: Any) -> bool:
        return MysqlGtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5").reaches(recorded)

    assert broken(SimpleNamespace(title="the log", problem=compared)), "GTIDs were switched on"
