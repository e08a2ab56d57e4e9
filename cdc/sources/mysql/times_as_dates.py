"""Finds generated columns for which MySQL or MariaDB converts a TIME to a date.

The server then adds the current date. An expression can use a TIME beside a date without such a
conversion: ``TIMESTAMP(day, start)`` adds the TIME to the date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc.sources.mysql.expressions import column_of, opens

_DATES = frozenset({"date", "datetime", "timestamp"})
_TIME = frozenset({"time"})
_DATE = frozenset({"date"})
_BOTH = _TIME | _DATE
_READERS = frozenset(
    {"timestamp", "date", "datediff", "timestampdiff", "timestampadd", "to_days", "to_seconds"}
    | {"last_day", "year", "quarter", "month", "week", "weekofyear", "yearweek", "weekday"}
    | {"dayofweek", "dayofmonth", "day", "dayofyear", "dayname", "monthname", "date_format"}
    | {"add_months", "unix_timestamp", "convert_tz"}
)
"""Functions that convert each of their arguments to a date."""
_OF_TIMES = frozenset({"time", "sec_to_time", "maketime", "timediff"})
_OF_DATES = frozenset(
    {"date", "timestamp", "from_days", "makedate", "last_day", "timestampadd", "from_unixtime"}
    | {"convert_tz", "add_months"}
)
"""Functions that return a date: a DATE, DATETIME or TIMESTAMP."""
_OF_FIRST = frozenset({"addtime", "subtime", "date_add", "date_sub", "adddate", "subdate"})
"""Functions that return a TIME if their first argument is a TIME, and a date if it is a date."""
_SHARED = frozenset(
    {"", "in", "if", "ifnull", "nvl", "nvl2", "coalesce", "nullif", "greatest", "least"}
    | {"any_value"}
)
"""Functions whose arguments the server converts to one common type."""
_COMPARED = frozenset({"=", "<", ">", "!", "like", "is", "in", "between", "regexp", "rlike", "not"})
_COUNTED = frozenset({"+", "-", "*", "/", "%", "&", "|", "^", "~", "div", "mod"})
_KEYWORDS = frozenset(
    {"in", "and", "or", "xor", "not", "between", "like", "is", "regexp", "rlike", "interval"}
    | {"case", "when", "then", "else", "end", "div", "mod", "as", "from"}
)
"""Words that are not a function's name, even before a parenthesis."""
_DAYS = frozenset({"year", "quarter", "month", "week", "day", "year_month"})
"""Units of intervals that consist of whole days, weeks, months or years."""
_WITHOUT_DATE = re.compile(r"(?:[^%]|%[fHhIiklprSsT%])*")
"""Matches a format without parts of a date."""


