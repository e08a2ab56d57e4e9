"""Fixtures for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina

_AS_MANY_AS_THE_CODE_HAS = 1000


@pytest.fixture(autouse=True)
def _no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets of other tests, which would be removed from this test's messages."""
    monkeypatch.setattr("schemas.redaction._forms", ())


@pytest.fixture(autouse=True, scope="session")
def _tries_at_once() -> Iterator[None]:
    """Make each try of a call at once after the one before, since no server runs.

    The number of tries is that of the code.
    """
    with stamina.set_testing(True, attempts=_AS_MANY_AS_THE_CODE_HAS, cap=True):
        yield
