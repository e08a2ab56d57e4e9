"""The reasons for which a table without new offsets still gets a run."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.capture import position_check
from cdc.debezium import DefinitionChange
from cdc.errors import KafkaError, SourceError, UnreachableError
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from cdc.log.position import LogPosition, Lsn
from cdc.run import idle_tables
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import CommitSummary
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


LOG = SimpleNamespace(title="the log", problem=lambda *_: None)
VIEW = CopyView("", "0/5", NOW, on_replica=False, system_identifier="7", timeline=None)


def broken(log: object = LOG, server: ServerIdentity | None = None) -> bool:
    """Whether an idle table is due, given the present log and server of its capture."""
    evidence = SimpleNamespace(
        names=SimpleNamespace(resource="capture", kind="postgres"),
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
    found = idle_tables._tables_with_broken_capture(
        cast("Any", context), cast("Any", captures), [record]
    )
    return found == {record.table}


@pytest.fixture(autouse=True)
def _nothing_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_tables, "of_capture", lambda _: [])
    monkeypatch.setattr(idle_tables, "of_table", lambda *_: [])


@pytest.mark.parametrize("ends_at", [9, 8])
def test_an_idle_table_rests_on_its_newest_commit(ends_at: int) -> None:
    """A server that was reset to an earlier state may still be after the position of the copy."""

    def problem(_stored: object, recorded: LogPosition | None) -> str | None:
        return "it ends before" if recorded is not None and recorded > Lsn(ends_at) else None

    assert broken(SimpleNamespace(title="the log", problem=problem)) is (ends_at < 9)


def test_an_idle_table_is_due_if_its_server_or_position_cannot_be_told() -> None:
    """The table's run then names the problem; else the capture's idle tables would go unchecked."""
    known = ServerIdentity("7", None, in_recovery=False)
    assert not broken(server=known)
    assert broken(server=replace(known, unknown=True)), "MariaDB's row of identity is gone"

    def compared(_stored: object, recorded: Any) -> bool:
        return MysqlGtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5").reaches(recorded)

    assert broken(SimpleNamespace(title="the log", problem=compared)), "GTIDs were switched on"


TABLES = tuple(TableId("shop", "shop", name) for name in ("seen", "told", "edited", "other"))


def look(
    error: TributaryError | None = None, **unread: TributaryError
) -> tuple[set[str], list[Any]]:
    """The due tables among four idle tables, and the facts that could not be checked.

    Args:
        error: The error of the capture's evidence.
        unread: The error of each other look, by its name.
    """

    def statements(record: Any) -> list[DefinitionChange]:
        if error is not None or "statements" in unread:
            raise error or unread["statements"]
        said = record.table.name == "told"
        return [DefinitionChange("ALTER", record.table, "", None, False, 0)] if said else []

    def fingerprints(tables: Any) -> dict[TableId, Fingerprint]:
        if "catalog" in unread:
            raise unread["catalog"]
        return {one: Fingerprint({"n": int(one.name == "seen")}) for one in tables}

    def evidence(_: Any) -> Any:
        if error is not None:
            raise error
        return SimpleNamespace(names=None)

    records = []
    for one in TABLES:
        fingerprint = Fingerprint({"n": 0, "read_at": "0-1-5"})
        digest = "another" if one.name == "edited" else None
        attempt = Attempt(
            UUID(int=1), NOW, "/lake", fingerprint=fingerprint, settings_digest=digest, view=VIEW
        )
        records.append(replace(table_record(updated_at=NOW, attempt=attempt), table=one))
    source = SimpleNamespace(
        position=MariadbGtidSet.parse,
        capture=lambda _: SimpleNamespace(fingerprints=fingerprints),
    )
    context = SimpleNamespace(
        sources={"shop": source},
        capture=lambda _: None,
        unchecked=["of before"],
        config=SimpleNamespace(lake=None),
        settings_of_idle=lambda _: None,
    )
    captures = SimpleNamespace(evidence=evidence, statements=statements, losses=lambda _: {})
    found = idle_tables.idle_tables_that_changed(
        cast("Any", context), cast("Any", captures), records
    )
    return {table.name for table in found}, context.unchecked


def test_what_one_look_at_idle_tables_cannot_see_hides_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(idle_tables, "settings_digest", lambda *_: "one")
    monkeypatch.setattr(position_check, "check_stream", lambda *_: None)
    monkeypatch.setattr(idle_tables, "check_losses", lambda *_: None)
    assert look() == ({"seen", "told", "edited"}, [])
    denied = SourceError("the catalog is closed", remedy="Open it.")
    found, (unchecked,) = look(catalog=denied)
    assert found == {"told", "edited"}
    assert [table.name for table in unchecked.tables] == ["seen", "other"]
    assert unchecked.remedy == "Open it."
    assert unchecked.message.startswith("2 idle tables of shop were not checked")
    assert unchecked.to_json()["tables"] == ["shop:shop.seen", "shop:shop.other"]
    assert unchecked.message in caplog.text
    found, (unchecked,) = look(statements=KafkaError("no topic", remedy="Wait."))
    assert (found, len(unchecked.tables)) == ({"seen", "edited"}, 2)
    found, (unchecked,) = look(UnreachableError("no server", remedy="Start it."))
    assert (found, len(unchecked.tables)) == ({"edited"}, 3)


def test_the_captures_of_idle_tables_are_checked_at_one_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that does not answer would keep the others waiting, a minute for each capture."""
    together = threading.Barrier(3)

    def look(_context: object, _captures: object, records: Any) -> set[TableId]:
        together.wait(20.0)
        return {records[0].table}

    monkeypatch.setattr(idle_tables, "_tables_with_broken_capture", look)
    for name in ("_tables_changed_in_catalog", "_tables_with_statements"):
        monkeypatch.setattr(idle_tables, name, lambda *_: set())
    monkeypatch.setattr(idle_tables, "has_edited_settings", lambda *_: False)
    tables = [TableId(source, "public", "orders") for source in ("one", "two", "three")]
    records = [table_record(table) for table in tables]
    context = cast("Any", SimpleNamespace(unchecked=[]))
    assert idle_tables.idle_tables_that_changed(context, cast("Any", None), records) == {*tables}
