from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from operate import warm_up
from operate.cli import app


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the class archive; no Spark session is started to record it."""
    path = tmp_path / f"a-{3 << 20}.jsa"

    def record(_prefix: Path, *_: Any, **__: Any) -> Path:
        path.write_bytes(bytes(3 << 20))
        return path

    monkeypatch.setattr(warm_up, "spark_jars", list)
    monkeypatch.setattr(warm_up, "archive_prefix", lambda _java, _jars: tmp_path / "a")
    monkeypatch.setattr(warm_up, "record", record)
    return path


def test_the_archive_is_made_once(archive: Path) -> None:
    first = CliRunner().invoke(app, ["warm-up"])
    assert first.exit_code == 0, first.output
    assert f"Made {archive}, 3 MiB" in "".join(first.output.splitlines())
    again = CliRunner().invoke(app, ["warm-up", "--output", "json"])
    assert json.loads(again.stdout) == {
        "archive": str(archive),
        "made": False,
        "bytes": 3 << 20,
    }


def test_the_session_that_records_has_only_local_files(tmp_path: Path) -> None:
    config = warm_up.training_config(tmp_path / "a.jsa", tmp_path)
    assert config.spark.local
    assert config.lake.url.startswith(tmp_path.as_uri())
    assert "ArchiveClassesAtExit" in str(config.spark.conf["spark.driver.extraJavaOptions"])
