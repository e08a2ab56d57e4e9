"""Enum labels that are added, used and renamed before a run or a copy looks at the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bootstrap.copying import Copying
from cdc.sources.base import Marker, View
from cdc.store.table_state import State
from tests.integration.rigs.bootstrapping import Bootstrapping, Watch
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark

pytestmark = pytest.mark.breadth

NAMES = ("renamed", "kept", "used_later", "as_text")
TYPES = {"as_text": "as_text_st[]"}


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        opened.configure(public__as_text={"columns": {"as": {"s": "string"}}})
        yield opened


def create(shop: Bootstrapping, name: str) -> None:
    kind = TYPES.get(name, f"{name}_st")
    value = "{a}" if name in TYPES else "a"
    shop.database.execute(
        f"CREATE TYPE {name}_st AS ENUM ('a', 'b')",
        f"CREATE TABLE {name} (id int PRIMARY KEY, s {kind})",
        f"INSERT INTO {name} VALUES (1, '{value}'), (2, '{value}'), (3, NULL)",
    )


def add(shop: Bootstrapping, name: str) -> None:
    """Add a misspelled label to an enum, and set it in a row."""
    value = "{pendign}" if name in TYPES else "pendign"
    shop.database.execute(
        f"ALTER TYPE {name}_st ADD VALUE 'pendign'",
        f"UPDATE {name} SET s = '{value}' WHERE id = 1",
    )


def rename(shop: Bootstrapping, name: str) -> None:
    shop.database.execute(f"ALTER TYPE {name}_st RENAME VALUE 'pendign' TO 'pending'")


def errors(shop: Bootstrapping) -> dict[str, str]:
    shop.settle()
    return {one.table.name: one.error.error for one in shop.run() if one.error is not None}


def test_a_new_label_that_is_renamed_before_the_next_look_asks_for_a_copy(
    shop: Bootstrapping,
) -> None:
    for name in NAMES:
        create(shop, name)
    shop.add(*NAMES)
    for name in NAMES:
        shop.bootstrap(name)
    assert errors(shop) == {}

    for name in ("renamed", "kept", "as_text"):
        add(shop, name)
    shop.database.execute("ALTER TYPE used_later_st ADD VALUE 'pendign'")
    for name in ("renamed", "used_later", "as_text"):
        rename(shop, name)
    shop.database.execute(
        "UPDATE used_later SET s = 'pending' WHERE id = 2", "DELETE FROM kept WHERE id = 2"
    )
    assert errors(shop) == {"renamed": "SchemaChangeError"}
    record = shop.record("renamed")
    assert record.state is State.NEEDS_BOOTSTRAP
    assert "'pendign' in column 's'" in str(record.reason)
    for name in ("kept", "used_later"):
        shop.assert_equal(name, ("id", "s"))
    assert ("1", "{pending}") in {tuple(map(str, row)) for row in shop.lake("as_text", "id", "s")}

    shop.bootstrap("renamed")
    shop.catch_up_and_compare("renamed", "id", "s")


def test_a_new_label_that_is_renamed_while_a_table_is_copied_has_its_new_name_in_all_rows(
    shop: Bootstrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label is added and used between the look before the view and the view."""
    for name in ("renamed", "as_text"):
        create(shop, name)
    shop.add("renamed", "as_text")
    opened = Copying._opened
    done: list[str] = []

    def replayed() -> None:
        marker = shop.source.write_marker()
        shop.source.wait_for_marker_on_replica(marker, timeout_s=30, progress=Watch())

    @contextmanager
    def while_opened(
        copying: Copying, marker: Marker, *, sessions: int
    ) -> Iterator[AbstractContextManager[View]]:
        name, first = copying.record.table.name, copying.record.table.name not in done
        if first:
            done.append(name)
            add(shop, name)
            replayed()
        with opened(copying, marker, sessions=sessions) as view:
            yield view
            if first:
                rename(shop, name)
                replayed()

    monkeypatch.setattr(Copying, "_opened", while_opened)
    for name, row in {"renamed": "pending", "as_text": "{pending}"}.items():
        assert shop.bootstrap(name).attempts == 2
        assert ("1", row) in {tuple(map(str, one)) for one in shop.lake(name, "id", "s")}
    shop.catch_up_and_compare("renamed", "id", "s")
