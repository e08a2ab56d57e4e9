"""When an answer of Kafka proves that a partition still has a record that was read from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from cdc.kafka import KnownRecord
from cdc.kafka.known_records import difference, shows

KNOWN = KnownRecord("shop.public.orders", 0, 999, 1_767_225_600_500)


@dataclass(frozen=True)
class First:
    """A partition's first record at or after a time, in the form of the client library."""

    offset: int
    timestamp: int


@pytest.mark.parametrize(
    ("first", "proven"),
    [
        (First(999, KNOWN.sent_ms), True),
        (
            First(950, KNOWN.sent_ms),
            False,
        ),  # several records of one millisecond: read the known one
        (First(900, KNOWN.sent_ms + 1), False),  # the topic was restored up to 900, and has grown
        (First(1000, KNOWN.sent_ms), False),
        (First(-1, -1), False),
    ],
)
def test_only_a_record_of_the_same_time_and_offset_proves_the_record(
    first: First, proven: bool
) -> None:
    assert shows(cast(Any, first), KNOWN) is proven


def test_the_record_itself_decides_by_its_time() -> None:
    sent = datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=timezone.utc)
    assert difference(KNOWN, sent) is None
    later = sent.replace(second=7)
    assert difference(KNOWN, later) == (
        "the record at offset 999 was of 2026-01-01T00:00:00.500+00:00, and is of"
        " 2026-01-01T00:00:07.500+00:00 now"
    )
    assert difference(KNOWN, None) == (
        "the record at offset 999 was of 2026-01-01T00:00:00.500+00:00, and now there is none"
    )
