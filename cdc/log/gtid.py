"""Sets of global transaction ids (GTIDs) of MySQL and MariaDB, as values.

A copy that waits for a replica compares two such sets. So does the check whether the connector has
reached a position. One of the two sets comes from Connect's stored offsets, from the state store or
from a lake commit. Often no server has both sets, so this module compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cdc.errors import PositionError, StateError
from cdc.log.position import LogPosition

_SOURCE = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.IGNORECASE)
_NUMBERS = re.compile(r"([1-9][0-9]*)(?:-([1-9][0-9]*))?")
_MARIADB = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)")

Interval = tuple[int, int]
"""The first and the last number of a range of transactions, both included."""

_Set = TypeVar("_Set", bound="GtidSet")


class GtidSet(LogPosition, Protocol):
    """A set of GTIDs of MySQL or of MariaDB.

    A comparison of a set of MySQL with a set of MariaDB raises `PositionError`.
    """

    def without(self: _Set, other: _Set) -> _Set:
        """Return the transactions of this set that the other set lacks."""

    def __bool__(self) -> bool:
        """Return whether the set has any transaction."""


@dataclass(frozen=True)
class MysqlGtidSet:
    """A GTID set of MySQL, as in ``3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7``.

    Args:
        intervals: For each server, the ranges of transaction numbers. A key is a server's UUID, or
            ``uuid:tag`` for tagged transactions. The ranges of a key are in ascending order, and
            neither overlap nor adjoin.
    """

    intervals: Mapping[str, tuple[Interval, ...]]

    @classmethod
    def parse(cls, text: str) -> MysqlGtidSet:
        """Parse a value of ``@@gtid_executed``; an empty string is the empty set.

        Raises:
            StateError: ``text`` is not a GTID set of MySQL.
        """
        found: dict[str, list[Interval]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            source, *rest = (piece.strip() for piece in part.split(":"))
            if not _SOURCE.fullmatch(source) or not rest:
                raise _unreadable_gtids(text)
            owner = source.lower()
            for piece in rest:
                if numbers := _NUMBERS.fullmatch(piece):
                    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
                    if last < first:
                        raise _unreadable_gtids(text)
                    found.setdefault(owner, []).append((first, last))
                elif _TAG.fullmatch(piece):
                    owner = f"{source}:{piece}".lower()
                else:
                    raise _unreadable_gtids(text)
        return cls({owner: _joined_ranges(ranges) for owner, ranges in sorted(found.items())})

    def reaches(self, other: MysqlGtidSet) -> bool:
        """Return whether this set contains every transaction of the other set."""
        return not _gtids_of_same_kind(self, other).without(self)

    def joined(self, other: MysqlGtidSet) -> MysqlGtidSet:
        """Return the union of both sets."""
        theirs = _gtids_of_same_kind(self, other).intervals
        return MysqlGtidSet(
            {
                owner: _joined_ranges((*self.intervals.get(owner, ()), *theirs.get(owner, ())))
                for owner in sorted({*self.intervals, *theirs})
            }
        )

    def without(self, other: MysqlGtidSet) -> MysqlGtidSet:
        """Return the transactions of this set that the other set lacks."""
        theirs = _gtids_of_same_kind(self, other).intervals
        left = {
            owner: _difference_of_ranges(ranges, theirs.get(owner, ()))
            for owner, ranges in self.intervals.items()
        }
        return MysqlGtidSet({owner: ranges for owner, ranges in left.items() if ranges})

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return ",".join(
            ":".join((owner, *(str(a) if a == b else f"{a}-{b}" for a, b in ranges)))
            for owner, ranges in self.intervals.items()
        )


@dataclass(frozen=True)
class MariadbGtidSet:
    """A position of MariaDB, as in ``0-1-270,1-5-3``. It names each domain's last transaction.

    In each domain, the position represents all transactions up to the domain's last transaction.

    Within a domain, sequence numbers rise in the order of the binlog, regardless of the server that
    assigned the numbers; ``gtid_strict_mode`` ensures this. So position A reaches position B if, in
    each domain of B, the sequence number of A is at least the sequence number of B.

    Args:
        last: For each domain (by id), the server id and sequence number of its last transaction.
    """

    last: Mapping[int, tuple[int, int]]

    @classmethod
    def parse(cls, text: str) -> MariadbGtidSet:
        """Parse ``@@gtid_binlog_pos`` or ``@@gtid_slave_pos``; an empty string is the empty set.

        ``@@gtid_binlog_state`` is also accepted. It has one GTID for each server of a domain. The
        GTID with the domain's highest sequence number counts.

        Raises:
            StateError: ``text`` is not a list of MariaDB's GTIDs.
        """
        found: dict[int, tuple[int, int]] = {}
        for domain, server, number in mariadb_numbers(text):
            if domain not in found or found[domain][1] < number:
                found[domain] = (server, number)
        return cls(dict(sorted(found.items())))

    def reaches(self, other: MariadbGtidSet) -> bool:
        """Return whether this set contains every transaction of the other set."""
        return not _gtids_of_same_kind(self, other).without(self)

    def joined(self, other: MariadbGtidSet) -> MariadbGtidSet:
        """Return the later of the two positions in each domain."""
        ahead = _gtids_of_same_kind(self, other).without(self)
        return MariadbGtidSet(dict(sorted({**self.last, **ahead.last}.items())))

    def without(self, other: MariadbGtidSet) -> MariadbGtidSet:
        """Return this position's GTIDs of the domains in which the other position is behind.

        The other position is also behind in a domain of which it has no GTID.
        """
        theirs = _gtids_of_same_kind(self, other).last
        return MariadbGtidSet(
            {
                domain: (server, number)
                for domain, (server, number) in self.last.items()
                if domain not in theirs or theirs[domain][1] < number
            }
        )

    def __bool__(self) -> bool:
        return bool(self.last)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}" for domain, (server, number) in self.last.items()
        )


def mariadb_numbers(text: str) -> list[tuple[int, int, int]]:
    """Parse MariaDB's GTIDs; return the domain id, server id and sequence number of each.

    Raises:
        StateError: ``text`` is not a list of MariaDB's GTIDs.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _MARIADB.fullmatch(part)
        if match is None:
            raise _unreadable_gtids(text)
        domain, server, number = (int(piece) for piece in match.groups())
        found.append((domain, server, number))
    return found


def _joined_ranges(ranges: Iterable[Interval]) -> tuple[Interval, ...]:
    """Merge ranges of GTIDs' numbers into ascending ranges that neither overlap nor adjoin."""
    result: list[Interval] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def _difference_of_ranges(
    ranges: Iterable[Interval], removed: Iterable[Interval]
) -> tuple[Interval, ...]:
    """Return the numbers of ``ranges`` that are in none of the ascending ranges ``removed``."""
    result = []
    for first, last in ranges:
        at = first
        for low, high in removed:
            if high < at or low > last:
                continue
            if low > at:
                result.append((at, low - 1))
            at = high + 1
        if at <= last:
            result.append((at, last))
    return tuple(result)


def _gtids_of_same_kind(mine: _Set, other: object) -> _Set:
    """Return ``other`` if it is a GTID set of the class of ``mine``, else raise PositionError."""
    if not isinstance(other, type(mine)):
        raise PositionError.of_kinds(mine, other)
    return other


def _unreadable_gtids(text: str) -> StateError:
    """Return the error for a text that is not a set of GTIDs."""
    return StateError(
        f"{text!r} is not a set of GTIDs",
        remedy="MySQL writes them as uuid:1-5:7, MariaDB as domain-server-number; read it again.",
        field="gtid",
    )
