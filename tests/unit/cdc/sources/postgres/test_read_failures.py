"""The meaning of a failed read, by Spark or by key, derived from the text of its exception."""

from __future__ import annotations

import psycopg
import pytest

from cdc.config import PostgresSourceConfig
from cdc.errors import PermanentError, SourceError
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.reader import explain_failure
from schemas.table import TableId


@pytest.mark.parametrize("column", ["price", 'odd "one" of it'])
def test_a_value_that_stops_a_copy_names_its_column_and_all_ways_on(column: str) -> None:
    printed = (
        "org.postgresql.util.PSQLException: ERROR: invalid input syntax for type numeric:"
        f' "column {column} of shop:public.t holds NaN, which decimal(10,2) cannot hold"\n\tat x'
    )
    error = explain_failure(TableId("shop", "public", "t"), printed, on_replica=True)
    assert isinstance(error, PermanentError)
    assert error.message == (
        f"column {column} of shop:public.t holds NaN, which decimal(10,2) cannot hold"
    )
    for way in ("Correct the value", f"columns.as: {{{column}: string}}", "columns.exclude"):
        assert way in error.remedy


def test_a_value_that_stops_a_read_by_key_names_its_column_and_all_ways_on() -> None:
    server, logins = {"host": "db", "database": "shop"}, {"admin": {"user": "admin"}}
    document = {"primary": server, "credentials": logins}
    connections = Connections("shop", PostgresSourceConfig.model_validate(document))
    said = "column n of shop:public.t holds 777, which decimal(2,0) of columns.as cannot hold"
    unfit = psycopg.errors.InvalidTextRepresentation(f'invalid input syntax: "{said}"')
    error = connections.explain(unfit, "snapshot")
    assert (type(error), error.message) == (PermanentError, said)
    assert "columns.as: {n: string}" in error.remedy
    other = psycopg.errors.InvalidTextRepresentation('invalid input syntax: "n"')
    assert type(connections.explain(other, "snapshot")) is SourceError
