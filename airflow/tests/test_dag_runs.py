"""DAG runs in a real Airflow: events of assets, tries, skips and logs, in its own database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HOME
from tests.documents import CANARY, CONFIG, entry, period, run_document
from tests.scripted import Scripted
from tributary_airflow.layout import slug_of

ORDERS, ITEMS = "shop:public.orders", "shop:public.items"
AIRFLOW = str(Path(sys.executable).with_name("airflow"))

DAGS = """
from datetime import timedelta
from airflow.sdk import DAG, PartitionedAssetTimetable, task
from tributary_airflow import assets
from tributary_airflow.factory import Choices, tributary_dags
from tributary_airflow.sensors import TributaryCompletenessSensor

globals().update(
    tributary_dags({config!r}, choices=Choices(retries=1, retry_delay=timedelta(seconds=1)))
)
with DAG("downstream", schedule=PartitionedAssetTimetable(assets=assets.complete("{table}"))):
    TributaryCompletenessSensor(
        task_id="wait", table="{table}", period="2026-11-23T02", poke_interval=0.2
    )
"""
EVENTS = """
from airflow.utils.session import create_session
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
import json
with create_session() as session:
    rows = session.query(AssetEvent, AssetModel)
    rows = rows.join(AssetModel, AssetModel.id == AssetEvent.asset_id).order_by(AssetEvent.id)
    events = [[a.name, e.partition_key, e.extra] for e, a in rows]
    tasks = session.query(TaskInstance).order_by(TaskInstance.start_date)
    states = {t.task_id: t.state for t in tasks}
    print(json.dumps([events, states], default=str))
"""


@pytest.fixture(scope="module")
def database() -> None:
    """The metadata of Airflow, in SQLite."""
    airflow("db", "migrate")


def airflow(*words: str, expect: int = 0) -> str:
    done = subprocess.run(
        [AIRFLOW, *words], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == expect, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def facts() -> tuple[list[Any], dict[str, str]]:
    import json

    done = subprocess.run(
        [sys.executable, "-c", EVENTS],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    events, states = json.loads(done.stdout.splitlines()[-1])
    return events, states


def logs() -> str:
    return "".join(
        file.read_text("utf-8", "replace")
        for file in Path(HOME, "logs").rglob("*")
        if file.is_file()
    )


@pytest.mark.usefixtures("database")
def test_a_run_publishes_each_table_by_itself_and_each_period_once(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    config = tmp_path / "tributary.yaml"
    config.write_text(CONFIG)
    Path(HOME, "dags", "shop.py").write_text(DAGS.format(config=str(config), table=ORDERS))
    failed = entry(ITEMS, "failed", "KafkaError", commits=0)
    stderr = f"run {ORDERS}: 5 of 9 offsets\nDETAIL: Key (id)=({CANARY}) exists\n"
    first = run_document(entry(ORDERS, commits=1, events=3), failed, failed=[ITEMS])
    scripted.answer("run", "--tier", code=3, documents=(first,), stderr=stderr, times=1)
    scripted.answer("run", "--tier", documents=(run_document(),))
    scripted.answer("retry")
    scripted.answer("run", ITEMS, documents=(run_document(entry(ITEMS, commits=1, events=1)),))
    scripted.answer(
        "complete", "2026-11-23T02", code=1, documents=({"completion": "not yet"},), times=1
    )
    scripted.answer("complete", "2026-11-23T02", documents=({"completion": "complete"},))
    scripted.answer("complete", documents=({"periods": [period(1), period(2)]},), times=1)
    scripted.answer("complete", documents=({"periods": [period(2, 2), period(3)]},))
    shown = airflow("dags", "test", "tributary_tier_hot", "2026-11-23T03:00:00+00:00")
    events, states = facts()
    orders, items = f"tributary/{ORDERS}", f"tributary/{ITEMS}"
    assert sorted((name, key) for name, key, _ in events) == [
        (f"{items}/changed", None),
        (f"{orders}/changed", None),
        (f"{orders}/complete", "2026-11-23T02"),
    ]
    assert states[f"table_{slug_of(ITEMS)}"] == "success", "by its second try"
    assert set(states.values()) == {"success"}
    assert ["retry", "--", ITEMS] in scripted.calls

    shown += airflow("dags", "test", "tributary_tier_hot", "2026-11-23T04:00:00+00:00")
    events, states = facts()
    newest = events[3:]
    assert sorted((name, key) for name, key, _ in newest) == [
        (f"{orders}/complete", "2026-11-23T02"),
        (f"{orders}/complete", "2026-11-23T03"),
    ]
    assert newest[0][2]["periods"]["2026-11-23T02"]["revision"] == 2
    assert states[f"table_{slug_of(ORDERS)}"] == "skipped", "without changes there is no event"

    shown += airflow("dags", "test", "downstream", "2026-11-23T05:00:00+00:00")
    assert facts()[1]["wait"] == "success"
    assert f"run {ORDERS}: 5 of 9 offsets" in shown + logs()
    stored = [file.read_bytes().decode("latin-1") for file in Path(HOME).glob("airflow.db*")]
    everything = shown + logs() + "".join(stored)
    assert ORDERS in everything
    assert CANARY not in everything
