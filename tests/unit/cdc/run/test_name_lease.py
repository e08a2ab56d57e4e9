"""Outdated metastore names are replaced: after a process has lost its lease, and after an edit."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc.config.lake import CatalogConfig
from cdc.errors import FencedError, LakeError
from cdc.lake.metastore import CatalogEntry, OtherTableError
from cdc.run import metastore_name
from cdc.store.attempt import Attempt
from cdc.store.table_state import State
from cdc.store.tables import leases
from tests.unit.failing_command import TABLE, Command


@pytest.mark.parametrize("during", [True, False], ids=["while it sets the name", "before"])
def test_a_name_that_a_process_without_the_lease_has_set_is_set_again(
    command: Command, monkeypatch: pytest.MonkeyPatch, during: bool
) -> None:
    """The process's machine was suspended while another process published and named a new copy."""
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

    monkeypatch.setattr(metastore_name, "show", show)
    newest = store.newest
    if not during:

        def suspended(known: object) -> object:
            found = newest(record)
            monkeypatch.setattr(store, "newest", newest)
            lose()
            return found

        monkeypatch.setattr(store, "newest", suspended)
    with pytest.raises(FencedError):
        metastore_name.follow_name(context, record)
    known = store.get(TABLE)
    assert known is not None
    assert (shown, known.named) == (
        (["/lake/a"], None) if during else ([], "thrift://hive:9083 shop.orders /lake/b")
    )


@pytest.mark.parametrize("owner", ["own", "other"])
def test_the_former_name_is_removed_once_the_new_one_is_there(
    command: Command, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    """If the former name stayed, it would show a generation that gets no more changes."""
    store, done = command.services.store, list[str]()
    away = [True]

    def show(_spark: object, _metastore: str, entry: CatalogEntry) -> None:
        done.append(f"show {entry}")

    def forget(_spark: object, _metastore: str, entry: CatalogEntry) -> None:
        if away[0]:
            raise LakeError("the metastore is away", remedy="Start it.")
        if owner == "other":
            raise OtherTableError("it is another table's", remedy="Drop it.")
        done.append(f"forget {entry}")

    monkeypatch.setattr(metastore_name, "show", show)
    monkeypatch.setattr(metastore_name, "forget", forget)

    def follow(**templates: str) -> None:
        catalog = CatalogConfig(metastore="thrift://hive:9083", **templates)
        config = command.services.config.model_copy(update={"catalog": catalog})
        known = store.get(TABLE)
        assert known is not None
        metastore_name.follow_name(command.context(config=config), known)

    command.put(State.INCREMENTAL)
    follow()
    known = store.get(TABLE)
    assert known is not None
    assert known.shown_as == "shop_public.orders"
    store.put(replace(known, named=None))  # as after each commit
    with pytest.raises(LakeError, match="is away"):
        follow(table="{table}_v2")
    known = store.get(TABLE)
    assert known is not None
    assert known.shown_as == "shop_public.orders", "it is still to be removed"
    away[0], done[:] = False, []
    follow(table="{table}_v2")
    removed = [] if owner == "other" else ["forget shop_public.orders"]
    assert done == ["show shop_public.orders_v2", *removed]
    known = store.get(TABLE)
    assert known is not None
    assert known.shown_as == "shop_public.orders_v2"
    done.clear()
    follow(table="{table}_v2")
    assert done == ["show shop_public.orders_v2"]
