"""Checks that a connector of MySQL or MariaDB has the same definition of a table as the catalog.

In the binlog, a row's values have no column names, and strings are bytes. The connector takes the
name, type and character set of each value from its own definition of the table. It derives this
definition from the DDL statements in the binlog. Some statements have one effect on the server and
another on the connector's definition. Examples are an IF NOT EXISTS that does nothing on the
server, and a default character set that the connector ignores. After such a statement, the
connector assigns values to the wrong columns, or misreads the values, without an error. A new copy
of the table does not repair the connector's definition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import CaptureError, LostHistoryError
from schemas.table import TableId, TableSchema
from schemas.types_mysql import BOOLEANS, TEXTS, MysqlType

if TYPE_CHECKING:
    from cdc.debezium import DefinitionChange, KnownColumn
    from cdc.sources.source_facts import SourceColumn

_NAMES = {
    "integer": "int",
    "bool": "tinyint",
    "boolean": "tinyint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "double precision": "double",
    "geomcollection": "geometrycollection",
    **dict.fromkeys(("character", "nchar", "national char", "national character"), "char"),
    **dict.fromkeys(("character varying", "char varying", "nvarchar"), "varchar"),
    **dict.fromkeys(("national varchar", "national character varying"), "varchar"),
    **dict.fromkeys(("nchar varchar", "nchar varying", "national char varying"), "varchar"),
}
"""A mapping from the synonym of a type in statements to the plain name of the type.

The connector reads the values of a type in the same way under both names, except for integers. It
sends values of ``bool`` as booleans, and MariaDB's connector sends some unsigned integers as
signed integers. Each event has the type's name, so `cdc.rows.binlog_values` recognizes such values.
That module converts the values, or reads them from the source by key.
"""
_SIGNS = frozenset({"unsigned", "signed", "zerofill"})
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_BYTES = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_MOMENTS = frozenset({"datetime", "timestamp", "time"})
_SHAPES = frozenset(
    (
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
        *("multipolygon", "geometrycollection"),
    )
)
_ENUMS = frozenset({"enum", "set"})
_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_FLOAT_DIGITS = 24
"""The most binary digits of a single-precision float: ``float(n)`` with a larger n is a double."""


@dataclass(frozen=True)
class _Form:
    """The properties of a column's type by which the connector interprets binlog values.

    Two types with equal properties are interpreted alike.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = ",".join(map(str, self.sizes or map(repr, self.labels)))
        parts = (
            f"{self.kind}({shown})" if shown else self.kind,
            "unsigned" if self.unsigned else "",
            f"in {self.charset}" if self.charset else "",
        )
        return " ".join(filter(None, parts))


def differences(
    known: Sequence[KnownColumn],
    columns: Sequence[SourceColumn],
    exact: Collection[str] = (),
) -> list[str]:
    """Return how the definition by which a table is captured differs from the catalog.

    Differences that do not change how the connector reads values are left out, for example the
    display width of an integer and the length of a string.

    Args:
        known: The connector's columns, in order.
        columns: The catalog's columns, in order.
        exact: The columns whose values cannot be read from the source by key. If the connector's
            definition gives such a column the type BOOLEAN, this counts as a difference.
    """
    names = [column.name for column in known]
    there = [column.name for column in columns]
    if names != there:
        order = "come in the order" if sorted(names) == sorted(there) else "are"
        return [f"its columns {order} {', '.join(there)}, and the connector has {', '.join(names)}"]
    found = [
        f"column {column.name} is {_form_text(actual, column.nullable)}, and the connector has"
        f" {_form_text(read, one.nullable)}"
        for one, column in zip(known, columns, strict=True)
        for read, actual in ((_form_by_connector(one), _form_by_catalog(column)),)
        # If only the connector has the column as NOT NULL, a NULL arrives as a value. If only the
        # catalog has it as NOT NULL, nothing is lost: statements need not say NOT NULL for a column
        # of a key.
        if not _same_form(read, actual) or (column.nullable and not one.nullable)
    ]
    return found + [
        f"column {column.name} is {column.type}, and the connector has it as {one.type_name}, so it"
        " sends true for each number other than 0"
        for one, column in zip(known, columns, strict=True)
        if one.name in exact and one.type_name.lower() in BOOLEANS
    ]


