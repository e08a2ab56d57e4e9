"""The messages of commands about tables and captures that the state store has lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cdc.capture.captured_tables import CapturedTables
from cdc.capture.evidence import CaptureEvidence
from cdc.capture.unneeded_tables import of_unneeded
from cdc.config import parse
from cdc.debezium import CaptureNames, names
from cdc.runtime.progress import NullProgress
from cdc.sources.sent_table import SentTable
from cdc.store.lease import Lease
from cdc.store.table_state import State
from operate import check, run
from operate.bounded_calls import Overdue
from operate.cli.status import EMPTY_PLAN, show_status
from operate.conditions import Condition
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.forgotten_tables import also_captured, forgotten_tables
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.render import Output, Renderer
from operate.run import Runs
from operate.server_answers import Answers, CaptureAnswer
from operate.status import Status, status
from operate.transactions import Transactions
from operate.unused_slots import UnusedSlotWarnings
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.capture.capture_evidence import SLOT, SOUND
from tests.unit.cdc.configuration import minimal

LOST = TableId("shop", "crm", "clients")
DEFAULT, FAST = "tributary_shop_default", "tributary_shop_fast"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = minimal()
    document["tables"] = {"crm.*": {"tier": "fast"}}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    opened.store.put(table_record(base_path=opened.config.table_path(ORDERS)))
    yield opened
    opened.close()


class Told(Answers):
    """Fake answers of servers: the connectors, and by tier, the tables that a capture sends."""

    def __init__(
        self, services: Services, connectors: Sequence[str], **sent: Sequence[TableId]
    ) -> None:
        super().__init__(services)
        self._connectors, self._sent = connectors, sent

    def connectors(self) -> list[str]:
        return [*self._connectors]

    def capture(self, names: CaptureNames) -> CaptureAnswer:
        return CaptureAnswer(sends(names, self._sent.get(names.tier, ())), NOW, None)

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {}


class Away(Told):
    def connectors(self) -> list[str]:
        raise Overdue("Kafka Connect did not answer in time", remedy="Look at it.")


def sends(names: CaptureNames, tables: Iterable[TableId]) -> CaptureEvidence:
    members = {table: SentTable("ALTER PUBLICATION ...;", lambda _: False) for table in tables}
    return replace(SOUND, names=names, log=SLOT, members=members)


def fast(services: Services) -> CaptureNames:
    return names("shop", services.config.source("shop"), "fast")


def in_metrics(services: Services, found: Status) -> dict[str, float]:
    return {
        sample.labels["tier"]: sample.value
        for family in families(services.config, Facts({}, NOW, 0.5, found, None, {}))
        for sample in family.samples
        if sample.name == "tributary_capture_problem"
    }


def test_status_has_a_problem_of_a_capture_with_a_forgotten_table(services: Services) -> None:
    answers = Told(services, [DEFAULT], default=[ORDERS])
    assert not status(services, (), answers=answers, brief=True).failed
    found = status(
        services, (), answers=Told(services, [DEFAULT], default=[ORDERS, LOST]), brief=True
    )
    assert found.failed
    assert f"`tributary onboard {LOST}`" in str(found.captures[0].problem)
    assert found.captures[0].warning is None
    assert found.conditions[Condition.SILENT] == ["shop/default"]
    assert in_metrics(services, found) == {"default": 1.0}


def test_a_whole_capture_that_the_store_has_lost_is_shown_like_the_others(
    services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Told(services, [DEFAULT, FAST, "another"], default=[ORDERS], fast=[LOST])
    found = status(services, (), answers=answers, brief=True)
    assert [one.tier for one in found.captures] == ["default", "fast"]
    assert found.captures[0].problem is None
    assert f"capture shop/fast has {LOST}, which no table" in str(found.captures[1].problem)
    assert in_metrics(services, found) == {"default": 0.0, "fast": 1.0}
    chosen = status(services, [ORDERS], answers=answers, brief=True)
    assert [one.tier for one in chosen.captures] == ["default"]

    services.store.put(replace(services.store.tables()[0], state=State.RETIRED))
    show_status(
        Renderer(Output.TEXT),
        status(services, (), answers=Told(services, [FAST]), brief=True),
        named=False,
    )
    text = " ".join(capsys.readouterr().out.split())
    assert EMPTY_PLAN in text
    assert f"capture shop/fast has connector {FAST}, and no table on the plan needs it" in text


def test_captures_without_tables_are_those_of_the_configuration(services: Services) -> None:
    def found(*connectors: str) -> list[str]:
        left = also_captured(services, Told(services, connectors))
        return [one.names.connector for one in left]

    assert found(DEFAULT, "another") == []
    assert found(DEFAULT, FAST) == [FAST]
    assert also_captured(services, Away(services, [FAST])) == []
    build = services.store.put(table_record(LOST, State.REGISTERED, tier="fast", beside=True))
    assert found(DEFAULT, FAST) == []
    services.store.delete(build.table, beside=True)
    services.store.delete(ORDERS)
    assert found(DEFAULT, FAST) == [], "that is an empty store"


def test_the_first_onboarding_of_a_tier_is_no_loss(services: Services) -> None:
    """The onboarding creates the connector before it records the table."""
    names, everything = fast(services), services.store.tables()
    creating = Lease(services.store, names.resource, "another process")
    creating.acquire()
    assert of_unneeded(services.store, sends(names, [LOST]), everything).forgotten is None
    creating.release()
    assert of_unneeded(services.store, sends(names, [LOST]), everything).forgotten is not None


def test_runs_fail_while_the_store_has_lost_tables(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, records = fast(services), services.store.tables()
    seen = sends(services.capture(ORDERS), [ORDERS, LOST])
    of_default = of_unneeded(services.store, seen, records).forgotten
    context = SimpleNamespace(
        forgotten={seen.names.resource: of_default},
        config=services.config,
        kafka=None,
        predictions=SimpleNamespace(fresh_at=None),
        unchecked=[],
    )
    services.__dict__["run_context"] = context
    monkeypatch.setattr(services, "stream_evidence", lambda names: sends(names, [LOST]))
    monkeypatch.setattr(Transactions, "look", lambda _: None)
    monkeypatch.setattr(UnusedSlotWarnings, "look", lambda _: None)
    for name in ("silences", "expiring", "shortfalls_now", "over_limits"):
        monkeypatch.setattr(run, name, lambda *_: [])
    connectors = [DEFAULT, FAST]
    monkeypatch.setattr(run, "Answers", lambda found: Told(found, connectors))
    runs = Runs(services, services.store.tables)
    runs.watch()
    assert [one.capture.tier for one in runs.forgotten] == ["default", names.tier]
    assert runs.exit_code() is ExitCode.SOME_FAILED
    assert runs.conditions() == {Condition.SILENT: ["shop/default", "shop/fast"]}
    context.forgotten.clear()
    connectors.remove(FAST)
    runs.watch()
    assert runs.forgotten == []
    assert runs.exit_code() is ExitCode.OK


def test_what_a_run_has_seen_of_a_capture_counts_while_a_table_needs_it(services: Services) -> None:
    seen = sends(services.capture(ORDERS), [ORDERS, LOST])
    lost = of_unneeded(services.store, seen, services.store.tables()).forgotten
    services.__dict__["run_context"] = SimpleNamespace(forgotten={seen.names.resource: lost})
    answers = Told(services, [])
    assert forgotten_tables(services, answers, services.store.tables()) == [lost]
    assert forgotten_tables(services, answers, [table_record(state=State.RETIRED)]) == []


def test_check_has_an_error_with_the_command(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_other_settings", lambda *_: [])
    evidence = sends(services.capture(ORDERS), [ORDERS, LOST])
    of = CapturedTables(evidence.names, tuple(services.store.tables()))
    lines = check._capture(services, evidence, of, services.store.tables())
    (line,) = (one for one in lines if one.status == "error")
    assert line.name == "capture shop/default"
    assert f"has {LOST}, which no table on the plan is" in line.detail
    assert f"Then run `tributary onboard {LOST}`" in line.remedy
