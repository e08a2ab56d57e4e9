"""A table's settings are found without comparing the table with each section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import Config, TableSettings, parse
from cdc.config.matching import Matching
from cdc.config.patterns import Pattern
from cdc.config.tables import overlay
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

NAMES = st.sampled_from(["a", "b", "ab", "a*", "?", "[ab]+", '"a*"', "*"])
SOURCES = st.sampled_from(["", "", "", "shop:", "s*:", "crm:"])
KEYS = st.builds("{}{}.{}".format, SOURCES, NAMES, NAMES) | st.just("*")
TABLES = [
    TableId(source, schema, name)
    for source in ("shop", "crm")
    for schema in ("a", "ab", "a*")
    for name in ("a", "b", "ab", "a*", "c")
]


def one_by_one(
    table: TableId, base: TableSettings, sections: dict[str, TableSettings]
) -> TableSettings:
    """The settings of a table, found by comparing it with each section, the most specific last."""
    found = []
    for text, settings in sections.items():
        for one in settings.from_ or (text,):
            pattern = Pattern.parse(one)
            if pattern.matches(table):
                found.append((pattern.specificity, settings))
    return overlay(base, (settings for _, settings in sorted(found, key=lambda pair: pair[0])))


@given(
    st.dictionaries(KEYS, st.integers(min_value=1, max_value=9), max_size=6),
    st.lists(KEYS.filter(lambda key: key != "*"), max_size=2),
)
def test_a_table_has_the_settings_of_each_section_that_matches(
    chosen: dict[str, int], fed: list[str]
) -> None:
    sections = {key: TableSettings(chunk_rows=1000 + rows) for key, rows in chosen.items()}
    if fed:
        sections["all.of"] = TableSettings.model_validate({"from": fed, "max_events_per_run": 7})
    base = TableSettings(freshness_target_s=60)
    found = Matching(base, sections, {})
    for table in TABLES * 2:
        assert found.of(table).settings == one_by_one(table, base, sections), table


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"matches": 0, "overlay": 0}
    real_matches = Pattern.matches

    def matches(pattern: Pattern, table: TableId) -> bool:
        counts["matches"] += 1
        return real_matches(pattern, table)

    def merged(*given: Any) -> TableSettings:
        counts["overlay"] += 1
        return overlay(*given)

    monkeypatch.setattr(Pattern, "matches", matches)
    monkeypatch.setattr("cdc.config.matching.overlay", merged)
    return counts


def with_sections(folder: Path, **tables: dict[str, Any]) -> Config:
    named = {f"public.{name}": settings for name, settings in tables.items()}
    text: dict[str, Any] = minimal() | {"tables": named}
    return parse(yaml.safe_dump(text), base=folder)


def test_a_thousand_tables_with_a_section_each_are_found_by_name(
    tmp_path: Path, counted: dict[str, int]
) -> None:
    """Comparing each table with each section took 5 ms per table, and 17 s per round of a fleet."""
    names = {f"t{number}": {"freshness_target_s": 60 + number % 7} for number in range(1000)}
    config = with_sections(tmp_path, **names)
    counted.update(matches=0, overlay=0)
    tables = [TableId("shop", "public", f"t{number}") for number in range(3000)]
    for _ in range(5):
        found = [config.settings_on_plan(table, "default").freshness_target_s for table in tables]
    assert found[:8] == [60, 61, 62, 63, 64, 65, 66, 60]
    assert found[2999] == TableSettings().freshness_target_s
    assert counted == {"matches": 1000, "overlay": 1001}, "once for each section, not for each call"


def test_a_changed_configuration_has_its_own_settings(tmp_path: Path) -> None:
    orders = TableId("shop", "public", "orders")
    config = with_sections(tmp_path, orders={"freshness_target_s": 60})
    again = with_sections(tmp_path, orders={"freshness_target_s": 60})
    assert config.table_settings(orders).freshness_target_s == 60
    assert config == again, "what is known of the sections is no part of the value"
    other = config.model_copy(
        update={"tables": {"public.orders": TableSettings(freshness_target_s=90)}}
    )
    assert other.table_settings(orders).freshness_target_s == 90
    slow = config.model_copy(update={"defaults": TableSettings(freshness_target_s=7200)})
    assert slow.table_settings(TableId("shop", "public", "t")).freshness_target_s == 7200
    assert config.table_settings(orders).freshness_target_s == 60
