"""The ``defaults`` and ``tables`` sections, and the function that combines them for one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, ByteSize, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from cdc.config.checks import CheckName, CheckSettings, check_conflicts
from cdc.config.completeness import Completeness, EventTime, completeness_conflicts
from cdc.config.partitions import PartitionEntry
from cdc.config.templates import Conflict
from cdc.config.value_types import (
    Duration,
    NonEmpty,
    Options,
    Positive,
    Section,
    defaults,
    seconds_of,
)
from schemas.type_rule import MAX_DIGITS

_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_WINDOW = f"^{_TIME}-{_TIME}$"
_DIGITS = "[12]?[0-9]|3[0-8]"
_LAKE_TYPE = rf"string|decimal\((?P<digits>{_DIGITS}), ?(?P<scale>{_DIGITS})\)"
_APPEND = "_append"
"""Suffix of append tables' tiers. No configured tier has the suffix, since none has underscores."""


TierName = Annotated[str, Field(pattern=r"^[a-z0-9]{1,20}$")]
"""Name of a tier."""


def is_append_tier(tier: str) -> bool:
    """Return whether a tier has the suffix for append tables, which no configured tier has."""
    return tier.endswith(_APPEND)


def configured_tier(tier: str) -> str:
    """Return the tier as the configuration names it, without the suffix for append tables."""
    return tier.removesuffix(_APPEND)


def capture_tiers(tier: str) -> tuple[str, str]:
    """Return the tier names of a configured tier's captures: for keyed and for append tables."""
    return tier, f"{tier}{_APPEND}"


def _lake_type(text: str) -> str:
    """Return a configured lake type without blanks. Only string and decimal(p,s) are allowed."""
    found = re.fullmatch(_LAKE_TYPE, text)
    if found is None or (found["digits"] and not int(found["scale"]) <= int(found["digits"]) > 0):
        raise PydanticCustomError(
            "lake_type",
            "is string, or decimal(p,s) with p digits, 1 to {most}, of which s, 0 to p, are behind"
            " the point",
            {"most": MAX_DIGITS},
        )
    return text.replace(" ", "")


LakeType = Annotated[
    str,
    AfterValidator(_lake_type),
    WithJsonSchema({"type": "string", "pattern": f"^({re.sub('[?]P<[a-z]+>', '', _LAKE_TYPE)})$"}),
]
"""The lake types that the settings may choose for a column."""


class ColumnRules(Section):
    """The columns to replicate, and the form of their values."""

    include: tuple[NonEmpty, ...] = ()
    """The columns to replicate; empty means all columns."""
    exclude: tuple[NonEmpty, ...] = ()
    """Columns that are not replicated. Kafka gets their values, but the lake does not."""
    as_: dict[NonEmpty, LakeType] = Field(alias="as", default_factory=dict)
    """Lake types by column. string: the text that the server prints, for types that events do not
    carry exactly; runs read it from the primary, by key, for each changed row. decimal(p,s): for
    PostgreSQL's numeric; a value that does not fit exactly stops the table."""
    hash: tuple[NonEmpty, ...] = ()
    """Columns whose values the lake gets as HMAC-SHA-256 under lake.hash_key, in hexadecimal: equal
    values stay equal. NULL stays NULL."""
    mask: tuple[NonEmpty, ...] = ()
    """Columns whose values the lake gets as ***. NULL stays NULL."""
    renames: dict[NonEmpty, NonEmpty] = Field(default_factory=dict)
    """Old column names by new name. With an entry, the lake follows a rename on the source without
    a copy. Write the entry before the rename on the source; afterwards the entry may stay."""

    def selects(self, column: str) -> bool:
        """Return whether ``include`` and ``exclude`` let the column be replicated."""
        return column not in self.exclude and (not self.include or column in self.include)

    def is_read_by_key(self, column: str) -> bool:
        """Return whether runs read the column's values as strings from the source, by key."""
        return self.as_.get(column) == "string"

    def decimal(self, column: str) -> str:
        """Return the decimal type that the settings choose for a column; empty if none."""
        chosen = self.as_.get(column, "string")
        return "" if chosen == "string" else chosen

    def hides(self, column: str) -> str:
        """Return ``hash`` or ``mask``, or an empty string if the lake does not hide the column."""
        return "hash" if column in self.hash else "mask" if column in self.mask else ""


