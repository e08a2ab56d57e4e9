"""The section ``checks`` of a table: what is checked, when, and what follows from a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone, tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from cdc.config.templates import Conflict
from cdc.config.value_types import Duration, NonEmpty, OptionText, Positive, Section, seconds_of

CheckKind = Literal[
    "not_null",
    "unique",
    "accepted_values",
    "range",
    "volume",
    "freshness",
    "reference",
    "verify",
]
"""The kinds of checks."""

Policy = Literal["report", "alarm", "pause"]
"""What follows from a failed check."""

CheckName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
"""Name of a check, which is also a label in metrics."""


def _valid_cron(text: str) -> str:
    """Return a configured cron expression; refuse one that is malformed or matches no time."""
    try:
        if len(text.split()) != 5:
            raise CronSimError("it must have five fields")  # noqa: TRY301
        next(CronSim(text, datetime(2000, 1, 1)))  # noqa: DTZ001
    except (CronSimError, StopIteration) as error:
        reason = str(error).lower() or "it matches no time"
        raise PydanticCustomError(
            "cron",
            "is not a cron expression of minute, hour, day of month, month and day of week:"
            " {reason}",
            {"reason": reason},
        ) from None
    return text


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a configured name. UTC needs no database of time zones.

    Raises:
        KeyError: This machine does not know the zone.
        ValueError: The text is no name of a zone.
        OSError: The database of time zones cannot be read.
    """
    return timezone.utc if name == "UTC" else ZoneInfo(name)


def _valid_zone(text: str) -> str:
    """Return a configured time zone's name; refuse one that this machine does not know."""
    try:
        zone_of(text)
    except (KeyError, ValueError, OSError):
        raise PydanticCustomError(
            "zone", "is not a time zone that this machine knows, such as UTC or Europe/Zurich"
        ) from None
    return text


class Reference(Section):
    """The table that the rows of a check of kind ``reference`` must refer to."""

    table: NonEmpty
    """The referenced table, as schema.table. It is a table of the checked table's source."""
    columns: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    """Columns of the referenced table, one for each of the check's columns."""


class CheckSettings(Section):
    """One check of a table, or of each table that matches the section's pattern."""

    kind: CheckKind
    """What is checked. not_null, unique, accepted_values, range: the lake's rows. volume: the
    number of the lake's rows, compared with earlier results. freshness: the age of the newest
    complete data. reference: that the lake's rows refer to rows of another table that exist.
    verify: that the lake's rows equal those of the source."""
    enabled: bool = True
    """false leaves out a check that a less specific section has. Then only kind is required."""
    policy: Policy = "alarm"
    """What follows from a failure. report: nothing but the result. alarm: status --check and
    --fail-on check_failed fail, and an alarm is raised. pause: the same as for alarm, and the table
    is paused."""
    cron: Annotated[str, AfterValidator(_valid_cron)] | None = None
    """When the check is due: minute, hour, day of month, month and day of week, as in a crontab."""
    zone: Annotated[str, AfterValidator(_valid_zone)] = "UTC"
    """The time zone of cron."""
    every_commits: Positive | None = None
    """The check is also due after this many commits of runs since its last result."""
    columns: tuple[NonEmpty, ...] = ()
    """The columns. not_null, accepted_values, range: each column is checked. unique, reference: the
    columns are checked together. verify with method partitions: the columns whose values make a
    partition, by default partition_by."""
    values: tuple[OptionText, ...] = ()
    """accepted_values: the values that are allowed beside NULL."""
    min: OptionText | None = None
    """range: the smallest value that is allowed."""
    max: OptionText | None = None
    """range: the largest value that is allowed."""
    references: Reference | None = None
    """reference: the table and the columns in which the values must be; NULL refers to nothing."""
    time_column: NonEmpty | None = None
    """volume, verify: the column with the time of a row's event. If volume has this column, it
    counts the rows of the last whole period."""
    period: Duration | None = None
    """volume: the length of the period whose rows are counted. Default: all rows of the table."""
    settle: Duration = "10m"
    """volume, verify: how long after its event a row can still arrive or change; newer rows are
    left out."""
    history: Positive = 7
    """volume: the number of earlier results with whose median the new result is compared."""
    least: Annotated[float, Field(ge=0.0)] = 0.5
    """volume: the smallest number of rows that is allowed, as a part of the median."""
    most: Annotated[float, Field(gt=0.0)] = 2.0
    """volume: the largest number of rows that is allowed, as a multiple of the median."""
    method: Literal["full", "sample", "partitions", "window"] = "full"
    """verify: what is compared. full: all rows. sample: random ranges of the key. partitions:
    counts and checksums of partitions, then the rows of the partitions that differ. window: the
    rows of a range of times."""
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.05
    """verify: the part of the key's ranges that a sample compares."""
    window: Duration | None = None
    """verify: the length of the range of times whose rows are compared. The range ends at the time
    of the check minus settle."""
    max_seconds: Positive | None = None
    """verify: after so many seconds, no further range of the key is begun; the check's next
    execution continues with the first range that is not proven to be equal yet."""
    max_sessions: Positive | None = None
    """verify: the most sessions that read the source at the same time. Default: one for each core
    of Spark."""
    read_from: Literal["replica", "primary"] = "replica"
    """verify: the server that the source's rows are read from. With primary, the check also finds
    rows that the replica lacks, but the primary bears the load."""
    max_age: Duration | None = None
    """freshness: the greatest age that is allowed. Default: freshness_target_s."""

    @property
    def scheduled(self) -> bool:
        """Whether the check is enabled and has a schedule."""
        return self.enabled and (self.cron is not None or self.every_commits is not None)

    @property
    def alarms(self) -> bool:
        """Whether `status --check` fails if the check fails (`operate.conditions`)."""
        return self.policy != "report"

    @property
    def period_s(self) -> int | None:
        """The setting ``period`` in seconds; None if all rows count."""
        return None if self.period is None else seconds_of(self.period)

    @property
    def window_s(self) -> int | None:
        """The setting ``window`` in seconds; None if it is not set."""
        return None if self.window is None else seconds_of(self.window)

    @property
    def settle_s(self) -> int:
        """The setting ``settle`` in seconds."""
        return seconds_of(self.settle)

    @property
    def max_age_s(self) -> int | None:
        """The setting ``max_age`` in seconds; None if it is not set."""
        return None if self.max_age is None else seconds_of(self.max_age)


