"""Positions in a source's log, as values that compare with each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cdc.errors import StateError

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_MAXIMUM = (1 << 64) - 1

_Position = TypeVar("_Position", bound="LogPosition")


class LogPosition(Protocol):
    """A position up to which a log was written, read or applied.

    Only positions of one kind of server are comparable. The order is partial. If each of two sets
    of transactions lacks a transaction of the other set, neither set reaches the other set.
    """

    def reaches(self: _Position, other: _Position) -> bool:
        """Return whether this position covers everything that the other position covers."""

    def joined(self: _Position, other: _Position) -> _Position:
        """Return the least position that reaches both positions."""

    def __str__(self) -> str:
        """Return the position as the server writes it."""


def shortfall(seen: _Position | None, upto: _Position) -> str:
    """Return a message if a source's log position does not reach another, else an empty string.

    Args:
        seen: The captured position; None if nothing is captured.
        upto: The position that must be captured.
    """
    if seen is not None and seen.reaches(upto):
        return ""
    return f"captured up to {seen or 'nowhere'}, {upto} is needed"


@dataclass(frozen=True)
class Lsn:
    """A PostgreSQL log sequence number: a byte position in the write-ahead log.

    A comparison with a value of another type (a GTID set, a Kafka offset, an integer) raises an
    error, so that no code takes such a value for an LSN.

    Args:
        value: Bytes from the start of the WAL, 0 to 2**64 - 1.

    Raises:
        StateError: The value is outside that range.
    """

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= _MAXIMUM:
            raise StateError(
                f"{self.value} is not a log sequence number: it must be 0 to 2^64 - 1",
                remedy="Read the position again from the source.",
                field="lsn",
            )

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse an LSN as PostgreSQL prints it, for example ``0/16B3748``.

        Raises:
            StateError: ``text`` is not an LSN.
        """
        match = _LSN.fullmatch(text)
        if match is None:
            raise StateError(
                f"{text!r} is not a log sequence number",
                remedy="Positions are written as two hexadecimal numbers, as in 0/16B3748.",
                field="lsn",
            )
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def reaches(self, other: Lsn) -> bool:
        """Return whether this position covers everything that the other position covers."""
        return self >= other

    def joined(self, other: Lsn) -> Lsn:
        """Return the greater of the two LSNs."""
        return max(self, other)

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

    def __sub__(self, other: Lsn) -> int:
        """Return the bytes of WAL from ``other`` to this LSN; negative if ``other`` is greater."""
        return self.value - self._comparable(other)

    def __eq__(self, other: object) -> bool:
        return self.value == self._comparable(other)

    def __hash__(self) -> int:
        return hash((Lsn, self.value))

    def __lt__(self, other: Lsn) -> bool:
        return self.value < self._comparable(other)

    def __le__(self, other: Lsn) -> bool:
        return self.value <= self._comparable(other)

    def __gt__(self, other: Lsn) -> bool:
        return self.value > self._comparable(other)

    def __ge__(self, other: Lsn) -> bool:
        return self.value >= self._comparable(other)

    @staticmethod
    def _comparable(other: object) -> int:
        """Return an LSN's value; refuse a value of another type."""
        if not isinstance(other, Lsn):
            raise TypeError(f"an Lsn compares with an Lsn only, not with {other!r}")
        return other.value
