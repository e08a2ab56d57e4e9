r"""Converts JSON that MySQL or its connector has printed to one normal form.

Server and connector print the members of a JSON document in the same order, and differ only in the
details below. The normal form (:func:`in_spark`, and :func:`in_python` for rows that are read by
key) has:

- no spaces between tokens;
- the same digits for equal numbers, since the connector prints integers, decimals and doubles
  alike. A whole number of any type has all its digits, up to 30 (``1.0`` becomes ``1``). A whole
  number with more digits becomes the nearest double. This double, and each double that is not a
  whole number, has the fewest digits that identify it, for example ``1.5e300``, ``0.1`` or
  ``1e-7``. A decimal loses trailing zeros. ``-0.0`` stays;
- no trailing zeros in the microseconds of times, and of dates with a time. A JSON string that looks
  like such a value, for example ``2024-02-29 01:02:03.500000``, loses these zeros, too;
- base64 alone for binary values, without the server's prefix ``base64:type15:`` and without line
  breaks;
- lower-case hexadecimal digits in control characters, for example ``\u001f``.

The connector prints some different documents alike. :func:`ambiguous` finds JSON that can have
several meanings, and a run then reads the document from the source. The causes are in Debezium 3.6:

- an unsigned 32-bit integer is printed as a signed integer, and is omitted from arrays and objects
  above 64 KiB;
- a negative time loses the sign, or digits.
"""

from __future__ import annotations

import re
from decimal import Decimal

