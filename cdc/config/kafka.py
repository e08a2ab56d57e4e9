"""The ``kafka`` and ``connect`` sections."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import Field

from cdc.config.secrets import SecretRef
from cdc.config.templates import Conflict
from cdc.config.value_types import (
    FilePath,
    HttpUrl,
    NonEmpty,
    Options,
    OptionText,
    Positive,
    RawOptions,
    Section,
    Servers,
    Verbatim,
    defaults,
)
from cdc.errors import ConfigError

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The object identifier of the encryption scheme PBES2 (1.2.840.113549.1.5.13), in DER."""

ConnectReference = Annotated[str, Field(pattern=r"^\$\{[A-Za-z0-9_-]+:[^{}]+\}$")]


class Security(Section):
    """The encryption and the login of connections to the brokers, for librdkafka and Java."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """The brokers' listener protocol."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism. A mechanism that is not allowed here can be set in the raw overrides."""
    username: NonEmpty | None = None
    """SASL user."""
    password: SecretRef | None = None
    """Reference to the SASL password."""
    ca_file: FilePath | None = None
    """PEM file with the CA certificates of the brokers."""
    certificate_file: FilePath | None = None
    """PEM file with the client's certificate chain."""
    key_file: FilePath | None = None
    """PEM file with the client's key, in PKCS#8 form."""
    key_password: SecretRef | None = None
    """Reference to the password of the key."""

    @property
    def sasl(self) -> bool:
        """Whether the configured protocol of Kafka requires a login."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether the configured protocol of Kafka is encrypted."""
        return self.protocol.endswith("SSL")

    def conflicts(self) -> list[Conflict]:
        """Return combinations of security settings that cannot work, as (key path, problem)."""
        found: list[Conflict] = []
        for name in ("mechanism", "username", "password"):
            if getattr(self, name) is not None and not self.sasl:
                found.append(((name,), f"protocol {self.protocol} has no login; use SASL_SSL"))
            elif getattr(self, name) is None and self.sasl and self.mechanism is not None:
                found.append(((name,), f"is required for mechanism {self.mechanism}"))
        for name in ("ca_file", "certificate_file", "key_file", "key_password"):
            if getattr(self, name) is not None and not self.tls:
                found.append(((name,), f"protocol {self.protocol} has no TLS; use SSL or SASL_SSL"))
        if (self.certificate_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "certificate_file"
            found.append(((missing,), "certificate_file and key_file go together; one is missing"))
        if self.key_password is not None and self.key_file is None:
            found.append((("key_password",), "is given without a key_file"))
        return found

    def librdkafka(self) -> dict[str, str]:
        """Return Kafka's security settings under librdkafka's names, with secrets resolved."""
        settings: dict[str, str | None] = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password.resolve() if self.password else None,
            "ssl.ca.location": _path_text(self.ca_file),
            "ssl.certificate.location": _path_text(self.certificate_file),
            "ssl.key.location": _path_text(self.key_file),
            "ssl.key.password": self.key_password.resolve() if self.key_password else None,
        }
        return {key: value for key, value in settings.items() if value is not None}

    def java(self) -> dict[str, str]:
        """Return Kafka's security settings under the Java client's names, with secrets resolved.

        Certificates are included as text, so that Spark executors on other hosts need no files.

        Raises:
            ConfigError: A certificate file cannot be read, or the client's key has a format or an
                encryption that Kafka's Java client cannot read.
        """
        settings = self._java_properties(SecretRef.resolve)
        if self.key_file is not None and self.certificate_file is not None:
            key = _read_pem(self.key_file, "key_file")
            if reason := _why_java_cannot_read(key):
                raise ConfigError(
                    f"kafka.security.key_file: {self.key_file} {reason}",
                    remedy="Convert it: openssl pkcs8 -topk8 -in old.key -out new.key, "
                    "with -nocrypt or -v1 PBE-SHA1-3DES.",
                    field="kafka.security.key_file",
                )
            settings["ssl.keystore.key"] = key
        return settings

    def for_connect(self) -> dict[str, str]:
        """Return Kafka's security settings for Kafka Connect, with secrets as references.

        The Connect worker itself reads the file of the client's key. So the file must have the same
        path on the worker.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        settings = self._java_properties(SecretRef.connect_reference)
        if self.key_file is not None:
            key = SecretRef("file", str(self.key_file))
            settings["ssl.keystore.key"] = key.connect_reference()
        return settings

    def _java_properties(self, secret: Callable[[SecretRef], str]) -> dict[str, str]:
        """Return Kafka's security settings under the Java client's names, without the client's key.

        Args:
            secret: Takes a secret's reference; returns the string for the settings: the secret
                itself, or a reference that the Java program resolves.
        """
        settings: dict[str, str] = {"security.protocol": self.protocol}
        if self.mechanism is not None and self.username is not None and self.password is not None:
            login = _LOGIN_MODULES[self.mechanism]
            user, password = _jaas_text(self.username), _jaas_text(secret(self.password))
            settings["sasl.mechanism"] = self.mechanism
            settings["sasl.jaas.config"] = f"{login} required username={user} password={password};"
        if self.ca_file is not None:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.certificates"] = _read_pem(self.ca_file, "ca_file")
        if self.certificate_file is not None and self.key_file is not None:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.certificate.chain"] = _read_pem(
                self.certificate_file, "certificate_file"
            )
            if self.key_password is not None:
                settings["ssl.key.password"] = secret(self.key_password)
        return settings


class RegistryConfig(Section):
    """The address and the login of the schema registry's Confluent-compatible API."""

    url: HttpUrl
    """Base URL of the API."""
    username: NonEmpty | None = None
    """User for basic authentication."""
    password: SecretRef | None = None
    """Reference to the password."""
    ca_file: FilePath | None = None
    """PEM file with the CA certificates of the server."""


