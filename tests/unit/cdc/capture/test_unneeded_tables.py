"""Which tables of a publication no table on the plan needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.capture.evidence import CaptureEvidence
from cdc.capture.judgement import Finding, stopping
from cdc.capture.unneeded_tables import of_unneeded
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from cdc.store.table_state import State, TierCapture
from schemas.table import TableId
from tests.records import ORDERS, table_record
from tests.unit.cdc.capture.test_judgement import DOWN, SOUND

RENAMED = TableId("shop", "public", "orders_2023")
DROP = 'ALTER PUBLICATION "p" DROP TABLE ONLY "public"."orders_2023";'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    opened.put(table_record(ORDERS))
    yield opened
    opened.close()


def sends(*tables: TableId) -> CaptureEvidence:
    return replace(SOUND, members=dict.fromkeys(tables, DROP))


def found(store: Store, evidence: CaptureEvidence) -> Finding:
    finding = of_unneeded(store, evidence)
    assert finding is not None
    return finding


def test_a_table_that_is_not_on_the_plan_is_named_with_the_statement_to_paste(
    store: Store,
) -> None:
    assert of_unneeded(store, sends(ORDERS)) is None
    finding = found(store, sends(ORDERS, RENAMED))
    assert finding.message.startswith("publication p has shop:public.orders_2023, which no table")
    assert finding.remedy.endswith(f"run on the source: {DROP}")
    assert stopping([finding]) == [], "nothing is lost"


def test_a_table_needs_its_capture_until_it_is_offboarded(store: Store) -> None:
    record = store.put(table_record(RENAMED, tier="fast"))
    assert of_unneeded(store, sends(RENAMED)) is not None, "its capture is another one"
    record = store.put(replace(record, other=TierCapture("default", "t", None)))
    assert of_unneeded(store, sends(RENAMED)) is None, "it moves"
    record = store.put(replace(record, other=None))
    store.put(table_record(RENAMED, State.REGISTERED, beside=True))
    assert of_unneeded(store, sends(RENAMED)) is None, "its next generation follows this capture"
    store.delete(RENAMED, beside=True)
    store.put(replace(record, tier="default", state=State.RETIRED))
    assert of_unneeded(store, sends(RENAMED)) is not None


def test_a_table_that_is_about_to_be_put_on_the_plan_is_not_named(store: Store) -> None:
    with Leases(store).hold(SOUND.names.resource):
        assert of_unneeded(store, sends(RENAMED)) is None
    assert of_unneeded(store, sends(RENAMED)) is not None


def test_a_source_that_does_not_answer_has_no_such_tables(store: Store) -> None:
    assert of_unneeded(store, replace(SOUND, members=DOWN)) is None
