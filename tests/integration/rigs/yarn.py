"""A test's own YARN cluster, and a project that runs Spark on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from cdc.runtime.jars import Artifact
from stack.ports import HOST, choose
from tests.integration.rigs.hadoop import Node, Servers, started, write_settings
from tests.integration.rigs.project import Project

PORTS = (
    *("client", "scheduler", "tracker", "admin", "page"),
    *("node", "node_localizer", "node_page"),
)
# With these, the resource manager signs the certificates of its proxy.
SIGNING = tuple(
    Artifact("org.bouncycastle", name, "1.68", checksum)
    for name, checksum in (
        ("bcprov-jdk15on", "f732a46c8de7e2232f2007c682a21d1f4cc8a8a0149b6b7bd6aa1afdc65a0f8d"),
        ("bcpkix-jdk15on", "fb8d0f8f673ad6e16c604732093d7aa31b26ff4e0bd9cae1d7f99984c06b8a0f"),
    )
)
_PACKAGE = "org.apache.hadoop.yarn.server"
_QUEUE = "service=ResourceManager,name=QueueMetrics,q0=default"
_FIGURES = "service=ResourceManager,name=ClusterMetrics"


@dataclass(frozen=True)
class Yarn:
    """A running cluster.

    Args:
        folder: Holds the servers' folders, the containers' folders and all logs.
        configuration: Folder for ``HADOOP_CONF_DIR``.
        page: Port of the resource manager's web page.
        servers: Resource manager and node manager, each as a pair of settings and process.
    """

    folder: Path
    configuration: Path
    page: int
    servers: Servers

    def figures(self) -> dict[str, Any]:
        """The resource manager's counters of applications and containers."""
        url = f"http://{HOST}:{self.page}/jmx?qry=Hadoop:{_QUEUE}"
        (found,) = httpx.get(url, timeout=10).raise_for_status().json()["beans"]
        return dict(found)

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
            "master": "yarn",
            "driver_memory": "1g",
            **settings,
            "conf": {
                "spark.driver.host": HOST,
                "spark.driver.bindAddress": HOST,
                "spark.executor.instances": 2,
                "spark.executor.memory": "1g",
                "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
                **conf,
            },
        }
        project.file.write_text(yaml.safe_dump(document))


@contextlib.contextmanager
def own_yarn(folder: Path) -> Iterator[Yarn]:
    """A YARN cluster for a block, of one node with 6 GB for containers."""
    ports = choose(list(PORTS))
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    write_settings(configuration / "core-site.xml", {"fs.defaultFS": "file:///"})
    write_settings(configuration / "yarn-site.xml", _settings(folder, ports))
    nodes = [
        Node(name, main, folder / name, configuration, ports["page"], _FIGURES, ready, jars)
        for name, main, ready, jars in (
            (
                *("resourcemanager", f"{_PACKAGE}.resourcemanager.ResourceManager"),
                *('"NumActiveNMs" :', SIGNING),
            ),
            ("nodemanager", f"{_PACKAGE}.nodemanager.NodeManager", '"NumActiveNMs" : 1', ()),
        )
    ]
    for node in nodes:
        node.folder.mkdir()
    with started(nodes, folder) as servers:
        yield Yarn(folder, configuration, ports["page"], servers)


def _settings(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    manager, node = "yarn.resourcemanager", "yarn.nodemanager"
    executor = f"{_PACKAGE}.nodemanager.DefaultContainerExecutor"
    return {
        f"{manager}.address": f"{HOST}:{ports['client']}",
        f"{manager}.scheduler.address": f"{HOST}:{ports['scheduler']}",
        f"{manager}.resource-tracker.address": f"{HOST}:{ports['tracker']}",
        f"{manager}.admin.address": f"{HOST}:{ports['admin']}",
        f"{manager}.webapp.address": f"{HOST}:{ports['page']}",
        # The other schedulers need files of queues.
        f"{manager}.scheduler.class": f"{_PACKAGE}.resourcemanager.scheduler.fifo.FifoScheduler",
        f"{manager}.am.max-attempts": "1",
        f"{manager}.nodemanagers.heartbeat-interval-ms": "200",
        "yarn.scheduler.minimum-allocation-mb": "128",
        f"{node}.bind-host": HOST,
        f"{node}.address": f"{HOST}:{ports['node']}",
        f"{node}.localizer.address": f"{HOST}:{ports['node_localizer']}",
        f"{node}.webapp.address": f"{HOST}:{ports['node_page']}",
        f"{node}.container-executor.class": executor,
        f"{node}.local-dirs": str(folder / "containers"),
        f"{node}.log-dirs": str(folder / "logs"),
        f"{node}.resource.memory-mb": "6000",
        f"{node}.resource.cpu-vcores": "4",
        # The machine is shared: its memory and its disk are not this cluster's alone.
        f"{node}.pmem-check-enabled": "false",
        f"{node}.vmem-check-enabled": "false",
        f"{node}.disk-health-checker.enable": "false",
    }
