"""All kinds of ALTER TABLE on the real stack: the lake equals the source, or a run says why not.

All tables go through the same two runs, several at a time. Before each change,
`tributary schema check` must give the verdict on the statements that the run gives afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.run import RunResult
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.context import Services
from operate.schema import SchemaDifference, check, difference
from schemas.changes import Verdict
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.table_changes import (
    BOOTSTRAP,
    EVOLVE,
    FILL,
    KINDS,
    Kind,
)

ROOT = (
    "CREATE TABLE k_root (id int PRIMARY KEY, note varchar(10), n int, price numeric(10,2),"
    " q int NOT NULL DEFAULT 1) PARTITION BY RANGE (id)"
)


ONE_OF_EACH = frozenset(
    {
        "add_nullable",
        "add_constant",
        "rename_column",
        "rename_followed",
        "widen_scale",
        "rewrite_same_type",
        "replace_key",
        "identity_nothing",
        "truncate_within",
        "attached_for_a_while",
        "swapped_for_a_while",
        "key_for_a_while",
        "attach_partition",
        "attach_empty",
        "detach_and_attach",
        "inherited",
        "rename_label",
    }
)
"""The kinds of change that every test run includes; `make test-all` adds all others."""


def each() -> list[Any]:
    """Test parameters for all kinds; kinds not in `ONE_OF_EACH` run in `make test-all` only."""
    return [
        pytest.param(one, id=one.name, marks=() if one.name in ONE_OF_EACH else pytest.mark.breadth)
        for one in KINDS
    ]


@dataclass(frozen=True)
class Changed:
    """The answers of `schema check` before the run of the changed tables, and the run's results."""

    replication: Replication
    answers: dict[str, Verdict]
    told: SchemaDifference
    results: dict[str, RunResult]


@pytest.fixture(scope="module")
def changed(shared: Replication, spark: SparkSession, request: pytest.FixtureRequest) -> Changed:
    """Create and change one table for each kind that the tests of this session need."""
    asked = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    kinds = [one for one in KINDS if one.name in asked | {"add_constant"}]
    database = shared.database
    database.execute(
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE known (q int PRIMARY KEY)",
        "INSERT INTO known VALUES (1), (2)",
        ROOT,
        *(text for one in kinds for text in one.sql(*one.create)),
    )
    for one in kinds:
        if one.renames is not None:
            renames = dict([one.renames])
            shared.configure(**{f"public__k_{one.name}": {"columns": {"renames": renames}}})
    shared.add("k_root", *(f"k_{one.name}" for one in kinds))
    database.execute(*(text for one in kinds for text in one.sql(one.rows)))
    assert not [result.error for result in shared.run() if result.error is not None]
    services = Services(shared.config, NullProgress(), spark=spark)
    try:
        answers = {}
        for one in kinds:
            statements = one.sql(*one.statements)
            if one.asked:
                table, ddl = shared.table(f"k_{one.name}"), "; ".join(statements)
                answers[one.name] = check(services, table, ddl).verdict
            for text in one.sql(*one.by_superuser):
                database.stack.psql(text, database=database.name)
            database.execute(*statements, *one.sql(*one.later))
        told = difference(services, shared.table("k_add_constant"))
    finally:
        services.close()
    results = {result.table.name.removeprefix("k_"): result for result in shared.run()}
    return Changed(shared, answers, told, results)


def test_the_sides_of_a_change_are_shown_before_it_moves(changed: Changed) -> None:
    assert changed.told.verdict is FILL
    sides = {side.name: side for side in changed.told.columns}
    assert (sides["x"].source, sides["x"].lake) == ("integer", None)
    assert (sides["n"].registry, sides["n"].lake) == ("int", "int")
    assert changed.told.schema_id is not None


@pytest.mark.parametrize("one", each())
def test_each_kind_of_change_ends_equal_or_says_why(one: Kind, changed: Changed) -> None:
    replication, name = changed.replication, f"k_{one.name}"
    record = replication.record(name)
    if one.asked:
        assert changed.answers[one.name] is one.verdict
    history = replication.store.schema_history(record.table)
    if one.verdict is BOOTSTRAP:
        assert record.state is State.NEEDS_BOOTSTRAP, changed.results.get(one.name)
        assert record.reason
        assert "bootstrap" in (record.remedy or "")
        assert all(entry.outcome == "needs_bootstrap" for entry in history)
        return
    assert record.state is State.INCREMENTAL, record.reason
    replication.assert_equal(name, one.columns)
    found = [entry.verdict for entry in history]
    if found:
        assert found == [one.verdict]
    else:  # nothing of the schema changed: at most the table lies in a new file
        warned = any("rewritten" in text for text in changed.results[one.name].warnings)
        assert warned == (one.verdict is EVOLVE)


def test_the_server_refuses_to_unlog_what_is_published(shared: Replication) -> None:
    shared.database.execute("CREATE TABLE unlogged (id int PRIMARY KEY)")
    shared.add("unlogged")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="publication"):
        shared.database.execute("ALTER TABLE unlogged SET UNLOGGED")
