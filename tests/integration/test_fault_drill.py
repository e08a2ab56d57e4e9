"""A fault drill: each fault raises exactly its alarms at the next scrape, and its repair ends them.

Servers, faults and Prometheus are real, and the rules are the shipped ones. test_alarms.py tests
how long each alarm waits, and faults that take hours.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.debezium import latest_heartbeat
from cdc.lake.write import LakeTable
from cdc.rows.columns import OP
from cdc.store.completeness import Calendar
from operate.metrics.dashboard import dashboard
from operate.run import Runs
from stack.ports import choose
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import PROGRAM
from tests.integration.rigs.prometheus import Prometheus, filled, watching
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

NONE: set[str] = set()
HOURS = Calendar("hour")
_WAIT_S = 120.0
_TARGET_S = 20
"""The freshness target, in seconds, of the tables that the drill makes late."""
_DUE_S = 60
"""Seconds until the hour is overdue: long enough for a scrape that still shows no alarm."""
_NOT_IN_THE_DRILL = {
    "Age of checks",
    "Age of leases",
    "Errors",
    "Failed checks",
    "Failures in a row",
    "Freshness of shared lake tables",
    "Lag of readers",
    "Late rows",
    "Leases",
    "Outcomes of checks",
    "Overdue checks",
    "Readers that must read the whole table",
    "Rounds of run --continuous",
    "To copy again",
    "Unread commits, and the limits",
}
"""Dashboard panels that may be empty: the drill has no readers, checks, shards, failed tables or
late rows, and only a scrape during a run sees a lease.
"""
_LIMIT = {"warn": "32MiB", "alarm": "999GiB"}
_NOISE = "INSERT INTO noise SELECT n, repeat(md5(n::text), 8) FROM generate_series(1, 160000) n"


def now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass
class Drill:
    """Three tables, a process that serves their metrics, and a Prometheus server.

    Args:
        shop: The shop with the tables.
        port: The port of the process that serves metrics; a restarted process has the same port.
        seen: The Prometheus server.
    """

    shop: Shop
    port: int
    seen: Prometheus

    def expect(self, *alarms: str) -> None:
        """Assert that exactly these alarms are raised after the next scrape."""
        assert self.seen.raised() == set(alarms)

    def of_table(self, alarm: str, name: str) -> str:
        source = self.shop.database.name
        return f"{alarm} source={source} table={self.shop.table(name)} tier=default"

    def of_capture(self, alarm: str) -> str:
        return f"{alarm} source={self.shop.database.name} tier=default"

    def run(self) -> None:
        """Run all tables; the run also looks for complete hours."""
        runs = Runs(self.shop.services, self.shop.services.store.tables)
        assert [one.error for one in runs.once() if one.error] == []

    def wait_for_beat(self) -> None:
        """Wait until all that the source has committed by now is in Kafka."""
        since = now()
        services = self.shop.services
        capture = services.capture_of(self.shop.record("orders"))

        def came() -> bool:
            beat = latest_heartbeat(services.kafka, services.schemas, capture)
            return beat is not None and beat.beat_at > since

        wait_until(came, "a heartbeat", _WAIT_S)


def configure(shop: Shop, tables: dict[str, Any]) -> None:
    """Change the settings of tables, in this process and in the file that other processes read."""
    label = shop.database.label
    shop.tables = {label(name): settings for name, settings in tables.items()}
    shop.reconfigure(**sources(shop))
    document = shop.database.document(shop.folder) | {"tables": shop.tables} | sources(shop)
    (shop.folder / "tributary.yaml").write_text(yaml.safe_dump(document))


def sources(shop: Shop) -> dict[str, Any]:
    """The ``sources`` section of the configuration, with limits for the retained log."""
    found: dict[str, Any] = shop.database.document(shop.folder)["sources"]
    found[shop.database.name]["wal_limit"] = _LIMIT
    return {"sources": found}


@contextmanager
def metrics(folder: Path, port: int) -> Iterator[None]:
    """Run the process that serves metrics, for a block."""
    command = [str(PROGRAM), "metrics", "serve", "--port", str(port), "--cache", "0"]
    command += ["--config", str(folder / "tributary.yaml")]
    with (
        (folder / "metrics.log").open("ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@pytest.mark.breadth
@pytest.mark.timeout(900)
def test_each_fault_raises_exactly_its_alarms_within_one_scrape(
    shop: Shop, spark: SparkSession
) -> None:
    for name in ("orders", "slow", "hours"):
        shop.create(name, 50)
    shop.database.execute("CREATE TABLE noise (id int, t text)")
    ended = HOURS.before(HOURS.holding(now()))
    half_an_hour = int((now() - ended.end).total_seconds()) + 1800
    calm = {"hours": {"completeness": "hour", "allowed_lateness_s": half_an_hour}}
    configure(shop, calm)
    succeeded(shop.onboard("orders", "slow", "hours"))
    port = choose(["metrics"])["metrics"]
    with watching(shop.folder / "prometheus", port) as seen:
        drill = Drill(shop, port, seen)
        drill.run()  # it announces the hour before that which ended last
        shop.assert_equal("orders")
        complete_s = int((now() - ended.end).total_seconds()) + _DUE_S - _TARGET_S
        late = {"freshness_target_s": _TARGET_S}
        hours = {"completeness": "hour", "allowed_lateness_s": complete_s, **late}
        configure(shop, {"slow": late, "hours": hours})
        with metrics(shop.folder, port):
            an_hour_stays_incomplete(drill, now() + timedelta(seconds=_DUE_S))
            a_table_gets_no_runs(drill)
        configure(shop, calm)
        with metrics(shop.folder, port):
            drill.expect()
            a_connector_is_stopped(drill)
            a_worker_is_killed(drill)
            a_slot_grows(drill)
            the_lake_drifts(drill, spark)
            the_broker_is_away(drill)
            every_panel_has_series(drill)


def an_hour_stays_incomplete(drill: Drill, due: datetime) -> None:
    drill.expect()
    assert now() < due, "the scrape before the fault came too late"
    wait_until(lambda: now() > due, "the time at which the hour is overdue")
    drill.expect(drill.of_table("PeriodOverdue", "hours"))
    drill.run()
    drill.expect()


def a_table_gets_no_runs(drill: Drill) -> None:
    """An idle table gets a change, but no run.

    The alarms depend on the age of the change, not on that of the last commit.
    """
    commit = drill.shop.record("slow").last_commit
    assert commit is not None
    old = commit.committed_at + timedelta(seconds=4 * _TARGET_S + 1)
    wait_until(lambda: now() > old, "an old commit", _WAIT_S)
    drill.shop.database.execute("UPDATE slow SET v = 2", "UPDATE orders SET v = 2")
    changed = now()
    drill.shop.settle("slow")
    drill.expect()
    assert now() < changed + timedelta(seconds=_TARGET_S), "the scrape came too late"
    for targets, alarms in ((1, ["Stale"]), (4, ["Stale", "StaleCritical"])):
        late = changed + timedelta(seconds=targets * _TARGET_S + 1)
        wait_until(lambda late=late: now() > late, f"{targets} targets", _WAIT_S)  # type: ignore[misc]
        drill.expect(*(drill.of_table(one, "slow") for one in alarms))
        age = f"tributary_table_freshness_seconds{{table='{drill.shop.table('slow')}'}}"
        assert drill.seen.series(f"{age} > {targets * _TARGET_S}")
    run_without_error(drill.shop)
    drill.expect()


def a_connector_is_stopped(drill: Drill) -> None:
    services = drill.shop.services
    connector = services.capture_of(drill.shop.record("orders")).connector
    services.connect.stop(connector)
    drill.expect(drill.of_capture("ConnectorDown"), drill.of_capture("SlotInactive"))
    services.connect.resume(connector)
    services.connect.wait_running(connector)
    drill.wait_for_beat()
    drill.expect()


def a_worker_is_killed(drill: Drill) -> None:
    stack = drill.shop.database.stack
    stack.server("connect").kill()
    drill.expect("Errors service=connect", drill.of_capture("SlotInactive"))
    stack.up()
    drill.wait_for_beat()
    drill.expect()


def a_slot_grows(drill: Drill) -> None:
    """An open transaction makes the slot retain log, although the connector goes on reading."""
    database = drill.shop.database
    assert isinstance(database, Database)
    with database.begin() as session:
        session.execute("INSERT INTO noise VALUES (0, 'open')")
        database.execute(_NOISE)
        drill.wait_for_beat()
        drill.expect(drill.of_capture("WalGrowth"), drill.of_capture("WalLimit"))
        session.rollback()
    retained = "SELECT max(pg_current_wal_lsn() - restart_lsn) FROM pg_replication_slots"

    def released() -> bool:
        database.stack.psql("CHECKPOINT")  # it logs which transactions are open
        drill.wait_for_beat()
        return int(drill.shop.scalar(f"{retained} WHERE database = '{database.name}'")) < 2**20

    wait_until(released, "a slot that holds back little log", _WAIT_S)
    drill.expect()


def the_lake_drifts(drill: Drill, spark: SparkSession) -> None:
    """A row is missing in the lake; the row's next change on the source brings it back."""
    shop = drill.shop
    attempt = shop.record("orders").attempt
    assert attempt is not None
    described = shop.services.source(shop.database.name).table(shop.table("orders"))
    settings = shop.services.config.table_settings(shop.table("orders"))
    schema = shop.services.source(shop.database.name).schema(described, settings)
    lake = LakeTable(spark, attempt.path, schema, settings)
    latest = lake.timeline().latest_offsets()
    assert latest is not None
    gone = lake.read().where("id = 7").withColumn(OP, F.lit("d"))
    lake.upsert(gone, latest.record, lambda _: None)
    assert not shop.verify("orders").equal
    drill.expect(drill.of_table("VerifyDrift", "orders"))
    assert drill.seen.series("tributary_table_verify_drift_rows{kind='missing'} == 1")
    shop.database.execute("UPDATE orders SET v = 2 WHERE id = 7")
    shop.assert_equal("orders")
    drill.expect()


def the_broker_is_away(drill: Drill) -> None:
    stack = drill.shop.database.stack
    stack.server("kafka").kill()
    drill.expect("Errors service=kafka")
    stack.up()
    drill.wait_for_beat()
    drill.expect()


def every_panel_has_series(drill: Drill) -> None:
    """Each dashboard expression is valid, and finds series unless the drill cannot have them.

    test_metrics.py and test_completeness.py cover most metrics of the other panels.
    """
    empty = {
        panel["title"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
        if not drill.seen.series(f"last_over_time(({filled(target['expr'])})[20m:5s])")
    }
    assert empty <= _NOT_IN_THE_DRILL
