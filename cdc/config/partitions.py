"""The setting ``partition_by``: columns, and expressions of columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from cdc.config.completeness import ZoneName
from cdc.config.value_types import NonEmpty, Section

if TYPE_CHECKING:
    from cdc.config.tables import TableSettings

MOST_BUCKETS = 1024
"""The most buckets of a hash: each of them is a folder with files of its own."""
_COMPACT = re.compile(
    r"(?P<by>hour|day|month|year|hash)\(\s*(?P<column>[^\s,()]+)\s*(?:,\s*(?P<more>[^\s,()]+)\s*)?\)"
    r"(?:\s+as\s+(?P<name>\w+))?"
)


class PartitionField(Section):
    """A column by whose values the lake table is partitioned, or an expression of a column."""

    column: NonEmpty
    """The column. The types that it can have depend on by. value: text, boolean, integer or date;
    hash: these types, and bytes; hour: a time; day, month or year: a time or a date."""
    by: Literal["value", "hour", "day", "month", "year", "hash"] = "value"
    """value: the lake is partitioned by the column itself. All other values add a lake column."""
    zone: ZoneName = "UTC"
    """The time zone of hour, day, month and year, by its name in the IANA database. A time without
    zone is read as a time in this zone."""
    buckets: Annotated[int, Field(ge=2, le=MOST_BUCKETS)] | None = None
    """The number of buckets into which ``hash`` distributes the rows."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")] | None = None
    """The name of the further lake column. Default: COLUMN_BY, for example created_at_day."""

    @model_validator(mode="after")
    def _fits(self) -> PartitionField:
        """Refuse a setting that ``by`` does not use, and ``hash`` without ``buckets``."""
        if self.by == "hash" and self.buckets is None:
            raise PydanticCustomError("buckets", "by: hash needs buckets, for example 64")
        if self.by != "hash" and self.buckets is not None:
            raise PydanticCustomError("buckets", "buckets is possible only with by: hash")
        if not self.of_time and "zone" in self.model_fields_set:
            raise PydanticCustomError("zone", "zone is possible only with hour, day, month or year")
        if self.by == "value" and self.name is not None:
            raise PydanticCustomError("name", "name is possible only for an expression")
        return self

    @property
    def derived(self) -> bool:
        """Whether the lake has a further column, which has the values of the expression."""
        return self.by != "value"

    @property
    def of_time(self) -> bool:
        """Whether the expression is an hour, a day, a month or a year."""
        return self.by not in ("value", "hash")

    @property
    def lake_name(self) -> str:
        """The name of the lake's partition column."""
        return self.column if not self.derived else self.name or f"{self.column}_{self.by}"

    @property
    def lake_type(self) -> str:
        """The Spark type of the lake column that has the expression's values."""
        return {"day": "date", "hash": "int"}.get(self.by, "string")

    @property
    def lasting(self) -> bool:
        """Whether the partition of a value never changes.

        The partition can change for periods in a time zone other than UTC, since the rules of
        time zones change, also for past times.
        """
        return not self.of_time or self.zone == "UTC"

    def __str__(self) -> str:
        """Return the field in its compact form, which :func:`partition_field` reads."""
        if not self.derived:
            return self.column
        more = str(self.buckets) if self.by == "hash" else self.zone
        shown = self.column if more == "UTC" else f"{self.column}, {more}"
        named = "" if self.lake_name == f"{self.column}_{self.by}" else f" as {self.lake_name}"
        return f"{self.by}({shown}){named}"


def _partition_section(value: Any) -> Any:
    """Return an entry of ``partition_by`` as a section, also if it is a name or an expression."""
    if not isinstance(value, str) or "(" not in value:
        return {"column": value} if isinstance(value, str) else value
    found = _COMPACT.fullmatch(value.strip())
    if found is None:
        raise PydanticCustomError(
            "partition_field",
            "is not a column or an expression such as day(created_at, Europe/Berlin) or"
            " hash(customer_id, 64)",
        )
    parts = {name: text for name, text in found.groupdict().items() if text is not None}
    if (more := parts.pop("more", None)) is not None:
        parts["buckets" if parts["by"] == "hash" else "zone"] = more
    return parts


PartitionEntry = Annotated[
    PartitionField,
    BeforeValidator(_partition_section, json_schema_input_type=NonEmpty | PartitionField),
]
"""One entry of ``partition_by``: a column's name, an expression in compact form, or the section."""


def partition_field(text: str) -> PartitionField:
    """Return the ``partition_by`` entry that a text describes, as in the configuration."""
    return PartitionField.model_validate(_partition_section(text))


def period_column(settings: TableSettings, unit: Literal["hour", "day"], zone: str) -> str | None:
    """Return the lake column that partitions a table by the hours or days of its event time.

    The result is None if no column partitions the table in this way and in this time zone.
    """
    event = settings.event_time
    if event is None:
        return None
    for one in settings.partition_by:
        # A column of event times that is a partition column itself is a date.
        same = (one.by, one.zone) == (unit, zone) or (one.by, unit) == ("value", "day")
        if same and one.column == event.column:
            return one.lake_name
    return None
