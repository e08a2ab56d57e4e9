"""Finds generated columns for which MySQL reads a text as a date.

Such a text can have an offset from UTC, as ``2024-02-29 23:30:00+02:00`` has. MySQL converts it to
the session's time zone. MariaDB ignores the offset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc.sources.mysql.expressions import column_of, opens

_DATES = frozenset({"date", "datetime", "time", "timestamp"})
_TEXTS = frozenset(
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
    | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
_READERS = frozenset(
    {"timestamp", "date", "time", "hour", "minute", "second", "microsecond", "extract", "interval"}
    | {"year", "quarter", "month", "week", "weekofyear", "yearweek", "weekday", "dayofweek"}
    | {"dayofmonth", "dayofyear", "to_days", "to_seconds", "time_to_sec", "last_day"}
    | {"date_format", "addtime", "subtime", "timediff", "timestampdiff", "timestampadd"}
)
"""Functions and words by which a text becomes a date, as the catalog prints them."""
_COMPARED = frozenset({"=", "<", ">", "like", "is", "in", "between", "regexp", "rlike", "member"})
_NO_TEXT = frozenset(
    {"str_to_date", "length", "octet_length", "char_length", "character_length", "bit_length"}
    | {"locate", "instr", "position", "field", "find_in_set", "strcmp", "ascii", "ord", "crc32"}
    | {"regexp_like", "regexp_instr", "json_length", "json_depth", "json_valid", "json_contains"}
    | {"json_contains_path", "isnull", "time_format"}
)
"""Functions whose values are no text with an offset, whatever their arguments are."""
_OF_JSON = frozenset({"json_unquote", "json_value"})
"""Functions that return a text of a document."""
_OFFSET = re.compile(r"\d[+-]\d\d:\d\d")


@dataclass
class _Level:
    """What was seen between two parentheses.

    Args:
        function: The function before the parenthesis; empty without one.
        kind: The type to which CAST converts, or which JSON_VALUE returns.
        text: Whether a text is among the values.
        document: Whether a JSON document is among the values.
        words: The other words and signs, in lower case.
    """

    function: str = ""
    kind: str = ""
    text: bool = False
    document: bool = False
    words: set[str] = field(default_factory=set)

    @property
    def reads(self) -> bool:
        """Whether a text is read as a date at this level."""
        cast = self.function in ("cast", "convert") and self.kind in _DATES
        read = cast or self.function in _READERS or bool(self.words & _READERS)
        return self.text and read and not self.words & _COMPARED

    @property
    def is_text(self) -> bool:
        """Whether the value of this level can be a text with an offset."""
        if self.function in _NO_TEXT or self.words & _COMPARED:
            return False
        if self.function in _OF_JSON and (self.text or self.document):
            return self.kind not in _DATES
        return self.text


def reads_text_as_date(
    tokens: Sequence[re.Match[str]], kinds: Mapping[str, str], kind: str
) -> bool:
    """Whether MySQL reads a text as a date for a generated column, except by STR_TO_DATE.

    MySQL converts a text that it compares with a date to no other time zone.

    Args:
        tokens: The column's expression.
        kinds: The type of each column, by its name in lower case.
        kind: The type of the generated column.
    """
    levels = [_Level()]
    for place, token in enumerate(tokens):
        level, word = levels[-1], (token["word"] or token["sign"] or "").lower()
        used = kinds.get(column_of(tokens[place : place + 2], kinds) or "")
        if used is not None:
            level.text |= used in _TEXTS
            level.document |= used == "json"
        elif token["text"] is not None:
            level.text |= _OFFSET.search(token["text"]) is not None
        elif word == "(":
            before = tokens[place - 1]["word"] if place else None
            levels.append(_Level((before or "").lower()))
        elif word == ")" and len(levels) > 1:
            if level.reads:
                return True
            levels.pop()
            levels[-1].text |= level.is_text
            levels[-1].document |= level.document and level.function not in _OF_JSON
        elif place and (tokens[place - 1]["word"] or "").lower() in ("as", "returning"):
            level.kind = word
        elif word in _COMPARED or not _introduces(tokens[place + 1 : place + 2]):
            level.words.add(word)
    return levels[0].reads or (kind in _DATES and levels[0].is_text)


def _introduces(following: Sequence[re.Match[str]]) -> bool:
    """Whether a word is the name of a function, or the type or character set of a literal."""
    return opens(following) or (bool(following) and following[0]["text"] is not None)
