"""Servers that run on Java: Kafka, Kafka Connect and the schema registry."""

from __future__ import annotations

import base64
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import confluent_kafka
import httpx
from confluent_kafka.admin import AdminClient

from stack.artifacts import Software
from stack.errors import StackError
from stack.ports import HOST
from stack.process import Command
from stack.roles import CONNECT
from stack.secrets import Passwords, private_folder, write_private

_PROBE_S = 3.0
_FORMAT_LIMIT_S = 120.0
_LOGGING = ("-Dlog4j2.level=INFO", "-Djava.awt.headless=true")


class JavaServer:
    """The common parts of the stack's Java servers.

    Args:
        folder: Working directory, which also holds configuration and data.
        port: Port that the server listens on.
        software: Returns the software, and fetches it if the cache lacks it.
    """

    name = ""
    program = "java"
    stop_signal = signal.SIGTERM
    stop_limit_s = 20.0
    ready_limit_s = 180.0

    def __init__(self, *, folder: Path, port: int, software: Callable[[], Software]) -> None:
        self.folder = folder
        self.port = port
        self._software = software

    def _java(self, *arguments: str) -> tuple[str, ...]:
        java = self._software().java
        return (str(java.executable), *java.options, *_LOGGING, *arguments)

    def _answers(self, path: str, login: tuple[str, str] | None = None) -> str | None:
        """Return why a GET of this path from a stack's server fails; None if the GET succeeds."""
        try:
            answer = httpx.get(f"http://{HOST}:{self.port}{path}", auth=login, timeout=_PROBE_S)
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return None if answer.is_success else f"answers {path} with HTTP {answer.status_code}"


class Kafka(JavaServer):
    """The stack's Kafka: one node that is both broker and controller.

    Args:
        folder: Working directory.
        port: Port for clients.
        controller_port: Port of the controller.
        software: Returns the software, and fetches it if the cache lacks it.
    """

    name = "kafka"

    def __init__(
        self, *, folder: Path, port: int, controller_port: int, software: Callable[[], Software]
    ):
        super().__init__(folder=folder, port=port, software=software)
        self._controller_port = controller_port

    @property
    def properties(self) -> Path:
        """The configuration file of the stack's Kafka."""
        return self.folder / "server.properties"

    def prepare(self) -> None:
        """Write the configuration of the stack's Kafka, and format a new node's storage."""
        private_folder(self.folder)
        data = self.folder / "data"
        properties = kafka_properties(self.port, self._controller_port, data)
        self.properties.write_text(properties_text(properties), "utf-8")
        if not (data / "meta.properties").exists():
            self._format()

    def command(self) -> Command:
        """The command that starts the stack's Kafka."""
        classpath = f"{self._software().kafka}/*"
        argv = self._java("-Xms256m", "-Xmx512m", "-cp", classpath, "kafka.Kafka")
        return Command((*argv, str(self.properties)), self.folder)

    def _format(self) -> None:
        classpath = f"{self._software().kafka}/*"
        argv = self._java(
            "-cp", classpath, "kafka.tools.StorageTool", "format", "--ignore-formatted"
        )
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [*argv, "-t", _cluster_id(), "-c", str(self.properties)],
            capture_output=True,
            text=True,
            timeout=_FORMAT_LIMIT_S,
        )
        if answer.returncode != 0:
            reason = (answer.stderr or answer.stdout).strip()
            raise StackError(
                f"kafka: its storage cannot be formatted: {reason}",
                remedy=f"Check the disk, or remove {self.folder}.",
            )

    def unhealthy(self) -> str | None:
        """The reason why the stack's Kafka is not ready; None when it is ready."""
        # Without logging, since every probe would log a refused connection while the node starts.
        client = AdminClient({"bootstrap.servers": f"{HOST}:{self.port}", "log_level": 0})
        try:
            brokers = client.list_topics(timeout=_PROBE_S).brokers
        except confluent_kafka.KafkaException as error:
            return f"no answer ({error.args[0].name()})"
        return None if brokers else "it does not know a broker yet"


class Registry(JavaServer):
    """The stack's schema registry, with a store that survives a restart."""

    name = "registry"

    def prepare(self) -> None:
        """Create the folder of the stack's schema registry."""
        private_folder(self.folder)

    def command(self) -> Command:
        """The command that starts the stack's schema registry."""
        jar = next(self._software().registry.glob("*-runner.jar"), None)
        if jar is None:
            raise StackError(
                f"the schema registry in {self._software().registry} has no runner jar",
                remedy="Remove that folder from the cache, then run again.",
            )
        # With the default store in memory, the registry would number schemas from 1 again after a
        # restart, and every topic would be decoded wrongly. With WRITE_DELAY=0, an id is on disk
        # before a client gets it.
        database = f"jdbc:h2:file:{self.folder / 'registry'};WRITE_DELAY=0"
        argv = self._java(
            # The registry serves few requests. A small heap and the quick compiler start it sooner.
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={self.port}",
            *("-jar", str(jar)),
        )
        return Command(argv, self.folder, {"REGISTRY_DATASOURCE_URL": database})

    def unhealthy(self) -> str | None:
        """The reason why the stack's schema registry is not ready; None when it is ready."""
        return self._answers("/health/ready") or self._answers("/apis/ccompat/v7/subjects")


