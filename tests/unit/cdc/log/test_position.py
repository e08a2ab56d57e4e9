from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import StateError
from cdc.log.position import Lsn

VALUES = st.integers(0, (1 << 64) - 1)


@given(VALUES)
def test_text_form_round_trips(value: int) -> None:
    lsn = Lsn(value)
    assert Lsn.parse(str(lsn)) == lsn
    assert int(lsn) == value
    assert pickle.loads(pickle.dumps(lsn)) == lsn


@given(VALUES, VALUES)
def test_order_is_that_of_the_bytes(one: int, other: int) -> None:
    a, b = Lsn(one), Lsn(other)
    assert (a < b, a <= b, a == b, a >= b, a > b) == (
        one < other,
        one <= other,
        one == other,
        one >= other,
        one > other,
    )
    assert a - b == one - other
    assert (hash(a) == hash(b)) or one != other


def test_server_form_is_read() -> None:
    assert Lsn.parse("0/16B3748").value == 0x16B3748
    assert Lsn.parse("A/0").value == 0xA << 32
    assert str(Lsn((0xA << 32) | 0xFF)) == "A/FF"


@pytest.mark.parametrize("text", ["", "0", "0/", "/1", "0/G", "0/123456789", " 0/1", "0/1\n", "x"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="log sequence number"):
        Lsn.parse(text)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_values_outside_the_log_are_refused(value: int) -> None:
    with pytest.raises(StateError):
        Lsn(value)


@pytest.mark.parametrize("other", [1, "0/1", None, 1.0])
def test_comparison_with_another_kind_raises(other: object) -> None:
    lsn = Lsn(1)
    for compare in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__sub__"):
        with pytest.raises(TypeError, match="Lsn"):
            getattr(lsn, compare)(other)
    with pytest.raises(TypeError):
        assert lsn != other
