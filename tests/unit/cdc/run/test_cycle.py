"""The reasons for which a table without new offsets still gets a run."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.capture import position_check
from cdc.debezium import DefinitionChange
from cdc.errors import KafkaError, SourceError, StateError, UnreachableError
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from cdc.log.position import LogPosition, Lsn
from cdc.run import cycle
from cdc.run.published_settings import PublishedSettings
from cdc.runtime.rounds import Rounds
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import CommitSummary, State, TableRecord
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
    found = cycle._tables_with_broken_capture(cast("Any", context), cast("Any", captures), [record])
    return found == {record.table}


@pytest.fixture(autouse=True)
def _nothing_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "of_capture", lambda _: [])
    monkeypatch.setattr(cycle, "of_table", lambda *_: [])


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
    found = cycle._idle_tables_that_changed(cast("Any", context), cast("Any", captures), records)
    return {table.name for table in found}, context.unchecked


def test_what_one_look_at_idle_tables_cannot_see_hides_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cycle, "settings_digest", lambda *_: "one")
    monkeypatch.setattr(position_check, "check_stream", lambda *_: None)
    monkeypatch.setattr(cycle, "check_losses", lambda *_: None)
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


def test_a_table_that_waits_keeps_its_name_while_its_settings_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table's entry in the metastore has the partition columns of its settings."""
    attempt = Attempt(UUID(int=1), NOW, "/lake", settings_digest="one", view=VIEW)
    edited = replace(attempt, settings_digest="another")
    record = replace(table_record(updated_at=NOW, attempt=attempt), state=State.INCREMENTAL)
    records = [record, replace(record, table=TABLES[0], attempt=edited)]
    named: list[TableRecord] = []
    monkeypatch.setattr(cycle, "settings_digest", lambda *_: "one")
    captures = SimpleNamespace(look_at_all=lambda _: None)
    monkeypatch.setattr(cycle, "Captures", lambda _: captures)
    monkeypatch.setattr(cycle, "_find_work", lambda *_, **__: [])
    monkeypatch.setattr(cycle, "remove_former", lambda *_: None)
    monkeypatch.setattr(cycle, "name_idle", lambda _, idle: named.extend(idle))
    settings = SimpleNamespace(lake=None, pool_shares={})
    settings.spark = SimpleNamespace(parallel_tables=1)
    context = SimpleNamespace(config=settings, published_settings=PublishedSettings())
    context.settings_of_idle = lambda _: None
    context.store = SimpleNamespace(now=lambda: NOW)
    cycle.run_tables(cast("Any", context), records, look_at_idle=True)
    assert named == [record]


def test_a_shard_waits_while_the_state_store_is_away() -> None:
    """If a worker raised the store's error, `run --continuous` would end for all tables."""

    def away() -> None:
        raise StateError("the state store does not answer", remedy="Start it.")

    context = SimpleNamespace(shared=lambda _: SimpleNamespace(held_by_other=away))
    work = SimpleNamespace(deferred=True, entry=SimpleNamespace(lake="/lake/orders"))
    held = cycle._held_by_other(cast("Any", context), cast("Any", work))
    assert held == "the state store does not answer"


def test_captures_are_watched_although_no_round_is_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While Kafka is down, connectors fail, and their slots retain the log of the primary."""
    watched: list[bool] = []
    stop = threading.Event()

    def watch() -> None:
        watched.append(True)
        stop.set()

    monkeypatch.setattr(cycle, "_try_round", lambda *_, **__: False)
    monkeypatch.setattr(cycle, "_must_end", lambda _, asked: asked.is_set())
    settings = SimpleNamespace(pool_shares={}, spark=SimpleNamespace(parallel_tables=1))
    context = cast("Any", SimpleNamespace(config=settings, rounds=Rounds()))
    cycle.run_continuously(context, list, stop, min_interval_s=0.01, watch=watch)
    assert watched == [True]
    assert context.rounds.newest is None, "the metrics show no round that found nothing out"
    stop.clear()
    monkeypatch.setattr(cycle, "_try_round", lambda *_, **__: not time.sleep(0.05))
    cycle.run_continuously(context, list, stop, min_interval_s=0.01, watch=watch)
    newest = cast("Rounds", context.rounds).newest
    assert newest is not None
    assert 0.05 <= newest.seconds < 5


def test_fair_pools_are_as_many_as_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps each scheduler pool until Spark ends, and asks all pools for each free core."""
    pools: list[str] = []
    jobs = SimpleNamespace(setLocalProperty=lambda _, pool: pools.append(pool))
    context = SimpleNamespace(spark=SimpleNamespace(sparkContext=jobs))
    monkeypatch.setattr(cycle, "_held_by_other", lambda *_: None)
    monkeypatch.setattr(cycle, "run_table", lambda *_, **__: SimpleNamespace(commits=()))
    for number in range(100):
        record = table_record(table=TableId("shop", "public", f"t{number}"))
        work = SimpleNamespace(record=record, captures=None, topic=None, turn=None)
        cycle._run_and_name(cast("Any", context), cast("Any", work), number % 3)
    assert len(pools) == 100
    assert len(set(pools)) == 3
