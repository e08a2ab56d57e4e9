"""A source that does not answer, or a wildcard that matches nothing, stops no other table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cdc.config import parse
from cdc.errors import ConfigError, SourceError, UnreachableError
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres import source as postgres
from cdc.sources.source_facts import TableStats
from operate.cli import app
from operate.context import Services
from operate.discover import at_source
from operate.readiness_check import Examined, examine_all
from operate.table_outcome import Outcome
from schemas.errors import TributaryError
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal
from tests.unit.operate.onboarding import answering, some
from tests.unit.operate.onboarding import found as found_table

AWAY = UnreachableError("cannot connect to source crm", remedy="Start it.", role="admin")
CRM, CRM_2 = (TableId("crm", "public", name) for name in ("log", "mail"))
(ORDERS,) = some(1)


def document() -> dict[str, Any]:
    """A configuration of two sources."""
    made = minimal()
    made["sources"]["crm"] = made["sources"]["shop"]
    return made


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(document()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def failing(error: TributaryError, tried: list[object]) -> Callable[..., Any]:
    def fail(*asked: object) -> None:
        tried.extend(asked or ["capture_obstacle"])
        raise error

    return fail


def examined(
    services: Services, monkeypatch: pytest.MonkeyPatch, error: TributaryError, fails: str
) -> tuple[Examined, list[object]]:
    """Examine tables of two sources, of which `crm` fails; return also what `crm` was asked."""
    tried = list[object]()
    answering(monkeypatch, services.source("shop"))
    answering(monkeypatch, services.source("crm"))
    monkeypatch.setattr(services.source("crm"), fails, failing(error, tried))
    # One at a time, so that the calls are countable.
    monkeypatch.setattr("operate.readiness_check._PARALLEL", 1)
    return examine_all(services, [CRM, ORDERS, CRM_2]), tried


def test_the_other_tables_of_a_source_that_does_not_answer_are_refused_at_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection takes the time-out, so a thousand tables would take hours."""
    found, tried = examined(services, monkeypatch, AWAY, "table")
    assert found.replicable == [ORDERS]
    assert found.refused == {CRM: AWAY, CRM_2: AWAY}
    assert tried == [CRM]


@pytest.mark.parametrize(
    "error",
    [
        SourceError("the table is locked", remedy="Wait."),
        UnreachableError("the replica does not answer", remedy="Start it.", role="snapshot"),
    ],
)
def test_an_error_that_need_not_be_that_of_the_next_table_stops_one_only(
    services: Services, monkeypatch: pytest.MonkeyPatch, error: SourceError
) -> None:
    _, tried = examined(services, monkeypatch, error, "table")
    assert tried == [CRM, CRM_2]


def test_tables_of_a_source_that_dies_amid_their_examination_are_no_refusals_of_theirs(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several errors are joined to one of the table, which a wildcard then leaves out."""
    keyless = replace(found_table(CRM), primary_key=(), unique_indexes=())
    monkeypatch.setattr("tests.unit.operate.onboarding.found", lambda _: keyless)
    found, _ = examined(services, monkeypatch, AWAY, "capture")
    assert [found.refused[one] for one in (CRM, CRM_2)] == [AWAY, AWAY]


def test_a_source_that_cannot_say_whether_it_can_be_captured_fails_its_own_tables_only(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = SourceError("permission denied", remedy="Grant it.")
    found, _ = examined(services, monkeypatch, denied, "capture_obstacle")
    assert found.replicable == [ORDERS]
    assert found.refused == {CRM: denied, CRM_2: denied}


def lists(monkeypatch: pytest.MonkeyPatch, **of_source: Sequence[TableId] | TributaryError) -> None:
    """Let sources list tables, with their sizes and without, or fail."""

    def listed(source: postgres.PostgresSource) -> Sequence[TableId]:
        found = of_source[source.name]
        if isinstance(found, TributaryError):
            raise found
        return found

    def tables(self: postgres.PostgresSource) -> list[TableStats]:
        return [TableStats(one, "table", 1, 1, ("id",), "default", None) for one in listed(self)]

    def table_names(
        self: postgres.PostgresSource, of_schema: Callable[[str], bool], *, partitions: bool
    ) -> list[TableId]:
        assert not partitions
        return [one for one in listed(self) if of_schema(one.schema)]

    monkeypatch.setattr(postgres.PostgresSource, "tables", tables)
    monkeypatch.setattr(postgres.PostgresSource, "table_names", table_names)


def test_wildcards_go_on_with_the_sources_that_answer(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists(monkeypatch, shop=some(2), crm=AWAY)
    found = at_source(services, ["public.*", "*:archive.*", str(CRM)])
    assert found.tables == (*some(2), CRM)
    assert found.by_wildcard == {*some(2)}
    (problem,) = found.problems
    assert (type(problem), problem.message) == (UnreachableError, AWAY.message)
    assert "source crm match 'public.*', '*:archive.*'" in problem.remedy
    assert at_source(services, ["shop:public.*"]).problems == ()


def test_one_of_several_wildcards_may_match_nothing(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists(monkeypatch, shop=some(2), crm=[])
    found = at_source(services, ["public.*"], ["old.*", "older.*"])
    assert found.tables == tuple(some(2))
    assert [type(one) for one in found.problems] == [ConfigError, ConfigError]
    assert "'old.*' matches no table of the sources" in str(found.problems[0])
    assert at_source(services, [str(CRM), "old.*"]).tables == (CRM,)
    assert len(at_source(services, ["old.*", "older.*"]).problems) == 2
    with pytest.raises(ConfigError, match="matches no table"):
        at_source(services, ["old.*"])


def test_a_command_that_finds_no_table_fails_with_the_only_reason(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists(monkeypatch, shop=[], crm=AWAY)
    with pytest.raises(UnreachableError, match="source crm"):
        at_source(services, ["public.*"])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in a folder with a configuration of two sources."""
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document()))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, [*words, "--output", "json"])


@pytest.mark.parametrize("dry", [False, True])
def test_onboard_ends_with_3_and_onboards_the_rest(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, *, dry: bool
) -> None:
    lists(monkeypatch, shop=some(2), crm=AWAY)
    monkeypatch.setattr(
        "operate.onboard.onboard",
        lambda _, tables, **__: [Outcome(one, "registered") for one in tables],
    )
    monkeypatch.setattr("operate.dryrun.examine_all", lambda *_, **__: Examined())
    result = run("onboard", "public.*", "old.*", *(["--dry-run"] if dry else []))
    assert result.exit_code == 3
    shown = json.loads(result.stdout)
    assert [one["error"] for one in shown["problems"]] == ["UnreachableError"]
    assert dry or [one["table"] for one in shown["tables"]] == [*map(str, some(2))]


def test_discover_lists_the_tables_of_the_sources_that_answer(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists(monkeypatch, shop=some(2), crm=AWAY)
    answering(monkeypatch, postgres.PostgresSource)
    result = run("discover")
    assert result.exit_code == 3
    shown = json.loads(result.stdout)
    assert [one["table"] for one in shown["tables"]] == [*map(str, some(2))]
    assert [one["message"] for one in shown["problems"]] == [AWAY.message]
    assert run("discover", "crm").exit_code == 1
