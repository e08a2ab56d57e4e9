"""Reads a list of tables and wildcards from a file, one a line."""

from __future__ import annotations

import re

_LINE = re.compile(r'((?:[^"#]|"(?:[^"]|"")*"|(?<=\S)#)*)')
"""Matches a line up to its comment. A ``#`` in double quotes or in a name begins no comment."""


def read_list(text: str) -> list[str]:
    """Return the names and wildcards in the text of a command's list of tables, in order.

    A ``#`` at the beginning of a line or after a space begins a comment. Empty lines are
    ignored.
    """
    lines = (_LINE.match(line) for line in text.removeprefix("\ufeff").splitlines())
    found = (line[1].strip() for line in lines if line is not None)
    return [name for name in found if name]
