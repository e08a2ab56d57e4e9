"""Hudi's own pre-commit validators work through the setting ``hudi`` of a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import LakeError
from cdc.lake.index import SnapshotSize
from tests.spark.lake import ONE_COMMIT, SEVERAL_COMMITS, change, content, insert, lake, schema

NO_DEBTS = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
    ),
    "hoodie.precommit.validators.single.value.sql.queries": (
        "select count(*) from <TABLE_NAME> where amount < 0#0"
    ),
}
"""The setting ``hudi`` that docs/checks.md shows: no row may have a negative amount."""
SALES = schema("id", id="bigint", amount="int")


@pytest.mark.breadth
@pytest.mark.parametrize("size", [ONE_COMMIT, SEVERAL_COMMITS], ids=["bucket", "bloom"])
def test_a_commit_that_a_validator_refuses_is_not_committed(
    spark: SparkSession, tmp_path: Path, size: SnapshotSize
) -> None:
    table = lake(spark, tmp_path / "t", SALES, hudi=NO_DEBTS)
    insert(spark, table, (1, 10), (2, 20), size=size)
    change(spark, table, 3, ("u", 1, (1, 11)), ("c", 2, (3, 30)))
    assert content(table) == [(1, 11), (2, 20), (3, 30)]
    with pytest.raises(LakeError) as refused:
        change(spark, table, 5, ("u", 3, (1, -5)), ("c", 4, (4, 40)))
    assert "validat" in str(refused.value).lower()
    assert content(table) == [(1, 11), (2, 20), (3, 30)]
    latest = table.timeline().latest_offsets()
    assert latest is not None
    assert latest.record.offsets == {0: 3}
    change(spark, table, 5, ("u", 3, (1, 5)), ("c", 4, (4, 40)))
    assert content(table) == [(1, 5), (2, 20), (3, 30), (4, 40)], "the next batch is not harmed"


@pytest.mark.breadth
@pytest.mark.parametrize("size", [ONE_COMMIT, SEVERAL_COMMITS], ids=["bucket", "bloom"])
def test_a_copy_is_not_validated(spark: SparkSession, tmp_path: Path, size: SnapshotSize) -> None:
    """Copies skip Hudi's validators, as docs/checks.md says."""
    table = lake(spark, tmp_path / "t", SALES, hudi=NO_DEBTS)
    insert(spark, table, (1, -10), size=size)
    assert content(table) == [(1, -10)]
