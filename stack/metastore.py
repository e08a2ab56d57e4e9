"""Runs a Hive Metastore, a catalog of table names, from the jars that pyspark contains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from cdc.runtime.jars import STORES, fetch, pyspark_jars
from stack.artifacts import Software
from stack.jvm import JavaServer
from stack.object_store import StoreLogin
from stack.ports import refused
from stack.process import Command
from stack.secrets import private_folder, write_private


class Metastore(JavaServer):
    """The stack's Hive Metastore, which stores its data in a Derby database of its own.

    When a table gets a name, the metastore looks for the table's folder. So the metastore needs
    access to the lake.

    Args:
        folder: Working directory.
        port: Port that the server listens on.
        software: Returns the software, and fetches it if the cache lacks it.
        store: The S3-compatible server with the lake; None if the lake is on a local disk.
    """

    name = "metastore"

    def __init__(
        self,
        *,
        folder: Path,
        port: int,
        software: Callable[[], Software],
        store: StoreLogin | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, software=software)
        self._store = store

    def prepare(self) -> None:
        """Write the configuration of the stack's Hive Metastore."""
        private_folder(self.folder)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:{self.folder / 'db'};create=true",
            "hive.metastore.warehouse.dir": str(self.folder / "warehouse"),
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # Its asynchronous logging needs a library that pyspark leaves out.
            "hive.async.log.enabled": "false",
            **(self._store.hadoop_settings() if self._store else {}),
        }
        write_private(self.folder / "hive-site.xml", hive_site(settings))

    def command(self) -> Command:
        """The command that starts the stack's Hive Metastore."""
        path = [str(self.folder), f"{pyspark_jars()}/*"]
        if self._store:
            path.append(f"{fetch('s3', STORES['s3'])}/*")
        argv = self._java(
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *opened("lang", "net", "util"),
            *("-cp", ":".join(path)),
            *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)),
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        """The reason why the stack's Hive Metastore is not ready; None when it is ready."""
        return refused(self.port)


def hive_site(settings: Mapping[str, str]) -> str:
    """Return the text of a ``hive-site.xml`` with these settings, for the stack."""
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"


def opened(*packages: str) -> Iterator[str]:
    """Yield the ``--add-opens`` options of Java that the stack's Hive metastore needs.

    Args:
        packages: Names of the packages below ``java``, for example ``lang``.
    """
    for package in packages:
        yield f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
