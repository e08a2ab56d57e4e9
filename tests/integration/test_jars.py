"""Fetching jars with the real Ivy, from a Maven repository on the local disk."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cdc.runtime.jars import SETTINGS_VARIABLE, Artifact, ArtifactError, fetch

CONTENT = b"a jar"
GOOD = Artifact("org.example", "tool", "1.0", hashlib.sha256(CONTENT).hexdigest())
PLUGIN = Artifact("org.example", "tool", "1.0", GOOD.sha256, "plugin", "tar.gz")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a folder, named by a settings file as a company mirror would be."""
    folder = tmp_path / "mirror"
    for artifact in (GOOD, PLUGIN):
        place = folder / "org" / "example" / artifact.name / artifact.revision
        place.mkdir(parents=True, exist_ok=True)
        (place / artifact.filename).write_bytes(CONTENT)
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root="{folder.as_uri()}"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    return folder


def test_files_are_fetched_once_also_by_two_at_a_time(mirror: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(fetch, "tool", [GOOD, PLUGIN], cache=tmp_path, report=lines.append)
            for _ in range(2)
        ]
    first, second = (run.result() for run in runs)
    assert first == second
    assert {file.name for file in first.iterdir()} == {"tool-1.0.jar", "tool-1.0-plugin.tar.gz"}
    assert lines.count("fetched tool") == 1

    (mirror / "org").rename(mirror / "gone")
    assert fetch("tool", [GOOD, PLUGIN], cache=tmp_path) == first


def test_a_wrong_file_is_named_and_never_enters_the_cache(mirror: Path, tmp_path: Path) -> None:
    wrong = Artifact("org.example", "tool", "1.0", "0" * 64)
    with pytest.raises(ArtifactError, match=r"tool-1\.0\.jar has checksum"):
        fetch("tool", [wrong], cache=tmp_path)
    assert not list((tmp_path / "artifacts").glob("tool-*"))
    assert not list((tmp_path / "artifacts").glob(".tool-*"))


def test_a_repaired_repository_is_read_again(mirror: Path, tmp_path: Path) -> None:
    file = mirror / "org" / "example" / "tool" / "1.0" / GOOD.filename
    file.write_bytes(b"something else")
    with pytest.raises(ArtifactError, match="has checksum"):
        fetch("tool", [GOOD], cache=tmp_path)
    file.write_bytes(CONTENT)
    assert fetch("tool", [GOOD], cache=tmp_path).is_dir()


def test_a_missing_file_is_named(mirror: Path, tmp_path: Path) -> None:
    missing = Artifact("org.example", "nothing", "2.0", "0" * 64)
    with pytest.raises(ArtifactError, match="nothing"):
        fetch("nothing", [missing], cache=tmp_path)
