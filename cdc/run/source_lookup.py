"""Reads from the source, by key, the values that neither the batch nor the lake has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc.rows.columns import TRANSACTION
from cdc.rows.masking import hidden
from cdc.rows.semantic_types import quoted
from cdc.runtime.local_frame import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import LakeConfig
    from cdc.runtime.progress import Progress
    from cdc.sources.base import RowLookup
    from cdc.sources.source_facts import SourceTable
    from schemas.table import TableSchema

_KEYS = 2_000
"""Number of keys in one query."""
_FRAME_BYTES = 32 * 1024 * 1024
"""Bytes of values after which a data frame ends; the rows of one query stay together.

Each data frame is one part of the batch's plan, so a frame for each query would make a plan of
hundreds of parts for a batch with many keys.
"""
_VALUE_BYTES = 16
"""Estimated bytes of each value in memory, without the contents of texts and byte strings."""

VISIBLE_S = 120.0
"""Bound of the wait until a commit that is in the source's log is visible, in seconds.

An unreachable synchronous standby delays the visibility.
"""


@dataclass(frozen=True)
class Asked:
    """Reads one table's rows from the source by key, for a run.

    Args:
        spark: The session.
        source: The source.
        source_table: The table in the source's catalog.
        source_schema: The lake schema that is derived from the source's catalog.
        kept: The lake table's columns.
        lake: The lake's settings, with the secret key of hashes.
        progress: Shows the wait for the source.
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
        """Return the primary's current rows for the keys that lack values in a run's batch.

        If the primary lacks a key, a delete or a TRUNCATE removed the row after the batch, and a
        later batch has this change. A column that the primary has dropped is NULL in the result, so
        it becomes NULL in the lake.

        Args:
            lacking: The rows of the batch that lack values. Each is the last change of a key, with
                the change's transaction.
            missing: The columns to read.
            hold: Keeps a data frame in memory until the batch is done.

        Raises:
            SourceError: Queries of the source do not see the changes of ``lacking`` in time.
        """
        live = {column.name for column in self.source_schema.columns}
        columns = [name for name in missing if name in live]
        names = (*self.kept.key, *columns)
        shown = self.kept.shown()
        shape = ", ".join(f"{quoted(n)} {shown.column(n).lake_type}" for n in names)
        self._wait(lacking)
        known = local_frame(self.spark, (), shape)
        for rows in joined(self._found(lacking, names, columns), _FRAME_BYTES):
            known = known.unionByName(hold(local_frame(self.spark, rows, shape)))
        known = hidden(known, self.kept.only(names), self.lake)
        gone = {
            name: F.lit(None).cast(self.kept.column(name).lake_type)
            for name in missing
            if name not in live
        }
        return known.withColumns(gone) if gone else known

    def _found(
        self, lacking: DataFrame, names: Sequence[str], columns: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield, for each query by key, the primary's rows, with the columns ``names``."""
        for keys in self._keys(lacking):
            found = self.source.fetch_by_key(self.source_table, self.source_schema, keys, columns)
            yield [tuple(row[name] for name in names) for row in found]

    def _wait(self, lacking: DataFrame) -> None:
        """Wait until queries of the source see the changes of a batch's rows that lack values.

        A commit is in the log before it is visible. In between, a query would return the row
        without the change that the batch applies.
        """
        found = lacking.agg(F.collect_set(TRANSACTION)).first()
        self.source.wait_until_visible(
            found[0] if found is not None else (), timeout_s=VISIBLE_S, progress=self.progress
        )

    def _keys(self, lacking: DataFrame) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the keys of a batch's changes, in lists of at most `_KEYS`."""
        keys = lacking.select(*(quoted(name) for name in self.kept.key))
        kinds = [self.kept.column(name).lake_type for name in self.kept.key]
        left = iter(keys.toLocalIterator())
        while portion := list(islice(left, _KEYS)):
            yield [
                tuple(_key_value_to_look_up(v, kind) for v, kind in zip(row, kinds, strict=True))
                for row in portion
            ]


def joined(
    answers: Iterable[list[tuple[Any, ...]]], enough: int
) -> Iterator[list[tuple[Any, ...]]]:
    """Join the rows that a run has looked up in the source into lists of about ``enough`` bytes.

    A list ends with the last row of the query that brings the list to this size, so the rows of one
    query are always in one list. No list is empty.
    """
    rows: list[tuple[Any, ...]] = []
    size = 0
    for answer in answers:
        rows += answer
        size += sum(_bytes_of_value(value) for row in answer for value in row)
        if size >= enough:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _bytes_of_value(value: object) -> int:
    """Return about how many bytes a looked-up value takes, including elements of an array."""
    if isinstance(value, list | tuple):
        return _VALUE_BYTES + sum(map(_bytes_of_value, value))
    return _VALUE_BYTES + (len(value) if isinstance(value, str | bytes | bytearray) else 0)


def _key_value_to_look_up(value: Any, kind: str) -> Any:
    """Return a key's value in the form that a run sends to the source.

    A timestamp becomes a datetime in UTC; other values stay as they are. Spark returns a timestamp
    as a datetime in local time, without a time zone.
    """
    if kind == "timestamp" and isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    return value