class Connect(JavaServer):
    """The stack's Kafka Connect worker with Debezium and the Avro converter.

    The REST interface requires a login. Without a login, anyone could send a configuration for
    validation. The answer shows the values that the configuration providers read, and these values
    can be secrets.

    Args:
        folder: Working directory.
        port: Port of the REST interface.
        kafka_port: Kafka's port.
        passwords: The stack's passwords. The configuration providers may read only the folder of
            the passwords.
        software: Returns the software, and fetches it if the cache lacks it.
    """

    name = "connect"

    def __init__(
        self,
        *,
        folder: Path,
        port: int,
        kafka_port: int,
        passwords: Passwords,
        software: Callable[[], Software],
    ) -> None:
        super().__init__(folder=folder, port=port, software=software)
        self._kafka_port = kafka_port
        self._passwords = passwords

    @property
    def properties(self) -> Path:
        """The configuration file of the stack's Kafka Connect."""
        return self.folder / "worker.properties"

    def prepare(self) -> None:
        """Write the configuration of the stack's Kafka Connect."""
        private_folder(self.folder)
        plugins = (*self._software().connectors.values(), self._software().converter)
        folder = self._passwords.folder
        properties = connect_properties(self.port, self._kafka_port, folder, plugins)
        self.properties.write_text(properties_text(properties), "utf-8")
        (self.folder / _LOGIN_FILE).write_text(LOGIN_MODULE, "utf-8")
        login = f"{CONNECT}={self._passwords.get(CONNECT)}\n"
        write_private(self.folder / "users.properties", login)

    def command(self) -> Command:
        """The command that starts the stack's Kafka Connect."""
        argv = self._java(
            *("-Xms128m", "-Xmx1g", "-cp", f"{self._software().kafka}/*"),
            f"-Djava.security.auth.login.config={_LOGIN_FILE}",
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(self.properties),
        )
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        """The reason why the stack's Kafka Connect is not ready; None when it is ready."""
        return self._answers("/connectors", (CONNECT, self._passwords.get(CONNECT)))


def kafka_properties(port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Return the settings of the stack's Kafka, whose internal topics have one replica."""
    one_copy = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )
    few = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # For rows with large values; Connect's producers have the same limit.
        "message.max.bytes": str(_LARGEST_MESSAGE_BYTES),
        **dict.fromkeys(one_copy, "1"),
        **dict.fromkeys(few, "4"),
    }


def connect_properties(
    port: int, kafka_port: int, secrets: Path, plugins: tuple[Path, ...]
) -> dict[str, str]:
    """Return the settings of the stack's Kafka Connect: one worker in distributed mode."""
    topics = {f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")}
    providers = {"env": "EnvVar", "file": "File", "directory": "Directory"}
    classes = {
        f"config.providers.{name}.class": (
            f"org.apache.kafka.common.config.provider.{kind}ConfigProvider"
        )
        for name, kind in providers.items()
    }
    return {
        "bootstrap.servers": f"{HOST}:{kafka_port}",
        "group.id": "connect",
        "listeners": f"http://{HOST}:{port}",
        "rest.advertised.host.name": HOST,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **topics,
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "1000",
        "topic.creation.enable": "true",
        "exactly.once.source.support": "enabled",
        "connector.client.config.override.policy": "All",
        "producer.max.request.size": str(_LARGEST_MESSAGE_BYTES),
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.path": ",".join(map(str, plugins)),
        "plugin.discovery": "SERVICE_LOAD",
        "rest.extension.classes": f"{_BASIC_AUTH}.BasicAuthSecurityRestExtension",
        "config.providers": ",".join(providers),
        **classes,
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.directory.param.allowed.paths": str(secrets),
        "config.providers.env.param.allowlist.pattern": "TRIBUTARY_.*",
    }


_BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension"
_LOGIN_FILE = "login.conf"
# The worker's folder can have any name, so files in it are named relative to it.
LOGIN_MODULE = f"""\
KafkaConnect {{
  {_BASIC_AUTH}.PropertyFileLoginModule required file="users.properties";
}};
"""
"""The login module of Connect's REST interface."""
_LARGEST_MESSAGE_BYTES = 20 * 1024 * 1024


def properties_text(properties: Mapping[str, str]) -> str:
    """Return a stack server's Java properties as text, in which backslashes are escaped."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())


def _cluster_id() -> str:
    """Return a random id for the stack's Kafka.

    The id begins with T, since a dash at the beginning would be read as an option.
    """
    return "T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii")[1:22]