_EVERY_KIND = frozenset({"kind", "enabled", "policy", "cron", "zone", "every_commits"})
_REQUIRED: Mapping[CheckKind, frozenset[str]] = {
    "not_null": frozenset({"columns"}),
    "unique": frozenset({"columns"}),
    "accepted_values": frozenset({"columns", "values"}),
    "range": frozenset({"columns"}),
    "volume": frozenset(),
    "freshness": frozenset(),
    "reference": frozenset({"columns", "references"}),
    "verify": frozenset(),
}
_OPTIONAL: Mapping[CheckKind, frozenset[str]] = {
    "range": frozenset({"min", "max"}),
    "volume": frozenset({"time_column", "period", "settle", "history", "least", "most"}),
    "freshness": frozenset({"max_age"}),
    "verify": frozenset(
        {
            *("method", "columns", "fraction", "time_column", "window", "settle"),
            *("max_seconds", "max_sessions", "read_from"),
        }
    ),
}
_METHODS: Mapping[str, frozenset[str]] = {
    "full": frozenset({"max_seconds"}),
    "sample": frozenset({"fraction"}),
    "partitions": frozenset({"columns"}),
    "window": frozenset({"time_column", "window", "settle"}),
}
"""For each method of verify, the settings that this method uses and the other methods do not."""


def check_conflicts(checks: Mapping[str, CheckSettings]) -> Iterator[Conflict]:
    """Yield the configured settings of a table's checks that cannot work, as (path, problem)."""
    for name, check in checks.items():
        for path, reason in _conflicts_of_check(check) if check.enabled else ():
            yield ("checks", name, *path), reason


def _conflicts_of_check(check: CheckSettings) -> Iterator[Conflict]:
    """Yield the configured settings of one check that cannot work, as (path, problem)."""
    required = _REQUIRED[check.kind]
    for key in sorted(required):
        if not getattr(check, key):
            yield (), f"kind {check.kind} needs {key}"
    allowed = _EVERY_KIND | required | _OPTIONAL.get(check.kind, frozenset())
    for key in sorted(check.model_fields_set - allowed):
        yield (key,), f"is not possible with kind {check.kind}"
    if check.kind == "range" and check.min is None and check.max is None:
        yield (), "kind range needs min or max, or both"
    number = len(check.columns)
    if check.references is not None and len(check.references.columns) != number:
        yield ("references", "columns"), f"must be as many as columns, of which there are {number}"
    if check.kind == "volume" and (check.time_column is None) != (check.period is None):
        yield (), "time_column and period go together; one is missing"
    if check.kind == "verify":
        only = frozenset[str]().union(*_METHODS.values()) - _METHODS[check.method]
        for key in sorted(check.model_fields_set & only):
            yield (key,), f"is not possible with method {check.method}"
        if check.method == "window" and not (check.time_column and check.window):
            yield (), "method window needs time_column and window"
    if check.least > check.most:
        yield ("least",), "must not be greater than most"
