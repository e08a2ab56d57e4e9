"""A slot that retains too much log: who reports it, and what is left after it is dropped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.config import load
from cdc.runtime.progress import NullProgress
from operate.context import Services
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

pytestmark = pytest.mark.breadth

ORDERS, PARTS = "public.orders", "public.parts"


@contextmanager
def opened(project: Project) -> Iterator[Services]:
    services = Services(load(project.file), NullProgress())
    try:
        yield services
    finally:
        services.close()


def limit(project: Project, **sizes: str | None) -> None:
    document: dict[str, Any] = yaml.safe_load(project.file.read_text())
    document["sources"][project.database.name]["wal_limit"] = sizes
    project.file.write_text(yaml.safe_dump(document))


def slots(project: Project) -> list[str]:
    query = f"SELECT slot_name FROM pg_replication_slots WHERE database = '{project.database.name}'"
    return [str(row[0]) for row in project.database.rows(query)]


@pytest.mark.timeout(1200)
def test_a_slot_that_holds_back_too_much_log_is_named_and_then_given_up(
    database: Database, tmp_path: Path
) -> None:
    """The command that drops the slot is killed at each step, and completes when it runs again."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "CREATE TABLE parts (id int PRIMARY KEY, v int)",
        "CREATE TABLE noise (id int, t text)",
    )
    database.load("orders", ((n, 0) for n in range(1, 11)))
    database.load("parts", ((n, 0) for n in range(1, 11)))
    project = Project.create(tmp_path, database)
    name = project.database.name
    project.run("onboard", ORDERS, PARTS).expect(0)
    connector = f"tributary_{name}_default"
    with opened(project) as services:
        services.connect.pause(connector)
    project.execute(
        "UPDATE orders SET v = 1",
        "INSERT INTO noise SELECT n, repeat(md5(n::text), 8) FROM generate_series(1, 60000) n",
    )

    limit(project, warn="1MiB", alarm="999GiB")
    assert "more than sources." in project.run("status").expect(3).stdout, "the connector is paused"
    project.run("status", "--fail-on", "over_limit").expect(0)
    limit(project, warn="1MiB", alarm="2MiB")
    checked, shown = project.run_together(["check"], ["status", "--output", "json"])
    said = "holds back"
    assert any(said in line and line.startswith("error") for line in checked.expect(1).lines)
    document = shown.expect(3).json
    assert document["captures"][0]["over_limit"]["level"] == "alarm"
    assert document["conditions"]["over_limit"] == [f"{name}/default"]
    project.run("run", "--fail-on", "over_limit").expect(3)
    assert slots(project) == [connector], "without give_up, nothing is dropped"

    limit(project, warn="1MiB", alarm="2MiB", give_up="3MiB")
    for point in ("after_note", "after_stop", "after_drop"):
        killed = project.run("run", crash_at=f"give_up.{point}")
        assert killed.code == -signal.SIGKILL, killed.stderr
        assert slots(project) == ([] if point == "after_drop" else [connector])
    ended = project.run("run").expect(4)
    for table in (ORDERS, PARTS):
        assert any(f"{name}:{table}: needs_bootstrap: " in line for line in ended.lines)
    assert "so the capture was given up" in ended.stdout
    with opened(project) as services:
        status = services.connect.status(connector)
        assert status is not None
        assert status.state == "STOPPED"
    past = project.run("history", "--kind", "state").expect(0)
    assert sum("needs_bootstrap, was incremental" in line for line in past.lines) == 2

    project.run("bootstrap", ORDERS, PARTS).expect(0)
    assert slots(project) == [connector]
    project.execute("UPDATE parts SET v = 2")
    project.run("verify", ORDERS, PARTS).expect(0)


@pytest.mark.timeout(900)
def test_a_capture_that_fills_the_disk_is_offboarded(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "CREATE TABLE noise (id int, t text)",
    )
    database.load("orders", ((n, 0) for n in range(1, 11)))
    project = Project.create(tmp_path, database)
    project.run("onboard", ORDERS).expect(0)
    with opened(project) as services:
        services.connect.pause(f"tributary_{project.database.name}_default")
    project.execute(
        "INSERT INTO noise SELECT n, repeat(md5(n::text), 8) FROM generate_series(1, 60000) n"
    )
    limit(project, warn="1MiB", alarm="2MiB")
    shown = project.run("status").expect(3)
    assert "If the primary's disk gets full, drop the slot: `tributary offboard`" in shown.stdout
    project.run("offboard", ORDERS).expect(0)
    assert slots(project) == []
    project.run("status").expect(0)
