"""HDFS of a test's own: a name node and a data node, and a project whose lake is there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape

import httpx
import yaml

from cdc.runtime.jars import Artifact, fetch, pyspark_jars
from cdc.runtime.java import find_java
from stack.ports import HOST, choose
from stack.process import Command, ServerProcess
from stack.servers import wait_ready
from tests.integration.rigs.project import Project

# The servers of the Hadoop whose client pyspark brings.
SERVERS = Artifact(
    "org.apache.hadoop",
    "hadoop-client-minicluster",
    "3.3.4",
    "cd8a1703393946c302bb3a52d0fcd23f6f8ded4554bc0dac5d2ee673dbe2b40e",
)
PORTS = ("namenode", "namenode_http", "datanode", "datanode_http", "datanode_ipc")
_PACKAGE = "org.apache.hadoop.hdfs.server"
_STATE = "service=NameNode,name=FSNamesystemState"
FILES = "org.apache.hadoop.fs.FsShell"
ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_PROGRAM_LIMIT_S = 120.0
_PROBE_S = 3.0


@dataclass
class Node:
    """One server of HDFS.

    Args:
        name: ``namenode`` or ``datanode``.
        main: Its class.
        folder: Its working directory.
        configuration: Folder of Hadoop's configuration.
        port: Port of its page of figures.
        bean: The figures that it has once it is ready.
        ready: A text of these figures.
    """

    name: str
    main: str
    folder: Path
    configuration: Path
    port: int
    bean: str
    ready: str
    program: str = "java"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_s: float = 20.0
    ready_limit_s: float = 120.0

    def argv(self, *arguments: str) -> tuple[str, ...]:
        java = find_java()
        servers = fetch("hdfs", (SERVERS,)) / SERVERS.filename
        path = f"{self.configuration}:{servers}:{pyspark_jars()}/*"
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
        return (str(java.executable), *java.options, *options, "-cp", path, self.main, *arguments)

    def command(self) -> Command:
        return Command(self.argv(), self.folder)

    def unhealthy(self) -> str | None:
        url = f"http://{HOST}:{self.port}/jmx?qry=Hadoop:{self.bean}"
        try:
            text = httpx.get(url, timeout=_PROBE_S).text
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return None if self.ready in text else f"it shows no {self.ready}"


@dataclass(frozen=True)
class Hdfs:
    """A running file system.

    Args:
        url: Its URL, without a path.
        servers: Name node and data node, each with its process.
    """

    url: str
    servers: tuple[tuple[Node, ServerProcess], ...]

    def move(self, project: Project) -> None:
        """Put a project's lake here."""
        document = yaml.safe_load(project.file.read_text())
        document["lake"] = {
            "url": f"{self.url}/lake",
            "hadoop": {"dfs.replication": 1, "dfs.client.use.datanode.hostname": False},
        }
        project.file.write_text(yaml.safe_dump(document))

    def administer(self, main: str, *words: str) -> None:
        """Run one of Hadoop's programs as the user that owns the file system."""
        node, _ = self.servers[0]
        own = {name: value for name, value in os.environ.items() if name != "HADOOP_USER_NAME"}
        subprocess.run(
            replace(node, main=main).argv(*words),
            env=own,
            check=True,
            capture_output=True,
            timeout=_PROGRAM_LIMIT_S,
        )

    def restart(self, name: str) -> None:
        """Kill a node, as a crash does, and start it again."""
        ((node, process),) = [one for one in self.servers if one[0].name == name]
        process.kill()
        process.start(node.command())
        wait_ready(node, process)


@contextlib.contextmanager
def own_hdfs(folder: Path) -> Iterator[Hdfs]:
    """An empty file system, whose servers end with the block."""
    ports = choose(list(PORTS))
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    url = f"hdfs://{HOST}:{ports['namenode']}"
    _write(configuration / "core-site.xml", {"fs.defaultFS": url})
    _write(configuration / "hdfs-site.xml", _settings(folder, ports))
    nodes = [
        Node(name, main, folder / name, configuration, ports["namenode_http"], _STATE, ready)
        for name, main, ready in (
            ("namenode", f"{_PACKAGE}.namenode.NameNode", '"FSState" : "Operational"'),
            ("datanode", f"{_PACKAGE}.datanode.DataNode", '"NumLiveDataNodes" : 1'),
        )
    ]
    for node in nodes:
        node.folder.mkdir()
    subprocess.run(
        nodes[0].argv("-format", "-nonInteractive"),
        check=True,
        capture_output=True,
        timeout=_PROGRAM_LIMIT_S,
    )
    with contextlib.ExitStack() as ended:
        servers = []
        for node in nodes:
            process = ServerProcess(
                node.name,
                program=node.program,
                folder=node.folder,
                record=folder / f"{node.name}.json",
                log=folder / f"{node.name}.log",
            )
            process.start(node.command())
            ended.callback(process.kill)
            wait_ready(node, process)
            servers.append((node, process))
        yield Hdfs(url, tuple(servers))


def _settings(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        "dfs.namenode.name.dir": str(folder / "names"),
        "dfs.datanode.data.dir": str(folder / "blocks"),
        "dfs.replication": "1",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.http-address": f"{HOST}:{ports['namenode_http']}",
        "dfs.datanode.address": f"{HOST}:{ports['datanode']}",
        "dfs.datanode.http.address": f"{HOST}:{ports['datanode_http']}",
        "dfs.datanode.ipc.address": f"{HOST}:{ports['datanode_ipc']}",
    }


def _write(file: Path, settings: dict[str, str]) -> None:
    lines = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>\n{lines}</configuration>\n", "utf-8")
