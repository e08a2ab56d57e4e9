"""The metrics of a table from its first copy on, compared with the answers of `status`."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cdc.config import load
from cdc.connect import ConnectClient
from cdc.runtime.progress import NullProgress
from operate.context import Services
from stack.ports import HOST, choose
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.faults import produce
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.prometheus import Scraped

pytestmark = pytest.mark.breadth

ORDERS = "public.orders"
_END_S = 90.0
SETTINGS = {
    "on_bad_message": "quarantine",
    "completeness": "hour",
    "readers": {"billing": {"lag": "1d"}},
    "checks": {"fresh": {"kind": "freshness", "max_age": "23h", "cron": "0 0 * * *"}},
}
"""Settings of the table; each setting adds series to the metrics."""


def scrape(port: int) -> Scraped | None:
    """Scrape the metrics at a port; None if no server listens there."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=15) as answer:
            return Scraped(answer.read().decode())
    except urllib.error.URLError:
        return None


@contextmanager
def started(project: Project, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command for a block; the command is killed at the end of the block."""
    process = project.start(*arguments, log=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


@pytest.mark.timeout(900)
def test_metrics_say_what_status_says_and_what_goes_away(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    database.load("orders", ((n, 0) for n in range(1, 51)))
    project = Project.create(tmp_path, database, tables={ORDERS: SETTINGS})
    project.run("onboard", ORDERS).expect(0)
    project.run("verify", ORDERS).expect(0)
    port, log = choose(["metrics"])["metrics"], tmp_path / "run.log"
    arguments = ("run", "--continuous", "--interval", "1", "--metrics-port", str(port))
    with started(project, log, *arguments) as run:
        follows_a_table(project, port)
        announces_an_hour_and_leaves_a_record_out(project, port)
        refuses_a_port_in_use(project, port)
        run.send_signal(signal.SIGTERM)
        assert run.wait(_END_S) == 0, log.read_text()
    assert scrape(port) is None, "the listener ends with the run"
    writes_a_file(project)
    with started(project, log, "metrics", "serve", "--port", str(port), "--cache", "0"):
        shows_a_check_a_reader_and_a_lease(project, port)
        shows_the_kind_of_an_error(project, port)
        shows_a_connector_that_goes_away(project, port)


def follows_a_table(project: Project, port: int) -> None:
    """A continuous run serves metrics; they show an update, and agree with `status`."""
    labels = {"source": project.database.name, "table": str(project.table("orders"))}

    def updated() -> bool:
        seen = scrape(port)
        return seen is not None and seen.get("table_run_records", operation="u", **labels) == 3

    project.execute("UPDATE orders SET v = 1 WHERE id < 4")
    wait_until(updated, "the run's changes in the metrics", 180)
    found, document = scrape(port), project.run("status", "--output", "json").expect(0).json
    assert found is not None
    (table,), (capture,) = document["tables"], document["captures"]
    assert found.get("scrape_success") == 1
    for service in ("state_store", "kafka", "connect", "source"):
        assert found.get("up", service=service) == 1
    assert found.get("table_state", state=table["state"], **labels) == 1
    assert found.get("table_state", state="failed", **labels) == 0
    assert found.get("table_commit_timestamp_seconds", **labels) == moment(table["last_commit"])
    assert found.get("table_commit_rows", operation="update", **labels) == 3
    written = found.get("table_commit_written_bytes", **labels)
    assert written is not None
    assert written > 0
    assert found.get("table_commit_written_bytes_per_row", **labels) == pytest.approx(written / 3)
    shows_the_newest_commit(project, found)
    assert found.get("table_events_behind", **labels) == table["events_behind"] == 0
    assert found.get("table_freshness_target_seconds", **labels) == table["freshness_target_s"]
    assert found.get("table_late", **labels) == int(table["late"])
    complete = found.get("table_complete_timestamp_seconds", **labels)
    assert complete is not None
    assert abs(moment(table["watermark"]) - complete) < 120, "heartbeats went on meanwhile"
    verified = table["verified"]
    assert verified["equal"] is True
    assert found.get("table_verify_success_timestamp_seconds", **labels) == moment(verified["at"])
    for absent in ("table_lost", "table_error", "table_quarantined_messages", "table_late_rows"):
        assert not found.get(absent, **labels), absent
    for kind in ("missing", "extra", "different"):
        assert found.get("table_verify_drift_rows", kind=kind, **labels) is None
    shows_the_capture(found, capture)
    assert found.get("tier_events_behind", tier="default") == 0
    assert found.get("tier_backlog_seconds", tier="default") == 0
    assert found.get("tier_load_ratio", tier="default") is not None


def shows_the_newest_commit(project: Project, found: Scraped) -> None:
    """The metrics of the newest commit equal the state store's; round and heartbeat are recent."""
    with opened(project) as services:
        (record,) = services.store.tables()
    assert record.last_commit is not None
    assert record.last_commit.writes is not None
    assert record.last_commit.watermark is not None
    seconds = found.get("table_commit_duration_seconds")
    assert seconds == record.last_commit.writes.seconds
    watermark = found.get("table_watermark_timestamp_seconds")
    assert watermark == pytest.approx(record.last_commit.watermark.timestamp())
    moments = [found.get(f"{one}_timestamp_seconds") for one in ("round", "heartbeat")]
    assert all(one is not None and abs(time.time() - one) < 120 for one in moments), moments
    took = found.get("round_duration_seconds")
    assert took is not None
    assert 0 < took < 60


def shows_the_capture(found: Scraped, capture: dict[str, Any]) -> None:
    """The metrics show a running connector, and a slot that retains as much log as in `status`."""
    assert capture["connector"] == "running"
    assert found.get("connector_up") == found.get("connector_state", state="running") == 1
    assert found.get("connector_tasks", state="running") == 1
    assert found.get("slot_active") == int(capture["log"]["active"]) == 1
    retained = found.get("log_retained_bytes")
    assert retained is not None
    assert abs(retained - capture["log"]["retained_bytes"]) < 64 * 1024 * 1024
    assert found.get("log_limit_bytes", level="warn") == 20 * 2**30
    assert found.get("log_limit_bytes", level="alarm") == 50 * 2**30
    assert found.get("log_limit_bytes", level="give_up") is None
    assert found.get("log_in_danger") == 0
    safe = found.get("slot_safe_bytes")
    assert safe is not None
    assert 0 < safe < 5 * 2**30, "the stack sets max_slot_wal_keep_size to 4 GB"
    assert found.get("capture_problem") == 0


def announces_an_hour_and_leaves_a_record_out(project: Project, port: int) -> None:
    """The metrics show the last complete hour, and then a quarantined record that is no event."""

    def announced() -> bool:
        return value(port, "table_period_end_timestamp_seconds") is not None

    wait_until(announced, "an hour that is complete", 180)
    found = scrape(port)
    assert found is not None
    ended, due = (found.get(f"table_period_{one}_timestamp_seconds") for one in ("end", "due"))
    assert ended is not None
    assert due is not None
    assert ended % 3600 == 0
    assert due > ended + 3600, "the next hour is due after its end"
    with opened(project) as services:
        (record,) = services.store.tables()
        produce(services.config, record.topic, b"no event")
    left_out = "table_quarantined_messages"
    wait_until(lambda: value(port, left_out) == 1, "a record that is left out", 180)


def shows_a_check_a_reader_and_a_lease(project: Project, port: int) -> None:
    """The metrics show a check's result, a lease while it is held, and a reader's progress."""
    project.run("checks", "run", "--all").expect(0)
    with opened(project) as services:
        (record,) = services.store.tables()
        assert record.last_commit is not None
        instant = record.last_commit.instant
        with services.leases.hold(record.table):
            held = scrape(port)
    project.run("readers", "record", ORDERS, "billing", "--instant", instant).expect(0)
    found = scrape(port)
    assert held is not None
    assert found is not None
    taken, until = (held.get(f"table_lease_{one}_timestamp_seconds") for one in ("taken", "expiry"))
    assert taken is not None
    assert until is not None
    assert taken < until
    assert found.get("table_lease_taken_timestamp_seconds") is None, "nobody works on the table"
    assert found.get("table_check_outcome", check="fresh", outcome="passed") == 1
    assert found.get("table_check_failed", check="fresh") == 0
    assert found.get("table_check_due", check="fresh") == 0
    ended = found.get("table_check_timestamp_seconds", check="fresh")
    assert ended == found.get("table_check_success_timestamp_seconds", check="fresh")
    assert ended is not None
    assert found.get("reader_lag_seconds", reader="billing") == 0
    assert found.get("reader_unread_seconds", reader="billing") == 0
    assert found.get("reader_lag_target_seconds", reader="billing") == 86_400
    assert found.get("reader_lost", reader="billing") is None


def shows_the_kind_of_an_error(project: Project, port: int) -> None:
    """The metrics show the kind of a table's error: here, an upsert table with ``mode: append``."""
    project.execute("UPDATE orders SET v = 9 WHERE id = 9")
    project.configure({ORDERS: {"mode": "append"}})
    wait_until(lambda: project.run("run").code == 3, "a run that fails", 180)
    found = scrape(port)
    with opened(project) as services:
        (record,) = services.store.tables()
    assert found is not None
    assert record.error is not None
    assert found.get("table_error", kind=record.error.error) == 1
    assert found.get("table_failures") == record.failures >= 1
    assert found.get("table_state", state="failed") == 1
    project.configure({ORDERS: SETTINGS})
    project.run("retry", ORDERS).expect(0)
    project.run("run").expect(0)
    assert value(port, "table_error") is None


@contextmanager
def opened(project: Project) -> Iterator[Services]:
    services = Services(load(project.file), NullProgress())
    try:
        yield services
    finally:
        services.close()


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def refuses_a_port_in_use(project: Project, port: int) -> None:
    refused = project.run("metrics", "serve", "--port", str(port)).expect(1)
    assert f"metrics cannot be served at {HOST}:{port}: Address already in use" in refused.stderr
    assert "What to do: Choose another port with --port" in refused.stderr


def writes_a_file(project: Project) -> None:
    file = project.folder / "tributary.prom"
    written = project.run("metrics", "--textfile", str(file)).expect(0)
    assert f"Wrote {file}" in written.stdout
    found = Scraped(file.read_text())
    assert found.get("connector_up") == 1
    assert found.get("table_state", state="incremental", table=str(project.table("orders"))) == 1


def shows_a_connector_that_goes_away(project: Project, port: int) -> None:
    """The metrics show a connector whose task is stopped, and then a connector that is deleted."""
    connect = ConnectClient(load(project.file).connect)
    (name,) = (one for one in connect.names() if project.database.name in one)

    def seen(**wanted: float | None) -> bool:
        found = scrape(port)
        states = ("running", "paused", "missing")
        return found is not None and all(
            found.get("connector_state", state=state) == wanted.get(state, 0) for state in states
        )

    wait_until(lambda: seen(running=1), "the connector that runs", 60)
    connect.pause(name)
    wait_until(lambda: seen(paused=1), "the connector that is paused", 60)
    paused = scrape(port)
    assert paused is not None
    assert paused.get("connector_up") == 0
    assert paused.get("connector_tasks", state="running") == 0
    connect.delete(name)
    wait_until(lambda: seen(missing=1), "the connector that is missing", 60)
    wait_until(lambda: value(port, "slot_active") == 0, "the slot that nobody reads", 60)
    gone = scrape(port)
    assert gone is not None
    assert (gone.get("connector_up"), gone.get("capture_problem")) == (0, 1)
    assert gone.get("up", service="connect") == 1, "Connect itself answers"
    assert gone.get("table_state", state="incremental") == 1


def value(port: int, name: str) -> float | None:
    found = scrape(port)
    return None if found is None else found.get(name)
