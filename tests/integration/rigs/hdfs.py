"""A test's own HDFS, with a name node and a data node, and a project whose lake is in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stack.ports import HOST, choose
from stack.process import ServerProcess
from stack.servers import wait_ready
from tests.integration.rigs.hadoop import Node, Servers, started, write_settings
from tests.integration.rigs.object_store import move_lake
from tests.integration.rigs.project import Project

PORTS = ("namenode", "namenode_http", "datanode", "datanode_http", "datanode_ipc")
_PACKAGE = "org.apache.hadoop.hdfs.server"
_STATE = "service=NameNode,name=FSNamesystemState"
FILES = "org.apache.hadoop.fs.FsShell"
ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_PROGRAM_LIMIT_S = 120.0


@dataclass(frozen=True)
class Hdfs:
    """A running file system.

    Args:
        url: Its URL, without a path.
        servers: The name node and the data node, each as a pair of settings and process.
        blocks: Folder of the data node's blocks.
    """

    url: str
    servers: Servers
    blocks: Path

    def move(self, project: Project) -> None:
        """Configure a project's lake in this file system."""
        hadoop = {"dfs.replication": 1, "dfs.client.use.datanode.hostname": False}
        move_lake(project, f"{self.url}/lake", hadoop)

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

    def kill(self, name: str) -> None:
        """Kill a node without a shutdown, as a crash does."""
        self._server(name)[1].kill()

    def restart(self, name: str) -> None:
        """Kill a node and start it again."""
        self.kill(name)
        node, process = self._server(name)
        process.start(node.command())
        wait_ready(node, process)

    def _server(self, name: str) -> tuple[Node, ServerProcess]:
        (found,) = [one for one in self.servers if one[0].name == name]
        return found

    def data_files(self) -> set[str]:
        """The names of the first blocks of all Parquet files, including unfinished files."""
        return {name for name, content in self._blocks() if content.startswith(b"PAR1")}

    def commits(self) -> set[str]:
        """The names of the blocks of complete commits."""
        return {name for name, content in self._blocks() if b"tributary.commit" in content}

    def _blocks(self) -> Iterator[tuple[str, bytes]]:
        for path in self.blocks.rglob("blk_*"):
            if path.suffix != ".meta":
                with contextlib.suppress(FileNotFoundError):  # moved once it is whole
                    yield path.name, path.read_bytes()


@contextlib.contextmanager
def own_hdfs(folder: Path) -> Iterator[Hdfs]:
    """An empty file system; its servers are stopped at the end of the block."""
    ports = choose(list(PORTS))
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    url = f"hdfs://{HOST}:{ports['namenode']}"
    write_settings(configuration / "core-site.xml", {"fs.defaultFS": url})
    write_settings(configuration / "hdfs-site.xml", _settings(folder, ports))
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
    with started(nodes, folder) as servers:
        yield Hdfs(url, servers, folder / "blocks")


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
