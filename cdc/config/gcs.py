"""Checks the URL and the Hadoop settings of a lake on Google Cloud Storage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

SCHEME = "gs"

# Hadoop keeps the bucket as the authority of a URL, so it may have underscores.
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]*[a-z0-9](?:/|$)")
_ROOT = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d{1,5})?/?")
_AUTH = "fs.gs.auth."
_KEY_FILE = f"{_AUTH}service.account.json.keyfile"
_SWITCHES = (f"{_AUTH}service.account.enable", f"{_AUTH}null.enable", "fs.gs.grpc.enable")


def is_gcs(url: str) -> bool:
    """Return whether a configured URL has the scheme of Google Cloud Storage."""
    return url.startswith(f"{SCHEME}://")


def url_problem(url: str) -> str | None:
    """Return what is wrong with a configured URL of Google Cloud Storage; None if nothing is."""
    if is_gcs(url) and not _BUCKET.match(url):
        return (
            "needs the name of a bucket after gs://, of small letters, digits, dots, hyphens and"
            " underscores"
        )
    return None


def settings_problems(url: str, hadoop: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield wrong configured settings of a lake on Google Cloud Storage, as (key, problem).

    Args:
        url: The lake's URL.
        hadoop: Settings of Hadoop. A missing setting is not a problem, since Spark's settings or
            the cluster can have it.
    """
    if not is_gcs(url):
        return
    if (key := f"{_AUTH}type") in hadoop:
        yield key, f"is of version 3 of Google's connector; version 2 is used: set {_KEY_FILE}"
    for key in _SWITCHES:
        if hadoop.get(key, "true") not in ("true", "false"):
            yield key, "must be true or false"
    if not PurePosixPath(hadoop.get(_KEY_FILE, "/")).is_absolute():
        yield _KEY_FILE, "must be an absolute path, since executors have other working folders"
    root = "fs.gs.storage.root.url"
    if root in hadoop and not _ROOT.fullmatch(hadoop[root]):
        yield root, "must be http://host:port or https://host:port, without a path"
