"""Decides whether a column's new type can represent all values of its former type."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schemas.catalog import CatalogColumn, SourceKind
from schemas.charsets_mysql import DOUBTFUL
from schemas.errors import SchemaError

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}

SOURCE_WIDER = {("smallint", "integer")}
"""Pairs of PostgreSQL types with the same lake type; the second holds every value of the first."""
_TEXTS = frozenset({"text", "character varying", "character", "citext"})
"""Types of PostgreSQL in which a value has the same text, so a column can change between them in
place."""


def family(kind: str) -> str:
    """Return a type without its modifier, for example ``numeric`` for ``numeric(10,2)``."""
    return re.sub(r"\(.*?\)", "", kind).strip()


def prints_alike(old: str, new: str) -> bool:
    """Whether PostgreSQL prints each value the same before and after a change of a column's type.

    Both types must have the same lake type. PostgreSQL changes some types without a rewrite of the
    rows, and then prints the same row differently. For example, it prints the network mask ``/32``
    of a ``cidr`` but not of an ``inet``, and prints a negative number as a positive ``oid``.
    """
    before, after = family(old), family(new)
    return before == after or {before, after} <= _TEXTS


_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_LONGER = ("tinytext", "text", "mediumtext", "longtext")
_LARGER = ("tinyblob", "blob", "mediumblob", "longblob")
_WHOLE = frozenset(
    {
        *((old, new) for n, old in enumerate(_LONGER) for new in _LONGER[n:]),
        *((old, new) for n, old in enumerate(_LARGER) for new in _LARGER[n:]),
        *(("varchar", new) for new in _LONGER[2:]),
        *(("varbinary", new) for new in _LARGER[2:]),
    }
)

_WIDER_INTEGERS = frozenset(
    (old + sign, new + sign)
    for sign in ("", " unsigned")
    for n, old in enumerate(_INTEGERS)
    for new in _INTEGERS[n:]
)
_GROWING = frozenset({"varchar", "varbinary", "enum", "set"})
_ROUNDED = frozenset({"float", "double"})
"""Types that can have a number of digits; the server rounds values to this number."""
_SAME_SIZE = frozenset({"binary", "vector", "year"})
"""Types whose values can change with the size. For example, the server pads the values of a
``binary`` column that gets longer."""


def keeps_rows(old: str, new: str) -> bool:
    """Whether a change of a column's MySQL type keeps every value in any sql_mode.

    Both types must have the same lake type. Without strict mode, the server truncates a value that
    does not fit into the new type.

    Args:
        old: The column's type before, as MySQL or MariaDB prints it.
        new: The column's type afterwards.
    """
    before, after = family(old), family(new)
    if (before, after) in _WHOLE:
        return True
    if before != after:
        return False
    if before in ("enum", "set"):
        # After a label's closing quote comes a comma. Another quote is one inside the label.
        return new == old or new.startswith(f"{old.removesuffix(')')},")
    had, has = ([int(n) for n in re.findall(r"\d+", kind)] for kind in (old, new))
    name = before.partition(" ")[0]
    if name in _INTEGERS:
        return True  # their size is only a display width
    if name in _SAME_SIZE or len(had) != len(has):
        return had == has
    if name == "decimal" and had[1:] != has[1:]:
        return False  # where the lake has decimals as text, each row gets more digits
    if name in _ROUNDED and had and has[0] - has[1] < had[0] - had[1]:
        return False  # more digits after the point can leave fewer before it
    return all(a <= b for a, b in zip(had, has, strict=True))


def loses_letters(old: CatalogColumn, new: CatalogColumn) -> bool:
    """Whether a change of a text column's character set could have changed letters.

    The new character set can lack letters that rows have. The same letters can take more bytes in
    another character set, and the TEXT types limit the number of bytes. The result is also True if
    the connector decodes some letters of the former character set wrongly.
    """
    before, after = (definition(one).removeprefix(one.type).split()[:1] for one in (old, new))
    if not (before and after) or before == after:
        return False
    if after != ["utf8mb4"] or DOUBTFUL.get(before[0], "all"):
        return True
    return before != ["utf8"] and family(new.type) in _LONGER


def definition(column: CatalogColumn) -> str:
    """Return the type, character set and collation of a MySQL column in a catalog as one string.

    Newer servers print the character set ``utf8`` as ``utf8mb3``. The string has ``utf8`` for both.
    """
    return column.written.replace("utf8mb3", "utf8")


def same_for_expressions(old: CatalogColumn, new: CatalogColumn) -> bool:
    """Whether generated columns keep their values after a MODIFY of a column that they use.

    The values stay if an integer type becomes wider, from signed to signed or from unsigned to
    unsigned. They also stay if the column only gets more bytes, letters or labels. Any other change
    of the type can change the generated values: an expression can cast a value to a string, which
    shows zerofill, digits and fractions of seconds.
    """
    if definition(old).removeprefix(old.type) != definition(new).removeprefix(new.type):
        return False
    before, after = kinds = family(old.type), family(new.type)
    if old.type == new.type or kinds in _WIDER_INTEGERS:
        return True
    return before == after and before in _GROWING and keeps_rows(old.type, new.type)


def same_values(was: str, now: str, source_kind: SourceKind) -> bool:
    """Whether a source prints each value the same before and after a change of a column's type.

    Both types must have the same lake type.

    Args:
        was: The column's former type, as the source prints it.
        now: The column's current type.
        source_kind: The kind of the source.
    """
    if source_kind == "postgres":
        return prints_alike(was, now) or (was, now) in SOURCE_WIDER
    return keeps_rows(was, now)


def holds_rows(was: str, now: str, source_kind: SourceKind) -> bool:
    """Whether the source's rows keep their values if a change of type widens the lake's type, too.

    MySQL and MariaDB round the values of a ``float`` column that becomes ``double(M,D)``. If the
    column becomes ``double`` without ``(M,D)``, the values stay the same.

    Args:
        was: The column's former type, as the source prints it.
        now: The column's current type.
        source_kind: The kind of the source.
    """
    kinds = family(was), family(now)
    if source_kind == "postgres":
        return "oid" not in kinds
    rounded = kinds[1] in _ROUNDED and "(" in now
    return kinds in WIDER_IN_PLACE and not rounded


def more_digits_only(old: str, new: str) -> bool:
    """Whether a change of a column's type changes at most the precision of a decimal."""
    shapes = [re.fullmatch(r"(?:numeric|decimal)\((\d+),(-?\d+)\)", kind) for kind in (old, new)]
    before, after = shapes
    return before is not None and after is not None and before[2] == after[2]


