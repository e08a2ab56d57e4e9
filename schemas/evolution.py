"""How a table's columns changed, as values that say whether the lake can follow in place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.table import TableSchema

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


@dataclass(frozen=True)
class AddColumn:
    """A column that the lake does not have yet; its old rows read NULL."""

    name: str
    lake_type: str


@dataclass(frozen=True)
class DropColumn:
    """A column that the source no longer has; the lake keeps it, NULL from then on."""

    name: str


@dataclass(frozen=True)
class WidenType:
    """A type that holds every value of the one before."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class ChangeType:
    """A type that does not hold every value of the one before: never in place."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"column {self.name!r} changed from {self.old} to {self.new}"


Change = AddColumn | DropColumn | WidenType | ChangeType


def widens(old: str, new: str) -> bool:
    """Whether every value of Spark type ``old`` is exactly one of ``new``, and Hudi follows."""
    if new in _WIDER.get(old, ()):
        return True
    wider = _DECIMAL.fullmatch(new)
    if wider is None:
        return False
    digits, scale = int(wider[1]), int(wider[2])
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    return scale >= int(narrow[2]) and digits - scale >= int(narrow[1]) - int(narrow[2])


def changes(lake: Mapping[str, str], table: TableSchema) -> list[Change]:
    """What has to happen to the lake's columns so that they carry the table's.

    Args:
        lake: Spark type by name of the lake's source columns, in order.
        table: The table as the source has it now.
    """
    found: list[Change] = []
    now = {column.name: column.lake_type for column in table.columns}
    for name, old in lake.items():
        new = now.get(name)
        if new is None:
            found.append(DropColumn(name))
        elif new != old:
            found.append(
                WidenType(name, old, new) if widens(old, new) else ChangeType(name, old, new)
            )
    found.extend(AddColumn(name, kind) for name, kind in now.items() if name not in lake)
    return found
