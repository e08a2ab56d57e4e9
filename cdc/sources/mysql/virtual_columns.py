"""Finds virtual generated columns whose values depend on the session that reads them.

The server computes the value of a virtual column whenever a row is read or written. The binlog has
the value that the server computed in the writer's session. A copy has the value that the server
computes in the copy's session, with time zone UTC.

A stored generated column has one value for all sessions. An ALTER that copies the table computes
this value again, in the session of the ALTER.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc.sources.mysql.expressions import column_of, opens, tokens_of
from cdc.sources.mysql.texts_as_dates import reads_text_as_date
from cdc.sources.mysql.times_as_dates import reads_time_as_date

_CLOCK = "the time of the reading"
_ZONE = "the session's time zone"
_LANGUAGE = "the session's lc_time_names"
_SESSION = "the session"
_RANDOM = "chance"
_FUNCTIONS = {
    **dict.fromkeys(("now", "curdate", "curtime", "sysdate"), _CLOCK),
    **dict.fromkeys(("utc_date", "utc_time", "utc_timestamp"), _CLOCK),
    **dict.fromkeys(("from_unixtime", "unix_timestamp", "convert_tz"), _ZONE),
    **dict.fromkeys(("dayname", "monthname", "to_char"), _LANGUAGE),
    **dict.fromkeys(("rand", "uuid", "uuid_short", "sys_guid", "random_bytes"), _RANDOM),
    **dict.fromkeys(("uuid_v4", "uuid_v7"), _RANDOM),
    **dict.fromkeys(("user", "session_user", "system_user", "database", "schema"), _SESSION),
    **dict.fromkeys(("connection_id", "last_insert_id", "found_rows", "row_count"), _SESSION),
    **dict.fromkeys(("nextval", "lastval", "aes_encrypt", "aes_decrypt", "password"), _SESSION),
    **dict.fromkeys(("get_lock", "is_free_lock", "is_used_lock", "sleep", "version"), _SESSION),
}
"""For the name of each function: what its value depends on besides the arguments."""
_WORDS = {
    **dict.fromkeys(("current_date", "current_time", "current_timestamp"), _CLOCK),
    **dict.fromkeys(("localtime", "localtimestamp"), _CLOCK),
    **dict.fromkeys(("utc_date", "utc_time", "utc_timestamp"), _CLOCK),
    **dict.fromkeys(("current_user", "current_role"), _SESSION),
}
"""For the name of each function without parentheses: what its value depends on."""
_FIXED_FORMAT = re.compile(r"(?:[^%]|%[^abMWZz])*")
"""Matches a format of `date_format` without names of days and months, and without a time zone."""


def session_bound(
    columns: Sequence[Mapping[str, Any]], *, of_mariadb: bool = False
) -> dict[str, str]:
    """Return the reason for each virtual MySQL or MariaDB column that depends on the session.

    Args:
        columns: Rows of ``information_schema.COLUMNS`` as `table_facts` reads them.
        of_mariadb: Whether the server is MariaDB, which ignores the offset of a string that it
            converts to a date.
    """
    kinds = {str(row["name"]).lower(): _type_name(str(row["shown"])) for row in columns}
    virtual = {
        str(row["name"]): tokens
        for row in columns
        if row["expression"] and "stored" not in str(row.get("extra") or "").lower()
        for tokens in (tokens_of(str(row["expression"])),)
    }
    found: dict[str, str] = {}
    while True:
        # A virtual column can be computed from another one.
        more = {
            name: why
            for name, tokens in virtual.items()
            if name not in found
            for why in (
                _dependence_of_expression(tokens, kinds, {one.lower() for one in found})
                or _dependence_by_type(tokens, kinds, kinds[name.lower()], of_mariadb=of_mariadb),
            )
            if why is not None
        }
        if not more:
            return found
        found |= more


def _dependence_by_type(
    tokens: Sequence[re.Match[str]], kinds: Mapping[str, str], kind: str, *, of_mariadb: bool
) -> str | None:
    """Return why a virtual MySQL or MariaDB column depends on the session's time zone or the clock.

    The result is None if the value depends on neither. The value depends on the time zone if the
    column is a TIMESTAMP, or if MySQL computes the value from a string that it converts to a date.
    The value depends on the clock if the server converts a TIME to a date.

    Args:
        tokens: The column's expression.
        kinds: The type of each column, by its name in lower case.
        kind: The column's own type.
        of_mariadb: Whether the server is MariaDB.
    """
    if kind == "timestamp":
        return f"{_ZONE} (its type timestamp)"
    if reads_time_as_date(tokens, kinds, kind):
        return f"{_CLOCK} (a TIME is read as a date)"
    if not of_mariadb and reads_text_as_date(tokens, kinds, kind):
        return f"{_ZONE} (a text is read as a date, and can have an offset)"
    return None


def _type_name(shown: str) -> str:
    """Return the name of a type that MySQL's catalog prints: ``int`` for ``int(11) unsigned``."""
    return re.split(r"\W", shown.lower(), maxsplit=1)[0]


def _dependence_of_expression(
    tokens: Sequence[re.Match[str]], kinds: Mapping[str, str], bound: set[str]
) -> str | None:
    """Return what a virtual MySQL or MariaDB column's value depends on besides the row.

    The result is None if the value depends on the row alone.
    """
    used = [
        name
        for place in range(len(tokens))
        if (name := column_of(tokens[place : place + 2], kinds)) is not None
    ]
    reasons = [
        *(f"column {name}, which is virtual, too" for name in used if name in bound),
        *(f"{_ZONE} (column {name})" for name in used if kinds[name] == "timestamp"),
        *_dependences_of_functions(tokens),
    ]
    return next(iter(reasons), None)


def _dependences_of_functions(tokens: Sequence[re.Match[str]]) -> Iterator[str]:
    """Yield what MySQL's functions and variables depend on besides the functions' arguments."""
    for place, token in enumerate(tokens):
        if token["sign"] == "@":
            yield f"{_SESSION} (a variable)"
        word = (token["word"] or "").lower()
        calls = opens(tokens[place + 1 : place + 2])
        why = _WORDS.get(word) or (_FUNCTIONS.get(word) if calls else None)
        if (
            why is None
            and calls
            and word == "date_format"
            and not _has_fixed_format(tokens[place + 2 :])
        ):
            why = _LANGUAGE
        if why is None and calls and word == "week" and _argument_count(tokens[place + 2 :]) == 1:
            why = "the session's default_week_format"
        if why is not None:
            yield f"{why} ({word})"


def _has_fixed_format(arguments: Sequence[re.Match[str]]) -> bool:
    """Whether the format of MySQL's DATE_FORMAT is a literal with the same output in each session.

    Args:
        arguments: The tokens after the function's opening parenthesis.
    """
    depth = 0
    for place, token in enumerate(arguments):
        depth += (token["sign"] == "(") - (token["sign"] == ")")
        if token["sign"] == "," and not depth:
            # A text can have the name of its character set before it.
            text = next(
                (one["text"] for one in arguments[place + 1 : place + 3] if one["text"]), ""
            )
            return bool(text) and _FIXED_FORMAT.fullmatch(text) is not None
    return False


def _argument_count(rest: Sequence[re.Match[str]]) -> int:
    """Return the number of arguments of a function in a MySQL or MariaDB expression.

    Args:
        rest: The tokens after the function's opening parenthesis.
    """
    depth, number = 0, 1
    for token in rest:
        if token["sign"] == ")" and not depth:
            return number
        depth += (token["sign"] == "(") - (token["sign"] == ")")
        number += token["sign"] == "," and not depth
    return number
