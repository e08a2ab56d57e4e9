"""A fleet of tables in a real state store, in every condition that the page of ``ui`` shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from cdc.capture.evidence import Beats, CaptureEvidence, ConnectorFacts, ConnectorHealth
from cdc.config import Config, parse
from cdc.connect import ConnectorStatus
from cdc.connect.worker_status import TaskStatus
from cdc.debezium import CaptureNames
from cdc.errors import SourceError
from cdc.log.position import Lsn
from cdc.sources.postgres.slot import SlotHealth
from cdc.sources.source_facts import ServerIdentity
from cdc.store.actor import Actor
from cdc.store.announcements import Announcements, Proof
from cdc.store.attempt import Attempt, Chunk
from cdc.store.checks import CheckResult, Checks
from cdc.store.completeness import CompletenessRules
from cdc.store.copy_progress import CopyProgress, CopyReports
from cdc.store.history import RunEntry, SchemaEntry
from cdc.store.lease import Lease
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import Cause, CommitSummary, LakeSize, State, transition
from cdc.store.verifications import Proven, Verifications, VerifyRecord
from operate.context import Services
from operate.metrics.facts import FactReader, Facts
from operate.server_answers import Answers, CaptureAnswer
from operate.status import status
from schemas.changes import Verdict
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

ROW = "canary-of-a-row"
"""A text that stands for row values, in each place of the store that can have such values."""
SECRET = "canary-p4ssw0rd-of-a-source"
"""A password of the configuration."""
VARIABLE = "UI_ADMIN_PW"
ORDERS = TableId("shop", "public", "orders")
INVOICES = TableId("shop", "public", "invoices")
EVENTS = TableId("shop", "public", "events")
_WORDS = "accounts carts clicks coupons items stock parcels prices users".split()  # noqa: SIM905


def config(folder: Path) -> Config:
    """A configuration whose servers do not exist, with a state store in the folder."""
    found = minimal()
    found["sources"]["shop"]["primary"] |= {"host": "127.0.0.1", "port": 1}
    found["sources"]["shop"]["credentials"]["admin"]["password"] = f"${{{VARIABLE}}}"
    found["kafka"]["bootstrap_servers"] = "127.0.0.1:1"
    found["connect"]["url"] = "http://127.0.0.1:1"
    found["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    rows = {"kind": "not_null", "columns": ["id"]}
    found["tables"] = {
        str(ORDERS).partition(":")[2]: {"completeness": "hour", "checks": {"ids": rows}},
        str(EVENTS).partition(":")[2]: {"completeness": "day"},
    }
    return parse(yaml.safe_dump(found))


def fill(services: Services, tables: int) -> None:
    """Fill the state store with ``tables`` tables, by its own interface.

    The first few have everything that a page can show.
    """
    now, store, rng = _now(), services.store, random.Random(7)
    for number in range(tables - 5):
        table = TableId("shop", f"s{number % 7}", f"{_WORDS[number % 9]}_{number:04}")
        age = timedelta(seconds=rng.choice((4, 9, 20, 31, 45)) * (30 if number % 97 == 5 else 1))
        commit = CommitSummary(
            {0: 3000 - number % 7 * (number % 3)},
            "0/9",
            now - age,
            "20260102110000000",
            now - age / 2,
        )
        store.put(
            table_record(
                table,
                attempt=_attempt(1000 + number),
                last_commit=commit,
                topic=f"shop.{table.schema}.{table.name}",
            )
        )
        if number % 10 == 0:
            store.record_run(_run(table, now - age, 2.0 + number % 13))
    _orders(services, now)
    _copies(services, now)
    _failures(services, now)
    _events(services, now)


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def _attempt(number: int, chunks: int = 0) -> Attempt:
    bounds = [None, *((f"{ROW}-{cut}",) for cut in range(1, chunks)), None]
    cut = tuple(
        Chunk(place, bounds[place], bounds[place + 1], 50_000, 8 << 20) for place in range(chunks)
    )
    began = _now() - timedelta(minutes=9)
    offsets = {"start_offsets": {0: 1}, "handoff_offsets": None if chunks else {0: 2}}
    return Attempt(UUID(int=number), began, f"/lake/{number}", chunks=cut, **offsets)


def _run(table: TableId, at: datetime, spent: float, **facts: Any) -> RunEntry:
    steps = {"check": 0.2, "read": round(spent * 0.3, 2), "write": round(spent * 0.55, 2)}
    known = RunEntry("r1", table, 1, State.INCREMENTAL, at, spent, 1, int(spent * 310), {}, {0: 9})
    return replace(known, steps=steps, **facts)


def _orders(services: Services, now: datetime) -> None:
    """A healthy table with a long history."""
    store = services.store
    commit = CommitSummary({0: 2997}, "0/6D74090", now, "20260102110000000", now)
    size = LakeSize(5 << 30, 900 << 20, 3 << 20, now)
    record = store.put(
        table_record(
            ORDERS, attempt=_attempt(1), last_commit=commit, size=size, topic="shop.public.orders"
        )
    )
    for place in range(60):
        at = now - timedelta(seconds=90 * (60 - place))
        spent = 3.0 + (place * 7 % 11) / 3 + (6 if place % 17 == 0 else 0)
        store.record_run(_run(ORDERS, at, spent))
    change = RecordedChange(
        *("AddColumn", "column 'gift' was added", "old rows have NULL", Verdict.EVOLVE, {}),
    )
    store.record_schema(
        SchemaEntry(ORDERS, 1, 2, now - timedelta(days=2), (3,), (change,), "followed", "k1")
    )
    proven = Proven(now, (ROW,), "0/9", 12)
    Verifications(store).keep(
        ORDERS, VerifyRecord(str(UUID(int=1)), now, 67_803, {}, "0/9", 4.0, now, proven)
    )
    by = Actor.current()
    Checks(store).keep(
        CheckResult(
            ORDERS,
            "ids",
            "not_null",
            "report",
            str(UUID(int=1)),
            now,
            now,
            "passed",
            {"rows": 67_803},
            "67,803 rows",
            "20260102110000000",
            3,
            by,
        )
    )
    rules = CompletenessRules.of(services.config.table_settings(ORDERS))
    assert rules is not None
    announcements, calendar = Announcements(store), rules.calendar
    period = calendar.holding(now - timedelta(days=4))
    hours = []
    while period.end <= now:
        hours.append(period)
        period = calendar.after(period)
    announcements.announce([Proof(record, rules, now, hours)], now)
    announcements.note_late(
        record, "29990102110000000", {int(hours[-5].start.timestamp()): 3}, reannounces=False
    )


def _copies(services: Services, now: datetime) -> None:
    """A running copy that has some of its chunks, and a next generation beside a serving one."""
    store = services.store
    record = store.put(
        table_record(
            INVOICES, State.BOOTSTRAPPING, attempt=_attempt(2, 40), topic="shop.public.invoices"
        )
    )
    Lease(store, record.table, "another process", ttl_s=600).acquire()
    later = now + timedelta(minutes=30)  # as if the copy went on while tests look at it
    CopyReports(store).keep(
        CopyProgress(
            INVOICES,
            False,
            str(UUID(int=2)),
            40,
            tuple(range(18)),
            tuple(range(18, 26)),
            1_040_000,
            2_000_000,
            later - timedelta(seconds=26),
            later,
        )
    )


def _failures(services: Services, now: datetime) -> None:
    """A failed table, whose message has a secret, one that needs a copy, and bad records."""
    store = services.store
    commit = CommitSummary({0: 3000}, "0/9", now, "20260102110000000", now)
    for number, (name, state) in enumerate(
        (("refunds", State.FAILED), ("ledger", State.NEEDS_BOOTSTRAP)), 3
    ):
        table = TableId("shop", "public", name)
        before = table_record(
            table, attempt=_attempt(number), last_commit=commit, topic=f"shop.public.{name}"
        )
        error = SourceError(
            f"source shop refused the login of admin with {SECRET}",
            remedy=f"Check `sources.shop.credentials.admin`, then run `tributary retry {table}`.",
        )
        lost = SourceError(
            "the slot that kept its changes is gone", remedy=f"Run `tributary bootstrap {table}`."
        )
        cause = Cause(
            reason=None if state is State.FAILED else lost.message,
            error=error if state is State.FAILED else lost,
        )
        record = store.put(before)
        store.put(transition(record, state, at=now, cause=cause))
        store.record_run(_run(table, now, 1.5))
    left_out = Quarantined(
        *(ORDERS, str(UUID(int=1)), "t", None, 0, 5, None, ROW, now, 3, "r1", now),
        key=ROW.encode(),
        value=ROW.encode(),
    )
    Quarantine(store).keep([left_out])


def _events(services: Services, now: datetime) -> None:
    """A table in which `verify` found differing rows, with announced complete days."""
    store = services.store
    commit = CommitSummary({0: 3000}, "0/9", now, "20260102110000000", now)
    record = store.put(
        table_record(EVENTS, attempt=_attempt(5), last_commit=commit, topic="shop.public.events")
    )
    differs = VerifyRecord(str(UUID(int=5)), now, 4_211, {"missing": 2, "different": 1}, "0/9", 2.0)
    Verifications(store).keep(EVENTS, differs)
    rules = CompletenessRules.of(services.config.table_settings(EVENTS))
    assert rules is not None
    day = rules.calendar.holding(now - timedelta(days=3))
    Announcements(store).announce([Proof(record, rules, now, [day])], now)


class Answering(Answers):
    """Fake answers of servers: one capture runs, with a slot, and each topic has new events."""

    def capture(self, names: CaptureNames) -> CaptureAnswer:
        """Return the servers' answers about a capture."""
        slot = SlotHealth(
            *(names.slot or "s", True, "reserved", Lsn(0x6D74090), Lsn(0x6D74090)),
            retained_bytes=212 << 20,
            safe_wal_size=9 << 30,
            end=Lsn(0x7000000),
            current=lambda: Lsn(0x7000000),
        )
        health = ConnectorHealth(
            ConnectorStatus(names.connector, "RUNNING", "w", (TaskStatus(0, "RUNNING", "w"),))
        )
        facts = ConnectorFacts({}, (), None, health)
        evidence = CaptureEvidence(
            *(names, slot, None, None, (), ServerIdentity("7", 1, False), {}, facts, None),
            beats=Beats(),
        )
        return CaptureAnswer(evidence, _now() - timedelta(seconds=3), None)

    def connectors(self) -> list[str]:
        """Return the names of connectors."""
        return []

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the ends of topics."""
        return {topic: {0: 3000} for topic in topics}

    def within(self, what: str, work: Callable[[], Any], *, at_most_s: float | None = None) -> Any:
        """Do the work, except for the figures of freshness targets, which need Kafka."""
        if what in ("freshness targets", "the first events that wait"):
            return []
        return work()


class Reader(FactReader):
    """Reads the facts of a fleet from its real state store and from fake servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services, 1.0)
        self.services = services

    def read(self) -> Facts:
        """Read the facts of one look."""
        from cdc.store.newest_runs import NewestRuns

        found = status(self.services, (), answers=Answering(self.services), brief=True)
        runs = NewestRuns(self.services.store).read()
        up = {("state_store", ""): True, ("kafka", ""): True, ("source", "shop"): True}
        return Facts(up, datetime.now(timezone.utc), 0.1, found, None, runs)
