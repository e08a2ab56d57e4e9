"""The texts of a JSON document by server and by connector are brought into one form."""

from __future__ import annotations

import json
import re
import struct
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.json_text import ambiguous, in_python


def by_server(value: float) -> str:
    """A double as MySQL prints it."""
    digits, _, exponent = repr(value).partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}" if exponent else digits


def by_connector(value: float) -> str:
    """A double as Debezium prints it."""
    return repr(value) if value == 0 or 1e-3 <= abs(value) < 1e7 else f"{Decimal(value):f}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_one_text_that_reads_as_it(value: float) -> None:
    one = in_python(by_server(value))
    assert in_python(by_connector(value)) == one
    assert struct.pack("<d", float(one)) == struct.pack("<d", value + 0.0 if one == "0" else value)
    json.loads(one)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, max_value=10**20))
def test_a_decimal_keeps_its_value(value: Decimal) -> None:
    assert Decimal(in_python(f"{value:f}")) == value


@pytest.mark.parametrize(
    ("printed", "one"),
    [
        ("1.0", "1"),
        ("0.00", "0"),
        ("-0.0", "-0.0"),
        ("0.12345678901234567", "0.12345678901234567"),
        ("18446744073709551615", "18446744073709551615"),
        ("1.2345678901234568e20", "123456789012345683968"),
        ("123456789012345678901234567890123.5", "123456789012345678901234567890123.5"),
        ("1000000000000000019884624838656", "1e30"),
        ("5e-324", "4.9e-324"),
        ('{"a": [1.50, "1.50, 2.0"], "": null}', '{"a":[1.5,"1.50, 2.0"],"":null}'),
        ('["2024-02-29 01:02:03.000000"]', '["2024-02-29 01:02:03"]'),
        ('"2024-02-29 01:02:03.500"', '"2024-02-29 01:02:03.500"'),
        ('"-838:59:59.100000"', '"-838:59:59.1"'),
        (r'"base64:type15:eHh4\neHh4"', '"eHh4eHh4"'),
        (r'"\\u001F\u001F\u000B\""', r'"\\u001F\u001f\u000b\""'),
        ('"\u2028"', '"\u2028"'),
        ("", ""),
    ],
)
def test_a_document_has_one_text(printed: str, one: str) -> None:
    assert in_python(printed) == one
    assert in_python(one) == one


@pytest.mark.parametrize(
    ("printed", "doubtful"),
    [
        ("-1", True),
        ('{"a":-2147483648}', True),
        ("[1,-7]", True),
        ("[-1.5,-32769000000]", False),
        ('{"u":,"x":1}', True),
        ('["x",,1]', True),
        ("[,1]", True),
        ("[1,]", True),
        ('{"u":}', True),
        ('"12:00:00"', True),
        ('"13:0-35:0-57.00000-1"', True),
        ('"01:0-30:00"', True),
        ('"02:0-1:00"', True),
        ('"12:30:00"', False),
        ('"2024-02-29 12:00:00"', False),
        ('{"a":[],"b":{},"c":[[],{}]}', False),
    ],
)
def test_what_the_connector_does_not_tell_is_found(printed: str, doubtful: bool) -> None:
    literal = ambiguous("text").removeprefix("text RLIKE '").removesuffix("'")
    pattern = literal.replace("\\'", "'").replace("\\\\", "\\")
    assert bool(re.search(pattern, printed)) == doubtful


def test_a_long_text_takes_no_more_than_a_few_times_its_own_memory() -> None:
    document = '{"n": -1, "text": "' + "x" * 4_000_000 + '"}'
    tracemalloc.start()
    try:
        assert len(in_python(document)) == len(document) - 3
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(document)
