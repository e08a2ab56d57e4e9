"""Finds tables that are in a capture without need: the plan does not have them in this capture.

The plan is all tables that are onboarded and not retired. There are two reasons for such a table:

- The state store has lost the table. A store that was restored from a backup does not have the
  tables that were onboarded after the backup. No run applies their changes any more, and the
  topics of these tables delete the changes when their retention ends. The result is a `Forgotten`.
- The plan has the table under another name or in another tier. For example, a renamed table stays
  in its publication, and the connector sends the table's changes to a topic that nothing reads. If
  the table loses its key, PostgreSQL refuses to UPDATE or DELETE its rows. If the table gets a
  value that Debezium cannot send, the connector stops for all tables. The result is a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.capture.captured_tables import listed, users
from cdc.capture.judgement import Finding, Severity
from cdc.store.lease import held_leases
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import CaptureEvidence
    from cdc.debezium import CaptureNames
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


@dataclass(frozen=True)
class Forgotten:
    """Captured tables that the state store has lost, or a capture that no table on the plan needs.

    Args:
        capture: The capture.
        tables: The lost tables, in order; empty if no table needs the capture, and no lost table
            was found in the capture.
        message: What is wrong.
        remedy: What to do.
    """

    capture: CaptureNames
    tables: tuple[TableId, ...]
    message: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """Return the capture, its tables, the message and the remedy as values for JSON."""
        return {
            "source": self.capture.source,
            "tier": self.capture.tier,
            "connector": self.capture.connector,
            "message": self.message,
            "remedy": self.remedy,
            "tables": [str(table) for table in self.tables],
        }


@dataclass(frozen=True)
class Unneeded:
    """The tables that are in a capture without need, or the capture itself if it is unneeded.

    Args:
        forgotten: The tables that the state store has lost, or a capture that no table needs; None
            if there is neither.
        renamed: A warning about tables that the plan has under another name or in another tier;
            None if there are no such tables.
    """

    forgotten: Forgotten | None = None
    renamed: Finding | None = None

    @property
    def all(self) -> list[Forgotten | Finding]:
        """``forgotten`` and ``renamed`` as a list, without None."""
        return [one for one in (self.forgotten, self.renamed) if one is not None]


NOTHING = Unneeded()
"""The result for a capture that has only needed tables, or whose tables are not known."""


def of_unneeded(store: Store, evidence: CaptureEvidence, before: Iterable[TableRecord]) -> Unneeded:
    """Return the tables that are in a capture without need, or the capture itself if unneeded.

    While a command changes the capture, the result is empty, because a new table joins the
    capture before the table is on the plan. The result is also empty if another installation made
    the connector, or if it is not known which tables the capture has.

    Args:
        store: The state store. It is read after the evidence was gathered.
        evidence: The capture's evidence.
        before: The records of all tables, as they were read before the evidence was gathered. A
            table that has left the capture meanwhile is not named.

    Raises:
        StateError: The state store cannot be used.
    """
    names, connector = evidence.names, evidence.connector_facts
    if connector is not None and connector.other_owner is not None:
        return NOTHING  # a finding of its own says whose it is, and to leave it
    sent, needed_before = _sent_tables(evidence), users(before, names)
    if sent is None:
        return NOTHING
    # The leases are read first: a command that ends between both reads has recorded its tables.
    lease = held_leases(store).get(names.resource)
    records = (*store.tables(), *store.builds())
    if lease is not None and not lease.abandoned:
        return NOTHING
    needed = users(records, names) | needed_before
    left = sorted(sent - needed)
    elsewhere = [table for table in left if _is_on_plan(table, records, evidence)]
    lost = tuple(table for table in left if table not in elsewhere)
    return Unneeded(
        _forgotten(evidence, lost, whole=not needed) if lost or not needed else None,
        _unneeded_finding(evidence, elsewhere) if elsewhere else None,
    )


def _sent_tables(evidence: CaptureEvidence) -> frozenset[TableId] | None:
    """Return the tables whose changes a capture sends; None if that is not known."""
    connector = evidence.connector_facts
    if connector is not None and connector.listed is not None:
        return connector.listed
    if isinstance(evidence.members, TributaryError):
        return None
    if not evidence.members and connector is None:
        return None
    return frozenset(evidence.members)


def _is_on_plan(
    table: TableId, records: Collection[TableRecord], evidence: CaptureEvidence
) -> bool:
    """Return whether the plan has a captured table, under whatever name and in whatever tier."""
    members = evidence.members
    sent = None if isinstance(members, TributaryError) else members.get(table)
    for one in records:
        if one.table == table:
            if one.state is not State.RETIRED:
                return True
        elif sent is not None and one.table.source == table.source and one.attempt is not None:
            known = one.attempt.fingerprint
            if known is not None and sent.is_of(known):
                return True
    return False


def _forgotten(evidence: CaptureEvidence, tables: tuple[TableId, ...], *, whole: bool) -> Forgotten:
    """Return a capture's lost tables, or the unneeded capture itself, with message and remedy.

    Args:
        evidence: The evidence of the capture.
        tables: The lost tables; empty if no table needs the capture, and no lost table was found
            in the capture.
        whole: Whether no table on the plan needs the capture.
    """
    names = evidence.names
    capture = f"capture {names.source}/{names.tier}"
    if not tables:
        message = f"{capture} has connector {names.connector}, and no table on the plan needs it"
        remedy = (
            "If the state store was restored from a backup, or a command was interrupted, onboard"
            " the tables again that the capture had. Otherwise delete"
            f" {names.connector} in Kafka Connect"
        )
        drop = f", and drop slot {names.slot} and publication {names.publication} on the source."
        return Forgotten(names, tables, message, remedy + ("." if names.slot is None else drop))
    again = " ".join(map(str, tables))
    it = "them" if len(tables) > 1 else "it"
    message = (
        f"{capture} has {listed(tables)}, which no table on the plan is: no run applies what"
        f" {names.connector} sends of {it}, and the topics drop that after their retention"
    )
    remedy = (
        "Was the state store restored from a backup, or was a command interrupted? Then run"
        f" `tributary onboard {again}`, which copies {it} again. If nothing is to replicate {it},"
        f" {_removal_steps(evidence, tables, whole=whole)}"
    )
    return Forgotten(names, tables, message, remedy)


def _removal_steps(evidence: CaptureEvidence, tables: Collection[TableId], *, whole: bool) -> str:
    """Return the steps that remove unneeded tables from a capture, as the end of a sentence.

    If no table needs the capture, the steps also remove its connector and slot.
    """
    members = evidence.members
    if not (isinstance(members, TributaryError) or whole) and members:
        statements = " ".join(members[table].removal for table in tables)
        return (
            "and only this installation of Tributary reads this publication, run on the source:"
            f" {statements}"
        )
    names = " ".join(map(str, tables))
    return f"run `tributary onboard --no-bootstrap {names}`, then `tributary offboard {names}`."


def _unneeded_finding(evidence: CaptureEvidence, tables: Collection[TableId]) -> Finding:
    """Return a finding about tables that the plan has under another name or in another tier."""
    names, members = evidence.names, evidence.members
    if isinstance(members, TributaryError) or not members:
        return Finding(
            Severity.UNNEEDED,
            f"connector {names.connector}",
            f"connector {names.connector} lists {listed([*tables])}, which the plan has in another"
            " tier, so nothing reads what it sends of them",
            f"Take them out of table.include.list of {names.connector} in Kafka Connect.",
        )
    statements = " ".join(members[table].removal for table in tables)
    return Finding(
        Severity.UNNEEDED,
        f"publication {names.publication}",
        f"publication {names.publication} has {listed([*tables])}, which no table on the plan is: a"
        " table that is renamed stays in it. PostgreSQL refuses its UPDATE and DELETE once it has"
        " no key, and a value that Debezium cannot send stops all tables of this tier",
        "If it was onboarded under this name, and the state store was restored from a backup since,"
        " onboard it again. Otherwise, if only this installation of Tributary reads this"
        f" publication, run on the source: {statements}",
    )
