"""Patterns of table names, for ``tables`` and for the command line."""

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
"""A wildcard in brackets, which matches only its own character."""
_TOKEN = re.compile(r"\*|\?|\[(?P<not>!?)(?P<set>\]?[^\]]*)\](?P<more>\+?)|(?P<plain>.)", re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """A key of ``tables``: a table name that can have wildcards in its source, schema and table.

    The wildcards are ``*``, ``?``, ``[...]`` for one character of a set, and ``[...]+`` for one or
    more characters of a set. A part in double quotes has no wildcards. `discover` quotes a name
    with wildcard characters, so a name that `discover` prints matches only itself.
    """

    text: str
    parts: TableId

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse ``*`` or ``[source:]schema.table``. A pattern without source matches every source.

        Raises:
            InvalidIdentifierError: The text has another format.
        """
        if text == "*":
            return cls(text, TableId("*", "*", "*"))
        return cls(text, TableId.of_parts(text, _read_part, default_source="*"))

    def matches(self, table: TableId) -> bool:
        """Return whether a table's name matches the pattern."""
        return (
            matches(table.source, self.parts.source)
            and matches(table.schema, self.parts.schema)
            and matches(table.name, self.parts.name)
        )

    def covers_source(self, source: str) -> bool:
        """Return whether the pattern can match tables of a source."""
        return matches(source, self.parts.source)

    def covers_schema(self, schema: str) -> bool:
        """Return whether the pattern can match tables of a schema (MySQL: of a database)."""
        return matches(schema, self.parts.schema)

    @property
    def open_parts(self) -> set[str]:
        """The parts that have wildcards: any of the words ``source``, ``schema`` and ``table``."""
        parts = {
            "source": self.parts.source,
            "schema": self.parts.schema,
            "table": self.parts.name,
        }
        return {place for place, part in parts.items() if _is_open_part(part)}

    @property
    def specificity(self) -> tuple[bool, bool, bool, int]:
        """The pattern's rank: if several patterns match a table, the highest rank wins.

        The tuple compares, in this order: whether the table name has no wildcards, whether the
        schema has none, whether the source has none, and the number of characters that are not
        wildcards.
        """
        parts = (self.parts.name, self.parts.schema, self.parts.source)
        table, schema, source = (not _is_open_part(part) for part in parts)
        plain = _LITERAL.sub("x", "".join(parts))
        return table, schema, source, sum(letter not in _WILD for letter in plain)


def is_wildcard(text: str) -> bool:
    """Return whether a configured table pattern has wildcards outside quotes."""
    return bool(_WILD & set(_QUOTED.sub("", text)))


def is_literal(part: str) -> bool:
    """Return whether a part of a configured `Pattern` has no wildcard character, quoted or not."""
    return not _WILD & set(part)


def _read_part(name: str, quoted: bool) -> str:
    """Return one part of a configured table pattern (source, schema or table) without quotes.

    In a quoted part, each wildcard character gets brackets, as in ``[*]``, and then matches only
    itself.

    Args:
        name: The part without its double quotes.
        quoted: Whether the part was in double quotes.
    """
    return "".join(f"[{one}]" if one in _WILD else one for one in name) if quoted else name


def _is_open_part(part: str) -> bool:
    """Return whether a part of a configured `Pattern` has a wildcard outside double quotes."""
    return bool(_WILD & set(_LITERAL.sub("", part)))


def pattern_problem(text: str, sources: Iterable[str]) -> str | None:
    """Return what is wrong with a key of ``tables`` in the configuration; None if nothing is."""
    try:
        pattern = Pattern.parse(text)
    except InvalidIdentifierError:
        return "is not *, schema.table or source:schema.table"
    if not any(matches(source, pattern.parts.source) for source in sources):
        return f"names no configured source ({', '.join(sorted(sources))})"
    return None


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a part of a configured table pattern. Case counts."""
    return _expression_of_pattern(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _expression_of_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for a part of a configured table pattern."""
    text = "".join(_translated_token(token) for token in _TOKEN.finditer(pattern))
    try:
        return re.compile(text, re.DOTALL)
    except re.error:  # [z-a]: no character is in that range
        return re.compile("(?!)")


def _translated_token(token: re.Match[str]) -> str:
    """Return the regular expression for a configured pattern's token: ``.*`` for ``*``, say."""
    if token["plain"] is not None:
        return re.escape(token["plain"])
    if token["set"] is None:
        return ".*" if token[0] == "*" else "."
    chosen = re.sub(r"([\\\[\]^&|~])", r"\\\1", token["set"])
    return f"[{'^' if token['not'] else ''}{chosen}]{token['more']}"
