from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from cdc.config import KafkaConfig, Security
from cdc.errors import ConfigError, SecretError

KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
OLD_KEY = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_PW", 'p"w\\1')
    monkeypatch.setenv("KEY_PW", "canary-key")
    for name, text in (("ca.pem", CERTIFICATE), ("client.pem", CERTIFICATE), ("client.key", KEY)):
        (tmp_path / name).write_text(text)
    return tmp_path


def kafka(security: dict[str, Any], **others: Any) -> KafkaConfig:
    return KafkaConfig.model_validate(
        {
            "bootstrap_servers": "a:9092",
            "registry": {"url": "http://r:8080"},
            "security": security,
            **others,
        }
    )


def test_plain_text_needs_nothing_more() -> None:
    config = kafka({})
    expected = {"bootstrap.servers": "a:9092", "security.protocol": "PLAINTEXT"}
    assert config.librdkafka_config() == expected
    assert config.java_config() == expected


def test_a_login_is_said_in_both_languages(folder: Path) -> None:
    config = kafka(
        {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "username": "me",
            "password": "${KAFKA_PW}",
            "ca_file": str(folder / "ca.pem"),
        }
    )
    assert config.librdkafka_config() == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'p"w\\1',
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    assert config.java_config() == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="me" password="p\\"w\\\\1";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
    }
    assert 'p"w' not in repr(config)


def test_a_plain_login_has_a_module_of_its_own(folder: Path) -> None:
    login = {"mechanism": "PLAIN", "username": "me", "password": "${KAFKA_PW}"}
    jaas = kafka({"protocol": "SASL_PLAINTEXT", **login}).java_config()["sasl.jaas.config"]
    assert jaas.startswith("org.apache.kafka.common.security.plain.PlainLoginModule required ")


def test_certificates_go_to_java_as_text(folder: Path) -> None:
    config = kafka(
        {
            "protocol": "SSL",
            "certificate_file": str(folder / "client.pem"),
            "key_file": str(folder / "client.key"),
            "key_password": "${KEY_PW}",
        }
    )
    assert config.java_config() == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": KEY,
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.key.password": "canary-key",
    }
    assert config.librdkafka_config() == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SSL",
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key"),
        "ssl.key.password": "canary-key",
    }


@pytest.mark.parametrize("key", [OLD_KEY, "", KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")])
def test_a_key_that_java_cannot_read_is_refused(folder: Path, key: str) -> None:
    (folder / "client.key").write_text(key)
    security = Security(
        protocol="SSL", certificate_file=folder / "client.pem", key_file=folder / "client.key"
    )
    with pytest.raises(ConfigError, match="is not a PKCS#8 key") as caught:
        security.java()
    assert "openssl pkcs8 -topk8" in caught.value.remedy
    assert caught.value.context["field"] == "kafka.security.key_file"


@pytest.mark.parametrize(
    ("scheme", "refused"), [("2a864886f70d01050d", True), ("2a864886f70d010c0103", False)]
)
def test_a_key_encrypted_as_java_cannot_read_it_is_refused(
    folder: Path, scheme: str, refused: bool
) -> None:
    oid = bytes.fromhex(scheme)
    body = base64.encodebytes(b"\x30\x40" + b"\x06" + bytes([len(oid)]) + oid + b"x" * 90)
    kind = "ENCRYPTED PRIVATE KEY"
    key = f"-----BEGIN {kind}-----\n{body.decode()}-----END {kind}-----\n"
    (folder / "client.key").write_text(key)
    security = Security(
        protocol="SSL", certificate_file=folder / "client.pem", key_file=folder / "client.key"
    )
    if not refused:
        assert security.java()["ssl.keystore.key"] == key
        return
    with pytest.raises(ConfigError, match="is encrypted by PBES2") as caught:
        security.java()
    assert "-v1 PBE-SHA1-3DES" in caught.value.remedy


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca_file: .*gone\.pem cannot be read: No such file"):
        Security(protocol="SSL", ca_file=folder / "gone.pem").java()


def test_a_secret_is_read_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PW", raising=False)
    login = {"mechanism": "PLAIN", "username": "me", "password": "${KAFKA_PW}"}
    config = kafka({"protocol": "SASL_SSL", **login})
    for use in (config.librdkafka_config, config.java_config):
        with pytest.raises(SecretError, match="KAFKA_PW is not set"):
            use()


def test_raw_settings_have_the_last_word() -> None:
    config = kafka(
        {"protocol": "SASL_SSL"},
        librdkafka={"sasl.mechanism": "OAUTHBEARER", "security.protocol": "SASL_PLAINTEXT"},
        java={"sasl.mechanism": "OAUTHBEARER", "bootstrap.servers": "b:1"},
    )
    assert config.conflicts() == []
    assert config.librdkafka_config()["security.protocol"] == "SASL_PLAINTEXT"
    assert config.java_config()["bootstrap.servers"] == "b:1"


def test_a_login_without_a_mechanism_is_refused() -> None:
    ((path, reason),) = kafka({"protocol": "SASL_SSL"}).conflicts()
    assert path == ("security", "mechanism")
    assert "needs a mechanism" in reason
