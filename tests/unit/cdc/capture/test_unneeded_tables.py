"""Tables in a capture that the plan does not need, and those that the state store has lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from cdc.capture.evidence import CaptureEvidence
from cdc.capture.judgement import stopping
from cdc.capture.unneeded_tables import NOTHING, Unneeded, of_unneeded
from cdc.errors import OtherConnectorError
from cdc.sources.sent_table import SentTable
from cdc.store.attempt import Attempt
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord, TierCapture
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.capture.capture_evidence import DOWN, RUNNING, SOUND

OTHER = TableId("shop", "public", "orders_2023")
DROP = 'ALTER PUBLICATION "p" DROP TABLE ONLY "public"."orders_2023";'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    opened.put(copied(ORDERS, 7))
    yield opened
    opened.close()


def copied(table: TableId, oid: int) -> TableRecord:
    """The record of a table that had the object id ``oid`` when it was copied."""
    known = Fingerprint({"oid": oid})
    attempt = Attempt(UUID(int=1), NOW, "/lake/orders/a", fingerprint=known)
    return table_record(table, attempt=attempt)


def sends(*tables: TableId, oid: int = 8) -> CaptureEvidence:
    """The evidence of a publication with these tables."""

    def is_of(known: Fingerprint) -> bool:
        return known.facts.get("oid") == oid

    return replace(SOUND, members={table: SentTable(DROP, is_of) for table in tables})


def lists(*tables: TableId) -> CaptureEvidence:
    """The evidence of a binlog connector whose configuration lists these tables."""
    names = replace(SOUND.names, publication=None, slot=None, kind="mariadb")
    return replace(SOUND, names=names, connector=replace(RUNNING, listed=frozenset(tables)))


def found(store: Store, evidence: CaptureEvidence, before: Iterable[TableRecord] = ()) -> Unneeded:
    return of_unneeded(store, evidence, before)


@pytest.mark.parametrize("has", [sends, lists])
def test_a_captured_table_that_the_store_has_lost_is_a_problem(store: Store, has) -> None:
    assert found(store, has(ORDERS)) == NOTHING
    unneeded = found(store, has(ORDERS, OTHER))
    forgotten = unneeded.forgotten
    assert forgotten is not None
    assert unneeded.renamed is None
    assert forgotten.tables == (OTHER,)
    assert f"capture shop/default has {OTHER}, which no table on the plan is" in forgotten.message
    assert f"run `tributary onboard {OTHER}`, which copies it again" in forgotten.remedy
    assert forgotten.to_json()["tables"] == [str(OTHER)]


def test_what_a_forgotten_table_needs_to_leave_its_capture(store: Store) -> None:
    by_statement = found(store, sends(ORDERS, OTHER)).forgotten
    assert by_statement is not None
    assert by_statement.remedy.endswith(f"run on the source: {DROP}")
    leave = f"run `tributary onboard --no-bootstrap {OTHER}`, then `tributary offboard {OTHER}`."
    for evidence in (lists(ORDERS, OTHER), sends(OTHER)):
        if evidence.members:
            store.delete(ORDERS)
        by_commands = found(store, evidence).forgotten
        assert by_commands is not None
        assert by_commands.remedy.endswith(leave), "the last table takes the slot along"


def test_a_capture_that_no_table_needs_is_a_problem_even_without_tables(store: Store) -> None:
    assert found(store, sends()) == NOTHING
    store.delete(ORDERS)
    forgotten = found(store, sends()).forgotten
    assert forgotten is not None
    assert forgotten.tables == ()
    assert "has connector c, and no table on the plan needs it" in forgotten.message
    assert "drop slot s and publication p" in forgotten.remedy
    listed = found(store, lists()).forgotten
    assert listed is not None
    assert listed.remedy.endswith("delete c in Kafka Connect.")
    assert found(store, replace(sends(), connector=None)) == NOTHING


def test_a_renamed_table_is_a_warning_with_the_statement_to_paste(store: Store) -> None:
    unneeded = found(store, sends(ORDERS, OTHER, oid=7))
    assert unneeded.forgotten is None
    assert unneeded.renamed is not None
    assert unneeded.renamed.message.startswith(f"publication p has {OTHER}, which no table")
    assert unneeded.renamed.remedy.endswith(f"run on the source: {DROP}")
    assert stopping([unneeded.renamed]) == [], "nothing is lost"


def test_a_table_needs_its_capture_until_it_is_offboarded(store: Store) -> None:
    record = store.put(table_record(OTHER, tier="fast"))
    elsewhere = found(store, sends(ORDERS, OTHER))
    assert elsewhere.forgotten is None
    assert elsewhere.renamed is not None, "its capture is another one"
    listed = found(store, lists(ORDERS, OTHER)).renamed
    assert listed is not None
    assert "the plan has in another tier" in listed.message
    record = store.put(replace(record, other=TierCapture("default", "t", None)))
    assert found(store, sends(ORDERS, OTHER)) == NOTHING, "it moves"
    record = store.put(replace(record, other=None))
    store.put(table_record(OTHER, State.REGISTERED, beside=True))
    assert found(store, sends(ORDERS, OTHER)) == NOTHING, "its next generation follows this one"
    store.delete(OTHER, beside=True)
    store.put(replace(record, tier="default", state=State.RETIRED))
    assert found(store, sends(ORDERS, OTHER)).forgotten is not None


def test_a_table_that_joins_or_leaves_the_capture_is_not_named(store: Store) -> None:
    evidence = sends(ORDERS, OTHER)
    with Leases(store).hold(SOUND.names.resource):
        assert found(store, evidence) == NOTHING
    assert found(store, evidence) != NOTHING
    assert found(store, evidence, [table_record(OTHER)]) == NOTHING, "it has left meanwhile"


def test_a_server_that_does_not_answer_has_no_such_tables(store: Store) -> None:
    assert found(store, replace(SOUND, members=DOWN)) == NOTHING
    assert found(store, replace(lists(OTHER), connector=DOWN)) == NOTHING


def test_the_connector_of_another_installation_is_not_called_unneeded(store: Store) -> None:
    """Else the remedy would make a person delete the connector that feeds the other's tables."""
    theirs = OtherConnectorError("another installation made it", remedy="Leave it.")
    others = replace(RUNNING, listed=frozenset({OTHER}), other_owner=theirs)
    assert found(store, lists(OTHER)) != NOTHING
    assert found(store, replace(lists(OTHER), connector=others)) == NOTHING
