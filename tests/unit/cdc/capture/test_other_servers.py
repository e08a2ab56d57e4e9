"""Which heartbeats show that another installation writes to the topics of a capture."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any, cast

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.other_servers import other_server
from cdc.capture.sent_records import SentRecords
from cdc.debezium import CaptureNames, Heartbeat
from cdc.errors import KafkaError, SourceError
from cdc.kafka import KafkaRecord
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import CopyView
from schemas.avro import field_name
from schemas.table import TableId
from tests.records import READY, table_record
from tests.unit.cdc.task_topics import START, headers

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
MARIADB = replace(NAMES, kind="mariadb")
OURS, OTHER, FORMER = "71", "72", "70"


def beats(*sent: str) -> list[Heartbeat]:
    """Heartbeats, each written as the name of its task and its server."""
    return [
        Heartbeat("s", one.partition(" ")[2], 1, START, None, offset, one.partition(" ")[0])
        for offset, one in enumerate(sent)
    ]


def found(
    sent: list[Heartbeat],
    here: str | None = OURS,
    copied: set[str] | None = None,
    names: CaptureNames = NAMES,
) -> str | None:
    return other_server(names, sent, here, lambda: {OURS} if copied is None else copied)


@pytest.mark.parametrize("names", [NAMES, MARIADB])
@pytest.mark.parametrize("here", [OURS, None])
def test_heartbeats_of_two_servers_in_turns_are_named(
    names: CaptureNames, here: str | None
) -> None:
    problem = found(beats("a 71", "b 72", "a 71"), here, names=names) or ""
    assert "has heartbeats of servers 71 and 72 in turns" in problem
    assert ("source shop is server 71" in problem) is (here == OURS)
    assert found(beats("b 72", "a 71", "a 71", "b 72"), here, names=names)


@pytest.mark.parametrize(
    "sent",
    [
        (),
        ("a 71",),
        ("a 71", "a 71", "b 71", "b 71"),
        ("a 71", "b 71", "a 71"),
        ("a 70", "a 70", "b 71", "b 71"),
        ("a 71", "b 70", "b 70", "c 71", "c 71"),
        ("a 71", "a 70", "a 71"),
    ],
)
def test_one_installation_is_named_at_no_restart_failover_or_failback(
    sent: tuple[str, ...],
) -> None:
    """Each start of a task has a new name, so the heartbeats of one name are consecutive."""
    assert found(beats(*sent), OURS, {FORMER, OURS}) is None


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([FORMER, OURS])), max_size=6),
)
def test_servers_that_follow_each_other_are_never_another_installation(
    tasks: list[tuple[int, str]],
) -> None:
    sent = [f"t{task} {server}" for task, (many, server) in enumerate(tasks) for _ in range(many)]
    assert found(beats(*sent), OURS, {FORMER, OURS}) is None
    assert found(beats(*sent), FORMER, {FORMER, OURS}) is None


def test_the_heartbeats_of_another_server_alone_are_named() -> None:
    """The heartbeats of another installation hide that this one's connector does not run."""
    alone = beats("b 72", "b 72")
    problem = found(alone) or ""
    assert "is of server 72, but source shop is server 71" in problem
    assert found(alone, here=None) is None, "the primary does not answer"
    assert found(alone, copied=set()) is None, "no table is copied yet: onboarding judges that"
    assert found(alone, copied={OURS, OTHER}) is None, "a table was copied from that server"
    assert found(alone, names=MARIADB) is None, "heartbeats name the server in another way"


def heartbeat(offset: int, task: str, server: str) -> KafkaRecord:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"after": row(server)})
    value = b"\0\0\0\0\0" + out.getvalue()
    return KafkaRecord(NAMES.heartbeat_topic, 0, offset, b"", value, START, headers(task))


def row(server: str) -> dict[str, Any]:
    return {
        "source": "s",
        field_name("system_identifier"): server,
        "timeline": 1,
        field_name("beat_at"): "2026-01-02T00:00:00Z",
    }


SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "after",
            "type": {
                "type": "record",
                "name": "Value",
                "fields": [
                    {"name": name, "type": "int" if name == "timeline" else "string"}
                    for name in row("")
                ],
            },
        }
    ],
}


class Registry:
    def schema(self, _schema_id: int) -> str:
        return json.dumps(SCHEMA)


class Kafka:
    """A cluster with heartbeats, or one that does not answer."""

    def __init__(self, *records: KafkaRecord, away: bool = False) -> None:
        self.records, self.away = records, away

    def latest_records(self, _topic: str) -> list[KafkaRecord]:
        if self.away:
            raise KafkaError("it is away", remedy="Wait.")
        return [*self.records]


class Store:
    """The records of one table that was copied from a server."""

    def __init__(self, server: str, tier: str = "default") -> None:
        view = CopyView("", "0/1", START, False, server, 1)
        attempt = replace(READY, view=view, server=None)
        self._record = table_record(TableId("shop", "public", "t"), tier=tier, attempt=attempt)

    def tables(self) -> list[Any]:
        return [self._record]

    def builds(self) -> list[Any]:
        return []


def sent_records(kafka: Kafka, store: Store) -> SentRecords:
    return SentRecords(
        cast("Any", store),
        lambda: cast("Any", kafka),
        lambda: cast("Any", Registry()),
        exactly_once=True,
    )


def test_heartbeats_are_read_with_their_task_and_server() -> None:
    here = ServerIdentity(OURS, 1, in_recovery=False)
    away = SourceError("it is away", remedy="Wait.")
    mixed = Kafka(*(heartbeat(n, "ab"[n % 2], [OURS, OTHER][n % 2]) for n in range(4)))
    seen = sent_records(mixed, Store(OURS)).beats(NAMES, here)
    assert "in turns" in (seen.strangers or "")
    assert (seen.newest and seen.newest.topic_offset) == 3
    assert seen.record == mixed.records[-1]
    alone = Kafka(heartbeat(0, "b", OTHER))
    assert sent_records(alone, Store(OURS)).beats(NAMES, here).strangers
    assert sent_records(alone, Store(OTHER)).beats(NAMES, here).strangers is None
    assert sent_records(alone, Store(OURS, "fast")).beats(NAMES, here).strangers is None
    assert sent_records(alone, Store(OURS)).beats(NAMES, away).strangers is None


def test_heartbeats_that_are_missing_or_unreadable_show_nothing() -> None:
    here = ServerIdentity(OURS, 1, in_recovery=False)
    assert sent_records(Kafka(), Store(OURS)).beats(NAMES, here).newest is None
    away = sent_records(Kafka(away=True), Store(OURS)).beats(NAMES, here)
    assert isinstance(away.trouble, KafkaError)
    bad = replace(heartbeat(0, "b", OTHER), value=b"{}")
    assert sent_records(Kafka(bad), Store(OURS)).beats(NAMES, here).trouble is not None
