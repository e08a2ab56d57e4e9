"""Patterns of table names, as they stand in ``tables`` and on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from schemas.errors import InvalidIdentifierError
from schemas.table import TableId

_WILD = frozenset("*?[")
_TOKEN = re.compile(r"\*|\?|\[(?P<not>!?)(?P<set>\]?[^\]]*)\](?P<more>\+?)|(?P<plain>.)", re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """A key of ``tables``: a table name whose parts may hold wildcards.

    These are ``*``, ``?``, ``[...]`` for one of some characters, and ``[...]+`` for one or more.
    """

    text: str
    parts: TableId

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read ``*`` or ``[source:]schema.table``; without a source it matches every source.

        Raises:
            InvalidIdentifierError: The text is not of that form.
        """
        if text == "*":
            return cls(text, TableId("*", "*", "*"))
        return cls(text, TableId.parse(text, default_source="*"))

    def matches(self, table: TableId) -> bool:
        """Whether the pattern covers the table."""
        return (
            matches(table.source, self.parts.source)
            and matches(table.schema, self.parts.schema)
            and matches(table.name, self.parts.name)
        )

    def covers_source(self, source: str) -> bool:
        """Whether tables of the source can match."""
        return matches(source, self.parts.source)

    @property
    def open_parts(self) -> set[str]:
        """The parts, as places of a name template, for which the pattern lets many names stand."""
        parts = {
            "source": self.parts.source,
            "schema": self.parts.schema,
            "table": self.parts.name,
        }
        return {place for place, part in parts.items() if _WILD & set(part)}

    @property
    def specificity(self) -> tuple[bool, bool, bool, int]:
        """Higher wins: a whole table name, a whole schema, a whole source, then more letters."""
        parts = (self.parts.name, self.parts.schema, self.parts.source)
        table, schema, source = (not _WILD & set(part) for part in parts)
        return table, schema, source, sum(letter not in _WILD for letter in "".join(parts))


def pattern_problem(text: str, sources: Iterable[str]) -> str | None:
    """What is wrong with a key of ``tables``, or ``None``."""
    try:
        pattern = Pattern.parse(text)
    except InvalidIdentifierError:
        return "is not *, schema.table or source:schema.table"
    if not any(matches(source, pattern.parts.source) for source in sources):
        return f"names no configured source ({', '.join(sorted(sources))})"
    return None


def matches(name: str, pattern: str) -> bool:
    """Whether one part of a pattern covers a name; letters count as they are written."""
    return _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    text = "".join(_translated(token) for token in _TOKEN.finditer(pattern))
    try:
        return re.compile(text, re.DOTALL)
    except re.error:  # [z-a]: no character is of that range
        return re.compile("(?!)")


def _translated(token: re.Match[str]) -> str:
    if token["plain"] is not None:
        return re.escape(token["plain"])
    if token["set"] is None:
        return ".*" if token[0] == "*" else "."
    chosen = re.sub(r"([\\\[\]^&|~])", r"\\\1", token["set"])
    return f"[{'^' if token['not'] else ''}{chosen}]{token['more']}"
