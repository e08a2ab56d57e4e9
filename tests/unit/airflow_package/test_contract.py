"""Facts about Tributary that tributary-airflow repeats, since it does not import it, are true.

These tests compare the package's modules that need no Airflow with Tributary. The package's own
tests run in a separate environment (`make test-airflow`).
"""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tributary_airflow import command, outcome
from tributary_airflow.layout import LayoutError, Pattern, Table, layout_of
from typer.core import TyperGroup

import cdc.errors
import schemas.errors
from cdc.config import parse
from cdc.config.patterns import Pattern as OwnPattern
from cdc.store.table_state import State
from operate.cli import app
from operate.cli.options import Invocation
from operate.conditions import Condition
from operate.exit_codes import ExitCode
from schemas.errors import InvalidIdentifierError, TributaryError
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ROOT = cast("TyperGroup", typer.main.get_command(app))
NAMES = st.text('ab."*?[]!+_ö $-', min_size=1, max_size=6)
TABLES = st.builds(TableId, st.just("shop"), NAMES, NAMES)


def test_the_exit_codes_are_those_of_the_commands() -> None:
    known = (outcome.OK, outcome.ERROR, outcome.USAGE, outcome.SOME_FAILED, outcome.NEEDS_BOOTSTRAP)
    assert known == tuple(ExitCode)


def test_errors_conditions_and_states_have_the_names_that_commands_print() -> None:
    kinds = {**vars(schemas.errors), **vars(cdc.errors)}
    for name in outcome.PERMANENT:
        assert issubclass(kinds[name], TributaryError), name
    assert set(outcome.RUN_CONDITIONS) <= {one.value for one in Condition}
    copying = {State.REGISTERED, State.BOOTSTRAPPING, State.CATCHING_UP}
    assert {State(one) for one in outcome.COPYING} == copying
    known = (outcome.FOLLOWED, outcome.PAUSED, outcome.NEEDS_COPY)
    assert known == (State.INCREMENTAL, State.PAUSED, State.NEEDS_BOOTSTRAP)


@pytest.mark.parametrize(
    "words",
    [
        command.onboard(["public.*"], strict=True),
        command.run(["public.orders"], None, outcome.RUN_CONDITIONS),
        command.run([], "critical", outcome.TABLE_CONDITIONS),
        command.status(["public.orders"], "critical"),
        command.complete("public.orders"),
        command.complete("public.orders", "2026-11-23T10"),
        command.verify(["public.orders"], max_seconds=60, sample=None, go_on=True),
        command.verify(["public.orders"], max_seconds=None, sample=0.05, go_on=False),
        command.checks(["public.orders"], everything=False, names=["whole"]),
        command.checks([], everything=True, names=[]),
        command.of_tables("bootstrap", ["public.orders"]),
        command.of_tables("resync", ["public.orders"]),
        command.of_tables("retry", ["public.orders"]),
        command.of_tables("generations remove", ["public.orders"]),
        ["check"],
    ],
    ids=" ".join,
)
def test_the_command_lines_parse(words: list[str]) -> None:
    _, *arguments = command.Program(config="tributary.yaml").argv(*words)
    found: Any = ROOT
    context = typer.Context(ROOT, obj=Invocation())
    while isinstance(found, TyperGroup):
        found = found.commands[arguments.pop(0)]
    with found.make_context(found.name, arguments, parent=context) as made:
        assert made.params["output"].value == "json"
        assert str(made.params["config"]) == "tributary.yaml"


@given(TABLES)
def test_names_of_tables_are_printed_and_read_alike(table: TableId) -> None:
    read = Table.parse(str(table))
    assert (read.source, read.schema, read.name) == (table.source, table.schema, table.name)
    assert str(read) == str(table)


@given(st.text('ab.:"*?[]!+-', min_size=1, max_size=12), TABLES)
def test_patterns_match_and_rank_alike(text: str, table: TableId) -> None:
    try:
        own = OwnPattern.parse(text)
    except InvalidIdentifierError:
        with pytest.raises(LayoutError):
            Pattern.parse(text)
        return
    found = Pattern.parse(text)
    assert found.matches(Table(table.source, table.schema, table.name)) == own.matches(table)
    assert found.specificity == own.specificity


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "tier": st.sampled_from(["hot", "cold"]),
        "freshness_target_s": st.integers(1, 9),
        "completeness": st.sampled_from(
            ["hour", "day", {"by": "day", "zone": "Europe/Zurich"}, {"by": "hour"}]
        ),
    },
)
KEYS = ["*", "public.*", "*.orders", "public.orders", "shop:public.orders", "public.o*", "shop:*.*"]


@given(SETTINGS, st.dictionaries(st.sampled_from(KEYS), SETTINGS), st.integers(0, 9))
def test_a_table_has_the_same_tier_target_and_periods(
    defaults: dict[str, Any], tables: dict[str, Any], of_tier: int
) -> None:
    tiers = {"hot": {"freshness_target_s": of_tier}} if of_tier else {}
    document = minimal() | {"defaults": defaults, "tables": tables, "tiers": tiers}
    document["connect"] = document["connect"] | {"exactly_once": True}
    (source,) = document["sources"]
    tables = {key.replace("shop:", f"{source}:"): found for key, found in tables.items()}
    document["tables"] = tables
    config = parse(yaml.safe_dump(document))
    settings = config.table_settings(TableId(source, "public", "orders"))
    found = {str(one.table): one for one in layout_of(document, [f"{source}:public.orders"]).tables}
    one = found[f"{source}:public.orders"]
    periods = None if settings.completeness is None else settings.completeness.by
    assert (one.tier, one.target_s, one.periods) == (
        *(settings.tier, settings.freshness_target_s, periods),
    )