def exact_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the captured columns whose definition in the connector must be exact.

    No run reads the values of these columns from the source by key. They are the key's columns, or
    all columns of an append table, which has no key.

    Args:
        schema: The lake's columns and key.
    """
    return schema.key or tuple(column.name for column in schema.columns)


def newest(changes: Iterable[DefinitionChange]) -> dict[TableId, Sequence[KnownColumn]]:
    """Return a mapping from each table to the columns of its newest definition in the connector."""
    return {change.table: change.columns for change in changes if change.table is not None}


def require_known(
    table: TableId,
    connector: str,
    changes: Iterable[DefinitionChange],
    columns: Sequence[SourceColumn],
    error: type[CaptureError | LostHistoryError] = CaptureError,
    exact: Collection[str] = (),
) -> None:
    """Check that a connector captures a table by a definition that agrees with the catalog.

    Args:
        table: The table.
        connector: The connector's name.
        changes: The statements that the connector has reported. They must include every statement
            that was committed before the catalog was read.
        columns: The table's columns in the catalog.
        error: The type of the error to raise.
        exact: As in `differences`.

    Raises:
        CaptureError: The definitions differ. The error names each difference.
        LostHistoryError: The definitions differ, and the caller has chosen this type of error. A
            caller does so if the lake already has rows from this connector.
    """
    if what := "; ".join(differences(newest(changes).get(table, ()), columns, exact)):
        raise error(
            f"connector {connector} reads table {table} by a definition that differs from the"
            f" server's: {what}",
            remedy=_remedy_of_differences(table, what),
            table=table,
            connector=connector,
        )


def _remedy_of_differences(table: TableId, what: str) -> str:
    """Return the remedy for a table that is captured by a wrong definition."""
    if what.startswith("its columns are"):
        # The connector fails at a statement about a column that it does not know.
        return (
            "Give such tables another tier (`tier` in their settings), whose connector reads the"
            f" server's definition: run `tributary offboard {table}`, then `tributary onboard"
            f" {table}`."
        )
    return (
        f"Run ALTER TABLE {table.relation} MODIFY for each of these columns, with its whole"
        " definition from SHOW CREATE TABLE, and add its character set (CHARACTER SET ...) and"
        f" its place (FIRST, AFTER ...); then run `tributary bootstrap {table}`. Or give the table"
        " another tier (`tier` in its settings), whose connector reads the server's definition."
    )


def _same_form(read: _Form, actual: _Form) -> bool:
    """Return whether a column's binlog values are captured as the catalog's type requires.

    Args:
        read: The column's form in the connector's definition.
        actual: The column's form in the catalog.
    """
    # JSON is MariaDB's name for a text type. The connector reads its values as UTF-8.
    if read.kind == "json" and actual.kind == "text":
        return actual.charset == "utf8"
    return read == actual


def _form_text(form: _Form, nullable: bool) -> str:
    """Describe the form of a captured column, and whether it is NOT NULL, for a message."""
    return str(form) if nullable else f"{form} NOT NULL"


def _form_by_connector(column: KnownColumn) -> _Form:
    """Return the `_Form` that a captured column has in the connector's definition of the table."""
    words = column.type_name.lower().split()
    unsigned = "unsigned" in words or "zerofill" in words
    plain = [word for word in words if word not in _SIGNS]
    # The attribute BINARY names a collation.
    name = " ".join(plain[:-1] if len(plain) > 1 and plain[-1] == "binary" else plain)
    sizes = tuple(size for size in (column.length, column.scale) if size is not None and size >= 0)
    labels = tuple(map(_plain_label, column.labels))
    return _form_of_type(
        _NAMES.get(name, name), sizes, column.charset or "", labels=labels, unsigned=unsigned
    )


def _form_by_catalog(column: SourceColumn) -> _Form:
    """Return the `_Form` that a captured column has in the catalog of MySQL or MariaDB."""
    kind = column.type
    if not isinstance(kind, MysqlType):
        raise TypeError(f"column {column.name} is not of MySQL or MariaDB: {kind}")
    unsigned = kind.unsigned or "zerofill" in kind.display
    labels = tuple(_plain_label(f"'{label}'") for label in kind.labels)
    return _form_of_type(
        _NAMES.get(kind.name, kind.name), kind.sizes, kind.charset, labels=labels, unsigned=unsigned
    )


def _form_of_type(
    name: str, sizes: tuple[int, ...], charset: str, *, labels: tuple[str, ...], unsigned: bool
) -> _Form:
    """Return the `_Form` of a captured column from the parts of its MySQL or MariaDB type."""
    if name in _INTEGERS:
        return _Form(name, unsigned=unsigned)
    if name in TEXTS:
        # Statements write names in any case. Each Unicode character set is read as UTF-8.
        name = charset.lower()
        return _Form("text", charset="utf8" if name in _UTF8 else name)
    if name in _BYTES:
        return _Form("bytes")
    if name in _SHAPES:
        return _Form("geometry")
    if name in _ENUMS:
        return _Form(name, labels=labels)
    if name == "decimal":
        return _Form(name, (*sizes, 10, 0)[:2] if len(sizes) != 1 else (*sizes, 0))
    if name == "float" and len(sizes) == 1 and sizes[0] > _FLOAT_DIGITS:
        return _Form("double")
    if name in ("bit", "binary"):
        return _Form(name, sizes or (1,))
    return _Form(name, (sizes or (0,)) if name in _MOMENTS else ())


def _plain_label(quoted: str) -> str:
    """Return an ENUM or SET label of a captured column without its quotes and escapes."""
    inside = quoted[1:-1].replace("''", "'")
    return inside.replace("\\'", "'").replace("\\\\", "\\")
