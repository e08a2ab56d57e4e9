"""How far back heartbeats and markers are read."""

from __future__ import annotations

import pytest

from cdc.debezium.sent_transactions import tails


@pytest.mark.parametrize(
    ("start", "end", "firsts"),
    [
        (0, 0, [0]),
        (0, 512, [0]),
        (7, 1_000, [488, 7]),
        (0, 1_000_000, [999_488, 995_904, 967_232, 737_856]),
    ],
)
def test_ever_longer_ends_of_a_topic_are_read(start: int, end: int, firsts: list[int]) -> None:
    assert [*tails(start, end)] == firsts
