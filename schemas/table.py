"""Tables and columns as values shared by every layer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

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
        """``schema.table`` with SQL quoting where a name needs it."""
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @classmethod
    def parse(cls, text: str, *, default_source: str | None = None) -> TableId:
        """Read ``[source:]schema.table``; names with dots, spaces or quotes are double-quoted.

        Unquoted names are taken as written (no case folding), so output of ``discover`` can be
        pasted back.

        Raises:
            InvalidIdentifierError: The text is not of that form, or names no source and there
                is no default.
        """
        return cls.of_parts(text, lambda name, _quoted: name, default_source=default_source)

    @classmethod
    def of_parts(
        cls, text: str, read: Callable[[str, bool], str], *, default_source: str | None = None
    ) -> TableId:
        """Parse a table's name, with each part converted by ``read``.

        Args:
            text: ``[source:]schema.table``.
            read: Converts a part. Called with the part without quotes, and whether it had quotes.
            default_source: The source for a text without a source.

        Raises:
            InvalidIdentifierError: The text is not of that form.
        """
        found, separators = _split(text)
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


def quote_name(name: str) -> str:
    """Return a name as SQL prints it: quoted only if necessary. For display only."""
    plain = name.replace("_", "").replace("$", "")
    if plain.isascii() and plain.isalnum() and not name[0].isdigit() and name == name.lower():
        return name
    return '"' + name.replace('"', '""') + '"'


def _split(text: str) -> tuple[list[tuple[str, bool]], list[str]]:
    """Cut ``a:"b.c".d`` into names, each with whether it is quoted, and the separators."""
    names: list[tuple[str, bool]] = []
    separators: list[str] = []
    position, end = 0, len(text)
    while True:
        quoted = position < end and text[position] == '"'
        if quoted:
            name, position = _quoted(text, position)
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


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Read a double-quoted name that starts at ``position``; an empty name marks bad quoting."""
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
    """A source table's part in a lake table that several source tables feed.

    Args:
        of: Name of the lake table.
        name: The value of the lake column in the rows of this part.
        column: Name of that column.
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
        hide: ``hash`` or ``mask`` if the lake has a hash or a mask in place of the values, as a
            string.
        plain: The Spark SQL type of the values of a column that hides them.
        decimal: Whether the settings chose the decimal type of its values.
        secret: Whether the column has values that must not be shown to people.
        doubtful: Characters of an event's text that may be another character on the source (see
            `schemas.type_rule.TypeRule`).
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
        """The decimal that the settings chose; empty when they did not."""
        return (self.plain or self.lake_type) if self.decimal else ""

    @property
    def live(self) -> bool:
        """Whether the source still has the column and the settings replicate it."""
        return self.source_type != DROPPED


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table in the order of the source, and its record key.

    Raises:
        SchemaError: A column is named twice, or the key names a column that is not there.
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
        """Return the table's schema before values are hidden."""
        columns = (
            replace(column, lake_type=column.plain, hide="", plain="", secret=True)
            if column.hide
            else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def only(self, names: Collection[str]) -> TableSchema:
        """Return the schema with only these columns, which must include the key."""
        columns = tuple(column for column in self.columns if column.name in names)
        return replace(self, columns=columns)

    def column(self, name: str) -> Column:
        """Return a column by name.

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
