"""A record is decoded as an event by its writer's schema, or an error says that it is no event."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from cdc.debezium.event_reader import EventReader
from cdc.errors import DecodeError
from cdc.kafka import KafkaRecord
from schemas.errors import UnknownSchemaError

SCHEMAS = {
    4: {"type": "record", "name": "Beat", "fields": [{"name": "beats", "type": "long"}]},
    9: {"type": "record", "name": "Beat", "fields": [{"name": "beats", "type": ["null", "long"]}]},
}


class Registry:
    """A registry with the schemas above; ``asked`` has the ids that were looked up."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if schema_id not in SCHEMAS:
            raise UnknownSchemaError(f"no schema {schema_id}", remedy="Restore the registry.")
        return json.dumps(SCHEMAS[schema_id])


def record(value: bytes | None) -> KafkaRecord:
    return KafkaRecord("shop_default.beats", 2, 31, None, value, None)


def encoded(schema_id: int, beats: int | None) -> KafkaRecord:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[schema_id]), {"beats": beats})
    return record(b"\0" + schema_id.to_bytes(4, "big") + out.getvalue())


def beats(event: Any) -> int:
    return int(event["beats"])


def test_each_event_is_decoded_by_its_own_schema_which_is_fetched_once() -> None:
    registry = Registry()
    reader = EventReader(registry)  # type: ignore[arg-type]
    records = [encoded(4, 1), encoded(9, 2), encoded(4, 3), encoded(9, 4)]
    assert [reader.read(one, "a heartbeat", beats) for one in records] == [1, 2, 3, 4]
    assert registry.asked == [4, 9]


@pytest.mark.parametrize(
    ("found", "take"),
    [
        (record(None), beats),
        (record(b"text"), beats),
        (record(b"\0\0\0\0\4"), beats),  # the body is missing
        (encoded(9, None), beats),
        (encoded(4, 1), lambda event: event["after"]),
    ],
    ids=["no value", "another format", "cut off", "a null", "another event"],
)
def test_a_record_that_is_something_else_is_named(
    found: KafkaRecord, take: Callable[[Any], object]
) -> None:
    with pytest.raises(
        DecodeError,
        match=r"record at offset 31 of topic shop_default\.beats partition 2 is not a heartbeat: ",
    ) as stopped:
        EventReader(Registry()).read(found, "a heartbeat", take)  # type: ignore[arg-type]
    context = stopped.value.context
    assert (context["topic"], context["partition"], context["offset"]) == (found.topic, 2, 31)


def test_a_schema_that_the_registry_lacks_does_not_make_the_record_something_else() -> None:
    with pytest.raises(UnknownSchemaError):
        EventReader(Registry()).read(  # type: ignore[arg-type]
            record(b"\0\0\0\0\7body"), "a heartbeat", beats
        )