class ResyncLimits(Section):
    """The limits of automatic resyncs."""

    max_rows: Positive | None = None
    """A table with more rows, by estimate, is not copied again automatically. Default: no limit."""
    window: Annotated[str, Field(pattern=_WINDOW)] | None = None
    """The time in which a resync may begin, in UTC, for example 22:00-05:00. Default: any time."""

    def allows(self, at: datetime) -> bool:
        """Return whether a resync may begin at a time.

        Args:
            at: The time, with a time zone.
        """
        if self.window is None:
            return True
        now = f"{at.astimezone(timezone.utc):%H:%M}"
        first, last = self.window.split("-")
        # A window whose end is before its beginning includes midnight.
        return first <= now < last if first <= last else now >= first or now < last


ReaderName = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63}|[*])$")]
"""Name of a reader of a table; * stands for all readers that are not named."""


class ReaderTarget(Section):
    """The settings of one reader of a table."""

    lag: Duration
    """The longest time that the reader may take to read a new commit. If the reader takes longer,
    status, --fail-on reader_late and an alarm name the reader."""

    @property
    def lag_s(self) -> int:
        """The setting ``lag`` in seconds."""
        return seconds_of(self.lag)


class TableSettings(Section):
    """Settings of one table, or of each table that matches a pattern."""

    from_: Annotated[tuple[NonEmpty, ...], Field(alias="from")] = ()
    """Patterns of the source tables that feed one lake table together. The key under tables is then
    the name of the lake table."""
    shard_column: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")] = "_shard"
    """Lake column with the shard of each row; it is the first column of the key."""
    shard: NonEmpty = "{source}.{schema}.{table}"
    """Template of the values in shard_column, one value for each source table."""
    name: NonEmpty | None = None
    """Template of the table's path under lake.url. It replaces lake.name."""
    tier: TierName = "default"
    """Tier of the table; tables of a tier share a connector, a slot and a publication."""
    key_columns: tuple[NonEmpty, ...] = ()
    """Columns of the record key. Default: the primary key."""
    mode: Literal["upsert", "append"] = "upsert"
    """upsert: one row per key, as on the source. append: a row for each inserted row, for tables
    without a key; updates and deletes are left out."""
    snapshot_from: Literal["replica", "primary"] = "replica"
    """The server that a table in mode append is copied from. replica: its replay is paused for a
    moment. primary, or no replica: the table is read under a temporary slot's snapshot. MySQL and
    MariaDB need a replica."""
    one_view: bool = False
    """Whether a copy reads all rows at one moment, although the stream would correct rows that are
    read at several moments. PostgreSQL: a copy from a replica fails if transactions with savepoints
    are open in each of ten tries. MySQL and MariaDB: the replica's applier is stopped while the
    sessions for all parallel chunks open; each session reads its part of the table once, and cannot
    repeat the read."""
    partition_by: tuple[PartitionEntry, ...] = ()
    """The partitions of the lake table: columns with texts, booleans, integers or dates; hours,
    days, months or years of times, for example day(created_at, Europe/Berlin); or hashes, for
    example hash(customer_id, 64)."""
    columns: ColumnRules = Field(default_factory=defaults)
    """The columns to replicate, and the form of their values."""
    timestamps_without_zone: Literal["timestamp_ntz", "timestamp"] = "timestamp_ntz"
    """Lake type of times without a zone (PostgreSQL's timestamp, MySQL's datetime). timestamp: the
    same digits, as a time in UTC, for readers without timestamp_ntz; sessions in another zone then
    show other digits."""
    max_events_per_run: Positive = 1_000_000
    """The most events in one commit; it limits memory and the size of commits."""
    allowed_lateness_s: Annotated[int, Field(ge=0)] = 0
    """Seconds to subtract from the watermark."""
    event_time: EventTime | None = None
    """The column with the time of an event, which decides for completeness to which hour or day
    the event belongs. Default: the time at which the source committed the change."""
    completeness: Completeness | None = None
    """Which periods are announced as complete: hour, day, or a section with the time zone. Default:
    none."""
    delete_mode: Literal["hard", "soft"] = "hard"
    """hard: the lake deletes deleted rows; soft: the lake keeps these rows, marked in
    _cdc_deleted."""
    on_truncate: Literal["apply", "ignore", "pause"] = "apply"
    """The reaction to a TRUNCATE on the source. pause: the table waits for a person."""
    on_bad_message: Literal["stop", "quarantine"] = "stop"
    """The reaction to a message that cannot be applied. stop: the table waits for a person.
    quarantine: the message is left out and kept; its raw bytes hold all columns, also excluded
    ones."""
    max_quarantined: Annotated[int, Field(ge=1, le=1_000)] = 100
    """The most messages of a table in quarantine; one more stops the table."""
    on_schema_change: Literal["evolve", "freeze", "pause"] = "evolve"
    """evolve: the lake follows the change; freeze: the lake gets no new columns; pause: the table
    waits for a person."""
    chunk_rows: Positive | None = None
    """The largest estimated number of rows in one chunk of a copy. Default: 200,000; up to 500,000
    for append tables, for rows of a few bytes, and for tables of more than 400 million rows."""
    chunk_bytes: Annotated[
        ByteSize, Field(ge=1), WithJsonSchema({"type": ["integer", "string"]})
    ] = Field(default=cast(Any, "128MiB"))
    """The largest estimated size of one chunk of a copy, in bytes."""
    parallel_chunks: Positive | None = None
    """Chunks that are read at the same time. Default: Spark's parallelism."""
    freshness_target_s: Positive = 900
    """The freshness, in seconds, above which status reports the table as late."""
    min_commit_interval: Duration | None = None
    """The shortest time between two commits of a table that is not late, in run --continuous. A
    longer time saves work: each commit rewrites files. Default: a tenth of freshness_target_s."""
    readers_keep: Duration = "1h"
    """How long replaced files and former generations stay for readers who have them open.
    Incremental and time-travel reads reach back by this time, too."""
    readers: dict[ReaderName, ReaderTarget] = Field(default_factory=dict)
    """Limits of the lags of readers, by the name that a reader records itself with; * for all
    others. A reader that is named here and has recorded nothing is late, too."""
    index: Literal["auto", "bucket", "bloom", "simple"] = "auto"
    """Hudi's index; auto chooses one for the table."""
    buckets: Positive | None = None
    """Buckets of the bucket index. Default: by the size of the table at bootstrap."""
    on_incompatible: Literal["stop", "resync"] = "stop"
    """The reaction to a change of columns or key that cannot be applied in place. stop: the table
    waits for a person; resync: run copies the table again."""
    resync: ResyncLimits = Field(default_factory=defaults)
    """Limits of on_incompatible: resync."""
    retain_generations: Annotated[int, Field(ge=0)] = 1
    """Former generations that stay for readers when a new one is published."""
    hudi: Options = Field(default_factory=dict)
    """Raw overrides of Hudi settings."""
    checks: dict[CheckName, CheckSettings] = Field(default_factory=dict)
    """Checks of the table's data, by names of your choice. A check replaces the check of the same
    name in a less specific section."""

    @property
    def readers_keep_s(self) -> int:
        """The setting ``readers_keep`` in seconds."""
        return seconds_of(self.readers_keep)

    @property
    def min_commit_interval_s(self) -> float:
        """The setting ``min_commit_interval`` in seconds.

        If it is not set, the value is a tenth of the freshness target.
        """
        chosen = self.min_commit_interval
        return self.freshness_target_s / 10 if chosen is None else seconds_of(chosen)

    @property
    def partitioned_columns(self) -> tuple[str, ...]:
        """The columns that ``partition_by`` names, as they are or in expressions."""
        return tuple(one.column for one in self.partition_by)

    @property
    def appends(self) -> bool:
        """Whether the table is an append table."""
        return self.mode == "append"

    @property
    def capture_tier(self) -> str:
        """The name of the capture's tier: the setting ``tier``, with a suffix for an append table.

        The suffix gives append tables captures, and so publications, of their own. A publication
        publishes the same operations for all of its tables, and PostgreSQL refuses an UPDATE or
        DELETE of a table without a key if the table's publication publishes this operation.
        """
        return f"{self.tier}{_APPEND}" if self.appends else self.tier

    def conflicts(self) -> list[Conflict]:
        """Return combinations of a table's settings that cannot work, as (key path, problem)."""
        found: list[Conflict] = list(self._mode_conflicts())
        if self.from_ and self.appends:
            found.append(
                (
                    ("mode",),
                    "append is not possible with from, for a lake table of several source tables",
                )
            )
        if self.columns.include and self.columns.exclude:
            found.append((("columns",), "give include or exclude, not both"))
        if lost := {one for one in self.key_columns if not self.columns.selects(one)}:
            reason = (
                f"key columns must be replicated, but these are left out: {_listed_columns(lost)}"
            )
            found.append((("columns",), reason))
        found += self._hiding_conflicts()
        found += completeness_conflicts(self.event_time, self.completeness, self.columns)
        found += self._partition_conflicts()
        if same := [new for new, old in self.columns.renames.items() if new == old]:
            reason = f"the old name equals the new name: {_listed_columns(same)}"
            found.append((("columns", "renames"), reason))
        if read := set(filter(self.columns.is_read_by_key, self.key_columns)):
            reason = (
                "string is read by key, so it is not possible for key columns:"
                f" {_listed_columns(read)}"
            )
            found.append((("columns", "as"), reason))
        if self.buckets is not None and self.index in ("bloom", "simple"):
            found.append((("buckets",), f"index {self.index} has no buckets; use index: bucket"))
        found += check_conflicts(self.checks)
        return found

    def _hiding_conflicts(self) -> Iterator[Conflict]:
        """Yield the problems of columns that the settings hash or mask."""
        rules = self.columns
        hidden = {*rules.hash, *rules.mask}
        if twice := set(rules.hash) & set(rules.mask):
            yield ("columns", "mask"), f"give hash or mask, not both, for: {_listed_columns(twice)}"
        if away := hidden & set(rules.exclude):
            yield (
                ("columns", "exclude"),
                f"excluded columns need no hash or mask: {_listed_columns(away)}",
            )
        for key in ("hash", "mask"):
            if named := set(self.key_columns) & set(getattr(rules, key)):
                reason = (
                    "key columns cannot be hidden, since rows are found by key:"
                    f" {_listed_columns(named)}"
                )
                yield ("columns", key), reason
            if getattr(rules, key) and self.on_bad_message == "quarantine":
                reason = (
                    "is not possible with on_bad_message: quarantine, which keeps whole messages"
                )
                yield ("columns", key), reason

    def _partition_conflicts(self) -> Iterator[Conflict]:
        """Yield the problems of the partition columns."""
        names = [one.lake_name.lower() for one in self.partition_by]
        at = ("partition_by",)
        for place, one in enumerate(self.partition_by):
            column = one.column
            if one.lake_name.lower() in names[:place]:
                yield at, f"the lake has two partition columns of this name: {one.lake_name}"
            if not self.columns.selects(column):
                yield at, f"the column must be replicated: {column}"
            elif one.of_time and (
                self.columns.hides(column) or self.columns.is_read_by_key(column)
            ):
                yield at, f"the lake has no time in this column: {column}"

    def _mode_conflicts(self) -> Iterator[Conflict]:
        """Yield the settings that the table's mode does not allow."""
        if not self.appends:
            if self.snapshot_from != "replica":
                yield ("snapshot_from",), "is allowed only with mode: append"
            return
        if self.key_columns:
            yield ("key_columns",), "is not possible with mode: append, which has no key"
        if any(map(self.columns.is_read_by_key, self.columns.as_)):
            yield (
                ("columns", "as"),
                "string is not possible with mode: append, since it is read by key",
            )
        if self.delete_mode != "hard":
            yield ("delete_mode",), "must be hard with mode: append, which captures no deletes"
        if self.index == "bucket" or self.buckets is not None:
            key = "index" if self.index == "bucket" else "buckets"
            yield (
                (key,),
                "buckets are not possible with mode: append, since each run would rewrite them",
            )


