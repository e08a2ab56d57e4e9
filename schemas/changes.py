"""The kinds of schema changes, and the verdicts that a schema change can get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class Verdict(str, Enum):
    """The effects that a schema change can have on the lake, from the lightest to the gravest."""

    IGNORE = "ignore"
    """The lake does not change.

    A message reports the change.
    """
    EVOLVE = "evolve"
    """The lake's columns follow the change in place."""
    FILL = "fill"
    """The lake's columns follow the change.

    The lake's old rows get the default of a new column, or the values of a renamed column under its
    new name.
    """
    BOOTSTRAP = "bootstrap"
    """The table needs a new copy."""

    @classmethod
    def gravest(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the gravest of the verdicts; IGNORE if there are no verdicts."""
        return max(verdicts, key=list(cls).index, default=cls.IGNORE)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One schema change: a difference between two descriptions of a table.

    Args:
        verdict: The change's effect on the lake.
        why: The reason for the verdict, in words that can follow a colon.
    """

    verdict: Verdict
    why: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' was dropped``."""
        raise NotImplementedError  # each kind of change below has its own wording

    @property
    def moves_lake(self) -> bool:
        """Whether the lake's columns or existing rows change when the lake follows the change."""
        return False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def to_json(self) -> dict[str, Any]:
        """The schema change as a JSON object, which commands print and the state store keeps."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            "change": type(self).__name__,
            "what": self.what,
            **own,
            "verdict": self.verdict.value,
        }


@dataclass(frozen=True, kw_only=True)
class AddColumn(Change):
    """A schema change: the source table has a column that the lake table lacks.

    Args:
        name: The column's name.
        type: The column's type.
        stored: The column's value in older rows, as the source's catalog stores it. On PostgreSQL,
            this is an array literal with one element, for example ``{5}``. None if older rows are
            NULL, or if the catalog does not determine the value in older rows.
        frozen: Whether the lake leaves the column out because of ``on_schema_change: freeze``.
    """

    name: str
    type: str
    stored: str | None = None
    frozen: bool = False

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' (integer) was added``."""
        return f"column {self.name!r} ({self.type}) was added"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake table gets the column."""
        return self.verdict is not Verdict.IGNORE


@dataclass(frozen=True, kw_only=True)
class DropColumn(Change):
    """A schema change: a column was dropped, or the settings no longer replicate it.

    Args:
        name: The column.
        left_out: Whether the source table still has the column, but the settings no longer
            replicate it.
    """

    name: str
    left_out: bool = False

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' was dropped``."""
        return f"column {self.name!r} was {'left out' if self.left_out else 'dropped'}"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake follows the drop."""
        return self.verdict is not Verdict.IGNORE


@dataclass(frozen=True, kw_only=True)
class RenameColumn(Change):
    """A schema change: a column was renamed.

    Args:
        name: The column's former name.
        to: The column's new name.
        former: All names that the column had before ``to``, newest first; ``name`` is the last of
            these names. Empty if the lake does not follow the rename.
    """

    name: str
    to: str
    former: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' was renamed to 'b'``."""
        return f"column {self.name!r} was renamed to {self.to!r}"

    @property
    def moves_lake(self) -> bool:
        """Whether the lake moves the values to the new name."""
        return self.verdict is Verdict.FILL


@dataclass(frozen=True, kw_only=True)
class ChangeType(Change):
    """A schema change: a column has another type, or the lake must store its values differently."""

    name: str
    old: str
    new: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' changed from integer to text``."""
        return f"column {self.name!r} changed from {self.old} to {self.new}"


@dataclass(frozen=True, kw_only=True)
class WidenType(ChangeType):
    """A schema change to a type that can represent every value of the former type.

    Args:
        in_lake: Whether the lake's type becomes wider, too.
    """

    in_lake: bool = False

    @property
    def moves_lake(self) -> bool:
        """Whether the type of the lake column becomes wider, too."""
        return self.in_lake


@dataclass(frozen=True, kw_only=True)
class NarrowType(ChangeType):
    """A schema change to a type that can represent only some values of the former type."""


@dataclass(frozen=True, kw_only=True)
class RewriteColumn(Change):
    """A schema change: a column was altered, and its values could have changed without events."""

    name: str

    @property
    def what(self) -> str:
        """The schema change in words, with the name of the column."""
        return f"column {self.name!r} was altered and the table rewritten"


@dataclass(frozen=True, kw_only=True)
class ChangeParts(Change):
    """A schema change: a label of an enum column, or a field of a composite column, has changed."""

    name: str
    old: str | None
    new: str | None

    @property
    def what(self) -> str:
        """The schema change in words, with the old and the new label or field."""
        if self.old == self.new:
            return (
                f"label {self.old!r} of the type of column {self.name!r} was rewritten in the"
                " catalog"
            )
        old, new = (repr(part) if part is not None else "none" for part in (self.old, self.new))
        return f"a label or field of the type of column {self.name!r} changed from {old} to {new}"


@dataclass(frozen=True, kw_only=True)
class ChangeKey(Change):
    """A schema change: the key has other columns than before, or was recreated."""

    old: str
    new: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``its key changed from (a) to (a, b)``."""
        if self.old == self.new:
            return f"its key {self.old} was recreated"
        return f"its key changed from {self.old} to {self.new}"


@dataclass(frozen=True, kw_only=True)
class ChangeLakePartitions(Change):
    """A change of settings: the settings name other partition columns than the lake table has.

    Args:
        old: The lake's partition columns, in parentheses.
        new: The partition columns of the settings, in parentheses.
    """

    old: str
    new: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``its partition_by changed from (a) to (b)``."""
        return f"its partition_by changed from {self.old} to {self.new}"


@dataclass(frozen=True, kw_only=True)
class AddPartition(Change):
    """A schema change: a partition without rows was created or attached."""

    name: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``partition p1 is new``."""
        return f"partition {self.name} is new"


@dataclass(frozen=True, kw_only=True)
class ChangeNullability(Change):
    """A schema change: a column now allows NULL, or no longer allows it.

    If ``back`` is true, the column allows NULL in both compared catalogs, or in neither. But the
    column's definition was written between the two reads of the catalog, so the opposite can have
    been true for a while.
    """

    name: str
    nullable: bool
    back: bool = False

    @property
    def what(self) -> str:
        """The schema change in words, for example ``column 'a' no longer allows NULL``."""
        if self.back:
            return (
                f"the definition of column {self.name!r} was written and is unchanged: it may have"
                f" {'refused' if self.nullable else 'allowed'} NULL for a while"
            )
        return f"column {self.name!r} {'allows' if self.nullable else 'no longer allows'} NULL"


@dataclass(frozen=True, kw_only=True)
class ChangeDefault(Change):
    """A schema change: a column has another default for future rows."""

    name: str
    old: str | None
    new: str | None

    @property
    def what(self) -> str:
        """The schema change in words, for example ``the default of column 'a' was 0, is 1``."""
        return f"the default of column {self.name!r} was {self.old}, is {self.new}"


@dataclass(frozen=True, kw_only=True)
class ChangeIdentity(Change):
    """A schema change: the table has another replica identity.

    The replica identity decides which columns of the old row an event of PostgreSQL has.
    """

    old: str
    new: str

    @property
    def what(self) -> str:
        """The schema change in words, for example ``its replica identity was default, is full``."""
        return f"its replica identity was {self.old}, is {self.new}"


@dataclass(frozen=True, kw_only=True)
class LoseEvents(Change):
    """A schema change that changes rows without events, or after which events can be missing."""

    fact: str

    @property
    def what(self) -> str:
        """The schema change in words, which say what happened at the source."""
        return self.fact


@dataclass(frozen=True, kw_only=True)
class NewFile(Change):
    """A schema change: PostgreSQL has rewritten the table into a new file.

    VACUUM FULL, CLUSTER, TRUNCATE or a change to a wider type rewrites a table. If the rewrite
    could have changed a column's values, the change is a `RewriteColumn` or a `ChangeType` instead.
    """

    @property
    def what(self) -> str:
        """The schema change in words, with the statements that can have rewritten the table."""
        return "the table was rewritten (VACUUM FULL, CLUSTER, TRUNCATE or a change of type)"
