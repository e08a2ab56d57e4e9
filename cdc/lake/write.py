"""Writes one Hudi table: snapshot chunks, changes, truncation and offset-only commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from cdc.errors import FencedError, LakeError
from cdc.lake.commit import COMMIT_KEY, CommitRecord
from cdc.lake.guard import CommitGuard, Guard
from cdc.lake.layout import RowLayout
from cdc.lake.options import table_options
from cdc.lake.timeline import Timeline
from cdc.spark import java
from schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import TableSettings


class LakeTable:
    """One table of the lake, written through Hudi's Spark writer.

    Args:
        spark: The session.
        path: Base path of the Hudi table; created with the first write.
        schema: The table as the source has it now.
        settings: The table's settings.
    """

    def __init__(
        self, spark: SparkSession, path: str, schema: TableSchema, settings: TableSettings
    ) -> None:
        self._spark = spark
        self.path = path
        self._settings = settings
        self.layout = RowLayout(
            schema, tuple(settings.partition_by), settings.delete_mode == "soft"
        )

    def bulk_insert(self, rows: DataFrame, commit: CommitRecord) -> str:
        """Append snapshot rows, which must not be in the table yet, as one commit.

        Args:
            rows: Meta and source columns.
            commit: What the commit says about itself; its chunk ids decide what a resume skips.

        Returns:
            The commit's instant.
        """
        return self._write(self.layout.project(rows), "bulk_insert", commit, guard=None)

    def upsert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Apply at most one row per key: ``_cdc_op = 'd'`` deletes, the others replace.

        Args:
            rows: Meta and source columns; one row per key.
            commit: What the commit says about itself.
            guard: Called under the commit; raises FencedError to refuse it.

        Returns:
            The commit's instant.
        """
        return self._write(self.layout.project(rows), "upsert", commit, guard)

    def overwrite(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Replace everything the table holds by ``rows``, in one commit."""
        return self._write(self.layout.project(rows), "insert_overwrite_table", commit, guard)

    def empty_commit(self, commit: CommitRecord, guard: Guard) -> str:
        """Commit a record without data: offsets or a handoff."""
        empty = self._spark.createDataFrame(
            [], ", ".join(f"`{name}` {kind}" for name, kind in self.layout.columns)
        )
        return self._write(empty, "upsert", commit, guard)

    def read(self) -> DataFrame:
        """The table as of its last commit."""
        return self._spark.read.format("hudi").load(self.path)

    def timeline(self) -> Timeline:
        """The table's commits, as of now."""
        return Timeline(self._spark, self.path)

    def _write(
        self, rows: DataFrame, operation: str, commit: CommitRecord, guard: Guard | None
    ) -> str:
        check = CommitGuard(self._spark, self.path, guard) if guard is not None else None
        options = table_options(self.layout, self._settings, operation=operation)
        options[COMMIT_KEY] = commit.to_json()
        try:
            result = self._call_writer(rows, options, check)
        except Py4JError as error:
            if check is not None and check.refusal is not None:
                raise check.refusal from error
            raise LakeError(
                f"the commit to the lake table at {self.path} failed: {_root_cause(error)}",
                remedy="Nothing was committed; the next run takes the same changes again.",
                table=commit.table,
                path=self.path,
            ) from error
        if check is not None and not check.called:
            raise FencedError(
                f"the commit to {self.path} completed without its guard",
                remedy="This is a defect of this version with this Hudi release; report it.",
                table=commit.table,
                path=self.path,
            )
        return result

    def _call_writer(
        self, rows: DataFrame, options: Mapping[str, str], check: CommitGuard | None
    ) -> str:
        jvm = java(self._spark)
        hudi = jvm.org.apache.hudi
        writer = getattr(getattr(hudi, "HoodieSparkSqlWriter$"), "MODULE$")
        none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        params = none
        if check is not None:
            some = jvm.scala.Some
            params_class = getattr(hudi, "HoodieSparkSqlWriter$StreamingWriteParams")
            params = some(params_class(none, none, none, some(check)))
        settings = jvm.java.util.HashMap()
        for key, value in options.items():
            settings.put(key, value)
        settings.put("path", self.path)
        result = writer.write(
            rows._jdf.sqlContext(),
            jvm.org.apache.spark.sql.SaveMode.Append,
            jvm.PythonUtils.toScalaMap(settings),
            rows._jdf,
            params,
            none,
            none,
        )
        instant = result._2()
        if not result._1():
            raise LakeError(
                f"Hudi reported a failed commit for the lake table at {self.path}",
                remedy="See the log for the failed rows; nothing was committed.",
                path=self.path,
            )
        return str(instant.get())


def _root_cause(error: Py4JError) -> str:
    cause: Any = getattr(error, "java_exception", None)
    if cause is None:
        return str(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())
