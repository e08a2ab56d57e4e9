"""Servers of query engines that only tests start: HiveServer2 and Presto."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cdc.runtime.jars import fetch, pyspark_jars, read_lock, spark_jars
from cdc.runtime.java import find_java
from stack.java_wheel import java_of_wheel
from stack.jvm import properties_text
from stack.metastore import hive_site, opened
from stack.ports import HOST, choose, refused
from stack.process import Command, ServerProcess
from stack.servers import Prepared, wait_ready
from stack.trino import not_started, server_properties
from stack.trino_software import unpack_server

LOCK = read_lock(Path(__file__).with_name("engines.lock"))
"""The pinned files of the servers, by the name of the bundle (``hive``, ``presto``)."""
HIVE = LOCK["hive"][0].revision
"""The version of Hive: pyspark has the libraries of this version, except those of the server."""
PRESTO = LOCK["presto"][0].revision
"""The version of Presto: the newest whose server is in a Maven repository."""
PRESTO_PLUGINS = ("hive-hadoop2", "hudi")
"""The plugins of Presto that are unpacked; all others together take several gigabytes."""
PRESTO_CATALOGS = ("hudi", "hive")
JAVA_WHEEL = Path(__file__).with_name("presto_java.txt")
_QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")


@dataclass
class QueryServer:
    """A server of Java in front of a metastore.

    Args:
        folder: Its working directory.
        port: Its port.
        metastore: The metastore's URL.
    """

    folder: Path
    port: int
    metastore: str

    name = ""
    program = "java"
    stop_signal = signal.SIGTERM
    stop_limit_s = 20.0
    ready_limit_s = 240.0


class HiveServer(QueryServer):
    """HiveServer2, with Hudi's input format."""

    name = "hiveserver2"
    ready_limit_s = 120.0

    @property
    def url(self) -> str:
        return f"jdbc:hive2://{HOST}:{self.port}/;auth=noSasl"

    def prepare(self) -> None:
        self.folder.mkdir()
        settings = {
            "hive.metastore.uris": self.metastore,
            "hive.server2.thrift.bind.host": HOST,
            "hive.server2.thrift.port": str(self.port),
            "hive.server2.webui.port": "0",
            "hive.server2.max.start.attempts": "1",
            "hive.server2.authentication": "NOSASL",
            "hive.server2.enable.doAs": "false",
            "hive.server2.logging.operation.enabled": "false",
            "hive.exec.scratchdir": str(self.folder / "scratch"),
            "hive.exec.local.scratchdir": str(self.folder / "local"),
            "hive.downloaded.resources.dir": str(self.folder / "resources"),
            "hive.querylog.location": str(self.folder / "queries"),
            # Its optimizer of joins needs more libraries that pyspark leaves out.
            "hive.cbo.enable": "false",
            # Its asynchronous logging needs a library that pyspark leaves out.
            "hive.async.log.enabled": "false",
        }
        (self.folder / "hive-site.xml").write_text(hive_site(settings), "utf-8")

    def command(self) -> Command:
        java = find_java()
        service, needs = (fetch(bundle, LOCK[bundle]) for bundle in ("hive", "hive-needs"))
        (hudi,) = [jar for jar in spark_jars() if jar.name.startswith("hudi-spark")]
        argv = (
            *(str(java.executable), *java.options, *_QUICK_START, "-Xmx512m"),
            *opened("lang", "net", "nio", "util", "util.concurrent"),
            # Classes that pyspark has come from there, also those that another jar brings as well.
            *("-cp", f"{self.folder}:{service}/*:{hudi}:{pyspark_jars()}/*:{needs}/*"),
            "org.apache.hive.service.server.HiveServer2",
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        return refused(self.port)


class PrestoServer(QueryServer):
    """One Presto node that is coordinator and worker."""

    name = "presto"

    @property
    def url(self) -> str:
        return f"jdbc:presto://{HOST}:{self.port}"

    def prepare(self) -> None:
        catalogs = self.folder / "catalog"
        catalogs.mkdir(parents=True)
        settings = {
            **server_properties(self.port, self._software() / "plugin"),
            "discovery-server.enabled": "true",
            "catalog.config-dir": str(catalogs),
            "node.id": "tributary",
            "query.max-total-memory-per-node": "500MB",
        }
        metastore = {"hive.metastore.uri": self.metastore}
        hudi = {"connector.name": "hudi", **metastore}
        # By their places, an added column would be wrong in partitions of before.
        names = {"hive.parquet.use-column-names": "true"}
        hive = {"connector.name": "hive-hadoop2", **metastore, **names}
        for path, properties in (
            (self.folder / "config.properties", settings),
            (catalogs / "hudi.properties", hudi),
            (catalogs / "hive.properties", hive),
        ):
            path.write_text(properties_text(properties), "utf-8")

    def command(self) -> Command:
        java = java_of_wheel("Presto", JAVA_WHEEL)
        argv = (
            *(str(java.executable), *_QUICK_START, "-Xmx1500m"),
            *("-Dfile.encoding=UTF-8", "-Dconfig=config.properties"),
            "-Djdk.attach.allowAttachSelf=true",
            *("-cp", f"{self._software() / 'lib'}/*", "com.facebook.presto.server.PrestoServer"),
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        return not_started(self.port)

    @staticmethod
    def _software() -> Path:
        prepare = partial(unpack_server, plugins=PRESTO_PLUGINS)
        return fetch("presto", LOCK["presto"], prepare=prepare) / f"presto-server-{PRESTO}"


@contextlib.contextmanager
def hive_server(folder: Path, metastore: str) -> Iterator[HiveServer]:
    """A running HiveServer2, which is stopped at the end of the block."""
    server = HiveServer(folder, choose(["hiveserver2"])["hiveserver2"], metastore)
    with _running(server):
        yield server


@contextlib.contextmanager
def presto_server(folder: Path, metastore: str) -> Iterator[PrestoServer]:
    """A running Presto, which is stopped at the end of the block."""
    server = PrestoServer(folder, choose(["presto"])["presto"], metastore)
    with _running(server):
        yield server


def presto_jdbc() -> Path:
    """The path of the jar with Presto's JDBC driver."""
    (jar,) = LOCK["presto-jdbc"]
    return fetch("presto-jdbc", (jar,)) / jar.filename


@contextlib.contextmanager
def _running(server: Prepared) -> Iterator[None]:
    server.prepare()
    process = ServerProcess(
        server.name,
        program=server.program,
        folder=server.folder,
        record=server.folder.with_suffix(".json"),
        log=server.folder.with_suffix(".log"),
    )
    process.start(server.command())
    try:
        wait_ready(server, process)
        yield
    finally:
        process.kill()
