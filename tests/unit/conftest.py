"""What every unit test needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina


@pytest.fixture(autouse=True)
def _no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that one test has read would be removed from the messages of all later tests."""
    monkeypatch.setattr("schemas.redaction._forms", ())


@pytest.fixture(autouse=True)
def repetitions_do_not_wait() -> Iterator[None]:
    """A request that fails is repeated as often as in production, at once."""
    with stamina.set_testing(True, attempts=1000, cap=True):
        yield
