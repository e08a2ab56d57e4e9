"""Fixtures for runs on the real stack: a captured table for each test, and the table's runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession

from cdc.lake.commit import CommitRecord
from cdc.lake.timeline import Timeline
from cdc.run import RunResult, run_tables
from cdc.runtime import spark as spark_module
from cdc.store.table_state import State
from stack.local import LocalStack
from tests.integration.rigs.replication import Replication
from tests.spark.local import local_config

COLUMNS = ("id", "note", "body", "price")
BIG = "(SELECT string_agg(md5(random()::text || n), '') FROM generate_series(1, 400) n)"
"""SQL for a text of 12,800 random characters, which PostgreSQL stores out of line (TOAST)."""

_NUMBERS = itertools.count(1)
Test = TypeVar("Test", bound=Callable[..., None])


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests of a module."""
    yield spark_module.session(local_config(tmp_path_factory.mktemp("spark")), "tributary-tests")
    spark_module.stop()


@pytest.fixture(scope="module")
def shared(
    stack: LocalStack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replication]:
    """One captured database; each test adds tables of its own."""
    from tests.integration.rigs.postgres import own_database

    with own_database(stack) as database:
        yield Replication(database, spark, tmp_path_factory.mktemp("replication"))


def settings(**wanted: Any) -> Callable[[Test], Test]:
    """Decorator that gives the table of a test these settings."""

    def mark(test: Test) -> Test:
        test.settings = wanted  # type: ignore[attr-defined]  # functions take attributes
        return test

    return mark


@pytest.fixture
def orders(shared: Replication, request: pytest.FixtureRequest) -> Orders:
    name = f"t{next(_NUMBERS)}_" + request.node.name.removeprefix("test_").split("[")[0][:50]
    shared.database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, note text, body text, price numeric(10,2))"
    )
    if wanted := getattr(request.function, "settings", None):
        shared.configure(**{f"public__{name}": wanted})
    shared.add(name)
    return Orders(shared, name)


@dataclass(frozen=True)
class Orders:
    """A table of one test, captured and handed over while empty."""

    replication: Replication
    name: str

    def execute(self, *statements: str) -> None:
        """Run statements; ``T`` stands for the table."""
        self.replication.database.execute(*(re.sub(r"\bT\b", self.name, s) for s in statements))

    def run(self, **changes: Any) -> RunResult:
        self.replication.settle()
        record = self.replication.record(self.name)
        (result,) = run_tables(self.replication.context(**changes), [record])
        return result

    def lake(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.replication.lake(self.name, *columns)

    def assert_equal(self, columns: Sequence[str] = COLUMNS) -> None:
        self.replication.assert_equal(self.name, columns)

    @property
    def state(self) -> State:
        return self.replication.record(self.name).state

    @property
    def newest(self) -> CommitRecord:
        committed = self.timeline.latest_offsets()
        assert committed is not None
        return committed.record

    @property
    def timeline(self) -> Timeline:
        attempt = self.replication.record(self.name).attempt
        assert attempt is not None
        return Timeline(self.replication.spark, attempt.path)
