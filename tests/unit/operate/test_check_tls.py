"""Each connection to another machine that TLS does not protect is a warning with a remedy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cdc.config import Config
from operate.check_tls import is_here, unprotected

FAR = "db.example.com"
PROTECTED: dict[str, Any] = {
    "sources": {
        "shop": {
            "primary": {"host": FAR, "database": "shop", "sslmode": "verify-full"},
            "replica": {"host": FAR, "database": "shop", "sslmode": "verify-ca"},
            "credentials": {"admin": {"user": "admin"}},
        },
        "other": {
            "kind": "mysql",
            "primary": {"host": FAR, "ssl_mode": "verify_identity", "ssl_ca": "/ca.pem"},
            "credentials": {"admin": {"user": "admin"}},
        },
    },
    "kafka": {
        "bootstrap_servers": "a.example.com:9092,b.example.com:9092",
        "security": {"protocol": "SSL"},
        "registry": {"url": "https://registry.example.com"},
    },
    "connect": {"url": "https://connect.example.com"},
    "lake": {"url": "/lake"},
    "state": {"url": f"postgresql://u:p%2F?w@{FAR}/d?sslmode=verify-full"},
}


def found(path: str = "", value: object = None) -> dict[str, str]:
    """The warnings for a fully protected configuration in which one key, at a path, is changed."""
    document = copy.deepcopy(PROTECTED)
    section = document
    *parents, last = path.split("/")
    for key in parents:
        section = section.setdefault(key, {})
    if path:
        section[last] = value
    checks = list(unprotected(Config.model_validate(document)))
    assert all(check.status == "warning" and check.remedy for check in checks)
    assert not any("p%2F" in check.detail or "p/?w" in check.detail for check in checks)
    return {check.name.removeprefix("TLS: "): check.detail for check in checks}


def test_what_is_protected_is_not_mentioned() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    ("path", "value", "what", "why"),
    [
        ("sources/shop/primary/sslmode", "prefer", "sources.shop.primary", "no TLS"),
        ("sources/shop/primary/sslmode", "disable", "sources.shop.primary", "no TLS"),
        (
            "sources/shop/replica/sslmode",
            "require",
            "sources.shop.replica",
            "not verified",
        ),
        (
            "sources/shop/endpoint_for_connect",
            {"host": "primary", "database": "shop"},
            "sources.shop.endpoint_for_connect",
            "no TLS",
        ),
        (
            "sources/other/primary/ssl_mode",
            "preferred",
            "sources.other.primary",
            "no TLS",
        ),
        (
            "sources/other/replica",
            {"host": "10.0.0.1", "ssl_mode": "required"},
            "sources.other.replica",
            "not verified",
        ),
        ("kafka/security/protocol", "PLAINTEXT", "kafka", "PLAINTEXT"),
        ("kafka/librdkafka/security.protocol", "plaintext", "kafka", "no TLS"),
        ("kafka/java/security.protocol", "SASL_PLAINTEXT", "kafka", "no TLS"),
        (
            "kafka/librdkafka/enable.ssl.certificate.verification",
            False,
            "kafka",
            "kafka.librdkafka.enable.ssl.certificate.verification",
        ),
        (
            "kafka/java/ssl.endpoint.identification.algorithm",
            "",
            "kafka",
            "not verified: kafka.java.ssl.endpoint",
        ),
        ("kafka/registry/url", "http://r.example.com", "kafka.registry.url", "has no TLS"),
        ("connect/url", "http://c.example.com:8083", "connect.url", "has no TLS"),
        ("connect/registry_url", "http://registry:8080", "connect.registry_url", "no TLS"),
        ("state/url", f"postgresql://u:p%2F?w@{FAR}:5432/d", "state.url", FAR),
        ("state/url", f"postgresql://{FAR}/d?sslmode=require", "state.url", "not verified"),
        ("state/url", f"postgresql:///d?host={FAR}", "state.url", FAR),
        ("state/url", f"mysql+pymysql://u@{FAR}/d?charset=utf8mb4", "state.url", "no TLS"),
    ],
)
def test_what_is_not_protected_is_a_warning(path: str, value: object, what: str, why: str) -> None:
    ((name, detail),) = found(path, value).items()
    assert name == what
    assert why in detail


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sources/shop/primary", {"host": "/run/postgresql", "database": "shop"}),
        ("sources/other/primary", {"host": "127.0.0.1"}),
        ("kafka", {"bootstrap_servers": "[::1]:9092", "registry": {"url": "http://localhost"}}),
        ("connect/url", "http://[::1]:8083"),
        ("state/url", "sqlite:///state.db"),
        ("state/url", "postgresql://u:p%2F?w@localhost/d"),
        ("state/url", "postgresql:///d?host=/run/postgresql"),
        ("state/url", f"mysql+pymysql://{FAR}/d?ssl_ca=/ca.pem"),
        ("state/url", "mysql+pymysql://127.0.0.1:3306/d"),
        ("state/url", "postgresql://u:${NOT_SET_AT_ALL}@db/d"),
        ("state/url", "postgresql://[db/d"),
        ("connect/url", "http://[connect"),
    ],
)
def test_this_machine_needs_none(path: str, value: object) -> None:
    assert found(path, value) == {}


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *((host, True) for host in ("localhost", "LOCALHOST.", "127.9.9.9", "::1", "[::1]", "")),
        *((host, True) for host in ("db.localhost", "/run/db", None)),
        *((host, False) for host in ("localhost.example.com", "10.0.0.1", "primary", "fe80::1")),
        *((host, False) for host in ("127.0.0.1.example.com", "0.0.0.0")),
    ],
)
def test_this_machine_is_told_by_name_and_address(host: str | None, here: bool) -> None:
    assert is_here(host) is here
