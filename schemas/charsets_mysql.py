"""Lists the characters that the connectors of MySQL and MariaDB decode wrongly.

The binlog has a string value as bytes. A connector decodes these bytes with Java's table of the
character set, which can differ from the server's table. The decoding never fails: bytes that Java's
table lacks become U+FFFD. Values in a copy, and values that are read from the source by key, are
right, since the server itself decodes these values.
"""

from __future__ import annotations

from collections.abc import Mapping

_REPLACED = "\ufffd"

DOUBTFUL: Mapping[str, str] = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8", "utf16le"), ""),
    **dict.fromkeys(("latin2", "latin5", "latin7", "cp850", "cp852", "koi8r"), ""),
    **dict.fromkeys(("macce", "macroman"), ""),
    # U+0081 becomes U+FFFD in latin1. It occurs if applications store UTF-8 bytes as latin1.
    **dict.fromkeys(("latin1", "ascii", "cp1250", "cp1251", "cp1257", "gb2312"), _REPLACED),
    "big5": f"{_REPLACED}\u2571\u2572\u5341\u5345\uff3f",
    "cp1256": f"{_REPLACED}\u0679\u0688\u0691\u06a9\u06ba\u06be\u06c1\u06d2",
    "cp866": f"{_REPLACED}\u00a4\u2116",
    "euckr": f"{_REPLACED}\u327e",
    # Characters for users' own purposes, of which the server has none.
    "gbk": f"{_REPLACED}\u20ac\u2641\ue000-\uf8ff",
    "greek": f"{_REPLACED}\u037a\u2018\u2019\u20ac\u20af",
    "hebrew": f"{_REPLACED}\u00af",
    "koi8u": f"{_REPLACED}\u2219\u2553\u2555\u2556\u255c\u2562\u2564\u2565\u256b",
    "sjis": f"{_REPLACED}\u2014\uff3c",
    "tis620": f"{_REPLACED}\u00a0",
    "ujis": f"{_REPLACED}\u2014\uff3c\uff5e",
}
"""For each character set, the characters that an event can have in place of other characters.

The characters are written like the inside of ``[...]`` in a regular expression. A text without
these characters equals the server's text. A text in a character set that is not listed here cannot
be taken from events. For such a set, either wrong characters cannot be recognized, or the connector
drops U+FEFF at the start of a text (in ucs2, utf16 and utf32).
"""
