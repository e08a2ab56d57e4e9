"""What every unit test needs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that one test has read would be removed from the messages of all later tests."""
    monkeypatch.setattr("schemas.redaction._forms", ())