class TopicConfig(Section):
    """The settings of the topics that Tributary creates."""

    replication_factor: Annotated[int, Field(ge=-1)] = -1
    """Replicas of each partition; -1 is the brokers' default."""
    retention_ms: Annotated[int, Field(ge=-1)] = 7 * 24 * 3600 * 1000
    """How long changes stay, in ms. It must exceed a bootstrap and any pause; -1 is for ever."""
    max_message_bytes: Annotated[int, Field(ge=1)] | None = None
    """Size of the largest change event. Default: the brokers' limit, which is 1 MiB by default."""
    config: Options = Field(default_factory=dict)
    """Other topic settings."""

    def conflicts(self) -> list[Conflict]:
        """Return combinations of topic settings that cannot work, as (key path, problem)."""
        found: list[Conflict] = []
        if self.replication_factor == 0:
            found.append((("replication_factor",), "must be -1 or at least 1"))
        if "compact" in self.config.get("cleanup.policy", "delete"):
            found.append(
                (("config", "cleanup.policy"), "a compacted topic loses changes; use delete")
            )
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"):
            if name in self.config:
                found.append(
                    (("config", name), "cannot be set; topics always have the largest possible lag")
                )
        if "retention.ms" in self.config:
            found.append((("config", "retention.ms"), "use retention_ms"))
        if "max.message.bytes" in self.config:
            found.append((("config", "max.message.bytes"), "use max_message_bytes"))
        return found


