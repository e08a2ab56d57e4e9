"""What `package` takes of an environment."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from cdc.errors import ConfigError
from operate.package import _environment


def test_an_environment_is_packed_without_its_owners_passwords(tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    (tmp_path / "env" / "pip.conf").write_text("[global]\nindex-url = https://u:secret@host/\n")
    (tmp_path / "env" / "notes.txt").write_text("kept")
    packed = {one.target for one in _environment(tmp_path / "env").files}
    assert "notes.txt" in packed
    assert "pip.conf" not in packed


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be packed"):
        _environment(tmp_path)
