"""Places in a binlog, which are the positions of a MySQL server without GTIDs.

A place is a file and an offset. It covers all bytes before this offset, and no event that begins
at this offset. Two places are comparable only if both are in the binlog of the same server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc.errors import PositionError, StateError
from cdc.log.gtid import MysqlGtidSet
from cdc.log.position import LogPosition

_FILE = re.compile(r"(.+)\.([0-9]+)", re.DOTALL)
_PLACE = re.compile(r"(.+\.[0-9]+):([0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class BinlogPosition:
    """A place in a binlog, as in ``binlog.000012:4567``.

    Args:
        file: Name of the file, without its folder.
        offset: Bytes from the beginning of that file.

    Raises:
        StateError: ``file`` is not the name of a binlog's file, or ``offset`` is negative.
    """

    file: str
    offset: int

    def __post_init__(self) -> None:
        if not _FILE.fullmatch(self.file) or self.offset < 0:
            raise _unreadable_binlog_position(f"{self.file}:{self.offset}")

    @classmethod
    def parse(cls, text: str) -> BinlogPosition:
        """Parse a place, as in ``binlog.000012:4567``.

        Raises:
            StateError: ``text`` is not such a place.
        """
        match = _PLACE.fullmatch(text)
        if match is None:
            raise _unreadable_binlog_position(text)
        return cls(match[1], int(match[2]))

    @property
    def base(self) -> str:
        """The prefix of all files of this binlog, for example ``binlog`` of ``binlog.000012``."""
        return self.file.rpartition(".")[0]

    @property
    def number(self) -> int:
        """The number in the file's name. MySQL pads a number below a million to six digits."""
        return int(self.file.rpartition(".")[2])

    def reaches(self, other: BinlogPosition) -> bool:
        """Return whether this place covers everything that the other place covers.

        Raises:
            PositionError: ``other`` is no place in a binlog, or its file's name has another prefix.
        """
        theirs = self._comparable(other)
        return (self.number, self.offset) >= (theirs.number, theirs.offset)

    def joined(self, other: BinlogPosition) -> BinlogPosition:
        """Return the later of the two places.

        Raises:
            PositionError: ``other`` is no place in a binlog, or its file's name has another prefix.
        """
        return self if self.reaches(other) else other

    def moved(self, by: int) -> BinlogPosition:
        """Return the place ``by`` bytes later, or earlier if ``by`` is negative.

        The result is never before the start of the file.
        """
        return BinlogPosition(self.file, max(0, self.offset + by))

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    def _comparable(self, other: object) -> BinlogPosition:
        """Return ``other`` if it is a place in a binlog whose files have the same prefix.

        Raises:
            PositionError: ``other`` is no place in a binlog, or its file's name has another prefix.
        """
        if not isinstance(other, BinlogPosition):
            raise PositionError.of_kinds(self, other)
        if other.base != self.base:
            raise PositionError(
                f"{self} and {other} are positions in the binlogs of two servers, or of one server"
                " whose binlog got another name (log_bin)",
                remedy="Copy the tables of this source again: `tributary resync`.",
            )
        return other


@dataclass(frozen=True)
class StoredPosition:
    """Connect's stored position for a MySQL server, as GTIDs and as a place in the binlog.

    The place is always exact. The GTIDs can be outdated: after a server has stopped using GTIDs,
    the connector stores the server's last GTID set with every later place. Kafka then has all
    transactions of the set, and can have later transactions, too.

    A GTID set is compared with the stored GTIDs, and a place with the stored place.

    Args:
        gtids: The set of transactions; None if the connector has stored no GTIDs.
        place: The place in the binlog; None if the connector has stored no place.
    """

    gtids: MysqlGtidSet | None
    place: BinlogPosition | None

    def reaches(self, other: LogPosition) -> bool:
        """Return whether this position covers everything that the other position covers.

        Raises:
            PositionError: ``other`` is a GTID set and no GTIDs are stored, or ``other`` is a place
                and no place is stored.
        """
        return self.like(other).reaches(other)

    def joined(self, other: StoredPosition) -> StoredPosition:
        """Return the position with the union of both GTID sets, and with the later place.

        The result has no GTIDs if one of the two positions has no GTIDs, and no place if one of
        the two positions has no place.
        """
        gtids, place = self.gtids, self.place
        return StoredPosition(
            None if gtids is None or other.gtids is None else gtids.joined(other.gtids),
            None if place is None or other.place is None else place.joined(other.place),
        )

    def like(self, other: LogPosition) -> LogPosition:
        """Return the stored value of the same kind as ``other``: either the GTIDs or the place.

        Raises:
            PositionError: ``other`` is a GTID set and no GTIDs are stored, or ``other`` is a place
                and no place is stored.
        """
        if isinstance(other, MysqlGtidSet) and self.gtids is not None:
            return self.gtids
        if isinstance(other, BinlogPosition) and self.place is not None:
            return self.place
        raise PositionError.of_kinds(self, other)

    def __str__(self) -> str:
        return " at ".join(str(one) for one in (self.gtids, self.place) if one is not None)


def read_position(text: str) -> MysqlGtidSet | BinlogPosition:
    """Parse a position in a MySQL server's log, which is a place in a binlog or a GTID set.

    Raises:
        StateError: ``text`` is neither a place nor a GTID set.
    """
    return BinlogPosition.parse(text) if _PLACE.fullmatch(text) else MysqlGtidSet.parse(text)


def _unreadable_binlog_position(text: str) -> StateError:
    """Return the error for a text that is not a position in a binlog."""
    return StateError(
        f"{text!r} is not a position in a binlog",
        remedy="Positions are written as file and offset, as in binlog.000012:4567.",
        field="binlog",
    )
