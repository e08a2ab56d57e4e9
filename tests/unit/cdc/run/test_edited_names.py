"""Runs and copies stop at a table whose edited settings give it another capture or folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from bootstrap.handoff import bootstrap_table
from bootstrap.resync import _begin_next_generation, resync_table
from cdc.config import parse
from cdc.errors import ConfigError, LakeError
from cdc.run import RunContext, idle_tables, run_table
from cdc.run import table as run_module
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.table_state import State, TableRecord
from operate.context import Services
from operate.onboard import register
from tests.records import NOW, ORDERS
from tests.unit.cdc.configuration import minimal

EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "topic_prefix": ({"topic_prefix": "v2_{tier}"}, "sources.shop.topic_prefix gave shop_default"),
    "slot": ({"slot": "v2_{tier}"}, "sources.shop.slot gave tributary_shop_default"),
    "publication": ({"publication": "v2_{tier}"}, "and gives v2_default now"),
    "lake": ({}, "but lake.url and its name now give s3a://elsewhere/lake/shop/public/orders"),
}


def services(folder: Path, edit: str | None = None) -> Services:
    """The services of a process that has read the configuration, with one edit."""
    document = minimal()
    if edit is not None:
        document["sources"]["shop"] |= EDITS[edit][0]
    if edit == "lake":
        document["lake"] = {"url": "s3a://elsewhere/lake"}
    opened = Services(parse(yaml.safe_dump(document), base=folder), NullProgress())
    opened.__dict__.update(kafka=None, schemas=None, connect=None)
    return opened


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableRecord]:
    """A table that runs follow, onboarded before the edit."""
    monkeypatch.setattr(Services, "spark", None)
    monkeypatch.setattr(RunContext, "spark", None)
    before = services(tmp_path)
    register(before, ORDERS)
    record = before.store.get(ORDERS)
    assert record is not None
    attempt = Attempt(UUID(int=1), NOW, f"{record.base_path}/attempt=1")
    yield before.store.put(replace(record, state=State.INCREMENTAL, attempt=attempt))
    before.close()


@pytest.mark.parametrize("edit", EDITS)
def test_a_run_stops_the_table_by_the_name_of_the_setting(
    followed: TableRecord, tmp_path: Path, edit: str
) -> None:
    context = services(tmp_path, edit).run_context
    assert idle_tables.has_edited_settings(context, followed), "an idle table is due"
    result = run_table(context, followed)
    assert result.error is not None
    assert EDITS[edit][1] in result.error.message
    assert result.state is State.FAILED
    assert context.capture(followed).topic_prefix == "shop_default", "as the connector writes"


def test_the_table_goes_on_when_the_setting_is_back(
    followed: TableRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(*_: object) -> None:
        raise LakeError("the run has reached the lake", remedy="Nothing.")

    monkeypatch.setattr(run_module, "check_serving", reached)
    context = services(tmp_path).run_context
    assert not idle_tables.has_edited_settings(context, followed)
    result = run_table(context, followed)
    assert result.error is not None
    assert "reached the lake" in result.error.message


@pytest.mark.parametrize("edit", EDITS)
def test_no_copy_begins(followed: TableRecord, tmp_path: Path, edit: str) -> None:
    """Before, a copy took its O from the former topic, to which nothing was written any more."""
    context, nothing = services(tmp_path, edit).run_context, cast("Any", None)
    context = replace(context, sources={"shop": nothing})
    registered = replace(followed, state=State.REGISTERED, attempt=None)
    with pytest.raises(ConfigError, match="was onboarded"):
        bootstrap_table(context, nothing, registered)
    with pytest.raises(ConfigError, match="was onboarded"):
        resync_table(context, nothing, followed)


def test_the_next_generation_has_the_same_capture(followed: TableRecord, tmp_path: Path) -> None:
    build = _begin_next_generation(services(tmp_path).run_context, followed, followed.captured)
    assert build.capture == followed.capture
    assert build.capture is not None
