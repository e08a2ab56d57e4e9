"""Up to which entry a history was sent, and which missing numbers can still appear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.store.lineage import LOOK_BACK, Sent


@given(st.permutations(range(1, 40)), st.integers(1, 7))
def test_each_entry_is_sent_once_whatever_the_order_of_their_transactions(
    order: list[int], size: int
) -> None:
    """Entries appear in any order; each look sends entries above the position and missing ones."""
    sent, taken = Sent(), []
    for end in range(size, len(order) + size, size):
        there = sorted(order[:end])
        new = [one for one in there if one > sent.upto or one in sent.missing]
        taken += new
        sent = sent.after(new)
    assert sorted(taken) == list(range(1, 40))
    assert sent == Sent(39)


def test_a_number_that_is_long_gone_is_not_waited_for() -> None:
    sent = Sent().after([1_000_000])
    assert len(sent.missing) == LOOK_BACK
    assert Sent(5, (3,)).after([]) == Sent(5, (3,))
    assert Sent(5, (3,)).after([3]) == Sent(5)
    assert Sent(5, (3,)).after([3 + LOOK_BACK + 3]).missing[0] == 6
