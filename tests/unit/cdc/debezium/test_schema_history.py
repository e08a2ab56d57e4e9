"""The table definitions in a schema history, and those that MariaDB's connector skips."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.debezium import CaptureNames, Definitions, definitions
from cdc.debezium.schema_history import learned_definitions, skipped_definition
from cdc.errors import DecodeError
from cdc.kafka import KafkaRecord
from cdc.log.gtid import MariadbGtidSet
from schemas.table import TableId
from tests.unit.cdc.task_topics import Topics, learned

CAPTURE = CaptureNames("shop", "default", None, None, "c", "shop", "mariadb")
HISTORY = CAPTURE.schema_history_topic
ORDERS = TableId("shop", "public", "orders")


def of(*gtids: str, columns: tuple[tuple[str, ...], ...] = ()) -> list[KafkaRecord]:
    """The records of a schema history, one for each GTID set; ``snapshot`` marks a snapshot's."""
    found = []
    for place, text in enumerate(gtids):
        snapshot = text.startswith("snapshot ")
        position = {
            "gtids": text.removeprefix("snapshot "),
            "snapshot": "INITIAL" if snapshot else None,
        }
        names = columns[place] if columns else ("id", *"abcdef"[:place])
        found.append(learned(place, 100, 0, topic=HISTORY, position=position, columns=names))
    return found


@pytest.mark.parametrize(
    ("gtids", "stored", "skipped"),
    [
        (["snapshot 0-1-5", "0-1-7"], "0-1-9", None),
        # The passive server of a pair has executed two statements, one after the other.
        (["snapshot 0-1-5", "0-1-7", "0-2-8"], "0-1-9", "0-2-8"),
        (["snapshot 0-1-5", "0-1-7", "0-2-8"], "0-2-9", "0-1-5"),
        # Each server has a domain of its own.
        (["snapshot 0-1-5,1-2-3", "0-1-7,1-2-8"], "0-1-9,1-2-9", None),
        (["snapshot 0-1-5,1-2-3", "0-1-7,1-3-8"], "0-1-9,1-2-9", "0-1-7,1-3-8"),
        # A domain is new, or the statement is still to be read again.
        (["snapshot 0-1-5"], "0-1-9,1-2-9", None),
        (["snapshot 0-1-5", "0-1-99"], "0-1-9", None),
        # After a snapshot, the earlier definitions do not count: another server took over.
        (["snapshot 0-1-5", "0-1-7", "snapshot 0-2-9"], "0-2-11", None),
        (["snapshot 0-1-5", "0-1-7", "snapshot 0-1-9"], "0-2-11", "0-1-9"),
        (["snapshot 0-1-5", "snapshot 0-2-9"], "0-2-11", None),
        ([""], "0-1-9", None),
    ],
)
def test_a_definition_behind_another_servers_transaction_is_skipped(
    gtids: list[str], stored: str, skipped: str | None
) -> None:
    known = list(learned_definitions(of(*gtids), "shop"))
    assert len(known) == len(gtids)
    found = skipped_definition(known, MariadbGtidSet.parse(stored), {ORDERS})
    assert (None if found is None else found.gtids) == skipped
    others = {TableId("shop", "public", "lines")}
    assert skipped_definition(known, MariadbGtidSet.parse(stored), others) is None


def test_a_statement_that_leaves_the_columns_alone_defines_nothing() -> None:
    records = of("snapshot 0-1-5", "0-2-7", "0-1-8", columns=(("id",), ("id",), ("id", "v")))
    found = list(learned_definitions(records, "shop"))
    assert [one.gtids for one in found] == ["0-1-5", "0-1-8"]
    assert [one.snapshot for one in found] == [True, False]
    assert found[0].place is None
    assert str(found[1].place) == "binlog.000007:100"


@pytest.mark.parametrize("value", [b"[1]", b"no", b'{"tableChanges": [{"id": "t"}]}'])
def test_a_record_of_another_kind_is_named(value: bytes) -> None:
    record = KafkaRecord(HISTORY, 0, 7, None, value, None)
    with pytest.raises(DecodeError, match=r"offset 7 .* is not one of a schema history"):
        list(learned_definitions([record], "shop"))


class Kafka(Topics):
    """A cluster with a schema history that grows, or is created again."""

    id = "first"

    def topic_id(self, _: str) -> str:
        return self.id

    def start_offsets(self, topic: str) -> dict[int, int]:
        return {0: self.start(topic)}

    def stable_offsets(self, topic: str) -> dict[int, int]:
        return {0: self.end(topic)}


class Parts:
    """The cluster as a Kafka client sees it; it remembers the ranges that were read."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka, self.read_ranges = kafka, list[tuple[int, int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kafka, name)

    def read(self, topic: str, _partition: int, start: int, end: int) -> Any:
        self.read_ranges.append((start, end))
        return self.kafka.read(topic, start, end)


def test_a_history_is_read_once_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_PART", 2)
    kafka = Kafka()
    for record in of("snapshot 0-1-5", "0-1-7", "0-1-8"):
        kafka.add(record)
    parts = Parts(kafka)
    reader = Definitions(cast("Any", parts), cast("Any", None))
    assert [one.gtids for one in reader.learned(CAPTURE)] == ["0-1-5", "0-1-7", "0-1-8"]
    assert parts.read_ranges == [(0, 2), (2, 3)]
    kafka.add(learned(3, 100, 0, topic=HISTORY, position={"gtids": "0-1-9"}, columns=("v",)))
    assert len(reader.learned(CAPTURE)) == 4
    assert parts.read_ranges[2:] == [(3, 4)]
    kafka.id = "second"
    assert len(reader.learned(CAPTURE)) == 4
    assert parts.read_ranges[3:] == [(0, 2), (2, 4)]
