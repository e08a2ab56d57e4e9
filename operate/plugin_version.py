"""Judges the versions of Debezium's connectors that Kafka Connect has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.debezium import connector_class
from cdc.errors import ConnectError
from cdc.sources.source_facts import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.connect.worker_status import Plugin
    from schemas.catalog import SourceKind

TESTED: Mapping[SourceKind, tuple[int, int]] = {
    "postgres": (3, 7),
    "mysql": (3, 6),
    "mariadb": (3, 5),
}
"""The series of Debezium's connector with which each kind of source is tested."""
_LOSSES: Mapping[SourceKind, str] = {
    "postgres": "before 3.7, it leaves out the rest of a COPY's rows if its task ends amid them,"
    " and no error shows the loss",
}
"""Why an older connector must not be used."""
_NAME = "Connect: Debezium"


def plugin_check(plugins: Iterable[Plugin], kind: SourceKind) -> Check:
    """Return the line that ``check`` prints about the connector for a kind of source.

    Args:
        plugins: The plugins of Connect's worker.
        kind: The kind of source.
    """
    wanted = connector_class(kind)
    installed = [one for one in plugins if one.name == wanted]
    # Connect runs the newest of several.
    plugin = max(installed, key=lambda one: _numbers(one.version), default=None)
    if plugin is None:
        return Check(
            _NAME,
            "error",
            f"the worker has no Debezium connector for {kind}",
            f"Install debezium-connector-{kind} on every worker's plugin.path.",
        )
    found, tested = f"{kind} connector {plugin.version}", TESTED[kind]
    if not _is_older(plugin.version, tested):
        return Check(_NAME, "ok", found)
    remedy = (
        f"Install debezium-connector-{kind} {'.'.join(map(str, tested))} or later on every worker,"
        " in place of the older one."
    )
    if (loss := _LOSSES.get(kind)) is not None:
        return Check(_NAME, "error", f"{found}: {loss}", remedy)
    return Check(_NAME, "warning", f"{found}, older than the versions it is tested with", remedy)


def require_plugin(plugins: Iterable[Plugin], kind: SourceKind) -> None:
    """Refuse to capture a kind of source with a connector that is not there, or that loses rows.

    Args:
        plugins: The plugins of Connect's worker.
        kind: The kind of source.

    Raises:
        ConnectError: The worker has no such connector, or one that loses changes.
    """
    line = plugin_check(plugins, kind)
    if line.status == "error":
        raise ConnectError(f"Kafka Connect: {line.detail}", remedy=line.remedy)


def _is_older(version: str, tested: tuple[int, int]) -> bool:
    """Whether a version is before the first release of a series; False if it cannot be read."""
    numbers, first = _numbers(version), (*tested, 0)
    early = re.search(r"\b(?:alpha|beta|cr)\d|snapshot", version, re.IGNORECASE) is not None
    return bool(numbers) and (numbers < first or (numbers == first and early))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the three numbers of a version, such as 3.7.0.Final; empty if it has none."""
    read = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return () if read is None else tuple(map(int, read.groups()))
