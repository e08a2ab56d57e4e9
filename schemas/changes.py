"""What can change about a table, as values, each with what it asks of the lake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class Verdict(str, Enum):
    """What a change asks of the lake."""

    IGNORE = "ignore"
    """Nothing: the lake does not carry what changed, and says so."""
    EVOLVE = "evolve"
    """Its columns follow in place."""
    FILL = "fill"
    """Its columns follow, and rows that it has get the value that they have in the source now."""
    BOOTSTRAP = "bootstrap"
    """A new copy of the table."""

    @classmethod
    def gravest(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The one that asks for most; IGNORE of none."""
        return max(verdicts, key=list(cls).index, default=cls.IGNORE)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something that is not as it was.

    Args:
        verdict: What it asks of the lake.
        why: The reason of the verdict, as a clause.
    """

    verdict: Verdict
    why: str

    @property
    def what(self) -> str:
        """What changed, as a clause."""
        raise NotImplementedError  # each kind of change below has its own words

    @property
    def moves_lake(self) -> bool:
        """Whether columns of the lake, or rows that it has, change when it follows."""
        return False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def to_json(self) -> dict[str, Any]:
        """The change as plain values."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            "change": type(self).__name__,
            "what": self.what,
            **own,
            "verdict": self.verdict.value,
        }


@dataclass(frozen=True, kw_only=True)
class AddColumn(Change):
    """A column that the table did not have, or that the lake does not.

    Args:
        name: The column.
        type: Its type.
        stored: What rows older than it show, as the catalog keeps it: an array with one element.
        frozen: Whether the lake leaves it out because it takes no new columns.
    """

    name: str
    type: str
    stored: str | None = None
    frozen: bool = False

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} ({self.type}) was added"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake changes."""
        return self.verdict is not Verdict.IGNORE


@dataclass(frozen=True, kw_only=True)
class DropColumn(Change):
    """A column that the table no longer has."""

    name: str

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} was dropped"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake changes."""
        return self.verdict is not Verdict.IGNORE


@dataclass(frozen=True, kw_only=True)
class RenameColumn(Change):
    """A column with another name: the same number in the catalog.

    Args:
        name: Its name before.
        to: Its name now.
        former: Where it is followed, the names before that one back to ``name``, newest first.
    """

    name: str
    to: str
    former: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} was renamed to {self.to!r}"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake changes."""
        return self.verdict is Verdict.FILL


@dataclass(frozen=True, kw_only=True)
class ChangeType(Change):
    """A type that does not hold every value of the one before."""

    name: str
    old: str
    new: str

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} changed from {self.old} to {self.new}"


@dataclass(frozen=True, kw_only=True)
class WidenType(ChangeType):
    """A type that holds every value of the one before.

    Args:
        in_lake: Whether the lake's type becomes wider, too.
    """

    in_lake: bool = False

    @property
    def moves_lake(self) -> bool:
        """Whether the lake changes."""
        return self.in_lake


@dataclass(frozen=True, kw_only=True)
class NarrowType(ChangeType):
    """A type of which the one before holds every value."""


@dataclass(frozen=True, kw_only=True)
class RewriteColumn(Change):
    """A column whose definition was written together with a new file of the table."""

    name: str

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} was altered and the table rewritten"


@dataclass(frozen=True, kw_only=True)
class ChangeParts(Change):
    """A label of a column's enum, or a field of its composite, is another one."""

    name: str
    old: str | None
    new: str | None

    @property
    def what(self) -> str:
        """What changed."""
        if self.old == self.new:
            return f"label {self.old!r} of the type of column {self.name!r} was written anew"
        old, new = (repr(part) if part is not None else "none" for part in (self.old, self.new))
        return f"a label or field of the type of column {self.name!r} changed from {old} to {new}"


@dataclass(frozen=True, kw_only=True)
class ChangeKey(Change):
    """Other columns identify a row."""

    old: str
    new: str

    @property
    def what(self) -> str:
        """What changed."""
        if self.old == self.new:
            return f"its key {self.old} was made anew"
        return f"its key changed from {self.old} to {self.new}"


@dataclass(frozen=True, kw_only=True)
class AddPartition(Change):
    """A partition that was created, or attached without rows."""

    name: str

    @property
    def what(self) -> str:
        """What changed."""
        return f"partition {self.name} is new"


@dataclass(frozen=True, kw_only=True)
class ChangeNullability(Change):
    """A column that allows NULL now, or no longer."""

    name: str
    nullable: bool

    @property
    def what(self) -> str:
        """What changed."""
        return f"column {self.name!r} {'allows' if self.nullable else 'no longer allows'} NULL"


@dataclass(frozen=True, kw_only=True)
class ChangeDefault(Change):
    """Another default for rows to come."""

    name: str
    old: str | None
    new: str | None

    @property
    def what(self) -> str:
        """What changed."""
        return f"the default of column {self.name!r} was {self.old}, is {self.new}"


@dataclass(frozen=True, kw_only=True)
class ChangeIdentity(Change):
    """Another replica identity: what the log keeps of an old row."""

    old: str
    new: str

    @property
    def what(self) -> str:
        """What changed."""
        return f"its replica identity was {self.old}, is {self.new}"


@dataclass(frozen=True, kw_only=True)
class LoseEvents(Change):
    """Something that changes rows, or keeps changes of rows out of the log."""

    fact: str

    @property
    def what(self) -> str:
        """What changed."""
        return self.fact


@dataclass(frozen=True, kw_only=True)
class NewFile(Change):
    """The table lies in a new file, and no column's definition was written."""

    @property
    def what(self) -> str:
        """What changed."""
        return "the table was rewritten (VACUUM FULL, CLUSTER, TRUNCATE or a change of type)"
