"""The protocol for user-defined types, which a source's connector looks up by their names."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from cdc.store.kept_type_looks import Names


class TypedColumn(NamedTuple):
    """A column with a user-defined type, or with an array of such a type.

    Args:
        table_schema: Schema of the column's table.
        table_name: Name of the column's table.
        column: The column's name.
        type_id: The server's id of the user-defined type.
        array: Whether the column has an array of the user-defined type.
    """

    table_schema: str
    table_name: str
    column: str
    type_id: int
    array: bool


class NamedTypes(Protocol):
    """Reads a source's user-defined types, which the connector looks up by name."""

    def digest(self) -> str:
        """Return a digest of all types, from one cheap query.

        The digest covers the types' names, their ids, and the labels of enums.
        """

    def read(self) -> tuple[str, Names]:
        """Return a digest of the source's types, and the types: ``types[name][schema]``."""

    def columns_of(self, types: Collection[int]) -> list[TypedColumn]:
        """Return the source's columns that have one of the types, or an array of one of them."""


class TypeReader(Protocol):
    """The methods of a source that read its user-defined types."""

    @property
    def named_types(self) -> NamedTypes | None:
        """The user-defined types; None if the source's connector does not look types up by name."""
