"""Hadoop's own servers, in the version whose client pyspark brings."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import httpx

from cdc.runtime.jars import Artifact, fetch, pyspark_jars
from cdc.runtime.java import find_java
from stack.metastore import opened
from stack.ports import HOST
from stack.process import Command, ServerProcess
from stack.servers import wait_ready

# The servers of the Hadoop whose client pyspark brings.
SERVERS = Artifact(
    "org.apache.hadoop",
    "hadoop-client-minicluster",
    "3.3.4",
    "cd8a1703393946c302bb3a52d0fcd23f6f8ded4554bc0dac5d2ee673dbe2b40e",
)
# By default, their library of XML looks for its own code under a name that is not in their jar.
_XML = (
    "-Dorg.apache.hadoop.shaded.javax.xml.bind.JAXBContextFactory="
    "org.apache.hadoop.shaded.com.sun.xml.bind.v2.ContextFactory"
)
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-Djava.awt.headless=true", _XML)
_PROBE_S = 3.0


@dataclass
class Node:
    """One server of Hadoop.

    Args:
        name: Its name, for example ``namenode``.
        main: Its class.
        folder: Its working directory.
        configuration: Folder of Hadoop's configuration.
        port: Port of a web page with metrics (JMX), either of this server or of the server that
            it reports to.
        bean: The metrics bean that shows whether the server is ready.
        ready: A text that the bean contains once the server is ready.
        libraries: Jars that the server needs besides those of pyspark.
    """

    name: str
    main: str
    folder: Path
    configuration: Path
    port: int
    bean: str
    ready: str
    libraries: tuple[Artifact, ...] = ()
    program: str = "java"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_s: float = 20.0
    ready_limit_s: float = 120.0

    def argv(self, *arguments: str) -> tuple[str, ...]:
        java = find_java()
        servers = fetch("hdfs", (SERVERS,)) / SERVERS.filename
        path = f"{self.configuration}:{servers}:{pyspark_jars()}/*"
        if self.libraries:
            path += f":{fetch(self.name, self.libraries)}/*"
        options = (*_OPTIONS, *opened("lang"))
        return (str(java.executable), *java.options, *options, "-cp", path, self.main, *arguments)

    def command(self) -> Command:
        return Command(self.argv(), self.folder, {"JAVA_HOME": str(find_java().home)})

    def unhealthy(self) -> str | None:
        url = f"http://{HOST}:{self.port}/jmx?qry=Hadoop:{self.bean}"
        try:
            text = httpx.get(url, timeout=_PROBE_S).text
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return None if self.ready in text else f"it shows no {self.ready}"


Servers = tuple[tuple[Node, ServerProcess], ...]


@contextlib.contextmanager
def started(nodes: Sequence[Node], folder: Path) -> Iterator[Servers]:
    """Start servers, each after the one before is ready, and stop them after the block.

    Args:
        nodes: The servers, whose folders exist.
        folder: Holds their logs.
    """
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
        yield tuple(servers)


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    lines = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>\n{lines}</configuration>\n", "utf-8")
