"""Checks the URL and the Hadoop settings of a lake on Azure Data Lake Storage Gen2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SCHEME = re.compile(r"abfss?://")
_PLACE = re.compile(
    r"abfss?://(?:[a-z0-9$](?:[a-z0-9-]*[a-z0-9])?|[^/@]+(?=@onelake\.))"
    r"@(?P<account>[a-z0-9]+(?:\.z\d+)?\.dfs\.[a-z0-9.-]+)(?:/|$)"
)
_TYPE = "fs.azure.account.auth.type"
_TYPES = ("SharedKey", "OAuth", "Custom", "SAS")
_ENDPOINT = "fs.azure.account.oauth2.client.endpoint"
_KEY = "fs.azure.account.key."


def url_problem(url: str) -> str | None:
    """Return what is wrong with a configured URL of Azure's file system; None if nothing is."""
    if _SCHEME.match(url) and not _PLACE.match(url):
        return (
            "must be abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER; names have small"
            " letters and digits, and a container's also hyphens"
        )
    return None


def settings_problems(url: str, hadoop: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield wrong configured settings of a lake on Azure's file system, as (key, problem).

    Args:
        url: The lake's URL.
        hadoop: Settings of Hadoop. A missing setting is not a problem, since Spark's settings or
            the cluster can have it. ``NAME.ACCOUNT`` overrides ``NAME``.
    """
    place = _PLACE.match(url)
    if place is None:
        return
    account = place["account"]
    for key in (_TYPE, f"{_TYPE}.{account}"):
        if key in hadoop and hadoop[key] not in _TYPES:
            yield key, f"must be one of {', '.join(_TYPES)}"
    for key in (_ENDPOINT, f"{_ENDPOINT}.{account}"):
        if not hadoop.get(key, "https://").startswith("https://"):
            yield key, "must begin with https://, since the client's secret is sent there"
    for key in hadoop:
        if key.startswith(_KEY) and "." not in key.removeprefix(_KEY):
            yield key, f"names no host of an account; write {_KEY}{account}"
