"""Patterns of table names, as they stand in ``tables`` and on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from schemas.errors import InvalidIdentifierError
from schemas.table import TableId

_WILD = frozenset("*?[")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_LITERAL = re.compile(r"\[[*?\[]\]")
"""A wildcard that stands for itself."""
_TOKEN = re.compile(r"\*|\?|\[(?P<not>!?)(?P<set>\]?[^\]]*)\](?P<more>\+?)|(?P<plain>.)", re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """A key of ``tables``: a table name whose parts may hold wildcards.

    These are ``*``, ``?``, ``[...]`` for one of some characters, and ``[...]+`` for one or more. A
    part in double quotes is a name as it is written: so what ``discover`` prints is no pattern.
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
        return cls(text, TableId.of_parts(text, _read, default_source="*"))

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
        return {place for place, part in parts.items() if _is_open(part)}

    @property
    def specificity(self) -> tuple[bool, bool, bool, int]:
        """Higher wins: a whole table name, a whole schema, a whole source, then more letters."""
        parts = (self.parts.name, self.parts.schema, self.parts.source)
        table, schema, source = (not _is_open(part) for part in parts)
        plain = _LITERAL.sub("x", "".join(parts))
        return table, schema, source, sum(letter not in _WILD for letter in plain)


def is_wildcard(text: str) -> bool:
    """Whether a table's name stands for many; wildcards in double quotes stand for themselves."""
    return bool(_WILD & set(_QUOTED.sub("", text)))


def _read(name: str, quoted: bool) -> str:
    """A part of a pattern as one without quotes."""
    return "".join(f"[{one}]" if one in _WILD else one for one in name) if quoted else name


def _is_open(part: str) -> bool:
    return bool(_WILD & set(_LITERAL.sub("", part)))


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
