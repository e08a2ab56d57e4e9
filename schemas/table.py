"""The name, the columns and the schema of a table, as values that all packages use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from schemas.errors import InvalidIdentifierError, SchemaError


@dataclass(frozen=True, order=True)
class TableId:
    """One table of one configured source.

    Args:
        source: Key of the source in ``tributary.yaml``.
        schema: Schema (PostgreSQL) or database (MySQL) name, exactly as in the catalog.
        name: Table name, exactly as in the catalog.
    """

    source: str
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{quote_name(self.schema)}.{quote_name(self.name)}"

    @property
    def relation(self) -> str:
        """``schema.table``, with the names quoted as in SQL where necessary."""
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @classmethod
    def parse(cls, text: str, *, default_source: str | None = None) -> TableId:
        """Parse ``[source:]schema.table``; a name with a dot, space or quote must be double-quoted.

        An unquoted name keeps its case, so names from the output of ``discover`` can be used.

        Raises:
            InvalidIdentifierError: The string is not of that form, or it names no source and there
                is no default source.
        """
        return cls.of_parts(text, lambda name, _quoted: name, default_source=default_source)

    @classmethod
    def of_parts(
        cls, text: str, read: Callable[[str, bool], str], *, default_source: str | None = None
    ) -> TableId:
        """Parse a table's full name; convert each name in it with ``read``.

        Args:
            text: ``[source:]schema.table``.
            read: Converts a source, schema or table name. Its arguments are the name without
                quotes, and whether the name had quotes.
            default_source: The source if ``text`` names none.

        Raises:
            InvalidIdentifierError: ``text`` is not of that form.
        """
        found, separators = _split_full_name(text)
        parts = [read(name, quoted) for name, quoted in found]
        if separators == [":", "."]:
            return cls(*parts)
        if separators == ["."] and default_source is not None:
            return cls(default_source, *parts)
        reason = (
            "it names no source and there is more than one"
            if separators == ["."]
            else "the form is [source:]schema.table"
        )
        raise InvalidIdentifierError(
            f"{text!r} does not name a table: {reason}",
            remedy='Write source:schema.table, as in shop:public.orders or shop:"My S"."t.1";'
            " a shell removes double quotes, so put single quotes around the whole name.",
            field=text,
        )


@lru_cache(maxsize=8192)
def quote_name(name: str) -> str:
    """Return a single name as messages and full names have it: quoted as in SQL if necessary.

    Do not use the result in SQL statements.
    """
    plain = name.replace("_", "").replace("$", "")
    if plain.isascii() and plain.isalnum() and not name[0].isdigit() and name == name.lower():
        return name
    return '"' + name.replace('"', '""') + '"'


def _split_full_name(text: str) -> tuple[list[tuple[str, bool]], list[str]]:
    """Split the full name of a table, for example ``a:"b.c".d``, into single names and separators.

    The result is a list of names and a list of separators. Each name is paired with True if the
    name is quoted, and with False if not. Both lists are empty if ``text`` is not a full name.
    """
    names: list[tuple[str, bool]] = []
    separators: list[str] = []
    position, end = 0, len(text)
    while True:
        quoted = position < end and text[position] == '"'
        if quoted:
            name, position = _read_quoted_name(text, position)
        else:
            start = position
            while position < end and text[position] not in ':."':
                position += 1
            name = text[start:position]
        if not name or "\x00" in name:
            return [], []
        names.append((name, quoted))
        if position == end:
            return names, separators
        if text[position] not in ":.":
            return [], []
        separators.append(text[position])
        position += 1


def _read_quoted_name(text: str, position: int) -> tuple[str, int]:
    """Return the quoted name at ``position`` of a table's full name, and the position after it.

    The name is returned without quotes. The name is empty if the closing quote is missing.
    """
    name = []
    position += 1
    while position < len(text):
        if text[position] != '"':
            name.append(text[position])
            position += 1
        elif text[position + 1 : position + 2] == '"':
            name.append('"')
            position += 2
        else:
            return "".join(name), position + 1
    return "", position


@dataclass(frozen=True)
class Shard:
    """One of several source tables that feed one lake table.

    Args:
        of: Name of the lake table.
        name: Name of the shard. Each row of the shard has this name in the shard column.
        column: Name of the shard column.
        base_path: Folder of the lake table.
    """

    of: str
    name: str
    column: str
    base_path: str


DROPPED = "dropped"
"""The value of ``source_type`` for a column that only the lake still has."""


@dataclass(frozen=True)
class Column:
    """One column, with its types in the source and in the lake.

    Args:
        name: Column name, exactly as in the catalog.
        source_type: The type as the source prints it, for example ``numeric(10,2)``.
        lake_type: The Spark SQL type of the lake column, for example ``decimal(10,2)``.
        nullable: Whether the source allows NULL.
        read_by_key: Whether the column's values are read from the source by key, as text, because
            events do not have them exactly.
        hide: ``hash`` or ``mask`` if the lake column has hashes or masks, as strings, instead of
            the values. Empty if the lake column has the values.
        plain: If the lake hides the column's values, the Spark SQL type of the original values.
        decimal: Whether the settings choose a decimal type for the column's values.
        secret: Whether output for people must not show the column's values.
        doubtful: A regular expression. If it matches an event's string for the column, the string
            can stand for several values of the source (see `schemas.type_rule.TypeRule`).
    """

    name: str
    source_type: str
    lake_type: str
    nullable: bool = True
    read_by_key: bool = False
    hide: str = ""
    plain: str = ""
    decimal: bool = False
    secret: bool = False
    doubtful: str = ""

    @property
    def chosen(self) -> str:
        """The decimal type that the settings choose for the column; empty if they choose none."""
        return (self.plain or self.lake_type) if self.decimal else ""

    @property
    def live(self) -> bool:
        """Whether the source still has the column and the settings replicate it."""
        return self.source_type != DROPPED


@dataclass(frozen=True)
class TableSchema:
    """A table's columns, in the order of the source, and the table's record key.

    Raises:
        SchemaError: Two columns have the same name, or the key names a column that the table lacks.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise SchemaError(
                f"table {self.table} has several columns of the same name: {', '.join(doubled)}",
                remedy="Rename one of them on the source.",
                table=self.table,
            )
        missing = [name for name in self.key if name not in names]
        if missing:
            raise SchemaError(
                f"key of table {self.table} names unknown columns: {', '.join(missing)}",
                remedy="Set key_columns to columns that the table has.",
                table=self.table,
            )

    def shown(self) -> TableSchema:
        """Return the table's schema as it would be if the lake hid no column's values.

        But in the result, ``secret`` is true for the columns whose values the lake hides.
        """
        columns = (
            replace(column, lake_type=column.plain, hide="", plain="", secret=True)
            if column.hide
            else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def only(self, names: Collection[str]) -> TableSchema:
        """Return the table's schema reduced to the named columns, which must include the key."""
        columns = tuple(column for column in self.columns if column.name in names)
        return replace(self, columns=columns)

    def column(self, name: str) -> Column:
        """Return a column of the table's schema by name.

        Raises:
            SchemaError: There is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(
            f"table {self.table} has no column {name!r}",
            remedy="Check the column's name with `tributary discover`.",
            table=self.table,
            field=name,
        )
