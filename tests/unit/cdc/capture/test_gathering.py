"""Which questions are asked about a capture, how often, and the meaning of missing answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from cdc.capture import gathering
from cdc.capture.evidence import Beats
from cdc.capture.gathering import Captures
from cdc.capture.judgement import Severity, of_capture, stopping
from cdc.capture.log_looks import LogLooks
from cdc.capture.sent_records import SentRecords
from cdc.capture.task_looks import TaskLooks
from cdc.connect import ConnectorOwner, ConnectorStatus, TaskStatus
from cdc.debezium import ReportedStatements
from cdc.errors import ConnectError, KafkaError, SourceError
from cdc.log.continuity import Continuity, LogMark
from cdc.sources.sent_table import SentTable
from cdc.store.kept_task_looks import TaskLook
from cdc.store.log_marks import LogMarks
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord
from schemas.errors import RegistryError, TributaryError
from schemas.table import TableId
from tests.records import table_record

ASKED = (
    ("log_health", SourceError),
    ("problem", SourceError),
    ("unreadable", SourceError),
    ("continuity", SourceError),
    ("audit_source", SourceError),
    ("identity", SourceError),
    ("topic_configs", KafkaError),
    ("definitions", KafkaError),
    ("definitions", RegistryError),
    ("connector", ConnectError),
    ("captured_tables", ConnectError),
    ("stored_position", ConnectError),
)


def record(name: str, source: str = "shop") -> TableRecord:
    return table_record(
        table=TableId(source, "public", name),
        base_path="/lake",
        updated_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def records(*, exactly_once: bool) -> SentRecords:
    unused = cast("Any", None)
    return SentRecords(unused, unused, unused, exactly_once=exactly_once)


class ServerOpeners:
    """Fake servers that answer all questions except one."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        folder: Path,
        failing: str = "",
        error: type[TributaryError] = TributaryError,
        compared: Continuity | None = None,
    ) -> None:
        self.failing, self.error = failing, error
        self.store = Store(f"sqlite:///{folder / 'state.db'}")
        self.times: list[str] = []
        for name in ("stored_position", "captured_tables", "audit"):
            patch.setattr(gathering, name, self.answers(name, ()))
        patch.setattr(gathering, "stored_position", self.answers("stored_position", None))
        log = SimpleNamespace(title="the log", danger=None, problem=self.answers("problem", None))
        captured = SimpleNamespace(
            log_health=self.answers("log_health", log),
            sent_tables=None,
            unreadable=self.answers("unreadable", None),
            continuity=self.answers("continuity", compared),
            audit=self.answers("audit_source", ["binlog_format is MIXED"]),
        )
        self.source = SimpleNamespace(
            identity=self.answers("identity", None),
            capture=lambda _: captured,
            named_types=None,
        )
        running = ConnectorStatus("c", "RUNNING", "w", tasks=(TaskStatus(0, "RUNNING", "w"),))
        self.connect = SimpleNamespace(
            connector=self.answers("connector", {}),
            status=lambda _: running,
            owner=ConnectorOwner(),
        )

    def answers(self, name: str, value: Any) -> Any:
        def down(*_: Any, **__: Any) -> NoReturn:
            self.times.append(name)
            raise self.error("it is down", remedy="Wait.")

        return down if name == self.failing else lambda *_, **__: value

    def captures(self) -> Captures:
        def capture(of: TableRecord) -> Any:
            return SimpleNamespace(
                source=of.table.source,
                tier=of.tier,
                publication="p",
                slot=None,
                connector="c",
                kind="mysql",
                resource=f"the capture of {of.table.source}",
                reports_definitions=True,
                evidence_topics=(),
                heartbeat_topic="beats",
                append=False,
            )

        context = SimpleNamespace(
            sources={"shop": self.source, "other": self.source},
            capture=capture,
            store=self.store,
            kafka=SimpleNamespace(
                topic_configs=self.answers("topic_configs", {}),
                latest_record=lambda _: None,
                latest_records=self.answers("latest_records", []),
            ),
            registry=None,
            definitions=SimpleNamespace(
                of=self.answers("definitions", ReportedStatements("id", 0, 0))
            ),
            connected=lambda: self.connect,
            unneeded={},
            forgotten={},
            looks=LogLooks(self.store, cast("Any", None), cast("Any", None)),
            sent=records(exactly_once=True),
            config=SimpleNamespace(connect=SimpleNamespace(exactly_once=True)),
        )
        return Captures(cast("Any", context))


