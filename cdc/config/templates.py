"""Checks which placeholders a template of names has, and fills such templates."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Set

from schemas.table import TableId

Conflict = tuple[tuple[str, ...], str]
"""The path of a key, and its problem."""

TABLE_PLACES = frozenset({"source", "schema", "table"})
CAPTURE_PLACES = frozenset({"source", "tier"})


def template_problems(
    path: tuple[str, ...], template: str, places: Set[str], needed: Set[str]
) -> Iterator[Conflict]:
    """Yield the problems of a name template in the configuration.

    Args:
        path: Path of the template in the configuration.
        template: The template.
        places: The placeholders that the template may have, without braces.
        needed: The placeholders that the template must have. Without one of them, several tables
            would get the same name.
    """
    listed = ", ".join(f"{{{place}}}" for place in sorted(places))
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        yield path, f"is not a template; the allowed placeholders are {listed}"
        return
    found = {name for _, name, _, _ in parsed if name is not None}
    for _, name, spec, conversion in parsed:
        if name is not None and (name not in places or spec or conversion):
            yield path, f"has the unknown placeholder {{{name}}}; allowed are {listed}"
            return
    if missing := sorted(needed - found):
        names = ", ".join(f"{{{name}}}" for name in missing)
        yield path, f"would give several tables the same path; it must contain {names}"
    if path[-1] in ("name", "table") and any(
        part in ("", ".", "..") for part in template.split("/")
    ):
        yield path, "must be a relative path without empty, . or .. parts"


def fill(template: str, table: TableId) -> str:
    """Return a table's path in the lake, from a configured name template.

    Each byte that is unsafe in a path becomes ``~`` and two hex digits. The encoding is reversible.
    So different tables never share a folder, and no name leads into another folder.
    """
    return template.format(
        source=encoded(table.source), schema=encoded(table.schema), table=encoded(table.name)
    )


def fill_name(template: str, table: TableId) -> str:
    """Return a table's name in the Hive Metastore, from a configured name template.

    The name has only lower-case letters, digits and ``_``. Any other character of the table's
    source, schema or name becomes ``_x``, the character's code in hex, and ``_``. The encoding is
    reversible, so different tables never share a name.
    """
    return template.format(
        source=_encoded_for_metastore(table.source),
        schema=_encoded_for_metastore(table.schema),
        table=_encoded_for_metastore(table.name),
    ).lower()


def _encoded_for_metastore(name: str) -> str:
    """Encode a part of a name template for the Hive Metastore, as `fill_name` describes."""
    # A text that looks like an encoded character is also encoded.
    return re.sub(r"[^a-z0-9_]|_(?=x[0-9a-f]+_)", lambda match: f"_x{ord(match[0]):x}_", name)


def encoded(name: str) -> str:
    """Encode a name as one folder of a path, as configured name templates need.

    Different names give different folders. ASCII letters and digits, ``_``, ``-``, and dots after
    the first character stay as they are. All other characters are encoded as `fill` describes.
    """
    return "".join(
        character
        if _is_plain_character(character) or (character == "." and at)
        else f"~{ord(character):02x}"
        for at, character in enumerate(name.encode().decode("latin-1"))
    )


def _is_plain_character(character: str) -> bool:
    """Return whether a character needs no encoding in a name template's path."""
    return character.isascii() and (character.isalnum() or character in "_-")
