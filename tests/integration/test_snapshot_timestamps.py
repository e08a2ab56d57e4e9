"""The snapshot path reads every microsecond of a timestamp as the source has it."""

from __future__ import annotations

import pytest

from schemas.types_postgres import PostgresType
from tests.integration.rigs.postgres import Database

EDGES = (
    "0001-01-01 00:00:00",
    "1899-12-31 23:59:59.999999",
    "1900-01-01 00:00:00.000001",
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00",
    "2038-01-19 03:14:07.999999",
    "2039-12-31 23:59:59.999999",
    "2040-01-01 00:00:00.000001",
    "2262-04-11 23:47:16.854775",
    "9999-12-31 23:59:59.999999",
)


@pytest.mark.parametrize("name", ["timestamp", "timestamptz"])
def test_read_micros_are_exact(database: Database, name: str) -> None:
    rule = PostgresType(name).rule(table="t", column="at")
    listed = ", ".join(f"('{edge}+00')" for edge in EDGES)
    with database.connect() as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(f"CREATE TEMP TABLE moments (at {name})".encode())
        connection.execute(f"INSERT INTO moments VALUES {listed}".encode())
        connection.execute(
            # all centuries that a double reaches exactly, and their neighbours
            b"INSERT INTO moments SELECT timestamptz '1890-01-01Z'"
            b" + (random() * 4900000000)::int8 * interval '1 second'"
            b" + (random() * 999999)::int * interval '1 microsecond'"
            b" FROM generate_series(1, 200000)"
        )
        wrong = connection.execute(
            f"SELECT at, {rule.read('at')}, extract(epoch FROM at) * 1000000 FROM moments"
            f" WHERE {rule.read('at')} <> extract(epoch FROM at) * 1000000 LIMIT 5".encode()
        ).fetchall()
    assert wrong == []
