"""Services whose lineage goes to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from operate.context import Services
from tests.unit.cdc.configuration import minimal


def to_file(settings: Path, file: Path) -> None:
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    settings.write_text(yaml.safe_dump({"transport": transport}))


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    to_file(tmp_path / "openlineage.yml", tmp_path / "events")
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    with patch.dict(os.environ):  # the client adds variables of its own
        yield opened
    opened.close()
