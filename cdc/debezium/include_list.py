"""Writes and reads Debezium's ``table.include.list``, a list of regular expressions.

Debezium splits the list into entries at commas, trims each entry, and matches it against the whole
``database.table``. The match ignores the case of ASCII letters. So an entry also matches a table
whose name differs only in case, and Debezium captures that table into a topic of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc.debezium.names import HEARTBEAT_TABLE, MARKER_TABLE, SCHEMA
from schemas.table import TableId

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_NAME = r"(?:[A-Za-z0-9_]|\\x\{[0-9a-f]+\})+"
_ENTRY = re.compile(rf"({_NAME})\\\.({_NAME})")
_CODE = re.compile(r"\\x\{([0-9a-f]+)\}")

OWN = tuple((SCHEMA, name) for name in (HEARTBEAT_TABLE, MARKER_TABLE))
"""Tributary's own tables on the source, which are in every include list."""


def entry(database: str, table: str) -> str:
    """Return the entry for one table in Debezium's include list.

    Each character that is not an ASCII letter, a digit or ``_`` is escaped as its code. So a comma
    in a name does not split the list, a blank at the end of a name is not trimmed, and each
    character matches only itself.
    """
    return rf"{_quoted_name(database)}\.{_quoted_name(table)}"


def include_list(tables: Iterable[TableId]) -> str:
    """Return Debezium's include list of these tables and of Tributary's own tables.

    The result does not depend on the order of the tables.
    """
    names = {*OWN, *((table.schema, table.name) for table in tables)}
    return ",".join(sorted(entry(*name) for name in names))


def listed(text: str) -> set[tuple[str, str]]:
    """Return the tables in Debezium's include list, as (database, table).

    An entry that `entry` could not have created is left out.
    """
    matches = (_ENTRY.fullmatch(part) for part in text.split(","))
    return {(_unquoted_name(match[1]), _unquoted_name(match[2])) for match in matches if match}


def _quoted_name(name: str) -> str:
    """Escape a name for an entry of Debezium's include list."""
    return "".join(char if char in _PLAIN else f"\\x{{{ord(char):x}}}" for char in name)


def _unquoted_name(text: str) -> str:
    """Return the name that an escaped part of Debezium's include list means."""
    return _CODE.sub(lambda match: chr(int(match[1], 16)), text)
