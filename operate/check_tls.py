"""Finds the connections to other machines that TLS does not fully protect.

Only the configuration is judged, and no connection is opened. A connection that uses TLS today can
be without TLS tomorrow unless a setting requires TLS.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from cdc.config import Config
from cdc.config.kafka import KafkaConfig
from cdc.config.source import Endpoint, MysqlEndpoint, SourceConfig
from cdc.errors import SecretError
from cdc.sources.source_facts import Check

_PLAIN = "has no TLS"
_UNVERIFIED = "is encrypted, but the server's identity is not verified"
_POSTGRES = {
    **dict.fromkeys(("disable", "allow", "prefer"), "may have no TLS"),
    "require": _UNVERIFIED,
}
_MYSQL = {
    **dict.fromkeys(("disabled", "preferred"), "may have no TLS"),
    "required": _UNVERIFIED,
}
_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"}


def unprotected(config: Config) -> Iterator[Check]:
    """Yield a warning of ``check`` for each connection that TLS does not fully protect.

    Args:
        config: The configuration. Its secrets are not resolved, except those in ``state.url``.
    """
    yield from _state_store_warnings(config)
    for name, source in config.sources.items():
        yield from _source_warnings(name, source)
    yield from _kafka_warnings(config.kafka)
    remedy = "Use an https:// URL, and set ca_file if your own CA signs the certificate."
    for key, url in (
        ("connect.url", config.connect.url),
        ("kafka.registry.url", config.kafka.registry.url),
        ("connect.registry_url", config.connect.registry_url or ""),
    ):
        if url.startswith("http://") and not is_here(_url_host(url)):
            yield _tls_warning(key, f"the connection to {url} {_PLAIN}", remedy)


def is_here(host: str | None) -> bool:
    """Whether a host is this machine, so that a connection to it needs no TLS.

    This is so for ``localhost``, a loopback address, a Unix socket, and an empty host. Other names
    are not resolved.
    """
    name = (host or "").strip("[]").lower().rstrip(".")
    if not name or name.startswith(("/", "@")) or name in _NAMES or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _url_host(url: str) -> str | None:
    """Return the host of a URL, for ``check``; None if the URL has no host or is malformed."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None  # the code that connects to it raises an error


def _tls_warning(what: str, detail: str, remedy: str) -> Check:
    """Return a warning of ``check`` about the TLS of a connection."""
    return Check(f"TLS: {what}", "warning", detail, remedy)


def _source_warnings(name: str, source: SourceConfig) -> Iterator[Check]:
    """Yield the warnings of ``check`` about TLS between Tributary or Connect and a source."""
    for key in ("primary", "replica", "endpoint_for_connect"):
        endpoint: Endpoint | MysqlEndpoint | None = getattr(source, key)
        if endpoint is None or all(map(is_here, endpoint.host.split(","))):
            continue
        if isinstance(endpoint, Endpoint):
            mode, problem = f"sslmode {endpoint.sslmode}", _POSTGRES.get(endpoint.sslmode)
            remedy = "Set sslmode: verify-full and sslrootcert for it."
        else:
            mode, problem = f"ssl_mode {endpoint.ssl_mode}", _MYSQL.get(endpoint.ssl_mode)
            remedy = "Set ssl_mode: verify_identity and ssl_ca for it."
        if problem is not None:
            detail = f"with {mode} the connection to {endpoint.host} {problem}"
            yield _tls_warning(f"sources.{name}.{key}", detail, remedy)


def _kafka_warnings(kafka: KafkaConfig) -> Iterator[Check]:
    """Yield the warning of ``check`` about TLS between Tributary and Kafka."""
    others = [
        server
        for server in kafka.bootstrap_servers.split(",")
        if not is_here(server.strip().rpartition(":")[0] or server)
    ]
    if not others:
        return
    where = f"the connection to {', '.join(map(str.strip, others))}"
    ours, java = kafka.librdkafka, kafka.java
    protocols = {
        str(raw.get("security.protocol", kafka.security.protocol)).upper() for raw in (ours, java)
    }
    if plain := sorted(protocol for protocol in protocols if not protocol.endswith("SSL")):
        remedy = (
            "Set kafka.security.protocol to SSL or SASL_SSL, and kafka.security.ca_file if your own"
            " CA signs the certificate."
        )
        yield _tls_warning("kafka", f"with {', '.join(plain)} {where} {_PLAIN}", remedy)
        return
    by_name = "ssl.endpoint.identification.algorithm"
    off = [
        f"kafka.{section}.{key}"
        for section, key, raw, unsafe in (
            ("librdkafka", "enable.ssl.certificate.verification", ours, ("false",)),
            ("librdkafka", by_name, ours, ("none",)),
            ("java", by_name, java, ("",)),
        )
        if key in raw and str(raw[key]).lower() in unsafe
    ]
    if off:
        detail = f"{where} {_UNVERIFIED}: {', '.join(off)}"
        remedy = (
            "Remove that setting; set kafka.security.ca_file if your own CA signs the certificate."
        )
        yield _tls_warning("kafka", detail, remedy)


def _state_store_warnings(config: Config) -> Iterator[Check]:
    """Yield the warning of ``check`` about TLS between Tributary and the state store."""
    try:
        url = config.state.connection_url()
    except SecretError:
        return  # the line of the state store has this error
    # A password can contain characters that end a host in a URL.
    place = re.sub(r"//[^/@]*(?::[^@]*)?@", "//", url, count=1)
    given = dict(parse_qsl(place.partition("?")[2]))
    host = unquote(given.get("host") or _url_host(place) or "")
    kind = re.split(r"[+:]", place, maxsplit=1)[0]
    if kind == "sqlite" or is_here(host.partition(":")[0] if host.count(":") == 1 else host):
        return
    problem, remedy = _state_store_problem(kind, given)
    if problem:
        yield _tls_warning("state.url", f"the connection to {host} {problem}", remedy)


def _state_store_problem(kind: str, given: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the TLS problem of the state store's connection, and the remedy.

    The problem is None if TLS fully protects the connection.

    Args:
        kind: The scheme of the URL without a driver, for example ``postgresql``.
        given: The query parameters of the URL.
    """
    if kind == "postgresql":
        remedy = "Add sslmode=verify-full and sslrootcert=/path/of/ca.pem to the URL's parameters."
        return _POSTGRES.get(given.get("sslmode", "prefer")), remedy
    verified = given.get("ssl_ca") or given.get("ssl_capath")
    return None if verified else _MYSQL[
        "preferred"
    ], "Add ssl_ca=/path/of/ca.pem to the URL's parameters."
