from __future__ import annotations

import pytest

from cdc.kafka import expiries

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("settings", "wanted_ms"),
    [
        ({}, -1),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, HOUR_MS),
        ({"retention.ms": str(HOUR_MS)}, HOUR_MS),
    ],
)
def test_what_is_kept_long_enough_is_fine(settings: dict[str, str], wanted_ms: int) -> None:
    assert list(expiries(settings, wanted_ms)) == []


@pytest.mark.parametrize(
    ("setting", "value", "wanted_ms", "says", "remedy"),
    [
        ("retention.ms", "60000", HOUR_MS, "less than kafka.topic", "Set retention.ms=3600000 on"),
        ("retention.ms", "60000", -1, "must not expire", "Set retention.ms=-1 on topic t."),
        ("retention.ms", "0", 1, "for 0.0 h", "Set retention.ms=1 on topic t."),
        ("retention.bytes", "1073741824", -1, "1073741824 bytes", "retention.bytes=-1 on topic t."),
    ],
)
def test_what_goes_unread_is_named_with_its_remedy(
    setting: str, value: str, wanted_ms: int, says: str, remedy: str
) -> None:
    (expiry,) = expiries({setting: value}, wanted_ms)
    assert says in expiry.what
    assert remedy in expiry.remedy("topic t")
