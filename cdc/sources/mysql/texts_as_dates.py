"""Finds generated columns for which MySQL converts a string to a date.

The string can have an offset from UTC, as in ``2024-02-29 23:30:00+02:00``. MySQL then converts the
value to the session's time zone. MariaDB ignores the offset.
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
    | {"time_format"}
)
"""Functions and words that convert a string to a date, as the catalog prints them."""
_COMPARED = frozenset({"=", "<", ">", "like", "is", "in", "between", "regexp", "rlike", "member"})
_KEYWORDS = _COMPARED | {"case", "when", "then", "else", "end"}
"""Words that are not a function's name, even before a parenthesis or a literal."""
_NO_TEXT = frozenset(
    {"str_to_date", "length", "octet_length", "char_length", "character_length", "bit_length"}
    | {"locate", "instr", "position", "field", "find_in_set", "strcmp", "ascii", "ord", "crc32"}
    | {"regexp_like", "regexp_instr", "json_length", "json_depth", "json_valid", "json_contains"}
    | {"json_contains_path", "isnull"}
)
"""Functions that never return a string with an offset, whatever their arguments are."""
_OF_JSON = frozenset({"json_unquote", "json_value"})
"""JSON functions that return a string from a JSON document."""
_ANY = frozenset({"", "if", "ifnull", "coalesce", "nullif"})
"""Functions that return a JSON document if their arguments are JSON documents."""
_OFFSET = re.compile(r"[+-]\d\d:\d\d")


@dataclass
class _Level:
    """The content of one pair of parentheses in an expression; an inner pair counts as one value.

    Args:
        function: The function whose arguments the parentheses contain; empty without a function.
        kind: The type to which CAST converts, or which JSON_VALUE returns.
        text: Whether one of the values can be a string with an offset from UTC.
        document: Whether one of the values is a JSON document.
        words: The operators and words that are neither values nor functions, in lower case.
        compared: Whether the last keyword is CASE or WHEN. The server compares the values after
            such a keyword and does not return them.
    """

    function: str = ""
    kind: str = ""
    text: bool = False
    document: bool = False
    words: set[str] = field(default_factory=set)
    compared: bool = False

    def use(self, *, text: bool, document: bool) -> None:
        """Record whether a value at this level of parentheses is a string or a JSON document."""
        self.text |= text and not self.compared
        self.document |= document and not self.compared

    def see(self, word: str) -> None:
        """Record a word or operator, given in lower case, at this level of parentheses."""
        self.words.add(word)
        if word in ("case", "when", "then", "else", "end"):
            self.compared = word in ("case", "when")

    @property
    def reads(self) -> bool:
        """Whether MySQL converts a string to a date at this level of parentheses."""
        cast = self.function in ("cast", "convert") and self.kind in _DATES
        read = cast or self.function in _READERS or bool(self.words & _READERS)
        return self.text and read and not self.words & _COMPARED

    @property
    def is_text(self) -> bool:
        """Whether the value of these parentheses can be a string with an offset from UTC."""
        if self.function in _NO_TEXT or self.words & _COMPARED or self.kind in _DATES:
            return False
        return self.text or (self.document and not self.keeps_document)

    @property
    def keeps_document(self) -> bool:
        """Whether these parentheses have a JSON value if they contain JSON documents."""
        of_json = self.function.startswith("json_") and self.function not in _OF_JSON
        return of_json or self.function in _ANY or self.kind == "json"


def reads_text_as_date(
    tokens: Sequence[re.Match[str]], kinds: Mapping[str, str], kind: str
) -> bool:
    """Whether MySQL converts a string to a date when it computes a generated column.

    STR_TO_DATE does not count. Comparisons of strings with dates do not count, either, since they
    convert no string to the session's time zone.

    Args:
        tokens: The column's expression.
        kinds: The type of each column, by its name in lower case.
        kind: The type of the generated column.
    """
    levels = [_Level()]
    for place, token in enumerate(tokens):
        level, word = levels[-1], (token["word"] or token["sign"] or "").lower()
        before = (tokens[place - 1]["word"] or "").lower() if place else ""
        used = kinds.get(column_of(tokens[place : place + 2], kinds) or "")
        if token["word"] and before in ("as", "returning"):
            level.kind = word  # also if a column has the type's name
        elif used is not None:
            level.use(text=used in _TEXTS, document=used == "json")
        elif token["text"] is not None:
            level.use(text=_OFFSET.search(token["text"]) is not None, document=False)
        elif word == "(":
            levels.append(_Level(before))
        elif word == ")" and len(levels) > 1:
            if level.reads:
                return True
            levels.pop()
            document = level.document and level.keeps_document
            levels[-1].use(text=level.is_text, document=document)
        elif word in _KEYWORDS or not _begins_call_or_literal(tokens[place + 1 : place + 2]):
            level.see(word)
    return levels[0].reads or (kind in _DATES and levels[0].is_text)


def _begins_call_or_literal(following: Sequence[re.Match[str]]) -> bool:
    """Whether a word of a MySQL expression names a function, or a literal's type or character set.

    For example, ``hour`` is the function of ``hour(a)``, and ``date`` is the type of
    ``date'2024-02-29'``.

    Args:
        following: The token after the word; empty at the expression's end.
    """
    return opens(following) or (bool(following) and following[0]["text"] is not None)
