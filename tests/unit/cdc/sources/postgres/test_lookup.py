"""Rows that are read by key have the values of the lake's types."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.sources.postgres.lookup import key_lists, lake_value
from schemas.type_rule import TypeRule

REAL = TypeRule("float", "{0}", "float", "{0}")


@given(st.floats(width=32, allow_nan=False))
def test_a_real_is_the_number_that_the_lake_has(number: float) -> None:
    """The server prints the shortest text that only this real has."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if single(float(text)) == number:
            break
    assert lake_value(REAL, float(text)) == number


def single(number: float) -> float:
    try:
        (nearest,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return math.nan
    return float(nearest)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_key_with_nan_is_found_again(kind: str) -> None:
    rule = TypeRule(kind, "{0}", kind, "{0}")
    assert (lake_value(rule, float("nan")),) == (lake_value(rule, float("nan")),)


@given(st.lists(st.tuples(st.integers()), max_size=1_200))
def test_lists_of_keys_have_all_keys_and_few_lengths(keys: list[tuple[int]]) -> None:
    lists = list(key_lists(keys))
    assert {key for some in lists for key in some} == set(keys)
    assert {len(some) for some in lists} <= {1 << power for power in range(10)}
    assert sum(map(len, lists)) < 2 * len(keys) or not keys
    assert len(lists) == -(-len(keys) // 512)
