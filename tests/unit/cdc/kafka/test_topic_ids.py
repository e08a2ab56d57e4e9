"""The client library makes one object for each UUID, and not one for each description."""

from __future__ import annotations

import confluent_kafka as ck

from cdc.kafka.topic_ids import share_uuids


def test_equal_uuids_are_one_object() -> None:
    """The library calls the class by its name, with these arguments."""
    for _ in range(2):
        share_uuids()
        made = [ck.Uuid(most_significant_bits=5, least_significant_bits=low) for low in (7, 7, 8)]
        assert made[0] is made[1]
        assert str(made[0]) != str(made[2])
