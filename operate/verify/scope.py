"""Decides, with pure functions, which part of a table ``verify`` compares, and in which pieces."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from cdc.errors import LakeError
from cdc.sources.source_facts import KeyRange, TimeRange

if TYPE_CHECKING:
    from schemas.table import TableId, TableSchema

Method = Literal["full", "sample", "partitions", "window"]

SAMPLED_RANGES = 20
"""Minimum number of ranges of a sample. A small table can have fewer ranges."""
PIECES = 20
"""Minimum number of ranges of a comparison in pieces. A small table can have fewer ranges."""
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Scope:
    """Which part of a table is compared, and with which budget of time and sessions.

    Args:
        method: ``full``: all rows. ``sample``: ranges of the key. ``partitions``: all rows, first
            by counts and checksums of partitions. ``window``: the rows of a range of times.
        fraction: The fraction of the ranges that a sample compares.
        seed: The seed of the random choice of ranges.
        window: The range of times that a window covers.
        partition_by: The columns whose values make a partition.
        max_seconds: Time after which no further piece begins; None for no limit.
        max_sessions: Maximum number of sessions that read the source; None for no limit.
        go_on: Whether to begin where an unfinished comparison in pieces ended.
        from_primary: Whether the source's rows are read from the primary even if there is a
            replica.
    """

    method: Method = "full"
    fraction: float = 1.0
    seed: int = 0
    window: TimeRange | None = None
    partition_by: tuple[str, ...] = ()
    max_seconds: float | None = None
    max_sessions: int | None = None
    go_on: bool = False
    from_primary: bool = False

    @property
    def in_pieces(self) -> bool:
        """Whether the table is compared piece by piece, so that the comparison can end early."""
        return self.method == "full" and (self.max_seconds is not None or self.go_on)

    @property
    def needs_order(self) -> bool:
        """Whether the lake's rows are chosen by ranges of their keys."""
        return self.method == "sample" or self.in_pieces

    @property
    def whole(self) -> bool:
        """Whether the comparison covers all rows of the table."""
        return self.method in ("full", "partitions")


EVERYTHING = Scope()
"""The scope of all rows of a table, without a budget of time or sessions."""


class KeyOrder:
    """The order of a table's keys, if the lake can sort them as the source does.

    Args:
        schema: The table's schema in the lake, with a key.
        uuids_sort_as_text: Whether the source sorts values of the type ``uuid`` like their text.

    Raises:
        LakeError: A key column has a type that the source can sort by rules of its own.
    """

    def __init__(self, schema: TableSchema, *, uuids_sort_as_text: bool) -> None:
        self.types: tuple[tuple[str, str], ...] = tuple(
            (name, schema.column(name).lake_type) for name in schema.key
        )
        for name, lake_type in self.types:
            uuid = uuids_sort_as_text and schema.column(name).source_type == "uuid"
            plain = lake_type in (*_WHOLE, "date") or lake_type.startswith("decimal")
            if not (plain or uuid):
                raise _unsorted_key_error(schema.table, name)

    def value(self, key: Sequence[str]) -> tuple[object, ...]:
        """Convert a key from text to values whose order is the order of keys in the source."""
        return tuple(
            _sortable_key_value(text, lake_type)
            for text, (_, lake_type) in zip(key, self.types, strict=True)
        )


def _sortable_key_value(text: str, lake_type: str) -> object:
    """Convert the text of a key column to a value whose order is the order in the source."""
    try:
        if lake_type == "date":
            return date.fromisoformat(text)
        return text if lake_type == "string" else Decimal(text)
    except (ValueError, InvalidOperation):
        return text


def _unsorted_key_error(table: TableId, column: str) -> LakeError:
    """Return the error of ``verify`` for a key that the lake cannot sort as the source does."""
    return LakeError(
        f"table {table} cannot be compared by ranges of its key: the source sorts column {column}"
        " by rules that the lake does not have",
        remedy="Compare it as a whole, by partitions or by a window of time: ranges need keys of"
        " integers, decimals, dates, or PostgreSQL's uuid.",
        table=table,
        column=column,
    )


def ranges_of(points: Sequence[tuple[str, ...]]) -> list[KeyRange]:
    """Return the ranges for ``verify`` into which the given boundaries divide all keys."""
    return [KeyRange(low, high) for low, high in pairwise((None, *points, None))]


def sampled(ranges: Sequence[KeyRange], scope: Scope) -> list[KeyRange]:
    """Return the ranges of a sample for ``verify``: at least one, in the order of the key."""
    count = min(len(ranges), max(1, math.ceil(len(ranges) * scope.fraction)))
    chosen = random.Random(scope.seed).sample(range(len(ranges)), count)  # noqa: S311 - no secret
    return [ranges[place] for place in sorted(chosen)]


def left(ranges: Sequence[KeyRange], order: KeyOrder, upto: tuple[str, ...]) -> list[KeyRange]:
    """Return the ranges that ``verify`` has yet to compare, after the key ``upto``."""
    at = order.value(upto)
    later = [one for one in ranges if one.upper is None or order.value(one.upper) > at]
    first, *others = later
    return [replace(first, lower=upto), *others]


def pieces(ranges: Sequence[KeyRange], parallel: int) -> list[list[KeyRange]]:
    """Return the ranges in groups that ``verify`` compares one after the other."""
    size = max(1, parallel)
    return [list(ranges[at : at + size]) for at in range(0, len(ranges), size)]


def joined(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Join neighbours among compared ranges, so that few conditions describe all of the ranges."""
    found: list[KeyRange] = []
    for one in ranges:
        if found and found[-1].upper is not None and found[-1].upper == one.lower:
            found[-1] = replace(found[-1], upper=one.upper)
        else:
            found.append(one)
    return found