@pytest.mark.parametrize(("asked", "error"), ASKED)
def test_who_does_not_answer_is_asked_once_for_all_tables_of_a_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str, error: type[TributaryError]
) -> None:
    servers = ServerOpeners(monkeypatch, tmp_path, asked, error)
    captures = servers.captures()
    for name in ("orders", "lines", "logs"):
        if error is ConnectError:
            captures.evidence(record(name))
            continue
        with pytest.raises(error, match="it is down"):
            captures.evidence(record(name))
    assert len(servers.times) == 1
    if error is not ConnectError:
        with pytest.raises(error):
            captures.evidence(record("orders", "other"))
        assert len(servers.times) == 2, "another capture may have other servers"


def test_ends_of_tasks_that_no_look_has_judged_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders = record("orders")
    captures = ServerOpeners(monkeypatch, tmp_path).captures()
    assert "there is no heartbeat" in str(captures.unjudged(orders))

    def down(*_: Any) -> NoReturn:
        raise TributaryError("it is down", remedy="Wait.")

    monkeypatch.setattr(TaskLooks, "follow", down)
    captures = ServerOpeners(monkeypatch, tmp_path).captures()
    assert (captures.unjudged(orders), captures.doubt(orders)) == (
        "the ends of the tasks of connector c are not judged: it is down",
        None,
    )
    look = TaskLook("a", datetime(2026, 1, 2, tzinfo=timezone.utc), {})
    monkeypatch.setattr(TaskLooks, "follow", lambda *_: look)
    captures = ServerOpeners(monkeypatch, tmp_path).captures()
    assert captures.unjudged(orders) is None


def test_a_connect_that_is_away_keeps_no_other_answer_from_being_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = ServerOpeners(monkeypatch, tmp_path, "connector", ConnectError)
    evidence = servers.captures().evidence(record("orders"))
    found = of_capture(evidence)
    assert [one.severity for one in found] == [Severity.INCOMPLETE, Severity.UNKNOWN]
    assert stopping(found) == ["binlog_format is MIXED"]
    with pytest.raises(ConnectError):
        evidence.require_answers()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_log_is_asked_with_what_the_connector_promises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, exactly_once: bool
) -> None:
    servers, asked = ServerOpeners(monkeypatch, tmp_path), list[object]()

    def problem(_stored: object, *, exactly_once: bool) -> None:
        asked.append(exactly_once)

    log = SimpleNamespace(
        title="the log", danger=None, problem=problem, confirmed_after=lambda *_, **__: None
    )
    servers.source.capture(None).log_health = lambda: log
    captures = servers.captures()
    captures._context.sent = records(exactly_once=exactly_once)  # type: ignore[misc]
    captures.evidence(record("orders"))
    assert asked == [exactly_once]


def test_the_log_is_compared_with_what_the_connector_has_captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log is not compared with Connect's stored position, which lags after a worker's kill."""
    servers, asked = ServerOpeners(monkeypatch, tmp_path), list[object]()

    def problem(captured: object, **_: object) -> None:
        asked.append(captured)

    log = SimpleNamespace(title="the log", danger=None, problem=problem)
    servers.source.capture(None).log_health = lambda: log
    captures, captured = servers.captures(), object()
    made = SimpleNamespace(exactly_once=False, answer=lambda *_: captured)
    made.using, made.beats = lambda _: made, lambda *_: Beats()
    captures._context.sent = made  # type: ignore[misc,assignment]
    assert captures.evidence(record("orders")).stored_position is captured
    assert asked == [captured]


def test_the_heartbeats_of_another_installation_are_a_loss_of_the_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = ServerOpeners(monkeypatch, tmp_path)
    captures, found = servers.captures(), Beats(strangers="topic beats has heartbeats in turns")
    made = SimpleNamespace(exactly_once=True, answer=lambda *_: None, beats=lambda *_: found)
    made.using = lambda _: made
    captures._context.sent = made  # type: ignore[misc,assignment]
    orders = record("orders")
    assert str(found.strangers) in stopping(of_capture(captures.evidence(orders)))
    (loss,) = captures.losses(orders).values()
    assert str(found.strangers) in loss.what


def test_heartbeats_that_cannot_be_read_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = ServerOpeners(monkeypatch, tmp_path, "latest_records", KafkaError)
    evidence = servers.captures().evidence(record("orders"))
    assert isinstance(evidence.beats.trouble, KafkaError)
    assert evidence.errors == []


def test_a_loss_is_counted_once_for_each_look_at_a_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = ServerOpeners(monkeypatch, tmp_path)
    for look in (1, 2):
        captures = servers.captures()
        for name in ("orders", "lines"):
            captures.evidence(record(name))
        seen = Losses(servers.store).seen("the capture of shop")
        assert seen == captures.losses(record("orders"))
        assert [(scope, loss.times, loss.what) for scope, loss in seen.items()] == [
            ("the capture of shop", look, "binlog_format is MIXED")
        ]


def test_a_log_that_lost_commits_is_a_loss_of_all_tables_of_its_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = LogMark("server", "binlog.000008", "0-1-9")
    compared = Continuity(None, now, "lacks transactions 0-1-7")
    servers = ServerOpeners(monkeypatch, tmp_path, compared=compared)
    evidence = servers.captures().evidence(record("orders"))
    found = [one for one in of_capture(evidence) if one.severity is Severity.LOST]
    assert [one.message for one in found] == ["the log lacks transactions 0-1-7"]
    (loss,) = Losses(servers.store).seen("the capture of shop").values()
    assert "the log lacks transactions 0-1-7" in loss.what
    assert LogMarks(servers.store).of("the capture of shop") == now


def test_a_loss_against_a_mark_that_was_replaced_meanwhile_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another process has counted the loss already, or a command has created the slot again."""
    before, now = LogMark("server", "", "9 900"), LogMark("server", "", "1 100")
    compared = Continuity(before, now, "was recreated")
    servers = ServerOpeners(monkeypatch, tmp_path, compared=compared)
    evidence = servers.captures().evidence(record("orders"))
    assert [one for one in of_capture(evidence) if one.severity is Severity.LOST] == []
    assert LogMarks(servers.store).of("the capture of shop") is None


