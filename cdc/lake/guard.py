"""Checks a Hudi commit right before it completes, and can refuse it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started

from cdc.errors import FencedError, LakeError
from cdc.lake.late_files import delete_refused, merged_files, require_named
from cdc.lake.timeline import Timeline, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Guard = Callable[[Timeline], None]
"""A check of a commit that is about to complete. It raises an error, such as
:class:`~cdc.errors.FencedError`, to refuse the commit.
"""


class CommitGuard:
    """The checks of one commit, as a pre-commit function (a Java ``BiConsumer``) of Hudi.

    Args:
        spark: The session.
        path: Base path of the table.
        check: The caller's check. Its argument is the table's timeline, which the guard reads from
            storage right before the check.
        began: Instants of the commits that were complete when this writer began to read the table.
        passed: Called after all checks have passed.

    Hudi calls the guard after all data files are written and before the commit file is written. If
    a check raises an error, Hudi fails the commit, and :attr:`refusal` is the original exception.
    :attr:`instant` is the commit's instant. It is None until Hudi has called the guard.

    The guard itself refuses a commit in each of these cases:

    - Another writer has rolled the commit back, or another commit is also pending.
    - Another commit has completed since this writer began to read the table. For example, a
      clustering can have replaced the files that the guarded commit changes.
    - The commit's instant is not greater than the newest completed instant, for example after a
      clock went backwards. The commit with the greatest instant must have the greatest offsets.
    - Hudi could not write some rows. By itself, Hudi would commit the other rows.
    - The commit merges a late file: a file with the instant of a completed commit that does not
      name this file (see :mod:`cdc.lake.late_files`).
    """

    class Java:
        """The Java interface that this guard implements, for py4j."""

        implements = ("java.util.function.BiConsumer",)

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        check: Guard,
        *,
        began: frozenset[str],
        passed: Callable[[], None] | None = None,
    ) -> None:
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        self._spark = spark
        self._path = path
        self._check = check
        self.began = began
        self._passed = passed
        self.refusal: BaseException | None = None
        self.called = False
        self.instant: str | None = None
        self._stats: Any = ()

    def accept(self, _meta_client: Any, metadata: Any) -> None:
        """Run all checks of the commit. The JVM calls this method."""
        self.called = True
        self._stats = metadata.getWriteStats()
        try:
            timeline = Timeline(self._spark, self._path)
            self._require_alone(timeline)
            self._require_newest(timeline)
            self._require_whole(int(metadata.fetchTotalWriteErrors()))
            require_named(self._spark, timeline, lambda: merged_files(metadata))
            timeline.writes = Written.of(metadata)
            self._check(timeline)
            if self._passed is not None:
                self._passed()
        except BaseException as error:
            self.refusal = error
            self._delete_late_files()
            raise

    def verdict(self, timeline: Timeline) -> BaseException | None:
        """Return why a failed commit was refused or rolled back; None if neither happened.

        If another writer has rolled back the commit, the files that this commit wrote after the
        rollback are deleted.

        Args:
            timeline: The table's timeline after the failure.
        """
        if self.refusal is not None:
            return self.refusal
        if self.instant is None or self.instant in timeline.pending_instants():
            return None
        self._delete_late_files()
        return FencedError(
            f"commit {self.instant} of the lake table at {self._path} was undone by another "
            "writer before it completed",
            remedy="Nothing was committed. Run again; only one run at a time holds a table.",
            path=self._path,
        )

    def _delete_late_files(self) -> None:
        """Delete the files that this commit wrote after another writer had rolled the commit back.

        If this fails, a later upkeep of the table deletes the files.
        """
        try:
            timeline = Timeline(self._spark, self._path)
            delete_refused(self._spark, timeline, self._stats)
        except (Py4JError, LakeError) as error:
            _log.warning("files of a refused commit of %s stay: %s", self._path, error)

    def _require_alone(self, timeline: Timeline) -> None:
        """Refuse the commit if another commit is pending, or has completed in the meantime."""
        pending = timeline.pending_instants()
        strange = sorted(timeline.completed_instants() - self.began)
        if len(pending) == 1 and not strange:
            self.instant = pending[0]
            return
        found = f"commit {strange[0]}" if strange else f"{len(pending)} unfinished commits"
        raise FencedError(
            f"the lake table at {self._path} has {found} where only this writer's unfinished one"
            " was expected: another writer has taken the table over",
            remedy="Nothing was committed. Run again; only one run at a time holds a table.",
            path=self._path,
        )

    def _require_newest(self, timeline: Timeline) -> None:
        """Refuse the commit if its instant is not greater than the newest completed instant."""
        newest = timeline.newest_instant()
        if self.instant is not None and newest is not None and self.instant <= newest:
            raise FencedError(
                f"commit {self.instant} of the lake table at {self._path} is not after the newest "
                f"completed one, {newest}: another writer committed, or this machine's clock is "
                "behind",
                remedy="Nothing was committed. Set the machine's clock (NTP), then run again.",
                path=self._path,
            )

    def _require_whole(self, unwritten: int) -> None:
        """Refuse the commit if Hudi could not write some of its rows.

        Args:
            unwritten: The number of rows that Hudi could not write.
        """
        if unwritten:
            raise LakeError(
                f"{unwritten} rows of commit {self.instant} to the lake table at {self._path} could"
                " not be written",
                remedy="Nothing was committed. The log of Spark says why; check the lake's space"
                " and permissions, then run again.",
                path=self._path,
            )
