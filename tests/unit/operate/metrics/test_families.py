"""The metrics that are made from facts of captures and tiers, and the names of metrics."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
import yaml

from cdc.capture.evidence import ConnectorHealth
from cdc.config import Config, parse
from cdc.config.checks import CheckSettings
from cdc.connect import ConnectorStatus
from cdc.connect.worker_status import TaskStatus
from cdc.log.position import Lsn
from cdc.run.schedule import Rules
from cdc.sources.mysql.binlog import NoBinlog
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.store.checks import after
from operate.capture_status import CaptureStatus
from operate.check_status import CheckStatus
from operate.forecast import Forecast
from operate.metrics import metric_definitions as m
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.needs import Need
from operate.status import Status, TableStatus
from operate.targets import Shortfall
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal
from tests.unit.cdc.store.check_results import BROKEN, FAILED, PASSED
from tests.unit.operate.documents import text

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
ORDERS, PARTS = TableId("shop", "public", "orders"), TableId("shop", "public", "parts")
SLOT = SlotHealth(
    *("s", True, "reserved", Lsn(1), Lsn(1)),
    retained_bytes=500,
    safe_wal_size=90,
    end=Lsn(9),
    current=lambda: Lsn(9),
)
RUNNING = ConnectorHealth(ConnectorStatus("c", "RUNNING", "w", (TaskStatus(0, "RUNNING", "w"),)))
CAPTURE = CaptureStatus("shop", "default", SLOT, "running", NOW, None, RUNNING)


@pytest.fixture
def config() -> Config:
    return parse(yaml.safe_dump(minimal()))


def shown(config: Config, status: Status, plan: Forecast | None = None) -> dict[str, float]:
    """The value of each series of a scrape, by name and labels, without labels common to all."""
    facts = Facts({("state_store", ""): True}, NOW, 0.5, status, plan, {})
    found = {}
    for family in families(config, facts):
        for sample in family.samples:
            own = {k: v for k, v in sample.labels.items() if v not in ("shop", "default")}
            found[" ".join([sample.name.removeprefix("tributary_"), *own.values()])] = sample.value
    return found


def test_a_capture_that_works(config: Config) -> None:
    found = shown(config, Status((), (CAPTURE,)))
    assert found["connector_up"] == 1
    assert found["connector_state running"] == 1
    assert sum(found[f"connector_state {state}"] for state in m.CONNECTOR_STATES) == 1
    assert found["connector_tasks running"] == 1
    assert found["heartbeat_timestamp_seconds"] == NOW.timestamp()
    assert found["heartbeat_limit_seconds"] > 10
    assert found["capture_problem"] == 0
    assert (found["log_retained_bytes"], found["slot_safe_bytes"]) == (500, 90)
    assert (found["slot_active"], found["log_in_danger"]) == (1, 0)


def test_a_task_that_failed(config: Config) -> None:
    tasks = (TaskStatus(0, "FAILED", "w"),)
    failed = ConnectorHealth(ConnectorStatus("c", "RUNNING", "w", tasks), "it broke")
    broken = replace(CAPTURE, connector="not running", health=failed, problem="it broke")
    found = shown(config, Status((), (broken,)))
    assert (found["connector_up"], found["capture_problem"]) == (0, 1)
    assert (found["connector_state running"], found["connector_tasks failed"]) == (1, 1)
    assert found["connector_tasks running"] == 0


def test_a_connector_that_is_gone_is_down_and_one_that_is_not_known_is_neither(
    config: Config,
) -> None:
    gone = shown(config, Status((), (replace(CAPTURE, connector="missing", health=None),)))
    assert (gone["connector_up"], gone["connector_state missing"]) == (0, 1)
    away = shown(config, Status((), (replace(CAPTURE, connector=None, health=None),)))
    assert [name for name in away if name.startswith("connector_")] == []


def test_a_slot_in_danger_and_logs_that_have_no_slot(config: Config) -> None:
    unreserved = replace(SLOT, wal_status="unreserved", active=False, safe_wal_size=-5)
    found = shown(config, Status((), (replace(CAPTURE, log=unreserved),)))
    assert (found["log_in_danger"], found["slot_active"], found["slot_safe_bytes"]) == (1, 0, -5)
    for log in (NoSlot("s"), NoBinlog("shop"), None):
        without = shown(config, Status((), (replace(CAPTURE, log=log),)))
        assert [name for name in without if name.startswith(("slot_", "log_retained"))] == []


def table(name: TableId, behind: int | None) -> TableStatus:
    return TableStatus(table_record(name), behind, NOW, 5.0, 60)


def test_what_a_tier_has_to_do(config: Config) -> None:
    need = Need(ORDERS, "hot", 60.0, 1.0, 1.0, 0.25, 0.25, behind=7, seconds=30.0)
    plan = Forecast(Rules(2), (need, replace(need, table=PARTS)))
    missed = Shortfall("backlog", True, (ORDERS, PARTS), "", ())
    status = Status((table(ORDERS, 7), table(PARTS, 4)), (), targets=(missed,))
    found = shown(config, status, plan)
    assert found["tier_events_behind"] == 11
    assert (found["tier_load_ratio hot"], found["tier_backlog_seconds hot"]) == (0.5, 60.0)
    assert found["freshness_shortfall_tables backlog true"] == 2
    assert "tier_load_ratio hot" not in shown(config, status), "Kafka was away"


def test_what_is_not_known_has_no_series(config: Config) -> None:
    unknown = replace(table(ORDERS, None), freshness_s=None, watermark=None)
    found = shown(config, Status((unknown,), ()))
    for name in ("events_behind", "freshness_seconds", "complete_timestamp_seconds", "failures"):
        assert f"table_{name} {ORDERS}" not in found
    assert "tier_events_behind" not in found


def test_a_check_shows_its_outcome_and_whether_the_data_failed(config: Config) -> None:
    settings = CheckSettings(kind="not_null", columns=("id",), cron="0 3 * * *")
    record = after(after(None, PASSED), FAILED)
    broken = CheckStatus("keys", settings, after(record, BROKEN), due=True, failure=FAILED)
    asked = CheckStatus("asked", CheckSettings(kind="freshness"), None, due=False)
    status = Status((replace(table(ORDERS, 0), checks=(broken, asked)),), ())
    found = {
        name.removeprefix("table_check_"): value
        for name, value in shown(config, status).items()
        if name.startswith("table_check_")
    }
    at = PASSED.finished_at.timestamp()
    assert found == {
        f"outcome {ORDERS} keys error": 1,
        f"failed {ORDERS} keys alarm": 1,
        f"due {ORDERS} keys": 1,
        f"timestamp_seconds {ORDERS} keys": at,
        f"success_timestamp_seconds {ORDERS} keys": at,
    }


def test_names_follow_the_conventions_of_prometheus() -> None:
    names = [one.full_name for one in m.METRICS]
    assert len(set(names)) == len(names) > 40
    suffixes = {
        "seconds": "_seconds",
        "seconds since 1970": "_timestamp_seconds",
        "bytes": "_bytes",
        "ratio": "_ratio",
    }
    for one in m.METRICS:
        assert one.full_name.endswith(suffixes.get(one.unit, "")), one
        assert (one.unit == "seconds since 1970") == one.name.endswith("_timestamp_seconds"), one
        assert not one.name.endswith("_total"), "no count outlives the process"
        assert one.help.endswith("."), one


def test_the_page_lists_every_metric() -> None:
    page = text("docs/observe.md")
    assert m.as_markdown() in page, f"write its tables again:\n{m.as_markdown()}"
