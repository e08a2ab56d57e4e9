"""What a run asks about a capture, and how often."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from cdc.capture import checks
from cdc.capture.checks import CaptureChecks
from cdc.errors import ConnectError, KafkaError, SourceError
from cdc.store.table_state import State, TableRecord
from schemas.errors import RegistryError, TributaryError
from schemas.table import TableId


def record(name: str, source: str = "shop") -> TableRecord:
    return TableRecord(
        table=TableId(source, "public", name),
        state=State.INCREMENTAL,
        base_path="/lake",
        tier="default",
        topic="t",
        publication="p",
        updated_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("identity", SourceError),
        ("topic_configs", KafkaError),
        ("definition_changes", KafkaError),
        ("definition_changes", RegistryError),
        ("stored_position", KafkaError),
        ("captured_tables", ConnectError),
    ],
)
def test_who_does_not_answer_is_asked_once_for_all_tables_of_a_capture(
    monkeypatch: pytest.MonkeyPatch, asked: str, error: type[TributaryError]
) -> None:
    times: list[str] = []

    def down(*_: Any, **__: Any) -> NoReturn:
        times.append(asked)
        raise error("it is down", remedy="Wait.")

    def answers(name: str, value: Any) -> Any:
        return down if name == asked else lambda *_, **__: value

    for name in ("stored_position", "captured_tables", "definition_changes", "audit"):
        monkeypatch.setattr(checks, name, answers(name, ()))
    source = SimpleNamespace(
        identity=answers("identity", None), log_health=lambda _: None, audit_log=lambda **_: []
    )
    capture = SimpleNamespace(
        slot="s", connector="c", tells_definitions=True, evidence_topics=(), append=False
    )
    context = SimpleNamespace(
        sources={"shop": source, "other": source},
        capture=lambda _: capture,
        kafka=SimpleNamespace(topic_configs=answers("topic_configs", {})),
        registry=None,
        connect=SimpleNamespace(connector=lambda _: {}),
        config=SimpleNamespace(connect=SimpleNamespace(exactly_once=True)),
    )
    looks = CaptureChecks(cast("Any", context))
    for name in ("orders", "lines", "logs"):
        with pytest.raises(error, match="it is down"):
            looks.facts(record(name))
    assert len(times) == 1
    with pytest.raises(error):
        looks.facts(record("orders", "other"))
    assert len(times) == 2, "another capture may have other servers"


def test_what_keeps_changes_out_of_the_log_is_a_problem_of_every_table() -> None:
    """Idle tables have no look of their own at the log, and without events all are idle."""
    source = SimpleNamespace(
        identity=lambda: None,
        log_health=lambda _: None,
        audit_log=lambda *, append: [f"binlog_format is MIXED ({append})"],
    )
    capture = SimpleNamespace(
        slot="s", connector="c", tells_definitions=False, evidence_topics=(), append=True
    )
    context = SimpleNamespace(
        sources={"shop": source},
        capture=lambda _: capture,
        kafka=SimpleNamespace(topic_configs=lambda _: {}),
        connect=None,
    )
    facts = CaptureChecks(cast("Any", context)).facts(record("orders"))
    assert facts.problems_of(record("orders").table) == ("binlog_format is MIXED (True)",)
