"""The DAGs of tributary-airflow in a real Airflow, beside the real stack.

`make test-airflow` creates an environment for Airflow, and this test starts Airflow's servers in
it. The tests in `airflow/tests` need no servers.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tributary_airflow.layout import slug_of

from cdc.config import load
from cdc.runtime.progress import NullProgress
from operate.context import Services
from stack.ports import HOST
from stack.roles import CONNECT, PURPOSES
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import PROGRAM, Project
from tests.integration.rigs.shop import settle

ROOT = Path(__file__).parents[2]
BIN = Path(os.environ.get("TRIBUTARY_AIRFLOW_BIN", ROOT / "airflow" / ".venv" / "bin"))
SECRET, VALUE = "canary-secret-4711", "canary-value-4711"
ONBOARDING, TIER = "shop_onboarding", "shop_tier_default"

DAGS = """
from datetime import timedelta
from pathlib import Path
from airflow.sdk import DAG, PartitionedAssetTimetable, task
from tributary_airflow import assets
from tributary_airflow.factory import Choices, Schedules, tributary_dags
from tributary_airflow.sensors import TributaryCompletenessSensor, TributaryFreshnessSensor

globals().update(
    tributary_dags(
        {config!r},
        name="shop",
        schedules=Schedules({{"default": None}}, None, None, None),
        choices=Choices(retries=1, retry_delay=timedelta(seconds=45)),
    )
)
hours = assets.complete({orders!r}, "shop")
with DAG("report", schedule=PartitionedAssetTimetable(assets=hours), max_active_runs=1):
    fresh = TributaryFreshnessSensor(
        task_id="fresh", tables=[{orders!r}], max_age=3600, poke_interval=1, timeout=120
    )
    complete = TributaryCompletenessSensor(
        task_id="complete",
        table={orders!r},
        period="{{{{ dag_run.partition_key }}}}",
        poke_interval=1,
        timeout=120,
    )

    @task
    def write(dag_run=None):
        Path({report!r}).write_text(dag_run.partition_key)

    [fresh, complete] >> write()
"""
LOOK = """
import json, sys
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
with create_session() as session:
    rows = session.query(AssetEvent, AssetModel)
    rows = rows.join(AssetModel, AssetModel.id == AssetEvent.asset_id).order_by(AssetEvent.id)
    events = [[asset.name, event.partition_key] for event, asset in rows]
    runs = [[one.dag_id, one.run_id, one.state, one.partition_key]
            for one in session.query(DagRun).order_by(DagRun.id)]
    tasks = [[one.dag_id, one.run_id, one.task_id, one.state, one.try_number]
             for one in session.query(TaskInstance)]
    print(json.dumps({"events": events, "runs": runs, "tasks": tasks}, default=str))
