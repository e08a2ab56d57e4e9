"""A state store with tables for scrapes of metrics, and the SQL statements of a scrape."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from cdc.errors import SourceError
from cdc.store.attempt import Attempt
from cdc.store.history import RunEntry
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.table_state import Cause, CommitSummary, CommitWrites, LakeSize, State, transition
from cdc.store.verifications import Verifications, VerifyRecord
from operate.context import Services
from operate.metrics.facts import FactReader
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

PARTS = TableId("shop", "public", "parts")
CANARY = "canary-of-a-row"
BOUND_S = 1.0
"""The limit for the answers of a scrape, in seconds."""


def document(folder: Path, port: int = 1, **changes: Any) -> dict[str, Any]:
    """A configuration in which all services are at one port, where nothing answers."""
    found = minimal()
    found["sources"]["shop"]["primary"] |= {"host": "127.0.0.1", "port": port}
    found["sources"]["shop"]["credentials"]["admin"]["password"] = "${ADMIN_PW}"
    found["kafka"]["bootstrap_servers"] = f"127.0.0.1:{port}"
    found["connect"]["url"] = f"http://127.0.0.1:{port}"
    found["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    return found | changes


def attempt(number: int, started_at: datetime = NOW) -> Attempt:
    return Attempt(
        UUID(int=number), started_at, "path", start_offsets={0: 1}, handoff_offsets={0: 2}
    )


def fill(services: Services, tables: int = 0) -> datetime:
    """Fill the state store with two tables, one that is followed and one that has failed, and more.

    Returns the time of all commits, runs and verifications. It is the present time, since a scrape
    would show older tables as late.
    """
    store, now = services.store, datetime.now(timezone.utc).replace(microsecond=0)
    written = CommitWrites(1.5, 9_000, inserts=1, updates=7, deletes=1)
    commit = CommitSummary(
        *({0: 7}, "0/9", now, "20260102110000000", now + timedelta(seconds=3)), writes=written
    )
    size = LakeSize(100, 20, 3, now)
    common: dict[str, Any] = {"last_commit": commit, "size": size}
    store.put(table_record(ORDERS, attempt=attempt(1, now), **common))
    failed = table_record(PARTS, attempt=attempt(2, now), last_commit=commit)
    error = SourceError(f"the value {CANARY} does not fit", remedy="None")
    store.put(transition(failed, State.FAILED, at=now, cause=Cause(error=error)))
    run = RunEntry("r1", ORDERS, 1, State.INCREMENTAL, now, 9.0, 9, 9, {"c": 9}, {0: 1})
    store.record_run(run)
    store.record_run(replace(run, run_id="r2", seconds=2.5, commits=1, counts={"u": 4, "d": 1}))
    left_out = Quarantined(
        *(ORDERS, str(UUID(int=1)), "t", None, 0, 5, None, CANARY, now, 3, "r1", now),
        key=CANARY.encode(),
        value=CANARY.encode(),
    )
    Quarantine(store).keep([left_out])
    kept = Verifications(store)
    kept.keep(ORDERS, VerifyRecord(str(UUID(int=1)), now, 9, {}, "0/7", 1.0, now))
    kept.keep(ORDERS, VerifyRecord(str(UUID(int=1)), now, 9, {"missing": 2}, "0/9", 1.5, now))
    for number in range(tables):
        table = TableId("shop", "public", f"t{number}")
        state = State.CATCHING_UP if number % 2 else State.INCREMENTAL
        facts = {"generation": 2, "attempt": attempt(100 + number, now), "topic": f"t{number}"}
        store.put(table_record(table, state, **common, **facts))
        store.record_run(replace(run, table=table))
    return now


def statements(services: Services, bound_s: float = BOUND_S) -> list[str]:
    """The SQL statements of one scrape; the scrape is not the first of the process."""
    reader, seen = FactReader(services, bound_s), list[str]()
    reader.read()

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sa.event.listen(services.store._engine, "before_cursor_execute", note)
    reader.read()
    sa.event.remove(services.store._engine, "before_cursor_execute", note)
    return seen


def fill_more(services: Services, tables: int) -> None:
    """Fill the state store again, with this number of further tables."""
    for table in (ORDERS, PARTS):
        services.store.delete(table)
    fill(services, tables)
