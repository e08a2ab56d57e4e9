from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc.runtime.class_archive import (
    ClassArchiveError,
    archive_options,
    archive_prefix,
    class_path,
    find_archive,
    path_of_machine,
    record,
    recording_options,
)
from cdc.runtime.jars import CACHE_VARIABLE
from cdc.runtime.java import JavaInstallation
from cdc.runtime.progress import NullProgress

JAVA = JavaInstallation(Path("/java"), "17.0.15")


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "hudi.jar"
    path.write_bytes(b"classes")
    return path


@pytest.fixture
def spark_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "spark" / "jars" / "spark-core.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"core")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path for the source code of the module that a child process runs."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "recorder.py"


def test_the_path_of_an_archive_is_in_the_cache_and_stays_the_same(
    jar: Path, spark_jar: Path, tmp_path: Path
) -> None:
    path = archive_prefix(JAVA, [jar])
    assert path == archive_prefix(JAVA, [jar])
    assert path.parent == tmp_path / "cache" / "class-archives"


@pytest.mark.parametrize("changed", ["jar", "spark", "java"])
def test_another_jar_or_java_has_another_archive(jar: Path, spark_jar: Path, changed: str) -> None:
    before = archive_prefix(JAVA, [jar])
    java = JAVA
    if changed == "java":
        java = JavaInstallation(JAVA.home, "17.0.16")
    else:
        os.utime(jar if changed == "jar" else spark_jar, (1, 1))
    assert archive_prefix(java, [jar]) != before


def test_a_layer_of_an_image_keeps_the_archive_valid(jar: Path, spark_jar: Path) -> None:
    os.utime(jar, ns=(1_700_000_000_123_456_789,) * 2)
    before = archive_prefix(JAVA, [jar])
    os.utime(jar, (1_700_000_000, 1_700_000_000))  # as Docker stores a file
    assert archive_prefix(JAVA, [jar]) == before


def test_sparks_own_jars_go_before_others_and_after_the_users(jar: Path, spark_jar: Path) -> None:
    ours = f"{spark_jar.parent}/*:{jar}"
    assert class_path([jar]) == ours
    assert class_path([jar], "/own/*") == f"/own/*:{ours}"


@pytest.mark.parametrize("variable", ["SPARK_HOME", "SPARK_CONF_DIR"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("spark.driver.extraClassPath  /opt/site/*", True),
        ("spark.driver.extraClassPath=/opt/site/*", True),
        ("# spark.driver.extraClassPath /opt/site/*", False),
        ("spark.executor.extraClassPath /opt/site/*", False),
        (None, False),
    ],
)
def test_a_class_path_in_sparks_own_settings_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, line: str | None, found: bool
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert not path_of_machine()
    folder = tmp_path / "conf"
    folder.mkdir()
    monkeypatch.setenv(variable, str(tmp_path if variable == "SPARK_HOME" else folder))
    if line is not None:
        (folder / "spark-defaults.conf").write_text(f"spark.ui.enabled false\n{line}\n")
    assert path_of_machine() is found


def test_options_name_an_archive_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "a b.jsa"
    assert archive_options(None) == ""
    assert f'"-XX:SharedArchiveFile={archive}"' in archive_options(archive)
    assert archive_options(archive, recording_options(archive)) == "", "the JVM refuses both"


def test_a_complete_archive_replaces_the_one_that_is_there(module: Path, tmp_path: Path) -> None:
    module.write_text("import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('new')")
    prefix = tmp_path / "archives" / "a"
    prefix.parent.mkdir()
    prefix.with_name("a-9.jsa").write_text("another")
    made = record(prefix, module.stem, NullProgress(), timeout_s=60)
    assert made.read_text() == "new"
    assert find_archive(prefix) == made
    assert list(prefix.parent.iterdir()) == [made], "nothing is left of the work"


def test_an_archive_that_was_cut_is_none(tmp_path: Path) -> None:
    prefix, archive = tmp_path / "a", tmp_path / "a-4.jsa"
    assert find_archive(prefix) is None
    archive.write_text("full")
    assert find_archive(prefix) == archive
    archive.write_text("cut")
    assert find_archive(prefix) is None


@pytest.mark.parametrize(
    ("source", "limit_s", "reason"),
    [
        ("raise SystemExit('no memory')", 60, "exit code 1; no memory"),
        ("print('fine')", 60, "exit code 0; fine"),
        ("import time; time.sleep(60)", 0.1, "no end within 0 s"),
    ],
)
def test_a_session_that_leaves_no_archive_is_an_error_with_its_last_words(
    module: Path, tmp_path: Path, source: str, limit_s: float, reason: str
) -> None:
    module.write_text(source)
    prefix = tmp_path / "archives" / "a"
    with pytest.raises(ClassArchiveError, match=reason):
        record(prefix, module.stem, NullProgress(), timeout_s=limit_s)
    assert list(prefix.parent.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named_and_another_one_helps(
    module: Path, jar: Path, spark_jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_text("import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('new')")
    (tmp_path / "cache").write_text("a file is where the folder should be")
    with pytest.raises(ClassArchiveError, match="cannot be written") as caught:
        record(archive_prefix(JAVA, [jar]), module.stem, NullProgress(), timeout_s=60)
    assert CACHE_VARIABLE in caught.value.remedy
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "other"))
    made = record(archive_prefix(JAVA, [jar]), module.stem, NullProgress(), timeout_s=60)
    assert made == find_archive(archive_prefix(JAVA, [jar]))


def test_a_recording_session_has_no_folder_on_its_class_path(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    module.write_text(
        "import os, pathlib, sys;"
        "pathlib.Path(sys.argv[1]).write_text(os.environ.get('HADOOP_CONF_DIR', 'none'))"
    )
    made = record(tmp_path / "archives" / "a", module.stem, NullProgress(), timeout_s=60)
    assert made.read_text() == "none"
