"""An Airflow of the tests' own: its home is a temporary folder, set before Airflow is imported."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

HOME = tempfile.mkdtemp(prefix="tributary-airflow-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ |= {
    "AIRFLOW_HOME": HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": f"{HOME}/dags",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
}
Path(HOME, "dags").mkdir()

from tests.scripted import Scripted  # noqa: E402 - imports Airflow


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """A program in the place of `tributary`, and the connection that names it."""
    made = Scripted(tmp_path / "program")
    extra = {"binary": str(made.file), "config": str(tmp_path / "tributary.yaml")}
    connection = {"conn_type": "tributary", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TRIBUTARY_DEFAULT", json.dumps(connection))
    return made
