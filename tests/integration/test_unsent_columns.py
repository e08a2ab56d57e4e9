"""Generated columns of types for which events have no field, on the real connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.store.table_state import State
from operate.readiness import Readiness, judge
from tests.integration.rigs.bootstrapping import Bootstrapping
from tests.integration.rigs.captured import capturing
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark

pytestmark = pytest.mark.breadth

UNSENT = "q tsquery GENERATED ALWAYS AS (plainto_tsquery('simple', a)) STORED"


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


def test_a_column_that_no_event_has_hides_that_values_are_in_wrong_columns(
    database: Database,
) -> None:
    database.execute(
        "CREATE TYPE st AS ENUM ('a', 'b')",
        f"CREATE TABLE t (id int PRIMARY KEY, s st, a text, {UNSENT}, phone text, city text)",
        "INSERT INTO t VALUES (1, 'a', 'p', DEFAULT, '555', 'Rome'),"
        " (2, 'b', 'q', DEFAULT, '777', 'Oslo')",
    )
    with capturing(database) as captured:
        topic = captured.add("t")

        def judged() -> Readiness:
            return judge(captured.source.table(captured.table("t")), TableSettings())

        def update(*places: int) -> list[tuple[object, ...]]:
            """Update a row with a new enum label and one without; returns columns of events."""
            label = f"x{places[-1]}"
            database.execute(
                f"ALTER TYPE st ADD VALUE '{label}'",
                f"UPDATE t SET s = '{label}' WHERE id = 1",
                "UPDATE t SET a = a || 'z' WHERE id = 2",
            )
            found = [one.after or {} for one in captured.events(topic, places[-1])]
            assert all(one.keys() == {"id", "s", "a", "phone", "city"} for one in found)
            return [(found[place - 1]["phone"], found[place - 1]["city"]) for place in places]

        assert update(1, 2) == [("555", "Rome"), ("Oslo", None)], "777 is lost, and no field shows"
        refused = judged()
        assert "generated column q of type tsquery" in refused.problem
        assert "Add q again as the table's last column" in refused.remedy
        database.execute("ALTER TABLE t DROP COLUMN q", f"ALTER TABLE t ADD COLUMN {UNSENT}")
        assert judged().ok
        assert update(3, 4) == [("555", "Rome"), ("777", "Oslo")]


def test_a_table_that_gets_such_a_column_later_asks_for_a_copy_which_refuses_it(
    shop: Bootstrapping,
) -> None:
    shop.database.execute(
        "CREATE TYPE st AS ENUM ('a', 'b')", "CREATE TABLE t (id int PRIMARY KEY, s st, a text)"
    )
    shop.add("t")
    shop.bootstrap("t")
    shop.database.execute(f"ALTER TABLE t ADD COLUMN {UNSENT}", "INSERT INTO t VALUES (1, 'a')")
    shop.settle()
    assert shop.run_one().error is None
    shop.database.execute("ALTER TABLE t ADD COLUMN phone text", "INSERT INTO t VALUES (2, 'b')")
    shop.settle()
    (result,) = shop.run()
    assert result.error is not None
    assert "events have no field" in result.error.message
    assert shop.record("t").state is State.NEEDS_BOOTSTRAP
    assert not judge(shop.source.table(shop.table("t")), TableSettings()).ok
