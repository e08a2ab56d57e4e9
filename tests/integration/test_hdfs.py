"""A lake on HDFS: all commands on a table, kills of processes, and an outage of the name node."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.rigs.hdfs import ADMIN, FILES, Hdfs, own_hdfs
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

ORDERS = "public.orders"
BOUND_S = 300.0
"""Limit for a run, in seconds, while the name node does not answer."""
pytestmark = pytest.mark.breadth


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[Hdfs]:
    with own_hdfs(tmp_path / "hdfs") as opened:
        yield opened


@pytest.fixture
def project(database: Database, hdfs: Hdfs, tmp_path: Path) -> Project:
    made = Project.create(tmp_path, database)
    hdfs.move(made)
    return made


def test_a_table_lives_on_hdfs_from_its_first_command_to_its_last(
    project: Project, hdfs: Hdfs
) -> None:
    project.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    assert "/lake is writable" in project.run("check").expect(0).stdout
    project.run("onboard", ORDERS).expect(0)
    first = project.run("path", ORDERS).expect(0).stdout.strip()
    assert first.startswith(f"{hdfs.url}/lake/{project.database.name}/public/orders/attempt=")

    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        "INSERT INTO orders VALUES (501, 501)",
    )
    project.run("run", crash_at="run.in_commit").expect(-signal.SIGKILL)
    hdfs.restart("namenode")
    project.run("run").expect(0)
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert '"rows_compared": 500' in verified.stdout, verified.stdout

    project.run("resync", ORDERS, crash_at="bootstrap.after_publish").expect(-signal.SIGKILL)
    second = project.run("path", ORDERS).expect(0).stdout.strip()
    assert second != first, "one rename replaced the pointer"
    project.run("resync", ORDERS).expect(0)
    assert project.run("path", ORDERS).expect(0).stdout.strip() == second
    project.run("verify", ORDERS).expect(0)
    project.run("generations", "remove", ORDERS, "1").expect(0)
    (shown,) = project.run("status", ORDERS, "--output", "json").expect(0).json["tables"]
    assert (shown["state"], shown["lake_size"]["other_generations_bytes"]) == ("incremental", 0)
    project.run("offboard", ORDERS, "--delete-data").expect(0)


def test_a_name_node_that_is_away_stops_a_run_by_name_and_loses_nothing(
    project: Project, hdfs: Hdfs
) -> None:
    project.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    project.run("onboard", ORDERS).expect(0)
    project.execute("UPDATE orders SET v = -1 WHERE id <= 10")
    for _, process in hdfs.servers:
        process.kill()
    started = time.monotonic()
    ran = project.run("run").expect(1, 3)
    assert time.monotonic() - started < BOUND_S
    assert "The store does not answer" in ran.stdout + ran.stderr
    for node, process in hdfs.servers:
        process.start(node.command())
    hdfs.restart("datanode")
    project.run("retry", ORDERS)
    project.run("run").expect(0)
    project.run("verify", ORDERS).expect(0)


def test_a_name_node_that_dies_amid_a_commit_stops_the_table_by_name_and_loses_nothing(
    project: Project, hdfs: Hdfs
) -> None:
    onboarded(project)
    said = stopped_amid_a_commit(project, hdfs, lambda: hdfs.kill("namenode"))
    assert "The store does not answer" in said
    hdfs.restart("namenode")
    assert_goes_on(project)


def test_rights_that_are_taken_amid_a_commit_stop_the_table_by_name_and_lose_nothing(
    project: Project, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    hdfs.administer(FILES, "-mkdir", "/lake")
    hdfs.administer(FILES, "-chown", "somebody", "/lake")
    onboarded(project)
    said = stopped_amid_a_commit(
        project, hdfs, lambda: hdfs.administer(FILES, "-chown", "-R", "nobody", "/lake")
    )
    assert "Give the user that Tributary has on HDFS the right to write" in said
    hdfs.administer(FILES, "-chown", "-R", "somebody", "/lake")
    assert_goes_on(project)


def onboarded(project: Project) -> None:
    project.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    project.run("onboard", ORDERS).expect(0)


def stopped_amid_a_commit(project: Project, hdfs: Hdfs, fault: Callable[[], None]) -> str:
    """Let a run fail by a fault amid its commit; returns the output of the run.

    The run is suspended at its first data file, and goes on after ``fault`` has returned.
    """
    files, commits = hdfs.data_files(), hdfs.commits()
    assert files
    assert commits
    project.execute("UPDATE orders SET v = -1 WHERE id <= 10", "DELETE FROM orders WHERE id = 11")
    log = project.folder / "run.log"
    process = project.start("run", log=log)
    try:
        while hdfs.data_files() <= files:
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        signal_all(process, signal.SIGSTOP)
        assert hdfs.commits() <= commits, "the commit was quicker than this test"
        fault()
        signal_all(process, signal.SIGCONT)
        assert process.wait(BOUND_S) in {1, 3}
    finally:
        signal_all(process, signal.SIGKILL)
        process.wait(30)
    assert hdfs.commits() <= commits
    said = " ".join(log.read_text().split())
    assert ORDERS in said
    return said


def signal_all(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a command and to its child processes, such as its JVM, if they still run."""
    try:
        parent = psutil.Process(process.pid)
        for one in (parent, *parent.children(recursive=True)):
            one.send_signal(number)
    except psutil.NoSuchProcess:
        return


def assert_goes_on(project: Project) -> None:
    """Assert that the next run applies all changes: those of the failed run and later ones."""
    project.execute("INSERT INTO orders VALUES (501, 501)")
    project.run("retry", ORDERS)
    project.run("run").expect(0)
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert '"rows_compared": 500' in verified.stdout, verified.stdout


def test_check_says_what_hdfs_lacks_and_is_content_once_it_has_it(
    project: Project, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> str:
        ran = project.run("check").expect(1)
        return " ".join((ran.stdout + ran.stderr).split())

    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    hdfs.administer(FILES, "-mkdir", "/lake")
    assert "hand it over with `hdfs dfs -chown`" in refused()
    hdfs.administer(FILES, "-chown", "somebody", "/lake")
    assert "/lake is writable" in project.run("check").expect(0).stdout
    hdfs.administer(ADMIN, "-safemode", "enter")
    assert "`hdfs dfsadmin -safemode leave`" in refused()
    hdfs.administer(ADMIN, "-safemode", "leave")
    assert "/lake is writable" in project.run("check").expect(0).stdout
