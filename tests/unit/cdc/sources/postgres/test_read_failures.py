"""What a failed read by Spark means, from the text of its exception."""

from __future__ import annotations

import pytest

from cdc.errors import PermanentError
from cdc.sources.postgres.reader import explain_failure
from schemas.table import TableId


@pytest.mark.parametrize("column", ["price", 'odd "one" of it'])
def test_a_value_that_stops_a_copy_names_its_column_and_all_ways_on(column: str) -> None:
    printed = (
        "org.postgresql.util.PSQLException: ERROR: invalid input syntax for type numeric:"
        f' "column {column} of shop:public.t holds NaN, which decimal(10,2) cannot hold"\n\tat x'
    )
    error = explain_failure(TableId("shop", "public", "t"), printed)
    assert isinstance(error, PermanentError)
    assert error.message == (
        f"column {column} of shop:public.t holds NaN, which decimal(10,2) cannot hold"
    )
    for way in ("Correct the value", f"columns.as: {{{column}: string}}", "columns.exclude"):
        assert way in error.remedy
