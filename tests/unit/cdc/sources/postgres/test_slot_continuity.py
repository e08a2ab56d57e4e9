"""Whether a replication slot is another one than at an earlier look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.log.continuity import LogMark
from cdc.sources.postgres.slot_continuity import recreated

EARLIER = LogMark("7/1", "1700000000.5", "200 64000")


@pytest.mark.parametrize(
    ("now", "is_another"),
    [
        (EARLIER, False),
        (replace(EARLIER, executed="201 64010"), False),
        (replace(EARLIER, executed="1000 1000000"), False),
        (replace(EARLIER, executed="199 64010"), True),
        (replace(EARLIER, executed="201 9000"), True),
        (replace(EARLIER, executed="0 0"), True),
        # A crash, a reset of the slot's counts, a failover.
        (replace(EARLIER, executed="0 0", file="1700000900.5"), False),
        (replace(EARLIER, executed="0 0", file="1700000000.5/1700000900.5"), False),
        (replace(EARLIER, executed="0 0", server="7/2"), False),
    ],
)
def test_a_slot_that_has_decoded_less_than_before_is_another_one(
    now: LogMark, is_another: bool
) -> None:
    assert (recreated(EARLIER, now) is not None) is is_another