class TierSettings(Section):
    """The section with the settings of one tier."""

    freshness_target_s: Positive | None = None
    """The freshness target of the tier's tables, in seconds. A section under tables that sets
    freshness_target_s overrides it. Default: the value in defaults."""
    pool_share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """The part of spark.parallel_tables that the tier's tables have while these tables have work.
    Other tiers use what the tier leaves. But runs of more than ten seconds leave another tier its
    part if that tier's tables wait; if none waits, run --continuous leaves it twice the workers
    that it has used recently, up to its part. In a local Spark, batches of more than 50,000
    events in such runs divide the cores in the same way. Default: no part of its own. The tiers
    without a pool_share have the rest together, which is at least a twentieth."""


def _listed_columns(columns: Iterable[str]) -> str:
    """Return the names of columns, in order, for a message about a table's settings."""
    return ", ".join(sorted(columns))


def overlay(base: TableSettings, overrides: Iterable[TableSettings]) -> TableSettings:
    """Return configured table settings in which values of the overrides replace those of ``base``.

    If two overrides have the same setting, the later one wins. Maps are merged key by key.

    Args:
        base: The settings to start from.
        overrides: The settings that override ``base``, in order.
    """
    merged = base.model_dump(exclude_unset=True, by_alias=True)
    for settings in overrides:
        merged = _merge_settings(merged, settings.model_dump(exclude_unset=True, by_alias=True))
    return TableSettings.model_validate(merged)


def _merge_settings(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return a map of configured settings in which the values of ``over`` replace ``base``.

    If both maps have a map under the same key, these two inner maps are merged in the same way. A
    check is replaced as a whole, since its keys depend on its kind.
    """
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        if both and key == "checks":
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = _merge_settings(merged[key], value) if both else value
    return merged
