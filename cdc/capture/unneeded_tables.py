"""Names tables that a capture sends although no table on the plan needs them.

A table that is renamed stays in its publication. Its changes go to a topic that nothing reads,
PostgreSQL refuses its UPDATE and DELETE once it has no key, and one value in it that Debezium
cannot send stops the connector for all tables.
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
    """Return a finding if a capture sends tables that no table on the plan needs.

    While a command changes the capture, the result is None: a table joins the publication before it
    is on the plan.

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