"""


def free_ports() -> list[int]:
    """Three ports that are free now."""
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
        return [one.getsockname()[1] for one in bound]


@dataclass(frozen=True)
class Tries:
    """The state of a task, and the number of its newest try."""

    state: str | None
    number: int


class Airflow:
    """A standalone Airflow in a folder, for a block."""

    def __init__(self, folder: Path, program: Path, config: Path) -> None:
        self.folder = folder
        api, worker_logs, trigger_logs = free_ports()
        extra = {"binary": str(program), "config": str(config)}
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # standalone starts `airflow`
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{api}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__PORT": str(api),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW_CONN_TRIBUTARY_DEFAULT": json.dumps(
                {"conn_type": "tributary", "extra": extra}
            ),
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all processes of Airflow, and end them after the block."""
        self.run("db", "migrate")
        with (self.folder / "standalone.log").open("wb") as log:
            process = subprocess.Popen(
                [str(BIN / "airflow"), "standalone"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(30)

    def run(self, *words: str) -> str:
        """Run one command of Airflow."""
        done = subprocess.run(
            [str(BIN / "airflow"), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def look(self) -> dict[str, Any]:
        """The events, runs and tasks in the database of Airflow."""
        done = subprocess.run(
            [str(BIN / "python"), "-c", LOOK],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def tasks(self, run_id: str) -> dict[str, Tries]:
        """The tasks of a run."""
        return {
            task: Tries(state, number)
            for _, of, task, state, number in self.look()["tasks"]
            if of == run_id
        }

    def trigger(self, dag: str, run_id: str) -> None:
        """Start a run of a DAG."""
        self.run("dags", "trigger", dag, "--run-id", run_id)

    def wait(self, run_id: str, state: str) -> dict[str, Tries]:
        """Wait until a run has ended, and assert its state; returns the tasks of the run."""

        def ended() -> bool:
            states = {run: found for _, run, found, _ in self.look()["runs"]}
            return states.get(run_id) in ("success", "failed")

        wait_until(ended, f"the end of {run_id}", 420)
        states = {run: found for _, run, found, _ in self.look()["runs"]}
        assert states[run_id] == state, f"{self.tasks(run_id)}\n{self.shown()[-9000:]}"
        return self.tasks(run_id)

    def shown(self) -> str:
        """The text of all logs of Airflow."""
        logs = [*(self.folder / "logs").rglob("*.log"), self.folder / "standalone.log"]
        return "\n".join(file.read_text("utf-8", "replace") for file in logs if file.exists())


@pytest.fixture
def project(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two tables; `orders` announces complete hours, and hashes values that no log may show."""
    monkeypatch.setenv("HASH_KEY", SECRET)
    for name in ("orders", "items"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t text)")
        database.load(name, ((n, 0, VALUE) for n in range(1, 6)))
    orders = {"completeness": "hour", "columns": {"hash": ["t"]}}
    tables = {database.label("orders"): orders, database.label("items"): {}}
    project = Project.create(tmp_path, database, tables=tables)
    config = yaml.safe_load(project.file.read_text())
    config["lake"]["hash_key"] = "${HASH_KEY}"
    project.file.write_text(yaml.safe_dump(config))
    return project


@pytest.fixture
def airflow(project: Project, tmp_path: Path) -> Iterator[Airflow]:
    """Airflow with the DAGs of the project."""
    program = tmp_path / "tributary"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {PROGRAM} "$@"\n')
    program.chmod(0o755)
    made = Airflow(tmp_path / "airflow", program, project.file)
    (made.folder / "dags").mkdir(parents=True)
    orders = str(project.table("orders"))
    report = str(tmp_path / "report")
    text = DAGS.format(config=str(project.file), orders=orders, report=report)
    (made.folder / "dags" / "shop.py").write_text(text)
    with made.running():
        yield made


def wait_for_changes(project: Project) -> None:
    """Wait until the topics have all changes that are committed on the source."""
    services = Services(load(project.file), NullProgress())
    for name in ("orders", "items"):
        settle(services, project.table(name))
    services.close()


def items_fail(project: Project) -> Path:
    """Move the lake folder of ``items`` away, as if it were not mounted; returns the new path."""
    folder = project.folder / "lake" / project.database.name / "public" / "items"
    away = project.folder / "items-away"
    folder.rename(away)
    return away


def give_back(project: Project, away: Path) -> None:
    away.rename(project.folder / "lake" / project.database.name / "public" / "items")


@pytest.mark.breadth
@pytest.mark.timeout(1500)
def test_the_dags_of_a_project_run_from_onboarding_to_a_report_of_a_complete_hour(
    project: Project, database: Database, airflow: Airflow, tmp_path: Path
) -> None:
    orders, items = (str(project.table(name)) for name in ("orders", "items"))
    of_orders, of_items, periods = (
        *(f"table_{slug_of(orders)}", f"table_{slug_of(items)}", f"periods_{slug_of(orders)}"),
    )
    wait_until(lambda: ONBOARDING in airflow.run("dags", "list"), "the DAGs", 120)
    airflow.trigger(ONBOARDING, "first")
    assert airflow.wait("first", "success")["onboard"].state == "success"

    # A table that fails: only its own task does. Once the lake is whole, its next try repairs it.
    for name in ("orders", "items"):
        database.load(name, [(11, 0, VALUE)])
    wait_for_changes(project)
    away = items_fail(project)
    airflow.trigger(TIER, "second")

    def items_failed() -> bool:
        found = airflow.tasks("second").get(of_items)
        return found is not None and found.state in ("up_for_retry", "failed")

    wait_until(items_failed, "the failure of the table", 240)
    give_back(project, away)
    tasks = airflow.wait("second", "success")
    assert tasks[of_items] == Tries("success", 2)
    assert tasks["run"].number == tasks["verdict"].number == 1
    assert tasks[of_orders] == Tries("success", 1)

    # The hour that ended last is complete, which starts the DAG that waits for it.
    newest = project.run("complete", "public.orders", "--output", "json").json["periods"][-1]
    assert tasks[periods].state == "success"
    assert [f"shop/{orders}/complete", newest["period"]] in airflow.look()["events"]
    (report,) = [run_id for dag, run_id, _, _ in airflow.look()["runs"] if dag == "report"]
    assert {one.state for one in airflow.wait(report, "success").values()} == {"success"}
    assert (tmp_path / "report").read_text() == newest["period"]

    # A change that runs cannot follow: the table's task fails for good, and onboarding copies it.
    database.execute("ALTER TABLE items ALTER COLUMN v TYPE text USING v::text || 'x'")
    database.execute(f"INSERT INTO items VALUES (21, 'y', '{VALUE}')")
    airflow.trigger(TIER, "third")
    tasks = airflow.wait("third", "failed")
    assert tasks[of_items] == Tries("failed", 1)
    assert tasks["run"].state == tasks["verdict"].state == "success"
    assert tasks[periods].state in ("skipped", "success")
    airflow.trigger(ONBOARDING, "fourth")
    airflow.wait("fourth", "success")
    (state,) = project.run("status", "public.items", "--output", "json").json["tables"]
    assert state["state"] == "incremental"

    # What was planted is in no log, in no DAG and in no event.
    shown = airflow.shown()
    assert f"tributary onboard --scheduled -- {items} {orders}" in shown
    stored = [file.read_bytes().decode("latin-1") for file in airflow.folder.glob("airflow.db*")]
    everything = shown + "".join(stored)
    assert orders in everything
    for planted in (SECRET, VALUE, *passwords(database)):
        assert planted not in everything


def passwords(database: Database) -> list[str]:
    """The passwords of the stack that the configuration refers to."""
    known = database.stack.passwords
    return [known.get(role) for role in (*PURPOSES.values(), CONNECT)]
