"""The fingerprint of a table: the catalog's description of the table, to store and compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.catalog import differences

READ_AT = "read_at"
"""Name of the fact with a position in the binlog.

The facts include the effects of every statement before this position. Only MySQL and MariaDB have
this fact, since their binlog has all DDL statements.
"""

SNAPSHOT = "snapshot"
"""Name of the fact with the snapshot in which the catalog was read.

The value is the text of PostgreSQL's ``pg_snapshot``, ``xmin:xmax:list``. Transactions below xmin
had ended. Transactions from xmax on, and the listed transactions, had not ended. Only PostgreSQL
has this fact.
"""

ROW_WRITTEN = "row_written"
"""Name of the fact that identifies the last write of the table's row in the catalog.

Only a PostgreSQL source has this fact. `Fingerprint.diff` does not compare this fact: a GRANT
writes the row and changes no other fact, so each GRANT would be a difference. Most other writes of
the row also change another fact, which is compared.
"""

AS_ADDED = "as_added"
"""Name of a column's fact: the catalog proves that the column did not become NOT NULL after it was
added.

The fact is derived from the last write of the table's row, so a GRANT on the table can change it.
"""


@dataclass(frozen=True)
class Fingerprint:
    """The description of a table in its source's catalog, as JSON.

    A copy in progress, or the next run, judges each difference between two fingerprints.

    Args:
        facts: The JSON object. The facts `READ_AT`, `SNAPSHOT` and `ROW_WRITTEN`, and the fact
            `AS_ADDED` of each column, are stored, but not compared.
    """

    facts: Mapping[str, Any]

    @property
    def snapshot(self) -> str:
        """The snapshot in which PostgreSQL's catalog was read; empty for MySQL and MariaDB."""
        return str(self.facts.get(SNAPSHOT, ""))

    @property
    def digest(self) -> str:
        """SHA-256 of the facts that are compared, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the facts that are compared, as JSON; equal facts give the same string."""
        apart = (READ_AT, SNAPSHOT, ROW_WRITTEN)
        compared = {name: fact for name, fact in self.facts.items() if name not in apart}
        if "columns" in compared:
            compared["columns"] = {
                number: {name: fact for name, fact in column.items() if name != AS_ADDED}
                for number, column in compared["columns"].items()
            }
        return json.dumps(compared, sort_keys=True, separators=(",", ":"))

    def with_read_at(self, earlier: Fingerprint) -> Fingerprint:
        """Return this fingerprint, with the `READ_AT` of ``earlier`` if ``earlier`` has one."""
        if READ_AT not in earlier.facts:
            return self
        return Fingerprint({**self.facts, READ_AT: earlier.facts[READ_AT]})

    def diff(self, other: Fingerprint) -> list[str]:
        """Return the differences between the compared facts of two fingerprints, one line each."""
        return [*differences("", json.loads(self.to_json()), json.loads(other.to_json()))]
