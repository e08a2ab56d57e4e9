"""Chooses a lake table's Hudi index. Each commit of the table records the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdc.errors import ConfigError, LakeError
from cdc.lake.table_services import MIB
from cdc.store.documents import Codec, Part

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.lake.layout import LakeLayout

BUCKET_BYTES = 32 * MIB
"""Bytes of the source table per bucket, if the table's size decides the number of buckets."""
BUCKET_ROWS = 200_000
"""Rows of the source table per bucket, if the table's size decides the number of buckets."""
OUTGROWN_BUCKET_BYTES = 16 * MIB
"""Size of a bucket's file above which a bloom index replaces an automatic bucket index."""
GROWING_BUCKET_BYTES = 4 * MIB
"""The size in place of `OUTGROWN_BUCKET_BYTES` for a table that grows fast. Each commit rewrites
all rows of the buckets that the commit changes."""


@dataclass(frozen=True)
class SnapshotSize:
    """The expected size of a table's copy, by which the index of the lake table is chosen.

    Args:
        rows: Estimated number of rows.
        bytes: Estimated size in the source, in bytes.
        commits: Number of commits that write the copy.
    """

    rows: int
    bytes: int
    commits: int


@dataclass(frozen=True)
class IndexLayout(Part):
    """The index of one lake table.

    Args:
        kind: ``bucket``, ``bloom`` or ``simple``.
        buckets: Number of buckets, for ``bucket``.
        automatic: Whether the setting ``index`` is ``auto``. If so, a bucket index is replaced when
            the table outgrows its buckets.
        format: Version of the JSON's format.
    """

    kind: str
    buckets: int = 0
    automatic: bool = False
    format: Literal[1] = 1

    @property
    def is_bucket(self) -> bool:
        """Whether a hash of a row's key chooses the row's file."""
        return self.kind == "bucket"

    @classmethod
    def choose(
        cls, settings: TableSettings, layout: LakeLayout, size: SnapshotSize | None
    ) -> IndexLayout:
        """Choose the index of a table that does not exist yet.

        If the settings do not name an index, most tables get a bucket index. It needs no look-up,
        and is the cheapest index for a table of few files. But only one bulk insert can write to a
        bucket, and all rows of a bucket are in the same partition. So four kinds of tables get
        bloom filters instead: an append table, a table whose copy takes several commits, a table
        that needs several buckets, and a table whose rows can move between partitions. With
        several buckets, changes of recent rows would rewrite nearly the whole table.

        Args:
            settings: The table's settings.
            layout: The table's row layout.
            size: Expected size of the copy; None for a table that begins empty.

        Raises:
            ConfigError: The settings require a bucket index for a table whose rows can move between
                partitions. Such a table would lose rows.
        """
        if settings.index == "bucket" and layout.moves_partitions:
            table = layout.schema.table
            raise ConfigError(
                f"index of table {table} cannot be bucket: a row's partition can change, since "
                "partition_by names columns outside of the key",
                remedy="Remove index (auto takes bloom), or partition by key columns only.",
                table=table,
                field="index",
            )
        automatic = settings.index == "auto"
        kind = str(settings.index)
        small = size or SnapshotSize(rows=0, bytes=0, commits=1)
        by_size = max(1, -(-small.bytes // BUCKET_BYTES), -(-small.rows // BUCKET_ROWS))
        if automatic:
            # Each commit that adds to a bucket rewrites it, and an append table only ever grows.
            several = small.commits > 1 or (by_size > 1 and settings.buckets is None)
            unfit = layout.is_log or several or layout.moves_partitions
            kind = "bloom" if unfit else "bucket"
        if kind != "bucket":
            return cls(kind, automatic=automatic)
        return cls(kind, settings.buckets or by_size, automatic=automatic)

    def outgrown(self, largest_file_bytes: int, *, growing: bool = False) -> bool:
        """Return whether buckets are so large that changes rewrite too many bytes.

        The result is False if the table has no bucket index, or if the settings name the index.

        Args:
            largest_file_bytes: The size of the table's largest file.
            growing: Whether the table grows fast.
        """
        most = GROWING_BUCKET_BYTES if growing else OUTGROWN_BUCKET_BYTES
        return self.automatic and self.is_bucket and largest_file_bytes > most

    @property
    def filter_options(self) -> dict[str, str]:
        """Hudi's settings for bloom filters, which Hudi writes with every kind of index.

        The settings change the cost of look-ups, but no result.
        """
        if self.is_bucket:
            # Small filters, which soon let every key pass. After a table has outgrown its buckets,
            # only key ranges prune files, until the files are rewritten.
            return {
                "hoodie.index.bloom.num_entries": "1000",
                "hoodie.bloom.index.filter.dynamic.max.entries": "1000",
                "hoodie.index.bloom.fpp": "0.5",
            }
        # This takes half the hashes per row of the default 1e-9. One needless file in ten thousand
        # look-ups costs less than the other half of the hashes.
        return {"hoodie.index.bloom.fpp": "0.0001"}

    def options(self, *, global_index: bool) -> dict[str, str]:
        """Return Hudi's settings for this index.

        Args:
            global_index: Whether Hudi must search a key in all partitions. This is so if a row's
                partition can change.
        """
        if self.is_bucket:
            return {
                "hoodie.index.type": "BUCKET",
                "hoodie.index.bucket.engine": "SIMPLE",
                "hoodie.bucket.index.num.buckets": str(self.buckets),
            }
        if global_index:
            return {
                "hoodie.index.type": f"GLOBAL_{self.kind.upper()}",
                f"hoodie.{self.kind}.index.update.partition.path": "true",
                "hoodie.global.index.reconcile.parallelism": "4",
            }
        return {"hoodie.index.type": self.kind.upper()}

    def to_json(self) -> str:
        """Return the index as JSON in one line."""
        return _CODEC.write(self)

    @classmethod
    def from_json(cls, text: str, name: str = "a lake commit's index") -> IndexLayout:
        """Read the index from the JSON of :meth:`to_json`.

        Args:
            text: The JSON.
            name: The name of the JSON in errors.

        Raises:
            LakeError: The JSON is malformed, or of another version.
        """
        return _CODEC.read(text, name)


_CODEC = Codec(
    IndexLayout,
    error=LakeError,
    remedy="Use the version of this tool that wrote the table, or copy the table again.",
)
