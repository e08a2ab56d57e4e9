"""Servers whose log may lack changes of a table that has joined a publication."""

from __future__ import annotations

import pytest

from cdc.sources.postgres.version import obstacle


@pytest.mark.parametrize("whole", [140019, 150014, 150018, 160010, 170006, 180000, 190001])
def test_a_server_that_logs_every_change_is_taken(whole: int) -> None:
    assert obstacle(whole) is None


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (140017, "14.19"),
        (150012, "15.14"),
        (160008, "16.10"),
        (170000, "17.6"),
        (140018, "14.19"),
        (150013, "15.14"),
        (160009, "16.10"),
        (170005, "17.6"),
        (130021, "14"),
    ],
)
def test_an_older_one_is_told_the_version_that_does(version: int, told: str) -> None:
    found = obstacle(version)
    assert found is not None
    assert found[1] == f"Upgrade the server to {told} or later."


@pytest.mark.parametrize(("version", "why"), [(170004, "leave changes"), (170005, "memory")])
def test_what_a_version_does_is_told(version: int, why: str) -> None:
    found = obstacle(version)
    assert found is not None
    assert why in found[0]
    assert "which 17.6 repaired" in found[0]
