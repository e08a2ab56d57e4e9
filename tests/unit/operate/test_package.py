"""The files of an environment that `package` puts into its archive."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from cdc.errors import ConfigError
from operate.package import _environment


def test_an_environment_is_packed_without_its_owners_passwords(tmp_path: Path) -> None:
    """The environment can be the folder of a whole project (``python3 -m venv .``)."""
    venv.create(tmp_path)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://u:secret@host/\n")
    (tmp_path / ".env").write_text("PASSWORD=secret")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.db").write_bytes(b"raw messages")
    targets = {Path(one.target).parts[0] for one in _environment(tmp_path).files}
    assert {"bin", "lib"} <= targets <= {"bin", "lib", "lib64", "include", "share", "pyvenv.cfg"}


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be packed"):
        _environment(tmp_path)
