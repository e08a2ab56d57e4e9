"""A process that has lost its table's lease leaves no outdated name behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc.config.lake import CatalogConfig
from cdc.errors import FencedError
from cdc.lake.catalog import CatalogEntry
from cdc.run import catalog_name
from cdc.store.attempt import Attempt
from cdc.store.table_state import State
from cdc.store.tables import leases
from tests.unit.bootstrap.test_killed import TABLE, Command


@pytest.mark.parametrize("during", [True, False], ids=["while it sets the name", "before"])
def test_a_name_that_a_process_without_the_lease_has_set_is_set_again(
    command: Command, monkeypatch: pytest.MonkeyPatch, during: bool
) -> None:
    """Its machine was suspended, and another process has published and named a new copy."""
    store, shown = command.services.store, list[str]()
    catalog = CatalogConfig(metastore="thrift://hive:9083")
    context = command.context(
        config=command.services.config.model_copy(update={"catalog": catalog})
    )
    record = command.put(State.INCREMENTAL)

    def lose() -> None:
        with store.transaction() as connection:
            connection.execute(sa.delete(leases))
        newer = Attempt(UUID(int=2), datetime.now(timezone.utc), "/lake/b")
        known = store.get(TABLE)
        assert known is not None
        store.put(replace(known, attempt=newer, named="thrift://hive:9083 shop.orders /lake/b"))

    def show(_spark: object, _metastore: str, entry: CatalogEntry) -> None:
        shown.append(entry.path)
        if during:
            lose()

    monkeypatch.setattr(catalog_name, "show", show)
    newest = store.newest
    if not during:

        def suspended(known: object) -> object:
            found = newest(record)
            monkeypatch.setattr(store, "newest", newest)
            lose()
            return found

        monkeypatch.setattr(store, "newest", suspended)
    with pytest.raises(FencedError):
        catalog_name.follow_name(context, record)
    known = store.get(TABLE)
    assert known is not None
    assert (shown, known.named) == (
        (["/lake/a"], None) if during else ([], "thrift://hive:9083 shop.orders /lake/b")
    )
