"""Decides whether a column's new type holds all values of its former type."""

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
"""Types of PostgreSQL that print a value alike, so a column can change between them in place."""


def family(kind: str) -> str:
    """The source type's name without its modifier: ``numeric`` for ``numeric(10,2)``."""
    return re.sub(r"\(.*?\)", "", kind).strip()


def prints_alike(old: str, new: str) -> bool:
    """Whether PostgreSQL prints each value the same in two types that have the same lake type.

    PostgreSQL casts some types to others without a rewrite of the rows, and then prints the same
    row differently. An ``inet`` and a ``cidr`` differ in the network mask that they show. An
    ``oid`` shows a negative number as a positive one.
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


def keeps_rows(old: str, new: str) -> bool:
    """Whether MODIFY from one type to another type with the same lake type keeps all values.

    The answer holds for every sql_mode of the session. In a mode that is not strict, the server
    cuts off the part of a value that does not fit.

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
    sizes = [[int(n) for n in re.findall(r"\d+", kind)] for kind in (old, new)]
    if before == "binary":
        return sizes[0] == sizes[1]  # the server pads each row to the new length
    if before.partition(" ")[0] == "decimal" and sizes[0][1:] != sizes[1][1:]:
        return False  # where the lake has decimals as text, each row gets more digits
    whole = before.partition(" ")[0] in _INTEGERS  # their size is only a display width
    return whole or (
        len(sizes[0]) == len(sizes[1]) and all(a <= b for a, b in zip(*sizes, strict=True))
    )


def loses_letters(old: CatalogColumn, new: CatalogColumn) -> bool:
    """Whether a text column could have lost letters because its character set was changed.

    The new character set can lack letters of the rows. The same letters can take more bytes in
    another character set, and the TEXT types limit the number of bytes. The connector also decodes
    some characters wrongly in events from before the change. These characters depend on the former
    character set.
    """
    before, after = (definition(one).removeprefix(one.type).split()[:1] for one in (old, new))
    if not (before and after) or before == after:
        return False
    if after != ["utf8mb4"] or DOUBTFUL.get(before[0], "all"):
        return True
    return before != ["utf8"] and family(new.type) in _LONGER


def definition(column: CatalogColumn) -> str:
    """Return a MySQL or MariaDB column's written definition, with one name for each character set.

    Servers print ``utf8mb3`` for what earlier versions print as ``utf8``.
    """
    return column.written.replace("utf8mb3", "utf8")


def same_for_expressions(old: CatalogColumn, new: CatalogColumn) -> bool:
    """Whether each generated column keeps its values if a MODIFY defines a column that it uses.

    This holds for wider integers of the same sign, and for more bytes, letters or labels of the
    same character set and collation. It does not hold for other changes of a type: an expression
    can cast a value to text, which shows zerofill, digits and fractions of seconds.
    """
    if definition(old).removeprefix(old.type) != definition(new).removeprefix(new.type):
        return False
    before, after = kinds = family(old.type), family(new.type)
    if old.type == new.type or kinds in _WIDER_INTEGERS:
        return True
    return before == after and before in _GROWING and keeps_rows(old.type, new.type)


def same_values(was: str, now: str, source_kind: SourceKind) -> bool:
    """Whether a value prints the same in two source types that have the same lake type.

    Args:
        was: The type before, as the source prints it.
        now: The type now.
        source_kind: The kind of the source.
    """
    if source_kind == "postgres":
        return prints_alike(was, now) or (was, now) in SOURCE_WIDER
    return keeps_rows(was, now)


def holds_rows(was: str, now: str, source_kind: SourceKind) -> bool:
    """Whether rows keep their values if a type becomes wider at the source and in the lake.

    Args:
        was: The source type before, as the source prints it.
        now: The source type now.
        source_kind: The kind of the source.
    """
    kinds = family(was), family(now)
    return "oid" not in kinds if source_kind == "postgres" else kinds in WIDER_IN_PLACE


def more_digits_only(old: str, new: str) -> bool:
    """Whether two decimal types of a source have the same scale, and differ at most in precision.

    The precision can become larger or smaller.
    """
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
session.
"""


def widens(old: str, new: str) -> bool:
    """Whether lake type ``new`` holds all values of ``old``, and Hudi can change ``old`` to it."""
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
    """Merge the columns of the shards that feed one lake table; each column gets its widest type.

    Args:
        parts: Name of each shard, with its columns as pairs of name and Spark type. The result has
            the columns in the order in which they first appear here.

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
                    " with other types, first offboard all of its shards with --delete-data.",
                    field=name,
                )
            if name not in types or chosen != known:
                since[name] = shard
            types[name] = chosen
    return types
