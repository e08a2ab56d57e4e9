"""Finds the captures of tables, including both captures of a table that moves to another tier.

A table that moves to another tier has two captures until the move has ended. Runs follow one of
the two. The other one is either the capture that the table's next generation (its new image in the
lake) follows, or a former capture that the table has not left yet. If the other capture fails, its
slot keeps the log of the primary, and the move cannot end. So all code that watches captures gets
the captures from this module. A finding about a capture stops only tables that follow this capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc.capture.judgement import Finding, Severity
from cdc.capture.onboarded_names import names_of
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_NAMED = 5


@dataclass(frozen=True)
class CapturedTables:
    """A capture, and the tables that can be in it.

    Args:
        names: The capture.
        followed: The records of the tables that follow the capture, or that will follow the capture
            once they are copied.
        moving: The records of the tables that follow another capture, and that join or leave this
            capture in a move that is not finished.
    """

    names: CaptureNames
    followed: tuple[TableRecord, ...] = ()
    moving: tuple[TableRecord, ...] = ()

    @property
    def records(self) -> tuple[TableRecord, ...]:
        """The records of all tables that can be in the capture."""
        return (*self.followed, *self.moving)

    @property
    def topics(self) -> list[str]:
        """The topics to which this capture sends its tables' changes."""
        return [
            one.topic
            for record in self.records
            for one in record.captures
            if one.tier == self.names.tier
        ]

    def attributed(self, finding: Finding) -> Finding:
        """Return a finding about the capture, extended if only moving tables use the capture.

        An extended finding names the moving tables in its message, and the command `move` in its
        remedy. If a table follows the capture, the finding is returned unchanged.
        """
        if self.followed or not self.moving:
            return finding
        tables = sorted(record.table for record in self.moving)
        again = f"`tributary move {' '.join(map(str, tables))}`"
        remedy = f"Run {again}, which repairs the capture, or says what to correct, and goes on."
        if finding.severity in (Severity.WAITING, Severity.UNKNOWN):
            remedy = f"{finding.remedy} Then run {again}, which goes on with the move."
        return replace(
            finding,
            message=f"{finding.message}; it concerns the move of {listed(tables)}, which has not"
            " ended",
            remedy=remedy,
        )


def captures_of(config: Config, records: Iterable[TableRecord]) -> list[CapturedTables]:
    """Return each capture of the tables once, in the order in which the records name the captures.

    RETIRED tables, and tables whose source the configuration lacks, are left out.

    Args:
        config: The configuration.
        records: The records of the tables.
    """
    names: dict[tuple[str, str], CaptureNames] = {}
    followed: defaultdict[tuple[str, str], list[TableRecord]] = defaultdict(list)
    moving: defaultdict[tuple[str, str], list[TableRecord]] = defaultdict(list)
    for record in records:
        source = record.table.source
        if record.state is State.RETIRED or source not in config.sources:
            continue
        for one in record.captures:
            place = (source, one.tier)
            if place not in names:
                names[place] = names_of(config, source, one)
            (followed if one.tier == record.tier else moving)[place].append(record)
    return [
        CapturedTables(one, tuple(followed[place]), tuple(moving[place]))
        for place, one in names.items()
    ]


def users(records: Iterable[TableRecord], capture: CaptureNames) -> frozenset[TableId]:
    """Return the tables that use a capture.

    A table uses the capture that the table follows, and the capture that its next generation
    follows. During a move, the table also uses the capture that it joins or leaves.

    Args:
        records: The records of all tables and of their next generations.
        capture: The capture.
    """
    return frozenset(
        record.table
        for record in records
        if record.table.source == capture.source
        and record.state is not State.RETIRED
        and any(one.tier == capture.tier for one in record.captures)
    )


def listed(names: Sequence[object]) -> str:
    """Return the names of the first tables or topics, and the number of the others, as text.

    The text has the form ``a, b and 3 more``.
    """
    named, more = ", ".join(map(str, names[:_NAMED])), len(names) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
