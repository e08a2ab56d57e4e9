"""Debezium's ``table.include.list``: names of tables as regular expressions, and back.

Debezium splits the list at commas, trims each part, and matches it against all of
``database.table``, without regard to the case of ASCII letters: a table whose name differs in case
only is captured too, into a topic of its own.
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
"""Our own tables, which every list has."""


def entry(database: str, table: str) -> str:
    """One table's part of the list.

    What is not a plain letter or digit is written as its number: no comma can split the list, no
    blank be trimmed away, and no character mean anything but itself.
    """
    return rf"{_quoted(database)}\.{_quoted(table)}"


def include_list(tables: Iterable[TableId]) -> str:
    """The list of these tables and our own, the same text for the same tables."""
    names = {*OWN, *((table.schema, table.name) for table in tables)}
    return ",".join(sorted(entry(*name) for name in names))


def listed(text: str) -> set[tuple[str, str]]:
    """Database and table of each part that names one table; other expressions are left out."""
    matches = (_ENTRY.fullmatch(part) for part in text.split(","))
    return {(_unquoted(match[1]), _unquoted(match[2])) for match in matches if match}


def _quoted(name: str) -> str:
    return "".join(char if char in _PLAIN else f"\\x{{{ord(char):x}}}" for char in name)


def _unquoted(text: str) -> str:
    return _CODE.sub(lambda match: chr(int(match[1], 16)), text)
