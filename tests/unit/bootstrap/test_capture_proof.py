"""Captures that a bootstrap refuses before it records the start offsets O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap import capture_proof
from bootstrap.capture_proof import Capture
from bootstrap.errors import HandoffTimeoutError
from cdc.capture.evidence import CaptureEvidence, CleanupPolicy, ConnectorFacts, ConnectorHealth
from cdc.connect import ConnectorStatus
from cdc.debezium import CaptureNames
from cdc.errors import CaptureError, SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import NullProgress
from schemas.table import TableId

TABLE = TableId("shop", "public", "orders")
NAMES = CaptureNames("shop", "append", "p", "s", "c", "t", "postgres")
STARTING = ConnectorFacts(
    {}, (), None, ConnectorHealth(ConnectorStatus("c", "RUNNING", "w", tasks=()))
)
SOUND = CaptureEvidence(
    names=NAMES,
    log=cast("Any", SimpleNamespace(title="replication slot s", danger=None)),
    lost=None,
    unreadable=None,
    obstacles=(),
    server=cast("Any", None),
    topics={},
    connector=STARTING,
    stored=None,
)


def prove(patch: pytest.MonkeyPatch, evidence: CaptureEvidence, policy: str = "delete") -> None:
    patch.setattr(capture_proof, "gather", lambda *_, **__: evidence)
    proof = Capture(
        table=TABLE,
        topic="t.orders",
        names=NAMES,
        source=cast(
            "Any", SimpleNamespace(capture=lambda _: SimpleNamespace(audit_table=lambda _: []))
        ),
        connect=cast("Any", SimpleNamespace(wait_running=lambda *_, **__: None)),
        kafka=cast("Any", SimpleNamespace(topic_config=lambda _: {"cleanup.policy": policy})),
        definitions=cast("Any", None),
        sent=cast("Any", SimpleNamespace(exactly_once=True)),
        recovery=cast("Any", None),
        progress=NullProgress(),
    )
    losses = cast("Any", SimpleNamespace(note=lambda *_: None))
    proof.prove(cast("Any", SimpleNamespace(table=TABLE)), losses)


def wait(positions: Iterable[int], upto: int) -> None:
    """Wait with a timeout of 0 until the log is captured; the looks find the given positions."""
    places = iter(positions)
    log = SimpleNamespace(
        title="log",
        problem=lambda: None,
        captured=lambda *_, **__: Lsn(next(places)),
        facts=dict,
    )
    source = SimpleNamespace(
        capture=lambda _: SimpleNamespace(log_health=lambda: log), nudge=lambda: None
    )
    proof = Capture(
        table=TABLE,
        topic="t.orders",
        names=NAMES,
        source=cast("Any", source),
        connect=cast("Any", SimpleNamespace(status=lambda _: None)),
        kafka=cast(
            "Any", SimpleNamespace(high_watermarks=lambda _: {}, stable_offsets=lambda _: {})
        ),
        definitions=cast("Any", None),
        sent=cast("Any", SimpleNamespace(exactly_once=True)),
        recovery=cast("Any", SimpleNamespace(restart_if_failed=lambda *_: None)),
        progress=NullProgress(),
    )
    proof.wait_until_captured(Lsn(upto), timeout_s=0)


def test_a_connector_with_a_backlog_is_waited_for_as_long_as_it_moves_on() -> None:
    wait([1, 2, 3, 4, 5], upto=5)
    with pytest.raises(HandoffTimeoutError, match="captured up to 0/3, 0/5 is needed"):
        wait([1, 2, 3, 3, 4, 5], upto=5)


def test_a_connector_that_does_not_run_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    prove(monkeypatch, SOUND)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"connector": None}, "there is no connector c"),
        ({"lost": "is gone"}, "replication slot s is gone"),
        ({"obstacles": ("binlog_format is MIXED",)}, "binlog_format is MIXED"),
        (
            {"topics": {"t.transaction": CleanupPolicy("compact", lagging=False)}},
            "topic t.transaction has cleanup.policy=compact",
        ),
    ],
)
def test_each_grave_finding_of_the_capture_refuses_the_copy(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], named: str
) -> None:
    with pytest.raises(CaptureError, match="not captured in full") as refused:
        prove(monkeypatch, replace(SOUND, **changed))
    assert named in refused.value.message


def test_a_compacted_topic_refuses_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaptureError, match=r"topic t\.orders has cleanup\.policy=compact"):
        prove(monkeypatch, SOUND, "compact")


def test_a_server_that_does_not_answer_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="it is down"):
        prove(monkeypatch, replace(SOUND, server=SourceError("it is down", remedy="Wait.")))
