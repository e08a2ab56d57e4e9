"""The protocol of a source whose connector finds the types of columns by their names."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from cdc.store.type_looks import Names


class TypedColumn(NamedTuple):
    """A column, and the named type of its values or, for an array, of its elements.

    Args:
        table_schema: Schema of the column's table.
        table_name: Name of the column's table.
        column: The column's name.
        oid: The type's object id.
        array: Whether the column has an array of the type.
    """

    table_schema: str
    table_name: str
    column: str
    oid: int
    array: bool


class NamedTypes(Protocol):
    """The types of a source's users, by their names."""

    def digest(self) -> str:
        """Return a digest of all names and types, by one cheap query of the source."""

    def read(self) -> tuple[str, Names]:
        """Return the digest of the source's types, and the types by name, then by schema."""

    def columns_of(self, types: Collection[int]) -> list[TypedColumn]:
        """Return the columns of tables with one of the source's types, or with an array of it."""


class TypeReader(Protocol):
    """A source's types that its users can give names."""

    @property
    def named_types(self) -> NamedTypes | None:
        """The types that the source's connector finds by name; None if it does not."""
