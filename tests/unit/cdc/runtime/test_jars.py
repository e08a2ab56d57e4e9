"""Pinned artifacts: lock files, names, checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cdc.runtime import jars
from cdc.runtime.jars import (
    SPARK,
    STORES,
    Artifact,
    ArtifactError,
    cache_folder,
    ivy_module,
    pyspark_jars,
    read_lock,
    spark_jars,
    verify,
)
from stack.artifacts import LOCK

SUM = "0" * 64


def test_a_line_names_every_part() -> None:
    artifact = Artifact.parse(f"{SUM}  io.debezium:connector:3.7.0.Final:plugin@tar.gz")
    assert artifact == Artifact("io.debezium", "connector", "3.7.0.Final", SUM, "plugin", "tar.gz")
    assert artifact.filename == "connector-3.7.0.Final-plugin.tar.gz"
    assert artifact.coordinates == "io.debezium:connector:3.7.0.Final"


def test_a_plain_line_is_a_jar() -> None:
    assert Artifact.parse(f"{SUM}  org:name:1.0").filename == "name-1.0.jar"


@pytest.mark.parametrize(
    "line",
    [
        "org:name:1.0",
        f"{SUM}  org:name",
        f"{SUM}  org::1.0",
        f"{SUM}  org:name:1.0:",
        f"{SUM}  a:b:c:d:e",
        f"{SUM[1:]}  org:name:1.0",
    ],
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ArtifactError, match="does not pin an artifact"):
        Artifact.parse(line)


def test_the_locks_pin_each_file_once() -> None:
    for bundle in (SPARK, *STORES.values(), *LOCK.values()):
        names = [artifact.filename for artifact in bundle]
        assert names
        assert len(set(names)) == len(names)
    connectors = {f"debezium-{kind}" for kind in ("postgres", "mysql", "mariadb")}
    assert set(LOCK) == {"kafka", "converter", "registry", "trino", *connectors}


def test_the_jars_fit_the_installed_spark() -> None:
    from importlib.metadata import version

    spark = [a for a in SPARK if a.organisation == "org.apache.spark"]
    assert spark
    assert {artifact.revision for artifact in spark} == {version("pyspark")}


def test_the_jars_of_s3_fit_the_installed_hadoop() -> None:
    (hadoop,) = pyspark_jars().glob("hadoop-client-api-*.jar")
    (ours,) = [jar.revision for jar in STORES["s3"] if jar.name == "hadoop-aws"]
    assert hadoop.name == f"hadoop-client-api-{ours}.jar"


@pytest.mark.parametrize(
    ("store", "jar"),
    [
        (None, None),
        ("s3", "hadoop-aws-3.3.4.jar"),
        ("gcs", "gcs-connector-hadoop3-2.2.26-shaded.jar"),
    ],
)
def test_the_jars_of_a_store_are_fetched_only_for_a_lake_there(
    store: str | None, jar: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(bundle: str, _artifacts: object, **_: object) -> Path:
        fetched.append(bundle)
        return tmp_path

    monkeypatch.setattr(jars, "fetch", fetch)
    found = {path.name for path in spark_jars(store=store)}
    assert fetched == (["spark", store] if store else ["spark"])
    of_stores = {one.filename for bundle in STORES.values() for one in bundle}
    assert jar is None or jar in found
    assert found & of_stores == ({one.filename for one in STORES[store]} if store else set())


def test_the_ivy_module_resolves_nothing_but_the_named_files() -> None:
    root = ElementTree.fromstring(ivy_module("kafka", LOCK["kafka"]))
    dependencies = root.findall(".//dependency")
    assert len(dependencies) == len(LOCK["kafka"])
    assert {dependency.get("transitive") for dependency in dependencies} == {"false"}


def test_a_classifier_reaches_ivy() -> None:
    assert 'm:classifier="plugin"' in ivy_module("debezium", LOCK["debezium-postgres"])


def test_verify_accepts_the_pinned_file_and_names_any_other(tmp_path: Path) -> None:
    artifact = Artifact("org", "name", "1.0", hashlib.sha256(b"right").hexdigest())
    (tmp_path / artifact.filename).write_bytes(b"right")
    verify([artifact], tmp_path)

    (tmp_path / artifact.filename).write_bytes(b"wrong")
    with pytest.raises(ArtifactError, match=rf"name-1\.0\.jar has checksum .*{artifact.sha256}"):
        verify([artifact], tmp_path)

    (tmp_path / artifact.filename).unlink()
    with pytest.raises(ArtifactError, match=r"org:name:1\.0: name-1\.0\.jar was not downloaded"):
        verify([artifact], tmp_path)


def test_sections_and_comments_of_a_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text(f"# comment\n\n[one]\n{SUM}  a:b:1\n[two]\n{SUM}  c:d:2\n{SUM}  e:f:3\n")
    assert {name: len(found) for name, found in read_lock(lock).items()} == {"one": 1, "two": 2}


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIBUTARY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TRIBUTARY_CACHE")
    assert cache_folder().name == "tributary"
