"""A standalone cluster of Spark: the commands as a person types them, and executors that die."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stack.object_store import BUCKET
from stack.ports import HOST
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.cluster import (
    DEFAULTS,
    EXECUTOR,
    Cluster,
    own_cluster,
    refusal_of_spark,
)
from tests.integration.rigs.packed import call, installed, unpacked
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project, Ran
from tests.integration.rigs.s3 import CANARY, S3
from tests.integration.rigs.s3 import s3 as s3
from tests.integration.rigs.servers import watched_command_lines

ORDERS = "public.orders"
ROWS = 60_000
END_S = 90.0
"""Seconds from SIGTERM to the exit: 20 for running work, 20 for Spark, and a reserve."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with own_cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def project(
    database: Database, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project on the cluster, with a table that takes seconds to write."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")  # where tasks would look for Python
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int, note text)",
        f"INSERT INTO orders SELECT g, g, md5(g::text) FROM generate_series(1, {ROWS}) g",
    )
    made = Project.create(tmp_path, database)
    cluster.serve(made, database.dsn(), {})
    return made


def test_a_copy_outlives_the_executor_that_writes_it(project: Project, cluster: Cluster) -> None:
    with killing_the_writer(cluster, lake(project)):
        project.run("onboard", ORDERS).expect(0)
    assert_whole(newest(lake(project)))
    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        f"INSERT INTO orders VALUES ({ROWS + 1}, 1, NULL)",
    )
    project.run("run").expect(0)
    assert_equal(project)


