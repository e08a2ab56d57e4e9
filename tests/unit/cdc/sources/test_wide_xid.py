from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.sources.postgres.primary import wide_xid

EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("xid", "near", "wide"),
    [
        (7, 9, 7),
        (9, 7, 9),
        (EPOCH - 1, EPOCH + 3, EPOCH - 1),
        (2, EPOCH - 5, EPOCH + 2),
        (5, 3 * EPOCH + 5, 3 * EPOCH + 5),
    ],
)
def test_the_upper_half_of_a_transaction_id_is_that_of_its_neighbours(
    xid: int, near: int, wide: int
) -> None:
    assert wide_xid(xid, near=near) == wide


@given(st.integers(0, 1 << 62), st.integers(1 - (1 << 31), (1 << 31) - 1))
def test_any_id_is_found_that_is_less_than_half_an_epoch_away(near: int, distance: int) -> None:
    true = near + distance
    assert wide_xid(true % EPOCH, near=near) == true
