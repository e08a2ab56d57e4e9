"""Finds tables in a capture that do not need the capture, so that nothing reads their changes.

A table that is renamed stays in its publication. The connector then sends the table's changes to a
topic that nothing reads. This has two risks:

- If the table loses its key, PostgreSQL refuses to UPDATE or DELETE rows of the table.
- If the table gets a value that Debezium cannot send, the connector stops for all tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.capture.captured_tables import listed, users
from cdc.capture.judgement import Finding, Severity
from cdc.store.lease import held_leases
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import CaptureEvidence
    from cdc.store.state_store import Store


def of_unneeded(store: Store, evidence: CaptureEvidence) -> Finding | None:
    """Return a finding if a capture has tables that do not need the capture.

    While a command changes the capture, the result is None, since a new table joins the publication
    before it is on the plan.

    Args:
        store: The state store. It is read after the evidence was gathered.
        evidence: The capture's evidence.

    Raises:
        StateError: The state store cannot be used.
    """
    members, names = evidence.members, evidence.names
    if isinstance(members, TributaryError) or not members:
        return None
    left = sorted(members.keys() - users((*store.tables(), *store.builds()), names))
    if not left or names.resource in held_leases(store):
        return None
    statements = " ".join(members[table] for table in left)
    return Finding(
        Severity.UNNEEDED,
        f"publication {names.publication}",
        f"publication {names.publication} has {listed(left)}, which no table on the plan is: a"
        " table that is renamed stays in it. PostgreSQL refuses its UPDATE and DELETE once it has"
        " no key, and a value that Debezium cannot send stops all tables of this tier",
        f"If only Tributary reads this publication, run on the source: {statements}",
    )
