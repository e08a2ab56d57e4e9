"""A table that cannot be verified is refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.onboard import register
from operate.verify.batch import verify_tables
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS, PARTS = TableId("shop", "public", "orders"), TableId("shop", "public", "parts")


def test_tables_that_are_not_published_are_refused_without_spark(tmp_path: Path) -> None:
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    try:
        register(services, ORDERS)
        verified, refused = verify_tables(services, [ORDERS, PARTS])
        assert "run_context" not in services.__dict__, "it would have started Spark"
    finally:
        services.close()
    assert verified == []
    texts = {one.table: str(one.error) for one in refused}
    assert "is registered; only a published table" in texts[ORDERS]
    assert "not on the plan" in texts[PARTS]