class KafkaConfig(Section):
    """The addresses of the brokers and the schema registry, and the settings of topics."""

    bootstrap_servers: Servers
    """host:port of brokers, separated by commas."""
    security: Security = Field(default_factory=defaults)
    """The encryption and the login of connections to the brokers."""
    librdkafka: Options = Field(default_factory=dict)
    """Raw overrides for librdkafka clients."""
    java: Options = Field(default_factory=dict)
    """Raw overrides for Java clients (Spark's reader)."""
    registry: RegistryConfig
    """The schema registry."""
    topic: TopicConfig = Field(default_factory=defaults)
    """The settings of the topics that Tributary creates."""

    def conflicts(self) -> list[Conflict]:
        """Return combinations of Kafka's settings that cannot work, as (key path, problem)."""
        raw = any(key.startswith("sasl.mechanism") for key in self.librdkafka)
        if self.security.sasl and self.security.mechanism is None and not raw:
            reason = f"protocol {self.security.protocol} needs a mechanism"
            return [(("security", "mechanism"), reason)]
        return []

    def librdkafka_config(self) -> dict[str, str]:
        """Return a librdkafka client's configured settings, with secrets resolved.

        The settings in ``kafka.librdkafka`` override all other settings.
        """
        servers = {"bootstrap.servers": self.bootstrap_servers}
        return servers | self.security.librdkafka() | dict(self.librdkafka)

    def java_config(self) -> dict[str, str]:
        """Return a Java client's configured settings, with secrets resolved.

        The settings in ``kafka.java`` override all other settings.
        """
        servers = {"bootstrap.servers": self.bootstrap_servers}
        return servers | self.security.java() | dict(self.java)


class ConnectConfig(Section):
    """The Kafka Connect cluster that runs Debezium."""

    url: HttpUrl
    """Base URL of the REST API."""
    username: NonEmpty | None = None
    """User for basic authentication."""
    password: SecretRef | None = None
    """Reference to the password."""
    ca_file: FilePath | None = None
    """PEM file with the CA certificates of the server."""
    secrets: Annotated[Mapping[str, ConnectReference], Verbatim(), RawOptions()] = Field(
        default_factory=dict
    )
    """ConfigProvider references by connector property, for secrets that only the worker reads."""
    connector: Annotated[Mapping[str, OptionText], Verbatim(), RawOptions()] = Field(
        default_factory=dict, repr=False
    )
    """Raw overrides of connector properties; write secrets as ConfigProvider references."""
    exactly_once: bool = True
    """Require exactly-once source support, which the workers must enable."""
    timeout_s: Positive = 60
    """The longest time to wait until a connector runs, is paused, stopped or deleted, or reports
    the definition of a table, in seconds."""
    events_per_s: Positive = 10_000
    """Number of events per second that one connector can send; `plan` warns above 70 % of it."""
    converter: Literal["apicurio", "confluent"] = "apicurio"
    """The Avro converter that the worker has."""
    registry_url: HttpUrl | None = None
    """URL of the registry for the worker, if it differs from kafka.registry.url."""

    @property
    def keeps_nulls(self) -> bool:
        """Whether the configured converter sends a NULL as NULL if the column has a default."""
        return self.converter == "confluent"


def _why_java_cannot_read(key: str) -> str | None:
    """Return why Kafka's Java client cannot read a configured private key; None if it can.

    Source: https://kafka.apache.org/documentation/#brokerconfigs_ssl.keystore.key
    """
    if "BEGIN PRIVATE KEY" in key:
        return None
    encrypted = re.search(r"BEGIN ENCRYPTED PRIVATE KEY-----([^-]+)-----END", key)
    try:
        der = base64.b64decode("".join(encrypted[1].split())) if encrypted else b""
    except binascii.Error:
        der = b""
    if not der:
        return "is not a PKCS#8 key"
    return "is encrypted by PBES2, which Java's Kafka client cannot read" if _PBES2 in der else None


def _path_text(path: object) -> str | None:
    """Return a path from Kafka's security settings as text; None if the path is not set."""
    return None if path is None else str(path)


def _jaas_text(text: str) -> str:
    """Return a part of Kafka's configured login, quoted and escaped for JAAS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_pem(path: FilePath, key: str) -> str:
    """Read the PEM file whose path is the value of a setting of ``kafka.security``."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise ConfigError(
            f"kafka.security.{key}: {path} cannot be read: {reason}",
            remedy="Name a PEM file that the user who runs tributary can read.",
            field=f"kafka.security.{key}",
        ) from None
