"""Fixtures of the integration tests: a database of a test's own on the shared stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stack.local import LocalStack
from tests.integration.rigs.postgres import Database, own_database


@pytest.fixture
def database(stack: LocalStack) -> Iterator[Database]:
    """An empty database, captured by nobody; dropped with its connectors and slots."""
    with own_database(stack) as created:
        yield created


@pytest.fixture(autouse=True)
def decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the wait for late commits to 0.

    Only a broker's restart makes a commit late, and no test of losses restarts a broker.
    """
    monkeypatch.setattr("cdc.capture.sent_records.LATE_S", 0.0)