@pytest.mark.breadth
@pytest.mark.timeout(1800)
def test_tables_live_where_executors_come_and_go(
    project: Project, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site's spark-defaults.conf turns on speculative tasks, with which Hudi does not write."""
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    project.run("onboard", ORDERS).expect(0)
    first, copied = project.run("path", ORDERS).expect(0).stdout, completed(lake(project))
    log = tmp_path / "run.log"
    process = project.start("run", "--continuous", "--interval", "1", log=log)
    try:
        with killing_the_writer(cluster, lake(project)):
            project.execute("UPDATE orders SET v = -v WHERE id % 2 = 0")
            wait_until(lambda: completed(lake(project)) > copied, "a commit", 400, log.read_text)
        wait_until(lambda: not cluster.executors(), "no executor without work", 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(30)
    assert_whole(newest(lake(project)))
    project.run("resync", ORDERS).expect(0)
    assert project.run("path", ORDERS).expect(0).stdout != first
    assert_whole(newest(lake(project)))
    assert_equal(project)


@pytest.mark.breadth
@pytest.mark.timeout(1200)
def test_a_cluster_without_room_is_named_before_a_table_is_touched(
    project: Project, cluster: Cluster, database: Database
) -> None:
    cluster.serve(project, database.dsn(), {"spark.executor.memory": "4g"}, start_timeout_s=15)
    refused = project.run("onboard", ORDERS, "--output", "json").expect(1)
    error = json.loads(refused.stdout.splitlines()[-1])
    assert "started no executor within 15 s (spark.start_timeout_s)" in str(error)
    assert "Check that the cluster has cores and memory free" in str(error)
    found = refusal_of_spark(project)
    assert "started no executor within 15 s (spark.start_timeout_s)" in found["detail"]
    assert "Check that the cluster has cores and memory free" in found["remedy"]
    assert project.run("status", "--output", "json").json["tables"] == []
    assert database.rows("SELECT pubname FROM pg_publication") == []
    cluster.serve(project, database.dsn(), {})
    project.run("onboard", ORDERS).expect(0)
    shown = " ".join(project.run("check").expect(0).stdout.split())
    assert f"Spark: {cluster.url}, executors on {HOST}, Java 17, Spark 3.5.7, Hudi 1.2.0" in shown


@pytest.mark.breadth
@pytest.mark.timeout(1200)
def test_a_table_lives_on_s3_with_executors_that_get_all_from_the_driver(
    project: Project, cluster: Cluster, s3: S3
) -> None:
    """Executors get from the driver the jars of S3A and ``lake.hadoop``, with the secret key."""
    s3.move(project)
    with watched_command_lines() as lines:
        outputs = [project.run("onboard", ORDERS).expect(0)]
        project.execute(
            "UPDATE orders SET v = -1 WHERE id <= 10",
            "DELETE FROM orders WHERE id = 11",
            f"INSERT INTO orders VALUES ({ROWS + 1}, 1, NULL)",
        )
        outputs.append(project.run("run").expect(0))
        first = project.run("path", ORDERS).expect(0).stdout.strip()
        assert first.startswith("s3a://")
        outputs.append(project.run("resync", ORDERS).expect(0))
        second = project.run("path", ORDERS).expect(0).stdout.strip()
        assert second != first
        outputs.append(assert_equal(project))
    rows = [key for key in s3.objects() if key.endswith(".parquet")]
    for path in (first, second):
        assert [key for key in rows if key.startswith(path.partition(f"{BUCKET}/")[2])]
    assert not lake(project).exists()
    work = [path for path in cluster.folder.rglob("work/app-*/*/*") if path.is_file()]
    assert [path for path in work if path.name.startswith("hadoop-aws-")], "served by the driver"
    assert [line for line in lines if EXECUTOR in line], "the executors were not seen"
    places = {
        **{" ".join(ran.arguments): ran.stdout + ran.stderr for ran in outputs},
        **{line[:200]: line for line in lines},
        **{str(path): path.read_text("latin-1") for path in work if path.suffix != ".jar"},
    }
    assert [path for path in work if path.name == "stderr"]
    assert not [place for place, text in places.items() if CANARY in text]


@pytest.mark.breadth
@pytest.mark.timeout(2400)
def test_a_package_in_another_folder_serves_the_cluster_with_what_was_packed(
    project: Project, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = installed(tmp_path / "made")
    program = unpacked(made, tmp_path / "elsewhere")
    shutil.rmtree(made.parents[1])
    monkeypatch.setenv("TRIBUTARY_CACHE", str(tmp_path / "empty"))  # no jar comes from there
    away = replace(project, program=program)
    assert f"Spark: {cluster.url}, executors on" in words(away.run("check").expect(0))
    away.run("onboard", ORDERS).expect(0)
    project.execute("UPDATE orders SET v = -1 WHERE id <= 10")
    away.run("run").expect(0)
    assert_equal(away)
    assert not (tmp_path / "empty" / "artifacts").exists()

    jar = next(program.parents[1].rglob("hudi-spark3.5-bundle*.jar"))
    jar.write_bytes(jar.read_bytes()[:-1])
    refused = words(away.run("run").expect(1))
    assert f"{jar.parent} is not as it was packed: {jar.name} has checksum" in refused
    assert "unpack it again" in refused
    (program.parent / "python").unlink()
    refused = words(call(program, "--version", PATH=str(with_another_python(tmp_path / "bin"))))
    version = "{}.{}".format(*sys.version_info)
    assert f"Python {version} is needed, by which this package was made:" in refused
    assert "python3 is 3.9" in refused


@pytest.mark.breadth
@pytest.mark.timeout(900)
def test_a_master_that_is_away_or_silent_is_named_in_time(
    project: Project, cluster: Cluster, database: Database
) -> None:
    cluster.serve(project, database.dsn(), {}, start_timeout_s=30)
    document = yaml.safe_load(project.file.read_text())
    document["catalog"] = {"metastore": f"thrift://{HOST}:1"}  # `check` asks it by Spark
    project.file.write_text(yaml.safe_dump(document))
    master = cluster.servers["master"]
    master.kill()
    assert_named_in_time(project, cluster, 30)
    del document["catalog"]
    project.file.write_text(yaml.safe_dump(document))
    cluster.serve(project, database.dsn(), {}, start_timeout_s=1)  # a JVM needs longer to start
    with socket.create_server((HOST, cluster.port)):  # takes connections, and says nothing
        assert_named_in_time(project, cluster, 1)
    assert database.rows("SELECT pubname FROM pg_publication") == []
    master.start(cluster.commands["master"])
    cluster.wait_complete()
    cluster.serve(project, database.dsn(), {})
    assert f"Spark: {cluster.url}, executors on" in words(project.run("check").expect(0))


def assert_named_in_time(project: Project, cluster: Cluster, limit_s: int) -> None:
    refused = project.run("onboard", ORDERS, "--output", "json", timeout=200).expect(1)
    error = json.loads(refused.stdout.splitlines()[-1])
    named = f"Spark did not start on {cluster.url} within {limit_s} s (spark.start_timeout_s)"
    assert named in str(error)
    assert "Check that spark.master names" in str(error)
    assert "Traceback" not in refused.stderr, refused.stderr
    assert "\tat " not in refused.stdout, "the stack of a Java error"
    found = refusal_of_spark(project)
    assert named in found["detail"]
    assert "Check that spark.master names" in found["remedy"]


def with_another_python(folder: Path) -> Path:
    """A folder for ``PATH`` with the programs that the launcher calls and a false Python 3.9."""
    folder.mkdir()
    for name in ("sh", "dirname", "realpath"):
        (folder / name).symlink_to(str(shutil.which(name)))
    other = folder / "python3"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    return folder


def words(ran: Ran) -> str:
    """The output of a command in one line, whatever the width of the terminal."""
    return " ".join((ran.stdout + ran.stderr).split())


def assert_equal(project: Project) -> Ran:
    ran = project.run("verify", ORDERS, "--output", "json").expect(0)
    (found,) = ran.json["tables"]
    assert (found["equal"], found["rows_compared"]) == (True, ROWS)
    return ran


@contextmanager
def killing_the_writer(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Kill the first executor that has a data file open while a block runs.

    Asserts that a commit completes after the kill.
    """
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_the_writer, cluster, folder, over)
        try:
            yield
        finally:
            over.set()
        commits = killed.result()
    assert completed(folder) > commits, "the commit was not complete when the executor died"


def kill_the_writer(cluster: Cluster, folder: Path, over: threading.Event) -> int:
    """Kill the first executor that has a data file open; returns the number of commits before.

    The executor is suspended first, so that its file is certainly incomplete at the kill.
    """
    while not over.is_set():
        victim = cluster.writing(folder)
        if victim is None:
            continue
        victim.suspend()
        if cluster.writing(folder) is not None:
            commits = completed(folder)
            victim.kill()
            return commits
        victim.resume()  # it was quicker
    raise AssertionError("no executor was seen to write")


def lake(project: Project) -> Path:
    return project.folder / "lake" / project.database.name / "public" / "orders"


def completed(folder: Path) -> int:
    """The number of complete commits of all generations."""
    return len(list(folder.glob("attempt=*/.hoodie/*.commit")))


def newest(folder: Path) -> Path:
    """The file of the newest commit with rows, in Hudi's timeline."""
    commits = sorted(folder.glob("attempt=*/.hoodie/*.commit"), reverse=True)
    return next(one for one in commits if json.loads(one.read_text())["partitionToWriteStats"])


def assert_whole(commit: Path) -> None:
    """Assert that the commit names all data files that have its instant, and no others."""
    table, instant = commit.parents[1], commit.stem
    written = json.loads(commit.read_text())["partitionToWriteStats"].values()
    named = {one["path"] for stats in written for one in stats}
    found = {str(file.relative_to(table)) for file in table.rglob(f"*_{instant}.parquet")}
    assert named
    assert found == named, "files of attempts of tasks that did not count"
    assert len({one["fileId"] for stats in written for one in stats}) == len(named)
