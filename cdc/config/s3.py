"""Checks the URL and the Hadoop settings of a lake on S3."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

SCHEME = "s3a"

_FORMER = re.compile(r"(s3n?)://", re.IGNORECASE)
# Java reads the bucket as the host of a URL, which has no underscores.
_BUCKET = re.compile(r"s3a://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?:/|$)")
_ENDPOINT = re.compile(
    r"(?:https?://)?[A-Za-z0-9.-]+(?::\d{1,5})?/?|(?:https?://)?\[[0-9a-f:]+\](?::\d{1,5})?/?"
)
_FORMER_KEY = re.compile(r"fs\.(s3n?)\.")
_SWITCHES = ("path.style.access", "connection.ssl.enabled")
_ALGORITHMS = ("AES256", "SSE-KMS", "SSE-C", "CSE-KMS")
_ALGORITHM = ("encryption.algorithm", "server-side-encryption-algorithm")
_KEY = ("encryption.key", "server-side-encryption.key")


def is_s3(url: str) -> bool:
    """Return whether a configured URL has the scheme of Hadoop's file system for S3."""
    return url.startswith(f"{SCHEME}://")


def url_problem(url: str) -> str | None:
    """Return what is wrong with a configured URL of S3; None if nothing is wrong."""
    if former := _FORMER.match(url):
        return f"write s3a:// instead of {former[0]}; Hadoop's file system for S3 has this name"
    if is_s3(url) and not _BUCKET.match(url):
        return (
            "needs the name of a bucket after s3a://, of letters, digits, dots and hyphens;"
            " Hadoop reads no other name"
        )
    return None


def settings_problems(url: str, hadoop: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield wrong configured settings of a lake on S3, as (key, problem).

    Args:
        url: The lake's URL.
        hadoop: Settings of Hadoop. A missing setting is not a problem, since Spark's settings or
            the cluster can have it. ``fs.s3a.bucket.BUCKET.NAME`` overrides ``fs.s3a.NAME``.
    """
    for key in hadoop:
        if former := _FORMER_KEY.match(key):
            yield key, f"is of Hadoop's former file system {former[1]}; write fs.s3a. settings"
    bucket = _BUCKET.match(url)
    if bucket is None:
        return
    keys: dict[str, str] = {}
    for prefix in ("fs.s3a.", f"fs.s3a.bucket.{bucket[1]}."):
        keys |= {key.removeprefix(prefix): key for key in hadoop if key.startswith(prefix)}
    given = {name: hadoop[key] for name, key in keys.items()}
    if "endpoint" in given and not _ENDPOINT.fullmatch(given["endpoint"]):
        yield keys["endpoint"], "must be a host, as host:port or https://host:port, without a path"
    for name in _SWITCHES:
        if name in given and given[name] not in ("true", "false"):
            yield keys[name], "must be true or false"
    yield from _encryption_problems(keys, given)


def _encryption_problems(
    keys: Mapping[str, str], given: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield wrong configured settings of encryption on S3, as (key, problem)."""
    algorithm = next((name for name in _ALGORITHM if name in given), None)
    if algorithm is None:
        return
    if given[algorithm] not in _ALGORITHMS:
        yield keys[algorithm], f"must be one of {', '.join(_ALGORITHMS)}"
    elif given[algorithm] == "AES256":
        for name in _KEY:
            if name in given:
                yield keys[name], "is not used with AES256, whose keys S3 holds; remove it"
