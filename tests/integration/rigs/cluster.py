"""A standalone cluster of Spark: a master and two workers, each a process in its own folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from cdc.runtime.jars import pyspark_jars
from cdc.runtime.java import find_java
from stack.ports import HOST, choose
from stack.process import Command, ServerProcess
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.project import Project

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
"""The class of an executor; an executor's process is found by this name in its command line."""
_READY_S = 120.0
WORKERS = ("worker1", "worker2")

DEFAULTS = """\
spark.speculation                                      true
spark.speculation.interval                             20ms
spark.speculation.multiplier                           1.0
spark.speculation.quantile                             0.1
spark.dynamicAllocation.enabled                        true
spark.dynamicAllocation.shuffleTracking.enabled        true
spark.dynamicAllocation.minExecutors                   0
spark.dynamicAllocation.maxExecutors                   2
spark.dynamicAllocation.executorIdleTimeout            10s
spark.dynamicAllocation.shuffleTracking.timeout        15s
spark.dynamicAllocation.cachedExecutorIdleTimeout      15s
"""
"""A usual spark-defaults.conf: executors come and go, and a slow task is started a second time."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Args:
        folder: Holds the folders of master and workers, their logs, and the executors' folders.
        port: Port of the master.
        page: Port of the master's web page.
        servers: The processes of master and workers, by name.
        commands: The command that starts each process, by the same name.
    """

    folder: Path
    port: int
    page: int
    servers: Mapping[str, ServerProcess]
    commands: Mapping[str, Command]

    @property
    def url(self) -> str:
        """The URL for ``spark.master``."""
        return f"spark://{HOST}:{self.port}"

    def state(self) -> dict[str, Any]:
        """What the master's web page says of its workers and applications, as JSON."""
        answer = httpx.get(f"http://{HOST}:{self.page}/json/", timeout=10)
        answer.raise_for_status()  # a master that starts has no such page yet
        found: dict[str, Any] = answer.json()
        return found

    def wait_complete(self) -> None:
        """Wait until all workers have registered with the master."""
        wait_until(self._is_complete, "master and workers", _READY_S)

    def _is_complete(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return int(self.state()["aliveworkers"]) == len(WORKERS)
        return False

    def executors(self) -> list[psutil.Process]:
        """The live executors, the oldest first."""
        found = []
        for name in WORKERS:
            worker = self.servers[name].find()
            with contextlib.suppress(psutil.NoSuchProcess):
                children = worker.children(recursive=True) if worker is not None else []
                found += [one for one in children if _is_executor(one)]
        return sorted(found, key=psutil.Process.create_time)

    def writing(self, folder: Path) -> psutil.Process | None:
        """An executor that has opened a data file below this folder, or None."""
        for executor in self.executors():
            with contextlib.suppress(psutil.Error, FileNotFoundError):
                if any(_is_data(one.path, folder) for one in executor.open_files()):
                    return executor
        return None

    def serve(self, project: Project, store: str, conf: Mapping[str, Any], **settings: Any) -> None:
        """Let a project use this cluster.

        Args:
            project: The project.
            store: The URL of the project's state store. With a cluster, it must be on a server.
            conf: Settings of Spark besides those for a small cluster.
            settings: Other settings of the section ``spark``.
        """
        document = yaml.safe_load(project.file.read_text())
        document["state"] = {"url": store}
        document["spark"] = {
            "master": self.url,
            "driver_memory": "1g",
            **settings,
            "conf": {
                "spark.driver.host": HOST,
                "spark.driver.bindAddress": HOST,
                "spark.executor.memory": "1g",
                "spark.executor.cores": 1,
                "spark.cores.max": 2,
                **conf,
            },
        }
        project.file.write_text(yaml.safe_dump(document))


def refusal_of_spark(project: Project) -> dict[str, Any]:
    """The one error that `check` reports; asserts that it is the error of Spark."""
    found = project.run("check", "--output", "json", timeout=200).expect(1).json
    (error,) = [one for one in found["checks"] if one["status"] == "error"]
    assert (error["name"], found["errors"]) == ("Spark", 1)
    return dict(error)


def _is_data(path: str, folder: Path) -> bool:
    return path.endswith(".parquet") and Path(path).is_relative_to(folder)


def _is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return EXECUTOR in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextlib.contextmanager
def own_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for a block, each of its two workers with one core and 1.5 GB."""
    ports = choose(["master", "page", *(f"{name}_page" for name in WORKERS)])
    url = f"spark://{HOST}:{ports['master']}"
    arguments = {
        "master": (
            *("master.Master", "--host", HOST, "--port", str(ports["master"])),
            *("--webui-port", str(ports["page"])),
        ),
        **{
            name: (
                *("worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1500M"),
                *("--webui-port", str(ports[f"{name}_page"])),
                *("--work-dir", str(folder / name / "work"), url),
            )
            for name in WORKERS
        },
    }
    commands = {name: _command(folder / name, *words) for name, words in arguments.items()}
    servers = {}
    try:
        for name, command in commands.items():
            (folder / name).mkdir(parents=True)
            server = ServerProcess(
                name,
                program="java",
                folder=folder / name,
                record=folder / f"{name}.json",
                log=folder / f"{name}.log",
            )
            servers[name] = server
            server.start(command)
        cluster = Cluster(folder, ports["master"], ports["page"], servers, commands)
        cluster.wait_complete()
        yield cluster
    finally:
        for server in reversed(list(servers.values())):
            server.kill()


def _command(folder: Path, name: str, *arguments: str) -> Command:
    spark = pyspark_jars().parent
    return Command(
        (str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments),
        folder,
        {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(spark),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
        },
    )
