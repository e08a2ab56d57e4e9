"""Fixtures for every unit test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets of other tests, which would be removed from this test's messages."""
    monkeypatch.setattr("schemas.redaction._forms", ())
