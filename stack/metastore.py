"""Runs a Hive Metastore, a catalog of table names, from the jars that pyspark contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from cdc.runtime.jars import pyspark_jars
from stack.jvm import JavaServer
from stack.ports import refused
from stack.process import Command
from stack.secrets import private_folder


class Metastore(JavaServer):
    """The stack's Hive Metastore, which stores its data in a Derby database of its own."""

    name = "metastore"

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
        }
        (self.folder / "hive-site.xml").write_text(hive_site(settings), "utf-8")

    def command(self) -> Command:
        """The command that starts the stack's Hive Metastore."""
        argv = self._java(
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *opened("lang", "net", "util"),
            *("-cp", f"{self.folder}:{pyspark_jars()}/*"),
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
    """Yield the ``--add-opens`` options of Java that Hive's libraries need.

    Args:
        packages: Names of the packages below ``java``, for example ``lang``.
    """
    for package in packages:
        yield f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
