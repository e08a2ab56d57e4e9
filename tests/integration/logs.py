"""Tables without a key on the real stack, and writers whose transactions straddle everything."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from cdc.sources.postgres.exact_view import grant_sql
from stack.postgres import SNAPSHOT
from tests.integration.conftest import Database

COLUMNS = ("kind", "n", "t")


def create_log(database: Database, name: str, rows: int) -> None:
    """A table without a key, of which many rows are equal."""
    database.execute(
        f"CREATE TABLE {name} (kind text, n int, t text)",
        f"INSERT INTO {name} SELECT 'old', g % 100, repeat('x', 100)"
        f" FROM generate_series(1, {rows}) g",
    )


def may_pause(database: Database) -> None:
    """Let the snapshot role pause replay, as the product asks for it."""
    database.stack.psql(grant_sql(SNAPSHOT), database=database.name)


@contextmanager
def inserters(database: Database, name: str, count: int = 4) -> Iterator[list[int]]:
    """Transactions of some rows each, open for up to half a second; the list counts the rows.

    One of them rolls back what it wrote in every fifth; another uses savepoints in every second,
    and a standby that was told of those exports views that do not hold.
    """
    stop, done = threading.Event(), [0] * count

    def write(number: int) -> None:
        chance = random.Random(number)
        with psycopg.connect(database.dsn()) as connection:
            turn = 0
            while not stop.is_set():
                turn += 1
                rows = chance.randint(1, 8)
                for row in range(rows):
                    if number == 1 and turn % 2:
                        connection.execute("SAVEPOINT s")
                    connection.execute(
                        f"INSERT INTO {name} VALUES ('new', %s, %s)".encode(), (turn % 7, "same")
                    )
                    if row == rows // 2:
                        stop.wait(chance.choice((0.0, 0.005, 0.05, 0.5)))
                if number == 2 and turn % 5 == 0:
                    connection.rollback()
                    continue
                connection.commit()
                done[number] += rows

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """How often each row occurs."""
    return Counter(tuple(row) for row in rows)
