"""Reads from the source, by key, the values that neither the batch nor the lake has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc.rows.columns import TRANSACTION
from cdc.rows.masking import hidden
from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import LakeConfig
    from cdc.runtime.progress import Progress
    from cdc.sources.base import RowLookup
    from cdc.sources.source_facts import SourceTable
    from schemas.table import TableSchema

_KEYS = 2_000
"""Keys in one query."""

VISIBLE_S = 120.0
"""How long, in seconds, a commit may be in the log before the source shows it: an unreachable
synchronous standby delays it."""


@dataclass(frozen=True)
class Asked:
    """One table of the source, from which rows are read by key.

    Args:
        spark: The session.
        source: The source.
        source_table: The table as the source's catalog has it.
        source_schema: Its lake schema by that catalog.
        kept: The columns that the lake table keeps.
        lake: How values are hidden.
        progress: Shows the wait.
    """

    spark: SparkSession
    source: RowLookup
    source_table: SourceTable
    source_schema: TableSchema
    kept: TableSchema
    lake: LakeConfig
    progress: Progress

    def rows(
        self,
        lacking: DataFrame,
        missing: Sequence[str],
        hold: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Read the rows that the primary has now, by key.

        A key that the primary no longer has was deleted since, and that delete is still in the log.
        A column that the primary has dropped since is NULL in the result, and from then on in the
        lake.

        Args:
            lacking: The last change of each key that lacks a value, with its transaction.
            missing: The columns to read.
            hold: Keeps a frame's rows until the batch is done.

        Raises:
            SourceError: One of these changes does not become visible at the source in time.
        """
        live = {column.name for column in self.source_schema.columns}
        columns = [name for name in missing if name in live]
        names = (*self.kept.key, *columns)
        shown = self.kept.shown()
        shape = ", ".join(f"{quoted(n)} {shown.column(n).lake_type}" for n in names)
        self._wait(lacking)
        known = self.spark.createDataFrame([], shape)
        for keys in self._keys(lacking):
            found = self.source.fetch_by_key(self.source_table, self.source_schema, keys, columns)
            values = [tuple(row[name] for name in names) for row in found]
            known = known.unionByName(hold(self.spark.createDataFrame(values, shape)))
        known = hidden(known, self.kept.only(names), self.lake)
        gone = {
            name: F.lit(None).cast(self.kept.column(name).lake_type)
            for name in missing
            if name not in live
        }
        return known.withColumns(gone) if gone else known

    def _wait(self, lacking: DataFrame) -> None:
        """Wait until the source shows the changes that lack values.

        A commit is in the log before it is visible. A query before that would read the row without
        the very change that is applied here.
        """
        found = lacking.agg(F.collect_set(TRANSACTION)).first()
        self.source.wait_until_visible(
            found[0] if found is not None else (), timeout_s=VISIBLE_S, progress=self.progress
        )

    def _keys(self, lacking: DataFrame) -> Iterator[list[tuple[Any, ...]]]:
        """The keys in bounded portions."""
        keys = lacking.select(*(quoted(name) for name in self.kept.key))
        kinds = [self.kept.column(name).lake_type for name in self.kept.key]
        left = iter(keys.toLocalIterator())
        while portion := list(islice(left, _KEYS)):
            yield [
                tuple(_aware(v, kind) for v, kind in zip(row, kinds, strict=True))
                for row in portion
            ]


def _aware(value: Any, kind: str) -> Any:
    """A key value with its zone: Spark gives timestamps as local times without one."""
    if kind == "timestamp" and isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    return value
