"""Values of each column type of MySQL and MariaDB, each with the cell that the lake gets."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from stack.mysql_software import MARIADB, MYSQL

ASKED = object()
"""A cell that must be read from the source again.

The reason is that a zero date and the start of 1970 are the same in the stream.
"""


@dataclass(frozen=True)
class Asked:
    """A cell that must be read from the source again, with the value that the source has."""

    value: Any


at = datetime.fromisoformat


def ewkb(*body: float | bytes, kind: int = 1, srid: int = 0) -> bytes:
    """A geometry in EWKB format.

    The body of a point is its coordinates; of other kinds, the number of parts and their bytes.
    """
    flag, shown = (0x20000000, struct.pack("<I", srid)) if srid else (0, b"")
    parts = (one if isinstance(one, bytes) else struct.pack("<d", one) for one in body)
    return b"\1" + struct.pack("<I", kind | flag) + shown + b"".join(parts)


def of_parts(kind: int, *parts: bytes, srid: int = 0) -> bytes:
    return ewkb(struct.pack("<I", len(parts)), *parts, kind=kind, srid=srid)


def points(*coordinates: float) -> tuple[bytes, ...]:
    pairs = zip(coordinates[::2], coordinates[1::2], strict=True)
    return tuple(struct.pack("<dd", *pair) for pair in pairs)


def ring(*coordinates: float) -> bytes:
    found = points(*coordinates)
    return struct.pack("<I", len(found)) + b"".join(found)


def shape(text: str, srid: int = 0) -> str:
    return f"ST_GeomFromText('{text}', {srid})"


SQUARE = (0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 0.0, 0.0, 0.0)
HOLE = (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0)
LINE = of_parts(2, *points(0, 0, 1, 1))
NESTED = of_parts(7, ewkb(1.0, 2.0), of_parts(7, LINE, ewkb(3.0, 4.0)))

Cases = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]
CASES: Cases = (
    ("tinyint", (("-128", -128), ("127", 127), ("null", None))),
    ("tinyint unsigned", (("255", 255),)),
    ("tinyint(1)", (("5", 5), ("0", 0), ("-1", -1))),
    ("boolean", (("true", 1), ("false", 0), ("7", 7))),
    ("smallint unsigned", (("65535", 65535),)),
    ("mediumint", (("-8388608", -8388608),)),
    ("mediumint unsigned", (("16777215", 16777215),)),
    ("int", (("-2147483648", -(2**31)),)),
    ("int unsigned", (("4294967295", 2**32 - 1),)),
    ("int(5) zerofill", (("42", 42),)),
    ("bigint", (("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1))),
    (
        "bigint unsigned",
        (
            ("0", Decimal(0)),
            ("9223372036854775807", Decimal(2**63 - 1)),
            ("9223372036854775808", Decimal(2**63)),
            ("18446744073709551615", Decimal(2**64 - 1)),
            ("null", None),
        ),
    ),
    ("float", (("0.1", 0.10000000149011612), ("16777216", 16777216.0), ("null", None))),
    ("float(7,3)", (("1234.567", 1234.5670166015625),)),
    ("double", (("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308))),
    ("decimal(10,2)", (("12345678.9", Decimal("12345678.90")), ("null", None))),
    ("decimal(38,10)", (("-0.0000000001", Decimal("-1E-10")),)),
    ("decimal(65,30)", (("1.5", "1.500000000000000000000000000000"), ("null", None))),
    ("decimal(20,0) unsigned", (("12345678901234567890", Decimal(12345678901234567890)),)),
    (
        "date",
        (
            ("'0001-01-01'", date(1, 1, 1)),
            ("'9999-12-31'", date(9999, 12, 31)),
            ("'0000-00-00'", None),
            ("'2024-02-00'", None),
            ("null", None),
            ("'1970-01-01'", ASKED),
        ),
    ),
    ("date NOT NULL", (("'2024-02-29'", date(2024, 2, 29)), ("'0000-00-00'", ASKED))),
    (
        "datetime",
        (
            ("'1000-01-01 00:00:00'", at("1000-01-01 00:00:00")),
            ("'2024-03-31 02:30:00'", at("2024-03-31 02:30:00")),
            ("'0000-00-00 00:00:00'", None),
            ("'2024-00-10 01:02:03'", None),
        ),
    ),
    ("datetime NOT NULL", (("'0000-00-00 00:00:00'", ASKED),)),
    ("datetime NOT NULL DEFAULT '2001-02-03 04:05:06'", (("'2001-02-03 04:05:06'", ASKED),)),
    ("datetime(3)", (("'2024-03-31 02:30:00.123'", at("2024-03-31 02:30:00.123000")),)),
    (
        "datetime(6)",
        (
            ("'0001-01-01 00:00:00.000001'", at("0001-01-01 00:00:00.000001")),
            ("'9999-12-31 23:59:59.999999'", at("9999-12-31 23:59:59.999999")),
        ),
    ),
    (
        "timestamp NULL",
        (
            ("'1970-01-01 00:00:01'", at("1970-01-01 00:00:01+00:00")),
            ("'2038-01-19 03:14:07'", at("2038-01-19 03:14:07+00:00")),
            ("null", None),
        ),
    ),
    (
        "timestamp(6) NULL",
        (("'2024-03-31 01:30:00.123456'", at("2024-03-31 01:30:00.123456+00:00")),),
    ),
    (
        "timestamp NOT NULL DEFAULT '2020-01-01 00:00:00'",
        (
            ("'0000-00-00 00:00:00'", ASKED),
            ("'2024-01-01 00:00:00'", at("2024-01-01 00:00:00+00:00")),
        ),
    ),
    (
        "time",
        (
            ("'-838:59:59'", -3020399000000),
            ("'838:59:59'", 3020399000000),
            ("'24:00:00'", 86400000000),
        ),
    ),
    (
        "time(6)",
        (
            ("'-00:00:00.000001'", -1),
            ("'12:34:56.000001'", 45296000001),
            ("'-01:00:00.5'", -3600500000),
        ),
    ),
    ("year", (("1901", 1901), ("2155", 2155), ("0", 0), ("null", None))),
    ("char(5)", (("'ab'", "ab"), ("''", ""), ("' x '", " x"), ("null", None))),
    ("varchar(20)", (("'ä€😀'", "ä€😀"), ("''", ""))),
    ("varchar(20) character set latin1", (("'äöü€'", "äöü€"),)),
    ("varchar(20) character set gbk", (("'中文'", "中文"),)),
    ("varchar(20) character set utf16le", (("'ä😀'", "ä😀"),)),
    ("varchar(20) character set latin1", (("x'c381'", Asked("Ã\x81")), ("'Á'", "Á"))),
    ("varchar(20) character set cp1251", (("'привет'", "привет"),)),
    ("longtext", (("repeat('x', 100)", "x" * 100), ("''", ""))),
    ("binary(5)", (("x'010000'", b"\x01\0\0\0\0"), ("x'ff'", b"\xff\0\0\0\0"))),
    ("varbinary(10)", (("x'00ff00'", b"\0\xff\0"), ("''", b""))),
    ("mediumblob", (("x'00ff'", b"\0\xff"), ("null", None))),
    ("bit(1)", (("b'0'", False), ("b'1'", True), ("null", None))),
    ("bit(12)", (("b'000000000001'", 1), ("b'111111110000'", 4080), ("b'0'", 0), ("null", None))),
    ("bit(64)", (("b'1'", Decimal(1)), ("~0", Decimal(2**64 - 1)))),
    ("enum('a','b,c','')", (("'a'", "a"), ("'b,c'", "b,c"), ("''", ""), ("null", None))),
    ("set('a','b','c')", (("'a,c'", "a,c"), ("''", ""), ("null", None))),
    (
        "geometry",
        (
            (shape("POINT(1 2)"), ewkb(1.0, 2.0)),
            (shape("POINT(10 20)", 3857), ewkb(10.0, 20.0, srid=3857)),
            (f"ST_GeomFromWKB(x'{NESTED.hex()}')", NESTED),
            (shape("GEOMETRYCOLLECTION()"), of_parts(7)),
            ("null", None),
        ),
    ),
    ("geometry NOT NULL", ((shape("POINT(-1.5 1e300)"), ewkb(-1.5, 1e300)),)),
    ("point", ((shape("POINT(1 2)", 3857), ewkb(1.0, 2.0, srid=3857)), ("null", None))),
    ("linestring", ((shape("LINESTRING(0 0,1 1)"), LINE),)),
    (
        "polygon",
        (
            (
                shape("POLYGON((0 0,0 3,3 3,3 0,0 0),(1 1,1 2,2 2,2 1,1 1))", 3857),
                of_parts(3, ring(*SQUARE), ring(*HOLE), srid=3857),
            ),
        ),
    ),
    ("multipoint", ((shape("MULTIPOINT(0 0,1 1)"), of_parts(4, ewkb(0.0, 0.0), ewkb(1.0, 1.0))),)),
    ("multilinestring", ((shape("MULTILINESTRING((0 0,1 1))"), of_parts(5, LINE)),)),
    (
        "multipolygon",
        (
            (
                shape("MULTIPOLYGON(((0 0,0 3,3 3,3 0,0 0)))", 3857),
                of_parts(6, of_parts(3, ring(*SQUARE)), srid=3857),
            ),
        ),
    ),
    (
        "geometrycollection",
        ((shape("GEOMETRYCOLLECTION(POINT(1 2))"), of_parts(7, ewkb(1.0, 2.0))),),
    ),
)
"""Column definitions, each with SQL values and the cells that the lake gets."""

SAID: Cases = (
    ("integer unsigned", (("3232235777", 3232235777), ("7", 7), ("null", None))),
    ("integer unsigned NOT NULL DEFAULT 4000000000", (("4000000000", 4000000000), ("0", 0))),
    ("int zerofill", (("4294967295", 2**32 - 1),)),
    ("mediumint zerofill", (("16777215", 2**24 - 1),)),
    ("smallint(5) zerofill", (("40000", 40000), ("7", 7))),
    ("tinyint zerofill", (("200", 200),)),
    ("bigint zerofill", (("18446744073709551615", Decimal(2**64 - 1)),)),
    ("bool", (("true", 1), ("false", 0), ("2", 2), ("-1", -1), ("null", None))),
    ("boolean NOT NULL DEFAULT 0", (("2", 2), ("0", 0))),
    ("numeric(6,2)", (("1.5", Decimal("1.50")),)),
    ("dec(40,2) unsigned", (("2.5", "2.50"),)),
    ("decimal(40,2) zerofill", (("2.5", "2.50"), ("0", "0.00"), ("null", None))),
    ("fixed", (("3", Decimal(3)),)),
    ("double precision", (("0.1", 0.1),)),
    ("float(30)", (("0.1", 0.1),)),
    ("float unsigned", (("0.1", 0.10000000149011612),)),
    ("float zerofill", (("0.1", 0.10000000149011612),)),
    ("double zerofill", (("0.1", 0.1),)),
    ("nvarchar(9)", (("'\u00e4'", "\u00e4"),)),
    ("character varying(9)", (("'\u20ac'", "\u20ac"),)),
)
"""Like `CASES`, with type names that only SQL statements have: the catalog has other names."""

FLOATS = [1.0, -0.10000000149011612, 16777216.0, 9.99999991097579e-38, 0.0]
LONG = "y" * 70_000
DEEP = "[" * 90 + "1" + "]" * 90
OWN: dict[str, Cases] = {
    MYSQL: (
        ("timestamp(3) NULL", (("'0000-00-00 00:00:00'", None),)),
        (
            "timestamp(3) NOT NULL DEFAULT '2020-01-01 00:00:00'",
            (("'0000-00-00 00:00:00'", ASKED),),
        ),
        # Latitude comes first in the text, and in ST_AsBinary; not in the server's bytes.
        ("point SRID 4326", ((shape("POINT(40 -70)", 4326), ewkb(-70.0, 40.0, srid=4326)),)),
        (
            "json",
            (
                ("null", None),
                ("'null'", "null"),
                ("'true'", "true"),
                ("'[]'", "[]"),
                (
                    """'{"b": 1, "aa": [1, {"c": null}], "a": {}}'""",
                    '{"a":{},"b":1,"aa":[1,{"c":null}]}',
                ),
                # doubles
                ("'[1e10, 0.1, 1.0, -0.0]'", "[10000000000,0.1,1,-0.0]"),
                ("'[1e-7, 1.5e-5, 12345678.9]'", "[1e-7,0.000015,12345678.9]"),
                ("'[1.7976931348623157e308, 5e-324]'", "[1.7976931348623157e308,4.9e-324]"),
                (
                    "'[123456789012345680000, 1e23]'",
                    "[123456789012345683968,99999999999999991611392]",
                ),
                ("'[9999999.999999998, 1e30]'", "[9999999.999999998,1e30]"),
                # integers and decimals
                (
                    "'[9223372036854775807, 18446744073709551615]'",
                    "[9223372036854775807,18446744073709551615]",
                ),
                (
                    "'[-9223372036854775808, 9007199254740993]'",
                    "[-9223372036854775808,9007199254740993]",
                ),
                (
                    "JSON_ARRAY(CAST(1.10 AS DECIMAL(65,30)), -0.12345678901234567)",
                    "[1.1,-0.12345678901234567]",
                ),
                (
                    "JSON_ARRAY(0.0001, 123456789012345678901234567890.12)",
                    "[0.0001,123456789012345678901234567890.12]",
                ),
                ("JSON_SET('{}', '$.a', 1.50, '$.b', 1e100)", '{"a":1.5,"b":1e100}'),
                ("'-5'", Asked("-5")),
                ("JSON_OBJECT('a', CAST(4294967295 AS UNSIGNED))", Asked('{"a":4294967295}')),
                (
                    f"JSON_OBJECT('a', CAST(70000 AS UNSIGNED), 'x', '{LONG}')",
                    Asked(f'{{"a":70000,"x":"{LONG}"}}'),
                ),
                # text
                ("""'"1e10, 1.0: 2"'""", '"1e10, 1.0: 2"'),
                (
                    r"""'"\\"\\\\u001F\\/\\u001F\\u0000\\n\\u007f\\u2028ä€😀"'""",
                    '"\\"\\\\u001F/\\u001f\\u0000\\n\x7f\u2028ä€😀"',
                ),
                (f"'{DEEP}'", DEEP),
                # values of SQL
                ("CAST(DATE'2024-02-29' AS JSON)", '"2024-02-29"'),
                ("CAST(TIMESTAMP'2024-02-29 01:02:03' AS JSON)", '"2024-02-29 01:02:03"'),
                ("CAST(TIMESTAMP'2024-02-29 01:02:03.5' AS JSON)", '"2024-02-29 01:02:03.5"'),
                ("CAST(TIME'838:59:58.000001' AS JSON)", '"838:59:58.000001"'),
                ("CAST(TIME'-12:00:00' AS JSON)", Asked('"-12:00:00"')),
                ("CAST(TIME'-00:00:00.5' AS JSON)", Asked('"-00:00:00.5"')),
                ("""'"12:00:00"'""", Asked('"12:00:00"')),
                ("CAST(REPEAT(x'78', 100) AS JSON)", '"' + "eHh4" * 33 + 'eA=="'),
            ),
        ),
        (
            "vector(5)",
            (
                ("STRING_TO_VECTOR('[1, -0.1, 16777216, 1e-37, 0]')", FLOATS),
                ("STRING_TO_VECTOR('[3.4028235e38]')", [3.4028234663852886e38]),
                ("null", None),
            ),
        ),
        ("json NOT NULL", (("JSON_ARRAY()", "[]"), ("JSON_OBJECT()", ASKED))),
    ),
    MARIADB: (
        # What events have for a zero moment, with as many digits as the column has; the rest of
        # that second is real here, and a zero moment in MySQL.
        *(
            (definition, (("'0000-00-00 00:00:00'", ASKED), (f"'{text}'", at(f"{text}+00:00"))))
            for definition, text in (
                ("timestamp(1) NULL", "1970-01-01 00:00:00.100000"),
                ("timestamp(3) NOT NULL DEFAULT '2020-01-01 00:00:00'", "2024-01-01 00:00:00"),
                ("timestamp(6) NULL", "1970-01-01 00:00:00.000001"),
                ("timestamp(6) NOT NULL", "1970-01-01 00:00:00.100000"),
            )
        ),
        ("point", ((shape("POINT(40 -70)", 4326), ewkb(40.0, -70.0, srid=4326)),)),
        ("json", (("'[1.0, -5]'", "[1.0, -5]"),)),
    ),
}
"""Like `CASES`, by kind: types and values for which MySQL and MariaDB differ."""
