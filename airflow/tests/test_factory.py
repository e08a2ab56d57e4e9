"""The DAGs of a tributary.yaml, and that nothing else is touched while they are parsed."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from tests.documents import CONFIG
from tributary_airflow import assets
from tributary_airflow.factory import Choices, Schedules, tributary_dags
from tributary_airflow.layout import slug_of

CANARY = "canary-4711"
ORDERS, ITEMS, CLICKS = "shop:public.orders", "shop:public.items", "shop:public.clicks"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tributary.yaml"
    file.write_text(CONFIG)
    return file


def tasks(dag: DAG) -> dict[str, list[str]]:
    return {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}


def test_each_tier_has_a_dag_and_each_table_a_task_of_its_own(config: Path) -> None:
    dags = tributary_dags(config)
    assert sorted(dags) == [
        "tributary_checks",
        "tributary_maintenance",
        "tributary_onboarding",
        "tributary_tier_default",
        "tributary_tier_hot",
    ]
    hot = dags["tributary_tier_hot"]
    names = {one: f"table_{slug_of(one)}" for one in (ORDERS, ITEMS)}
    periods = f"periods_{slug_of(ORDERS)}"
    assert tasks(hot) == {
        "run": sorted(["verdict", periods, *names.values()]),
        "verdict": [],
        periods: [],
        **{name: [] for name in names.values()},
    }
    assert hot.task_dict["verdict"].own == [ITEMS, ORDERS]
    assert hot.task_dict["run"].outlets == []
    assert hot.task_dict[names[ORDERS]].outlets == [assets.changed(ORDERS)]
    assert hot.task_dict[periods].outlets == [assets.complete(ORDERS)]
    assert f"periods_{slug_of(CLICKS)}" in tasks(dags["tributary_tier_default"])
    assert (hot.max_active_runs, hot.catchup) == (1, False)


def test_a_tier_runs_twice_within_its_target_unless_it_has_a_schedule(config: Path) -> None:
    dags = tributary_dags(config, schedules=Schedules(tiers={"hot": "*/5 * * * *", "cold": None}))
    assert dags["tributary_tier_hot"].schedule == "*/5 * * * *"
    assert dags["tributary_tier_cold"].schedule is None
    assert dags["tributary_tier_default"].schedule == timedelta(seconds=450)
    assert tributary_dags(config)["tributary_tier_hot"].schedule == timedelta(minutes=1)


def test_a_tier_that_only_a_pattern_names_has_a_dag(config: Path) -> None:
    config.write_text(CONFIG.replace("audit.*: {}", "audit.*: {tier: bulk}"))
    bulk = tributary_dags(config, choices=Choices(onboard=["audit.*"]))["tributary_tier_bulk"]
    assert sorted(tasks(bulk)) == ["run", "verdict"]
    assert bulk.schedule == timedelta(seconds=450)


def test_onboarding_takes_the_tables_of_the_file_or_those_that_are_named(config: Path) -> None:
    onboard = tributary_dags(config)["tributary_onboarding"].task_dict["onboard"]
    assert (onboard.tables, onboard.copy_again) == ([CLICKS, ITEMS, ORDERS], True)
    choices = Choices(onboard=["audit.*"], copy_again=False)
    chosen = tributary_dags(config, choices=choices)["tributary_onboarding"].task_dict["onboard"]
    assert (chosen.tables, chosen.copy_again) == (["audit.*"], False)


def test_maintenance_compares_each_table_by_itself_and_removes_generations(config: Path) -> None:
    dag = tributary_dags(config)["tributary_maintenance"]
    verified = {f"verify_{slug_of(one)}" for one in (ORDERS, ITEMS, CLICKS)}
    assert tasks(dag) == {key: [] for key in verified | {"check", "generations"}}
    assert dag.max_active_tasks == 1


def test_two_installations_share_neither_dags_nor_assets(config: Path) -> None:
    one, two = tributary_dags(config), tributary_dags(config, name="second", conn_id="other")
    assert not set(one) & set(two)

    def outlets(dags: dict[str, DAG]) -> set[str]:
        return {asset.uri for dag in dags.values() for task in dag.tasks for asset in task.outlets}

    assert not outlets(one) & outlets(two)
    assert two["second_tier_hot"].task_dict["run"].conn_id == "other"


def test_names_of_tables_make_different_tasks() -> None:
    names = ["a:b.c", "a:b_c.d", "a:b.c_d", 'a:"B".c', 'a:b."c.d"', 'a:b."c d"', "a_b:c.d"]
    assert len({slug_of(name) for name in names}) == len(names)


def test_dags_go_to_the_database_without_a_secret_of_the_file(config: Path) -> None:
    for dag in tributary_dags(config).values():
        assert CANARY not in str(DagSerialization.to_dict(dag))


FORBIDDEN = """
import sys
from pathlib import Path
import airflow.sdk, tributary_airflow.factory
seen = set()
events = ("socket.", "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn",
          "sqlite3.connect", "urllib.Request", "asyncio.")
def watch(event, arguments):
    if event.startswith(events):
        raise RuntimeError(event)
    path = arguments[0] if event == "open" else None
    if isinstance(path, str) and not path.endswith((".py", ".pyc")):
        seen.add(path)
sys.addaudithook(watch)
code = compile(Path(sys.argv[1]).read_text(), sys.argv[1], "exec")
space = {"__name__": "dags"}
exec(code, space)
print(sorted(one for one in space if one.startswith("tributary_")), sorted(seen))
"""
DAG_FILE = """
from airflow.sdk import DAG, PartitionedAssetTimetable
from tributary_airflow import assets
from tributary_airflow.factory import tributary_dags
from tributary_airflow.sensors import TributaryCompletenessSensor

globals().update(tributary_dags({config!r}))
with DAG("downstream", schedule=PartitionedAssetTimetable(assets=assets.complete("{table}"))):
    TributaryCompletenessSensor(task_id="wait", table="{table}", period="2026-11-23T10")
"""


def test_parsing_reads_the_file_and_touches_nothing_else(config: Path, tmp_path: Path) -> None:
    """No network, no database, no process: Python reports each such attempt, and it is refused."""
    dags = tmp_path / "dags.py"
    dags.write_text(DAG_FILE.format(config=str(config), table=ORDERS))
    done = run_python(FORBIDDEN, str(dags))
    assert done.returncode == 0, done.stderr
    assert "tributary_tier_hot" in done.stdout
    opened = done.stdout.split("] [")[1]
    assert str(config) in opened
    installed = ("site-packages", "dist-info", "/dev/null")
    foreign = [one for one in opened.strip("]\n").split(", ") if str(config) not in one]
    assert [one for one in foreign if not any(part in one for part in installed)] == []


def test_an_attempt_while_dags_are_parsed_would_be_seen(tmp_path: Path) -> None:
    for number, attempt in enumerate(
        (
            "import socket; socket.create_connection(('127.0.0.1', 9))",
            "import subprocess; subprocess.run(['true'])",
            "import sqlite3; sqlite3.connect(':memory:')",
        )
    ):
        dags = tmp_path / f"dags_{number}.py"
        dags.write_text(attempt)
        assert run_python(FORBIDDEN, str(dags)).returncode != 0, attempt


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words: list[Any] = [sys.executable, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)
