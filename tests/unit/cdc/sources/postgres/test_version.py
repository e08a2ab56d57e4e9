"""Servers whose log may lack changes of a table that has joined a publication."""

from __future__ import annotations

import pytest

from cdc.sources.postgres.version import obstacle


@pytest.mark.parametrize("whole", [140018, 150013, 150018, 160009, 170005, 180000, 190001])
def test_a_server_that_logs_every_change_is_taken(whole: int) -> None:
    assert obstacle(whole) is None


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (140017, "14.18"),
        (150012, "15.13"),
        (160008, "16.9"),
        (170000, "17.5"),
        (130021, "14"),
    ],
)
def test_an_older_one_is_told_the_version_that_does(version: int, told: str) -> None:
    found = obstacle(version)
    assert found is not None
    assert found[1] == f"Upgrade the server to {told} or later."
