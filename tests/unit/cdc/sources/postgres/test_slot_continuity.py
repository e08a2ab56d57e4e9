"""Whether a replication slot has been replaced since an earlier look."""

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


RESET_LONG_AGO = LogMark("7/1", "1700000000.5/1700000600.25", "200 64000")


@pytest.mark.parametrize(
    ("now", "is_another"),
    [
        (RESET_LONG_AGO, False),
        (replace(RESET_LONG_AGO, executed="0 0"), True),
        # The entry of a new slot has no time of a reset, even if it has decoded more.
        (replace(RESET_LONG_AGO, file="1700000000.5", executed="3 700"), True),
        (replace(RESET_LONG_AGO, file="1700000000.5", executed="900 99000"), True),
        # Times of a reset only grow.
        (replace(RESET_LONG_AGO, file="1700000000.5/999999999.5", executed="900 99000"), True),
        # Another reset, a crash (which also removes the slot's time), a failover.
        (replace(RESET_LONG_AGO, file="1700000000.5/1700000900.5", executed="0 0"), False),
        (replace(RESET_LONG_AGO, file="1700000900.5", executed="0 0"), False),
        (replace(RESET_LONG_AGO, file="1700000000.5", executed="0 0", server="7/2"), False),
    ],
)
def test_a_slot_whose_counts_were_reset_long_ago_is_recognized_by_the_time_of_that_reset(
    now: LogMark, is_another: bool
) -> None:
    assert (recreated(RESET_LONG_AGO, now) is not None) is is_another