def test_all_captures_of_tables_are_looked_at_also_those_of_next_generations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without these looks, a loss that begins and ends during a copy would leave no trace."""
    servers = ServerOpeners(monkeypatch, tmp_path)
    orders = servers.store.put(record("orders"))
    facts = {"tier": "fast", "beside": True}
    copied = replace(orders, state=State.BOOTSTRAPPING, version=0, **facts)
    joining = replace(record("lines"), state=State.REGISTERED, **facts | {"tier": "slow"})
    builds = [servers.store.put(copied), servers.store.put(joining)]
    captures = servers.captures()
    captures.look_at_all([orders, record("lines")])
    assert captures.losses(orders)
    assert captures.losses(builds[0])
    with pytest.raises(KeyError):
        captures.losses(builds[1])  # its capture may still be in the making


def test_tables_that_nothing_needs_are_named_once_and_again_after_they_were_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers, sent = ServerOpeners(monkeypatch, tmp_path), dict[TableId, SentTable]()
    servers.store.put(record("orders"))
    servers.source.capture(None).sent_tables = SimpleNamespace(added=lambda: sent)
    monkeypatch.setattr(gathering, "captured_tables", lambda *_: None)
    captures = servers.captures()
    lost = TableId("shop", "public", "orders_2023")

    def warned() -> int:
        caplog.clear()
        captures.gather_again(record("orders"))
        return sum("has shop:public.orders_2023, which" in one for one in caplog.messages)

    assert warned() == 0
    sent[lost] = SentTable("ALTER PUBLICATION p DROP TABLE ONLY orders_2023;", lambda _: False)
    assert [warned(), warned()] == [1, 0]
    sent.clear()
    assert warned() == 0
    sent[lost] = SentTable("ALTER PUBLICATION p DROP TABLE ONLY orders_2023;", 8)
    assert warned() == 1


def test_a_server_that_does_not_answer_delays_its_own_captures_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), queue.Queue[str]()
    evidence = SimpleNamespace(errors=())

    def gathered(_self: Captures, source: str) -> Any:
        asked.put(source)
        assert source != "dead" or answers.wait(20.0)
        return evidence

    monkeypatch.setattr(Captures, "_gathered", gathered)
    context = cast("Any", SimpleNamespace(capture=lambda record: record.table.source))
    captures = Captures(context)
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(captures.evidence, record("one", source="dead"))
        assert asked.get(timeout=20.0) == "dead"
        try:
            other = pool.submit(captures.evidence, record("two", source="alive"))
            assert other.result(20.0) is evidence
            assert not waits.done()
        finally:
            answers.set()
        assert waits.result(20.0) is evidence


def test_evidence_that_is_gathered_again_is_newer_than_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may be gathering it at this moment, from servers as they were before."""
    answers, asked = threading.Event(), queue.Queue[int]()

    def gathered(_self: Captures, _source: str) -> Any:
        number = asked.qsize()
        asked.put(number)
        assert number > 0 or answers.wait(20.0)
        return SimpleNamespace(errors=(), number=number)

    monkeypatch.setattr(Captures, "_gathered", gathered)
    context = cast("Any", SimpleNamespace(capture=lambda record: record.table.source))
    captures, one = Captures(context), record("one")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(captures.evidence, one)
        try:
            while asked.empty():
                threading.Event().wait(0.005)
            again = pool.submit(captures.gather_again, one)
            threading.Event().wait(0.05)
        finally:
            answers.set()
        numbers = [cast("Any", done.result(20.0)).number for done in (first, again)]
    assert numbers == [0, 1]
