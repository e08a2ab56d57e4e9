"""Servers and their processes: leaked passwords, command lines, and brokers with their topics."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from cdc.config import KafkaConfig
from stack.local import LocalStack
from tests.integration.rigs.at_work import at_work


def pids(stack: LocalStack) -> dict[str, int | None]:
    return {server.name: server.pid for server in stack.status()}


def processes_in(folder: Path) -> list[str]:
    """Processes that have the folder as working directory or name it on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        text = " ".join([*(process.info["cmdline"] or ()), process.info["cwd"] or ""])
        if str(folder) in text:
            found.append(f"{process.pid} {text}")
    return found


def connect_rest(stack: LocalStack) -> httpx.Client:
    """An HTTP client that is logged in to Kafka Connect's REST interface."""
    addresses = stack.addresses()
    return httpx.Client(base_url=addresses.connect_url, auth=addresses.connect_login, timeout=90)


def leaks(stack: LocalStack) -> list[str]:
    """The places, outside the password files, in which a password of the stack can be seen."""
    secrets = [file.read_text() for file in stack.passwords.folder.glob("*.password")]
    assert len(secrets) >= 5
    places = {str(path): path.read_text("utf-8", "replace") for path in stack.folder.glob("logs/*")}
    for process in psutil.process_iter(["cmdline"]):
        places[f"command line of {process.pid}"] = " ".join(process.info["cmdline"] or ())
    places["env"] = "".join(stack.env().values())
    places["tributary.yaml"] = stack.config_text()
    with connect_rest(stack) as connect:
        answer = connect.get("/connectors", params={"expand": "info"})
        places["Connect"] = answer.raise_for_status().text
    return [place for place, text in places.items() if any(secret in text for secret in secrets)]


def converters(stack: LocalStack) -> dict[str, str]:
    """The settings with which a connector writes Avro in the Confluent wire format."""
    registry = stack.addresses().registry_url.replace("/apis/ccompat/v7", "/apis/registry/v2")
    converter = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "false",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {
        f"{side}.converter{key}": value
        for side in ("key", "value")
        for key, value in converter.items()
    }


def consume(stack: LocalStack, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """The first committed messages of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.addresses().kafka,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
    )
    found: list[tuple[bytes, bytes]] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 90
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {topic}"
            message: Any = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append((message.key(), message.value()))
    finally:
        consumer.close()
    return found


def delete_records(kafka: KafkaConfig, topic: str, before: int) -> None:
    """Delete the records below an offset from a topic with one partition, as retention does."""
    admin = AdminClient(kafka.librdkafka_config())
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(30)


def alter_topic(kafka: KafkaConfig, topic: str, **settings: str) -> None:
    """Change settings of a topic, past the product; ``_`` in a setting's name stands for a dot."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in settings.items():
        entry = ConfigEntry(
            name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET
        )
        resource.add_incremental_config(entry)
    admin = AdminClient(kafka.librdkafka_config())
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def add_partition(kafka: KafkaConfig, topic: str) -> None:
    """Add a second partition to a topic that has one; returns once the broker shows both."""
    admin = AdminClient(kafka.librdkafka_config())
    for done in admin.create_partitions([NewPartitions(topic, 2)]).values():
        done.result(30)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < 2:
        assert time.monotonic() < deadline, topic
        time.sleep(0.1)


_READY_LIMIT_S = 90


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file; its values may contain any characters."""
    lines = (
        f"{key}={value.encode('unicode_escape').decode('ascii')}"
        for key, value in properties.items()
    )
    path.write_text("\n".join(lines) + "\n", "ascii")


def wait_until_started(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a broker's log reports that it has started."""
    deadline = time.monotonic() + _READY_LIMIT_S
    while b"Kafka Server started" not in log.read_bytes():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


_SAMPLE_S = 0.2
"""Seconds between two readings of all command lines."""


@contextmanager
def watched_command_lines() -> Iterator[set[str]]:
    """Collect the command lines of all processes of the machine while a block runs."""
    seen: set[str] = set()

    def look(_: int, stop: threading.Event) -> None:
        while not stop.wait(_SAMPLE_S):
            for process in psutil.process_iter(["cmdline"]):
                seen.add(" ".join(process.info["cmdline"] or ()))

    with at_work(look):
        yield seen
