"""The settings of complete hours and days: ``event_time`` and ``completeness``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, Protocol
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from cdc.config.templates import Conflict
from cdc.config.value_types import NonEmpty, Section


def _valid_zone(name: str) -> str:
    """Return a configured time zone's name; refuse one that this machine does not know."""
    try:
        datetime.now(timezone.utc if name == "UTC" else ZoneInfo(name))
    except (ValueError, OSError, LookupError):
        raise PydanticCustomError(
            "zone",
            "is not a time zone that this machine knows; name one of the IANA database, such as"
            " Europe/Berlin",
        ) from None
    return name


ZoneName = Annotated[NonEmpty, AfterValidator(_valid_zone)]
"""Name of a time zone in the IANA database."""


class EventTime(Section):
    """The column with the time of an event."""

    column: NonEmpty
    """The column. Its type must be a time with or without zone, or a date. A time without zone is
    read in the zone of completeness."""
    lateness: Annotated[str, Field(pattern=r"^(0s|[1-9][0-9]{0,5}[smhd])$")] = "0s"
    """How long after the end of a period its rows may still be committed on the source, for example
    10m. Rows that are committed later are late."""


class CompletenessSettings(Section):
    """Which periods of a table are announced as complete."""

    by: Literal["hour", "day"]
    """The length of periods."""
    zone: ZoneName = "UTC"
    """The time zone of hours and days, by its name in the IANA database."""
    late: Literal["count", "announce"] = "count"
    """The reaction to late rows of an announced period. count: they are counted; announce: the
    period is also announced again, with a higher revision."""


def _completeness_section(value: Any) -> Any:
    """Return the configured section ``completeness`` in full, from ``hour`` or ``day``."""
    return {"by": value} if isinstance(value, str) and "${" not in value else value


Completeness = Annotated[
    CompletenessSettings,
    BeforeValidator(
        _completeness_section, json_schema_input_type=Literal["hour", "day"] | CompletenessSettings
    ),
]
"""The setting ``completeness``: ``hour``, ``day``, or the section."""


class _Columns(Protocol):
    """The methods of a table's `ColumnRules` that `completeness_conflicts` calls."""

    def selects(self, column: str) -> bool:
        """Return whether the settings let a column be replicated."""

    def hides(self, column: str) -> str:
        """Return how the lake hides a column; an empty string if it does not."""

    def is_read_by_key(self, column: str) -> bool:
        """Return whether runs read a column's values as strings from the source, by key."""


def completeness_conflicts(
    event_time: EventTime | None, chosen: CompletenessSettings | None, columns: _Columns
) -> Iterator[Conflict]:
    """Yield the configured settings of event time and completeness that cannot work."""
    if event_time is None:
        return
    if chosen is None:
        yield ("event_time",), "needs completeness: hour or day, which announces periods"
    column = event_time.column
    if not columns.selects(column):
        yield ("event_time", "column"), f"the column must be replicated: {column}"
    elif columns.hides(column) or columns.is_read_by_key(column):
        yield ("event_time", "column"), f"the lake has no time in this column: {column}"
