"""The versions of Debezium's connectors that Connect's workers may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.connect.worker_status import Plugin
from cdc.debezium import connector_class
from cdc.errors import ConnectError
from operate.plugin_version import TESTED, plugin_check, require_plugin
from schemas.catalog import SourceKind
from stack.artifacts import LOCK


def plugin(kind: SourceKind, version: str) -> Plugin:
    return Plugin(connector_class(kind), "source", version)


@pytest.mark.parametrize("kind", TESTED)
def test_the_tested_series_are_those_of_the_local_stack(kind: SourceKind) -> None:
    (pinned,) = [a for a in LOCK[f"debezium-{kind}"] if a.name == f"debezium-connector-{kind}"]
    assert pinned.revision.startswith(".".join(map(str, TESTED[kind])) + ".")
    assert plugin_check([plugin(kind, pinned.revision)], kind).status == "ok"


@pytest.mark.parametrize(
    ("kind", "version", "status"),
    [
        ("postgres", "3.7.0.Final", "ok"),
        ("postgres", "3.7.1-SNAPSHOT", "ok"),
        ("postgres", "3.7.0.Alpha1", "error"),
        ("postgres", "3.7.0.CR1", "error"),
        ("postgres", "3.7.0.Final-microsoft", "ok"),
        ("postgres", "3.6.1.Final", "error"),
        ("postgres", "2.7.4.Final", "error"),
        ("postgres", "3.10.0.Beta1", "ok"),
        ("postgres", "4.0.0.Final", "ok"),
        ("postgres", "unknown", "ok"),
        ("mysql", "3.6.1.Final", "ok"),
        ("mysql", "3.5.0.Final", "warning"),
        ("mariadb", "3.5.0.Final", "ok"),
        ("mariadb", "2.7.0.Final", "warning"),
    ],
)
def test_an_older_connector_is_told_and_refused_if_it_loses_rows(
    kind: SourceKind, version: str, status: str
) -> None:
    line = plugin_check([plugin(kind, version)], kind)
    assert line.status == status
    assert version in line.detail
    if status != "error":
        require_plugin([plugin(kind, version)], kind)
        return
    assert "leaves out the rest of a COPY's rows" in line.detail
    with pytest.raises(ConnectError, match="leaves out the rest of a COPY's rows") as refused:
        require_plugin([plugin(kind, version)], kind)
    assert "debezium-connector-postgres 3.7 or later" in (refused.value.remedy or "")


def test_the_newest_of_several_versions_counts() -> None:
    installed = [plugin("postgres", one) for one in ("3.7.0.Final", "3.10.1.Final", "2.7.4.Final")]
    assert "3.10.1.Final" in plugin_check(installed, "postgres").detail


def test_a_worker_without_the_connector_is_refused() -> None:
    other = replace(plugin("mysql", "3.6.1.Final"), name="com.example.Sink")
    assert plugin_check([other], "mysql").status == "error"
    with pytest.raises(ConnectError, match="no Debezium connector for mysql"):
        require_plugin([other], "mysql")
