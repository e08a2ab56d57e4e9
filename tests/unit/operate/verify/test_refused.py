"""A table that cannot be verified is refused before Spark starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.context import Services
from operate.onboard import register
from operate.verify.batch import verify_tables
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

ORDERS, PARTS, GONE = (TableId("shop", "public", name) for name in ("orders", "parts", "gone"))


def test_tables_that_are_not_published_are_refused_without_spark(tmp_path: Path) -> None:
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    try:
        register(services, ORDERS)
        gone = replace(services.store.put(table_record(GONE)), state=State.RETIRED)
        services.store.put(gone)
        verified, refused = verify_tables(services, [ORDERS, PARTS, GONE])
        assert "run_context" not in services.__dict__, "it would have started Spark"
    finally:
        services.close()
    assert verified == []
    texts = {one.table: str(one.error) for one in refused}
    assert "is registered; only a published table" in texts[ORDERS]
    assert "not on the plan" in texts[PARTS]
    # Airflow's tasks leave offboarded tables alone by this.
    states = {one.table: one.error.context.get("state") for one in refused if one.error}
    assert states == {ORDERS: "registered", PARTS: None, GONE: "retired"}