@dataclass
class _Level:
    """The content of one pair of parentheses in an expression.

    A set of types describes several values. It has ``time`` if one of these values can be a TIME,
    and ``date`` if one of them can be a DATE, DATETIME or TIMESTAMP. It has no other types.

    Args:
        function: The function whose arguments the parentheses contain; empty without a function.
        kind: The type to which CAST converts, or which JSON_VALUE returns.
        arguments: The types of each complete argument.
        operand: The types of the value between CASE and the first WHEN.
        results: The types of the values after THEN and ELSE.
        values: The types of the values in the current part of the expression. A part ends at a
            comma, AND, OR or XOR, or at CASE, WHEN, THEN, ELSE or END.
        words: The words and operators in the current part, in lower case.
        cases: Whether a CASE was seen, but not yet its first WHEN.
        formats: The string literals; one of them can be the format of DATE_FORMAT.
        converts: Whether the server converts a TIME to a date.
    """

    function: str = ""
    kind: str = ""
    arguments: list[frozenset[str]] = field(default_factory=list)
    operand: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    words: set[str] = field(default_factory=set)
    cases: bool = False
    formats: list[str] = field(default_factory=list)
    converts: bool = False

    def use(self, values: frozenset[str]) -> None:
        """Add to `values` the types that a column, a literal or inner parentheses can have."""
        if "interval" not in self.words:
            self.values |= values

    def see(self, word: str) -> None:
        """Record the next word or operator of the expression, given in lower case."""
        if word == ",":
            self.arguments.append(self._ended())
        elif word == "and" and "between" in self.words:
            self.words = (self.words - {"between"}) | {"in"}
        elif word in ("and", "or", "xor"):
            self._ended()
            self.words = {"is"}
        elif word in ("case", "when", "then", "else", "end"):
            self._case(word)
        else:
            self.words.add(word)

    def _case(self, word: str) -> None:
        values = self._ended()
        if word == "case":
            self.cases, self.operand = True, frozenset()
        elif word == "when" and self.cases:
            self.cases, self.operand = False, values
        elif word == "then":
            self._check(self.operand | values)
        else:
            self.results |= values
        if word == "end":
            self._check(self.results)
            self.values, self.results = self.results, frozenset()

    def _check(self, values: frozenset[str]) -> None:
        """If ``values`` have both a TIME and a date, record that the TIME is converted to a date.

        The server converts all of these values to one common type.
        """
        self.converts |= values >= _BOTH

    def _ended(self) -> frozenset[str]:
        """End the current part of the expression; return the types that this part can have."""
        words, values = self.words, self.values
        self.words, self.values = set(), frozenset()
        if words & _COMPARED:
            self._check(values)
            return frozenset()
        if "interval" in words:
            self.converts |= "time" in values and bool(words & _DAYS)
            return values
        return frozenset() if words & _COUNTED else values

    def close(self) -> frozenset[str]:
        """End these parentheses; return the types that the value of the parentheses can have."""
        words = frozenset(self.words)
        self.arguments.append(self._ended())
        given = frozenset().union(*self.arguments)
        if "time" in given and self._reads_dates(words):
            self.converts = True
        if self.kind:
            return _TIME if self.kind == "time" else _DATE if self.kind in _DATES else frozenset()
        if self.function == "str_to_date":
            return _TIME if self._without_date else _DATE
        if self.function in _OF_TIMES:
            return _TIME
        if self.function in _OF_DATES:
            return _DATE
        if self.function in _OF_FIRST:
            return self.arguments[0]
        if self.function not in _SHARED:
            return frozenset()
        if self.function in ("if", "nvl2"):
            given = frozenset().union(*self.arguments[1:])
        if self.function != "in":
            self._check(given)
        return given

    def _reads_dates(self, words: frozenset[str]) -> bool:
        """Whether the function converts a TIME argument to a date."""
        if self.function == "timestamp" and len(self.arguments) == 2:
            return "time" in self.arguments[0]
        if self.function == "date_format":
            return not self._without_date
        if self.function == "extract":
            return bool(words & _DAYS)
        return self.kind in _DATES or self.function in _READERS

    @property
    def _without_date(self) -> bool:
        """Whether the function's format is a literal without parts of a date."""
        return bool(self.formats) and all(map(_WITHOUT_DATE.fullmatch, self.formats))


def reads_time_as_date(
    tokens: Sequence[re.Match[str]], kinds: Mapping[str, str], kind: str
) -> bool:
    """Whether MySQL or MariaDB converts a TIME to a date when it computes a generated column.

    Args:
        tokens: The column's expression.
        kinds: The type of each column, by its name in lower case.
        kind: The type of the generated column.
    """
    levels = [_Level()]
    for place, token in enumerate(tokens):
        level, word = levels[-1], (token["word"] or token["sign"] or "").lower()
        before = (tokens[place - 1]["word"] or "").lower() if place else ""
        following = tokens[place + 1 : place + 2]
        used = column_of(tokens[place : place + 2], kinds)
        if token["word"] and before in ("as", "returning"):
            level.kind = word  # also if a column has the type's name
        elif used is not None:
            level.use(_values_of_type(kinds[used]))
        elif token["text"] is not None:
            level.formats.append(token["text"])
            level.use(_values_of_type(before))
        elif word == "(":
            levels.append(_Level("" if before in _KEYWORDS - {"in"} else before))
        elif word == ")" and len(levels) > 1:
            values = level.close()
            if level.converts:
                return True
            levels.pop()
            levels[-1].use(values)
        elif not opens(following) or word in _KEYWORDS:
            level.see(word)
    values = levels[0].close()
    return levels[0].converts or (kind in _DATES and "time" in values)


def _values_of_type(kind: str) -> frozenset[str]:
    """Return the kind of a MySQL type's values: ``{time}``, ``{date}``, or the empty set."""
    return _TIME if kind == "time" else _DATE if kind in _DATES else frozenset()
