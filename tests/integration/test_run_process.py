"""``tributary run`` as a person starts it: its output and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from cdc.config import load
from cdc.connect import ConnectClient
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.servers import alter_topic

pytestmark = pytest.mark.breadth

_END_S = 90.0
"""Seconds from SIGTERM to the exit: 20 for running work, 20 for Spark, and a reserve."""


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    """A project with one table that is onboarded."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    database.load("orders", ((n, 0) for n in range(1, 51)))
    project = Project.create(tmp_path, database)
    project.run("onboard", "public.orders").expect(0)
    return project


@contextmanager
def continuously(project: Project, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``run --continuous`` for a block; it is killed at the end of the block."""
    process = project.start("run", "--continuous", "--interval", "1", log=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def terminated(process: subprocess.Popen[bytes]) -> int:
    """The exit code after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    return process.wait(_END_S)


def words(log: Path) -> str:
    """The output in a log file in one line, whatever the width of the terminal."""
    return " ".join(log.read_text().split())


@pytest.mark.timeout(900)
def test_runs_say_what_keeps_changes_from_coming_and_end_with_3(
    project: Project, database: Database, tmp_path: Path
) -> None:
    config = load(project.folder / "tributary.yaml")
    connect, topic = ConnectClient(config.connect), f"{database.name}_default.public.orders"
    (name,) = (one for one in connect.names() if database.name in one)
    alter_topic(config.kafka, topic, retention_ms="3600000")
    connect.pause(name)
    silent = f"connector {name} is PAUSED; until then no changes come for"
    expires = f"topic {topic}: changes are kept for 1.0 h, less than kafka.topic.retention_ms"

    once = project.run("run").expect(3)
    said = " ".join(once.stdout.split())
    assert f"{silent} {database.name}:public.orders" in said
    assert "What to do: To resume it, run `tributary retry`" in said
    assert expires in said
    assert f"What to do: Set retention.ms=604800000 on topic {topic}." in said
    document = project.run("run", "--output", "json").expect(3).json
    assert [one["connector"] for one in document["silent"]] == [name]
    assert [one["topics"] for one in document["expiring"]] == [[topic]]
    assert document["unchecked"] == []

    log = tmp_path / "silent.log"
    with continuously(project, log) as process:
        wait_until(lambda: expires in words(log), "the look at captures", 180)
        assert silent in words(log)
        assert terminated(process) == 3
    assert words(log).count(expires) == 1, "once, not with each run"

    retried = project.run("retry", "public.orders").expect(0)
    assert f"resumed connector {name}" in " ".join(retried.stdout.split())


@pytest.mark.timeout(900)
def test_runs_end_with_3_when_a_task_of_spark_never_ends(
    project: Project, database: Database, tmp_path: Path
) -> None:
    """The table's data file is replaced by a named pipe without a writer, so reads never end."""
    document = yaml.safe_load((project.folder / "tributary.yaml").read_text())
    document["spark"]["task_timeout_s"] = 5
    (project.folder / "tributary.yaml").write_text(yaml.safe_dump(document))
    (attempt,) = (project.folder / "lake" / database.name / "public" / "orders").glob("attempt=*")
    (file,) = (one for one in attempt.rglob("*.parquet") if ".hoodie" not in one.parts)
    file.unlink()
    os.mkfifo(file)
    database.execute("UPDATE orders SET v = 1")
    log = tmp_path / "stuck.log"
    with continuously(project, log) as process:
        assert process.wait(400) == 3
    said = words(log)
    assert "no progress for 5 s (spark.task_timeout_s)" in said
    assert "public.orders" in said
    assert "did not end hold 1 of its cores" in said
    assert "start the command again" in said
