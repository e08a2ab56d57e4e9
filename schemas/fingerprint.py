"""The facts of a table's catalog, as one value that is kept and compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.catalog import differences

READ_AT = "read_at"
"""Name of the fact with the position that was executed before the catalog was read.

A source has it if its log contains all statements.
"""

SNAPSHOT = "snapshot"
"""Name of the fact with the transactions that the reading of the catalog shows.

It is the text of PostgreSQL's ``pg_snapshot``: every transaction below the first number had ended,
none from the second number on, and none of those listed after it. A source has it if its log does
not contain all statements.
"""

ROW_WRITTEN = "row_written"
"""Name of the fact with the last write of the table's row in the catalog.

Most of what writes that row is another fact or changes nothing, such as a GRANT. A PostgreSQL
source has it.
"""


@dataclass(frozen=True)
class Fingerprint:
    """The catalog facts that must not change while a table is copied or between runs.

    Args:
        facts: Plain values: strings, integers, lists and dictionaries with string keys. `READ_AT`
            and `SNAPSHOT`, which are not facts of the table, and `ROW_WRITTEN` are not compared.
    """

    facts: Mapping[str, Any]

    @property
    def snapshot(self) -> str:
        """The transactions that the reading shows (`SNAPSHOT`); empty without that fact."""
        return str(self.facts.get(SNAPSHOT, ""))

    @property
    def digest(self) -> str:
        """SHA-256 of the compared facts, as hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The compared facts as JSON with sorted keys: equal facts give equal text."""
        apart = (READ_AT, SNAPSHOT, ROW_WRITTEN)
        compared = {name: fact for name, fact in self.facts.items() if name not in apart}
        return json.dumps(compared, sort_keys=True, separators=(",", ":"))

    def diff(self, other: Fingerprint) -> list[str]:
        """What differs, one line each, from this one to ``other``; empty when nothing does."""
        return [*differences("", json.loads(self.to_json()), json.loads(other.to_json()))]