_PIECE = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][-+.0-9eE]*+|[^"0-9-]+'
# Python before 3.11 has no possessive quantifiers. Its engine does not recurse, so it needs none.
# But it stores a state for each iteration of a loop, so the pattern must not iterate once per
# letter of a long text.
_PYTHON_PIECE = re.compile(_PIECE.replace("*+", "*"))
_INTEGER = r"^-?[0-9]{1,30}$"
_ZEROS = r"[.]0+$|([.][0-9]*[1-9])0+$"
_MOMENT = r'^"(?:[0-9]{4}-[0-9]{2}-[0-9]{2} |-?)[0-9]{2,3}:[0-9]{2}:[0-9]{2}[.][0-9]{6}"$'
_MOMENT_ZEROS = r'[.]?0+"$'
_BINARY = r'^"base64:type[0-9]+:'
_LINE, _CONTROL = r"\n", r"\u00"
_LIKE_CONTROL = r"\\u%"  # in a pattern of LIKE the backslash is itself an escape
_ESCAPE = r"\\u[0-9A-Fa-f]{4}|\\.|[^\\]+"

_INTEGERS_TO = 1e30
"""A double that is an integer below this bound is printed with all its digits.

The connector, too, prints such a double with all its digits. If the normal form had the fewest
digits, it would depend on the JVM, since Java before 19 prints too many digits of some doubles from
1e16 to 1e26.
"""
_HALF = 2**40
"""Divisor that splits a double below `_INTEGERS_TO` into two integers of 64 bits."""
_PLAIN_FROM, _PLAIN_TO = 1e-6, 1e16
"""Doubles between these two values are printed without an exponent."""
_SCALE = 30
"""Maximum number of digits after the point of a MySQL decimal."""

_AMBIGUOUS = "|".join(
    (
        r"(?:^|[\[:,])-[0-9]{1,10}(?:$|[,\]}])",  # or an unsigned integer above 2^31
        r"[\[:],|,[,\]]|:}",  # no value where there must be one
        r'"[0-9]{2,3}:(?:00:00"|(?:[0-9]{2}:)?0-[0-9])',  # possibly a negative time
    )
)


def in_spark(document: str) -> str:
    """Return Spark SQL that converts the JSON text of a MySQL value to its normal form.

    The document can be any JSON value. NULL remains NULL.

    Args:
        document: A Spark SQL expression that evaluates to the document, as the server or the
            connector prints it.
    """
    piece = f"""CASE WHEN t LIKE '"%' THEN {_json_string_sql("t")}
        WHEN t RLIKE {_spark_literal(_INTEGER)} OR t = '-0.0' THEN t
        WHEN t RLIKE '^[-0-9]' THEN {_json_number_sql("t")}
        ELSE replace(t, ' ', '') END"""
    pieces = f"regexp_extract_all({document}, {_spark_literal(_PIECE)}, 0)"
    return f"array_join(transform({pieces}, t -> {piece}), '')"


def ambiguous(document: str) -> str:
    """Return Spark SQL that evaluates to true if MySQL's JSON text can have several meanings.

    The SQL also evaluates to true for some documents that are not ambiguous, since it searches
    inside JSON strings, too.

    Args:
        document: A Spark SQL expression that evaluates to the document, as the connector prints it.
    """
    return f"{document} RLIKE {_spark_literal(_AMBIGUOUS)}"


def in_python(document: str) -> str:
    """Convert the JSON text of a MySQL value to its normal form, as the SQL of `in_spark` does."""
    return "".join(_normal_json_piece(piece) for piece in _PYTHON_PIECE.findall(document))


def _json_string_sql(t: str) -> str:
    """Return Spark SQL that converts a string or binary value in JSON text to the normal form."""
    bare = f"regexp_replace({t}, {_spark_literal(_BINARY)}, '\"')"
    letters = f"regexp_extract_all({t}, {_spark_literal(_ESCAPE)}, 0)"
    letter = f"CASE WHEN e LIKE {_spark_literal(_LIKE_CONTROL)} THEN lower(e) ELSE e END"
    return f"""CASE WHEN {t} RLIKE {_spark_literal(_MOMENT)}
        THEN regexp_replace({t}, {_spark_literal(_MOMENT_ZEROS)}, '"')
        WHEN {t} RLIKE {_spark_literal(_BINARY)} THEN replace({bare}, {_spark_literal(_LINE)}, '')
        WHEN instr({t}, {_spark_literal(_CONTROL)}) > 0
        THEN array_join(transform({letters}, e -> {letter}), '')
        ELSE {t} END"""


def _json_number_sql(t: str) -> str:
    """Return Spark SQL that converts a number in JSON text to the normal form.

    Args:
        t: A Spark SQL expression that evaluates to the number. `_INTEGER` must not match the
            number.
    """
    digits = f"regexp_replace({t}, {_spark_literal(_ZEROS)}, '$1')"
    whole = (
        f"CAST(CAST(CAST(x / {_HALF}D AS BIGINT) AS DECIMAL(38,0)) * {_HALF}"
        f" + CAST(x % {_HALF}D AS BIGINT) AS STRING)"
    )
    plain = (
        f"regexp_replace(CAST(CAST(x AS DECIMAL(38,22)) AS STRING), {_spark_literal(_ZEROS)}, '$1')"
    )
    shown = (
        f"CASE WHEN abs(x) >= {_PLAIN_FROM!r}D AND abs(x) < {_PLAIN_TO!r}D THEN {plain}"
        " ELSE lower(replace(CAST(x AS STRING), '.0E', 'E')) END"
    )
    by_double = f"""CASE WHEN s RLIKE '[eE]' OR instr(s, '.') = 0
        THEN CASE WHEN abs(x) < {_INTEGERS_TO!r}D AND x % 1D = 0 THEN {whole} ELSE {shown} END
        WHEN {_json_digits("CAST(x AS STRING)")} = {_json_digits("s")} THEN {shown}
        WHEN length(s) - instr(s, '.') > {_SCALE} THEN {shown}
        WHEN length({_json_digits("s")}) > 38 THEN s
        WHEN {_json_double_test("s")} THEN {shown}
        ELSE s END"""
    of_digits = (
        f"CASE WHEN s RLIKE {_spark_literal(_INTEGER)} THEN s"
        f" ELSE transform(array(CAST(s AS DOUBLE)), x -> {by_double})[0] END"
    )
    return f"transform(array({digits}), s -> {of_digits})[0]"


def _json_digits(number: str) -> str:
    """Return Spark SQL for the digits of a number in JSON text, without leading or trailing zeros.

    Args:
        number: A Spark SQL expression that evaluates to the number.
    """
    return f"regexp_replace({number}, '[eE].*$|[-.]|^[-0.]+|[.]?0+(?=$|[eE])', '')"


def _json_double_test(s: str) -> str:
    """Return Spark SQL that is true if some double is exactly equal to a number in JSON text.

    A number with k digits after the point equals a double if it is m / 2^k with m < 2^53.

    Args:
        s: A Spark SQL expression that evaluates to the number, which has a point and no exponent.
    """
    power = (
        f"aggregate(sequence(1, length({s}) - instr({s}, '.')), CAST(1 AS DECIMAL(38,0)),"
        " (p, i) -> CAST(p * 5 AS DECIMAL(38,0)))"
    )
    number = f"CAST(regexp_replace({s}, '[-.]', '') AS DECIMAL(38,0))"
    return (
        f"transform(array({power}),"
        f" p -> {number} % p = 0 AND {number} < CAST(p * {2**53} AS DECIMAL(38,0)))[0]"
    )


def _normal_json_piece(t: str) -> str:
    """Convert one piece of a JSON text, such as a string, to the normal form, without Spark."""
    if t.startswith('"'):
        return _normal_json_string(t)
    if re.search(_INTEGER, t) or t == "-0.0":
        return t
    return _normal_json_number(t) if t[0] in "-0123456789" else t.replace(" ", "")


def _normal_json_string(t: str) -> str:
    """Convert a string or binary value in JSON text to the normal form, without Spark."""
    if re.search(_MOMENT, t):
        return re.sub(_MOMENT_ZEROS, '"', t)
    if re.search(_BINARY, t):
        return re.sub(_BINARY, '"', t).replace(_LINE, "")
    if _CONTROL not in t:
        return t
    return "".join(
        part.lower() if part.startswith(r"\u") else part for part in re.findall(_ESCAPE, t)
    )


def _normal_json_number(t: str) -> str:
    """Convert a number in JSON text to the normal form, without Spark."""
    s = re.sub(_ZEROS, r"\1", t)
    if re.search(_INTEGER, s):
        return s
    x = float(s)
    if "." not in s or "e" in s.lower():
        return str(int(x)) if abs(x) < _INTEGERS_TO and x.is_integer() else _json_double_text(x)
    exact = Decimal(s)
    # A fraction with more digits than a MySQL decimal can have belongs to a computed double.
    if exact in (Decimal(repr(x)), Decimal(x)) or len(s.partition(".")[2]) > _SCALE:
        return _json_double_text(x)
    return s


def _json_double_text(x: float) -> str:
    """Return a double of a JSON text with the digits that Java prints, without ``.0``.

    Java prints at least two digits, for example ``4.9e-324`` and not ``5e-324``.
    """
    text = repr(x)
    if len(text.lstrip("-").partition("e")[0]) == 1:
        text = f"{x:.1e}"
    if _PLAIN_FROM <= abs(x) < _PLAIN_TO:
        return re.sub(_ZEROS, r"\1", f"{Decimal(text):f}")
    digits, _, exponent = text.partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def _spark_literal(text: str) -> str:
    """Return a string, for example a pattern of JSON text, as a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
