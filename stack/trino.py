"""Runs Trino, a query engine that finds tables by their names in the stack's Hive Metastore."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import httpx

from stack.jvm import properties_text
from stack.object_store import StoreLogin
from stack.ports import HOST
from stack.process import Command
from stack.secrets import private_folder, write_private
from stack.trino_software import TrinoSoftware

CATALOG = "hudi"
"""Name of Trino's catalog that reads Hudi tables."""
REDIRECTING_CATALOG = "hive"
"""Name of Trino's catalog for other tables; it redirects queries of Hudi tables to `CATALOG`."""
_PROBE_S = 3.0


class Trino:
    """The stack's Trino: one node that is coordinator and worker, and uses a Hive Metastore.

    Args:
        folder: Working directory, which also holds the configuration.
        port: Port of the HTTP interface.
        metastore_port: The metastore's port.
        software: Returns the software, and fetches it if the cache lacks it.
        store: The S3-compatible server with the lake; None if the lake is on a local disk.
    """

    name = "trino"
    program = "java"
    stop_signal = signal.SIGTERM
    stop_limit_s = 20.0
    ready_limit_s = 240.0

    def __init__(
        self,
        *,
        folder: Path,
        port: int,
        metastore_port: int,
        software: Callable[[], TrinoSoftware],
        store: StoreLogin | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self._metastore_port = metastore_port
        self._software = software
        self._store = store

    def prepare(self) -> None:
        """Write the configuration of the stack's Trino."""
        private_folder(self.folder)
        plugins = self._software().folder / "plugin"
        settings = properties_text(server_properties(self.port, plugins))
        (self.folder / "config.properties").write_text(settings, "utf-8")
        catalogs = self.folder / "catalog"
        catalogs.mkdir(exist_ok=True)
        found = catalog_properties(self._metastore_port, self._store)
        for name, properties in found.items():
            write_private(catalogs / f"{name}.properties", properties_text(properties))

    def command(self) -> Command:
        """The command that starts the stack's Trino."""
        software = self._software()
        argv = (
            *(str(software.java.executable), *software.java.options),
            # The server answers few queries. The quick compiler makes it start sooner.
            *("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"),
            *("-Dconfig=config.properties", "--enable-native-access=ALL-UNNAMED"),
            *("-cp", f"{software.folder / 'lib'}/*", "io.trino.server.TrinoServer"),
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        """The reason why the stack's Trino is not ready; None when it is ready."""
        return not_started(self.port)


def not_started(port: int) -> str | None:
    """Return why a node of the stack's Trino or of Presto is not ready; None when it is ready."""
    try:
        answer = httpx.get(f"http://{HOST}:{port}/v1/info", timeout=_PROBE_S)
        starting = answer.raise_for_status().json()["starting"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return f"no answer ({type(error).__name__})"
    return "it is starting" if starting else None


def server_properties(port: int, plugins: Path) -> dict[str, str]:
    """Return the stack's Trino settings for a single node that only this machine can reach."""
    return {
        "node.environment": "tributary",
        "node.bind-ip": HOST,
        "node.internal-address": HOST,
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://{HOST}:{port}",
        "plugin.dir": str(plugins),
        "catalog.config-dir": "catalog",
        "query.max-memory-per-node": "400MB",
        "memory.heap-headroom-per-node": "200MB",
    }


def catalog_properties(
    metastore_port: int, store: StoreLogin | None = None
) -> dict[str, dict[str, str]]:
    """Return the settings of each catalog of the stack's Trino, as a mapping from catalog names.

    Args:
        metastore_port: The metastore's port.
        store: The S3-compatible server with the lake; None if the lake is on a local disk.
    """
    common = {
        "hive.metastore.uri": f"thrift://{HOST}:{metastore_port}",
        # Hadoop's file systems, which the paths of local lakes need.
        "fs.hadoop.enabled": "true",
        **(store.trino_settings() if store else {}),
    }
    return {
        CATALOG: {"connector.name": "hudi", **common},
        REDIRECTING_CATALOG: {
            "connector.name": "hive",
            **common,
            "hive.hudi-catalog-name": CATALOG,
        },
    }