WIDER_IN_PLACE = frozenset(
    {
        *((old, new) for n, old in enumerate(_INTEGERS) for new in _INTEGERS[n:]),
        *(
            (f"{old} unsigned", f"{new} unsigned")
            for n, old in enumerate(_INTEGERS)
            for new in _INTEGERS[n:]
        ),
        *(
            (f"{old} unsigned", new)
            for n, old in enumerate(_INTEGERS)
            for new in _INTEGERS[n + 1 :]
        ),
        ("float", "double"),
        ("decimal", "decimal"),
        ("decimal unsigned", "decimal unsigned"),
        ("decimal unsigned", "decimal"),
    }
)
"""Pairs of types of MySQL and MariaDB, without modifiers.

A change from the first type to the second keeps the values of all rows, for any sql_mode of the
session, if the second type does not round (`holds_rows`).
"""


def widens(old: str, new: str) -> bool:
    """Whether a schema change can widen lake type ``old`` to ``new`` in place, without loss."""
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


def merged_types(parts: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> dict[str, str]:
    """Return the columns of a shared lake table, each with its widest type in the shards.

    `widens` decides which of two types is wider.

    Args:
        parts: The shards: each shard's name, with the shard's columns as pairs of name and Spark
            type. The result has the columns in the order in which they first appear in ``parts``.

    Raises:
        SchemaError: A column has different types in two shards, and neither type holds all values
            of the other type.
    """
    types: dict[str, str] = {}
    since: dict[str, str] = {}
    for shard, columns in parts:
        for name, kind in columns:
            known = types.get(name, kind)
            if known == kind or widens(kind, known):
                chosen = known
            elif widens(known, kind):
                chosen = kind
            else:
                raise SchemaError(
                    f"column {name!r} is {kind} in shard {shard} and {known} in shard"
                    f" {since[name]}; one column of the lake cannot hold both",
                    remedy="Give the column the same type in both shards, or leave it out with"
                    " columns.exclude; then bootstrap the shard again. To start the table again"
                    " with other types, first offboard all of its shards with --delete-data, then"
                    " onboard it with --again.",
                    field=name,
                )
            if name not in types or chosen != known:
                since[name] = shard
            types[name] = chosen
    return types
