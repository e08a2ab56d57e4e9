"""One ``security:`` section gives librdkafka and Java clients access to a secured broker."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cdc.config import KafkaConfig, Security
from cdc.config.secrets import SecretRef
from cdc.errors import ConfigError, KafkaError
from cdc.kafka import KafkaAdmin, TopicLook
from stack.artifacts import Software, fetch_software
from stack.jvm import Kafka
from stack.ports import HOST, choose
from tests.integration.rigs.certificates import make_certificates
from tests.integration.rigs.servers import wait_until_started, write_properties

PASSWORD = "sp ace\"quote\\back;semi='x"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def quoted(text: str) -> str:
    """A value quoted for a JAAS line, without the product's code."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextlib.contextmanager
def broker(folder: Path, protocol: str, more: Mapping[str, str]) -> Iterator[int]:
    """A broker that accepts only clients with the password; yields the broker's port."""
    software = fetch_software(())
    ports = choose(("client", "controller"))
    kafka = Kafka(
        folder=folder,
        port=ports["client"],
        controller_port=ports["controller"],
        software=lambda: software,
    )
    kafka.prepare()
    plain = dict(line.split("=", 1) for line in kafka.properties.read_text().splitlines())
    client, controller = ports["client"], ports["controller"]
    users = f'user_broker="b" user_tributary={quoted(PASSWORD)}'
    write_properties(
        kafka.properties,
        {
            **plain,
            "listeners": f"CLIENT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{client}",
            "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": (
                f'{LOGIN} username="broker" password="b" {users};'
            ),
            **more,
        },
    )
    command = kafka.command()
    log = folder / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.argv, cwd=command.folder, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            wait_until_started(process, log)
            yield client
        finally:
            process.kill()
            process.wait()


def list_with_java(config: KafkaConfig, folder: Path, software: Software) -> str:
    """The output of Kafka's own Java tool that lists topics, with the product's settings."""
    settings = folder / "client.properties"
    limits = {"request.timeout.ms": "15000", "default.api.timeout.ms": "20000"}
    write_properties(settings, {**config.java_config(), **limits})
    command = ("-cp", f"{software.kafka}/*", "org.apache.kafka.tools.TopicCommand", "--list")
    arguments = ("--bootstrap-server", config.bootstrap_servers, "--command-config", str(settings))
    done = subprocess.run(
        [str(software.java.executable), *command, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def kafka_config(port: int, security: Security) -> KafkaConfig:
    return KafkaConfig.model_validate(
        {
            "bootstrap_servers": f"{HOST}:{port}",
            "registry": {"url": "http://localhost"},
            "security": security.model_dump(exclude_unset=True),
        }
    )


def rule(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    """An ACL rule on a topic, for the user of these tests."""
    kind, exactly = ResourceType.TOPIC, ResourcePatternType.LITERAL
    return AclBinding(kind, topic, exactly, "User:tributary", "*", operation, permission)


def check(port: int, security: Security, folder: Path) -> None:
    """Assert that both clients have access with the right password, and none with a wrong one."""
    config = kafka_config(port, security)
    client = AdminClient({**config.librdkafka_config()})
    client.create_topics([NewTopic("seen", 1, 1)])["seen"].result(30)
    software = fetch_software(())
    assert "seen" in list_with_java(config, folder, software).split()
    (folder / "wrong").write_text("wrong")
    wrong = security.model_copy(update={"password": SecretRef("file", str(folder / "wrong"))})
    refused = kafka_config(port, wrong)
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient({**refused.librdkafka_config(), "log_level": 0}).list_topics(timeout=5)
    assert "SaslAuthenticationException" in list_with_java(refused, folder, software)


@pytest.mark.breadth
def test_a_password_with_every_awkward_character(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(PASSWORD)
    security = Security(
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        username="tributary",
        password=SecretRef("file", str(tmp_path / "pw")),
    )
    with broker(tmp_path / "kafka", "SASL_PLAINTEXT", {}) as port:
        check(port, security, tmp_path)


@pytest.mark.breadth
def test_certificates_and_a_password(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    (tmp_path / "pw").write_text(PASSWORD)
    (tmp_path / "key_pw").write_text("key password")
    stores = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": (tmp_path / "server.pem").read_text(),
        "ssl.keystore.key": (tmp_path / "server.key").read_text(),
    }
    security = Security(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username="tributary",
        password=SecretRef("file", str(tmp_path / "pw")),
        ca_file=tmp_path / "ca.pem",
        certificate_file=tmp_path / "client.pem",
        key_file=tmp_path / "client.key",
        key_password=SecretRef("file", str(tmp_path / "key_pw")),
    )
    with broker(tmp_path / "kafka", "SASL_SSL", stores) as port:
        check(port, security, tmp_path)
    unreadable = security.model_copy(update={"key_file": tmp_path / "unreadable.key"})
    with pytest.raises(ConfigError, match="encrypted by PBES2"):
        unreadable.java()


def test_a_topic_without_rights_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(PASSWORD)
    security = Security(
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        username="tributary",
        password=SecretRef("file", str(tmp_path / "pw")),
    )
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS;User:broker",
    }
    topics = ["open", "closed", "hidden"]
    with broker(tmp_path / "kafka", "SASL_PLAINTEXT", rules) as port:
        config = kafka_config(port, security)
        client = AdminClient(dict(config.librdkafka_config()))
        for done in client.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
            done.result(30)
        producer = confluent_kafka.Producer(dict(config.librdkafka_config()))
        producer.produce("open", b"a record")
        assert producer.flush(30) == 0
        kafka = KafkaAdmin(config)
        assert {type(look) for look in kafka.looks(topics).values()} == {TopicLook}
        acls = [
            rule("closed", AclOperation.DESCRIBE, AclPermissionType.DENY),
            rule("hidden", AclOperation.DESCRIBE, AclPermissionType.ALLOW),
        ]
        for done in client.create_acls(acls).values():
            done.result(30)
        deadline = time.monotonic() + 20
        while isinstance(kafka.looks(topics)["closed"], TopicLook):
            assert time.monotonic() < deadline
        looks = kafka.looks([*topics, "gone"])
        assert {name: type(look) for name, look in looks.items()} == {
            "open": TopicLook,
            "hidden": TopicLook,
            "closed": KafkaError,
        }
        error = looks["closed"]
        assert isinstance(error, KafkaError)
        assert "describe topics (topic closed)" in error.message
        assert "ACL" in error.remedy
        sent = kafka.newest_times_each([*topics, "gone"])
        assert {name: type(one) for name, one in sent.items()} == {
            "open": datetime,
            "closed": KafkaError,
        }
        found, failed = kafka.topic_configs_each(["open", "hidden"])
        assert (set(found), set(failed)) == ({"open"}, {"hidden"})
        with pytest.raises(KafkaError, match=r"settings of topics \(topic hidden\)"):
            kafka.topic_configs(["open", "hidden"])
        assert isinstance(kafka.looks(["closed"])["closed"], KafkaError)
