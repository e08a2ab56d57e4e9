"""Which types of the lake hold every value of another, and can take its place."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def widens(old: str, new: str) -> bool:
    """Whether every value of Spark type ``old`` is exactly one of ``new``, and Hudi follows."""
    if new in _WIDER.get(old, ()):
        return True
    wider = _DECIMAL.fullmatch(new)
    if wider is None:
        return False
    digits, scale = int(wider[1]), int(wider[2])
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    return scale >= int(narrow[2]) and digits - scale >= int(narrow[1]) - int(narrow[2])
