"""Parses the wire header of a Debezium topic's records, and the Avro schemas of writers.

The decoder needs the Avro type and Debezium's semantic name (``connect.name``) of each column. For
example, an ``io.debezium.time.MicroTimestamp`` and a plain ``long`` have the same bytes, but
different values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from schemas.errors import AvroSchemaError, WireFormatError

WIRE_HEADER_BYTES = 5
"""Number of bytes before the Avro body: a zero byte, and the schema id in 32 bits, big-endian."""

_PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_READ = frozenset({"before", "after", "source", "op"})
_READ_OF_BINLOG = _READ | {"transaction"}
_SOURCE_TYPES = {
    "ts_us": "long",
    "ts_ms": "long",
    "sequence": "string",
    "txId": "long",
    "file": "string",
    "pos": "long",
    "row": "int",
    "gtid": "string",
}
_NEEDED_OF_SOURCE = ("ts_ms", "sequence", "txId")
_NEEDED_OF_BINLOG = ("ts_ms", "file", "pos", "row")
END_MARK = bytes.fromhex("9ce3570b6ad1f42e")
"""Bytes that are appended to an Avro body before the body is decoded.

These bytes are decoded as the field ``mark``. If the body is longer or shorter than its schema
requires, the decoded mark differs from these bytes, or is too short to be decoded.
"""

_SOURCE_TYPE = "__debezium.source.column.type"
_SOURCE_NAME = "__debezium.source.column.name"


def split_wire(message: bytes) -> tuple[int, bytes]:
    """Separate a Kafka message in the Confluent wire format into schema id and Avro body.

    Raises:
        WireFormatError: The message is too short or does not start with a zero byte.
    """
    if len(message) < WIRE_HEADER_BYTES or message[0] != 0:
        raise WireFormatError(
            f"a message of {len(message)} bytes starting with {message[:8].hex() or 'nothing'}"
            " is not in the Confluent wire format",
            remedy="Use an Avro converter with a 4-byte schema id and no header mode"
            " (for Apicurio: as-confluent=true, headers.enabled=false).",
        )
    return int.from_bytes(message[1:WIRE_HEADER_BYTES], "big"), message[WIRE_HEADER_BYTES:]


def field_name(column: str) -> str:
    """The Avro name of a column's field under ``field.name.adjustment.mode=avro_unicode``.

    ASCII letters stay, and so do digits, except as the first character. Every other UTF-16 unit,
    including the underscore, becomes ``_u`` followed by the unit's hexadecimal code. For example,
    ``a_b`` becomes ``a_u005fb``.
    """
    return _avro_name(column, also="")


def envelope_name(topic: str) -> str:
    """The full Avro name of the schema of a topic's change events (see :func:`field_name`)."""
    return f"{_avro_name(topic, also='.')}.Envelope"


def _avro_name(name: str, *, also: str) -> str:
    """Adjust a name to Avro's rules, as in :func:`field_name`.

    The characters in ``also`` stay unchanged, too, except as the first character of the name.
    """
    adjusted = []
    for position, character in enumerate(name):
        letter = character.isascii() and character.isalpha()
        if letter or (position and (character in also or character in "0123456789")):
            adjusted.append(character)
            continue
        units = character.encode("utf-16-be")
        for at in range(0, len(units), 2):
            code = f"{int.from_bytes(units[at : at + 2], 'big'):x}"
            adjusted.append("_u" + (code if len(code) > 2 else "00" + code))
    return "".join(adjusted)


@dataclass(frozen=True)
class DebeziumField:
    """One column as the writer's Avro schema describes it.

    Args:
        name: The name in the Avro record. For a column of the table, Debezium derives this name
            from the column's name at the source (see ``column`` and :func:`field_name`).
        avro_type: ``boolean``, ``int``, ``long``, ``float``, ``double``, ``bytes``, ``string``,
            ``array``, ``map`` or ``record``.
        connect_name: Debezium's or Connect's semantic type, for example
            ``io.debezium.time.ZonedTimestamp``; None for a plain value.
        parameters: The type's ``connect.parameters``, which can include the name and the type of
            the source column.
        nullable: Whether the writer's schema allows null.
        has_default: Whether the writer's schema has a default value.
        default: The default, parsed from JSON; None if there is no default, or if it is null.
        element: Type of the elements of an array, or of the values of a map.
        fields: Fields of a record, such as a geometry or a variable-scale decimal.
    """

    name: str
    avro_type: str
    connect_name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = False
    has_default: bool = False
    default: Any = None
    element: DebeziumField | None = None
    fields: tuple[DebeziumField, ...] = ()

    @property
    def column(self) -> str:
        """The column's name at the source."""
        return self.parameters.get(_SOURCE_NAME, self.name)

    @property
    def unnamed(self) -> bool:
        """Whether this Avro field is a record whose schema does not name the source column."""
        return self.avro_type == "record" and _SOURCE_NAME not in self.parameters

    @property
    def source_type(self) -> str | None:
        """The name of the column's type at the source, such as ``NUMERIC``.

        None if the Avro schema lacks this name.
        """
        return self.parameters.get(_SOURCE_TYPE)


@dataclass(frozen=True)
class DebeziumSchema:
    """The parsed Avro schema of the keys or of the change events in a Debezium topic.

    The schema of change events is an envelope around the row before and after the change.

    Args:
        avro_json: The schema as JSON, exactly as registered, for Spark's ``from_avro``.
        name: Full name of the record.
        key: Columns of a key; empty for an envelope.
        before: Columns of the row before the change; empty for a key.
        after: Columns of the row after the change; empty for a key.
        source: Fields of an envelope's ``source`` block.
        envelope: Names of the envelope's fields, such as ``op`` and ``after``, in order; empty for
            a key.
    """

    avro_json: str
    name: str
    key: tuple[DebeziumField, ...] = ()
    before: tuple[DebeziumField, ...] = ()
    after: tuple[DebeziumField, ...] = ()
    source: tuple[DebeziumField, ...] = ()
    envelope: tuple[str, ...] = ()

    @property
    def is_envelope(self) -> bool:
        """Whether this is the Avro schema of change events, and not of keys."""
        return bool(self.envelope)

    @property
    def from_binlog(self) -> bool:
        """Whether this is the Avro schema of change events from MySQL or MariaDB."""
        return any(inner.name == "file" for inner in self.source)

    @cached_property
    def reader_json(self) -> str:
        """The Avro schema as JSON, reduced to the fields that Tributary reads.

        An Avro reader that has this schema and the writer's schema skips the other fields. This
        saves time: most bytes of a small row's event belong to its ``source`` block.
        """
        schema = json.loads(self.avro_json)
        read = _READ_OF_BINLOG if self.from_binlog else _READ
        kept = [entry for entry in schema["fields"] if entry["name"] in read]
        for entry in kept:
            if entry["name"] == "source":
                entry["type"] = _without_unread_fields(entry["type"])
        return json.dumps({**schema, "fields": kept})

    @cached_property
    def marked_writer_json(self) -> str:
        """The Avro schema, as JSON, of an event's bytes followed by :data:`END_MARK`."""
        return _marked_event_schema(json.loads(self.avro_json))

    @cached_property
    def marked_reader_json(self) -> str:
        """Like :attr:`marked_writer_json`, but the event has the fields of `reader_json` only."""
        return _marked_event_schema(json.loads(self.reader_json))

    def mismatch(self, topic: str) -> str | None:
        """Return why change events of a topic cannot have this Avro schema; None if they can."""
        if not self.is_envelope:
            return f"{self.name} is not a change event"
        if self.name != envelope_name(topic):
            return f"{self.name} is the schema of another topic's change events"
        kinds = {inner.name: inner.avro_type for inner in self.source}
        needed = _NEEDED_OF_BINLOG if self.from_binlog else _NEEDED_OF_SOURCE
        for name, kind in _SOURCE_TYPES.items():
            if kinds.get(name, kind) != kind or (name in needed and name not in kinds):
                return f"{self.name} has no usable {name} in its source block"
        return None

    @property
    def row(self) -> tuple[DebeziumField, ...]:
        """The Avro fields of the row after the change; in a key's schema, the fields of the key."""
        return self.after if self.is_envelope else self.key

    def field(self, column: str) -> DebeziumField | None:
        """Return the Avro field of a source column; None if the schema lacks the column."""
        named = {candidate.column: candidate for candidate in self.row}
        if column in named:
            return named[column]
        # Keys do not carry the columns' own names. Neither does a second geometry: the schema only
        # refers to its type by name, and the column's own name is where the type is written out.
        adjusted = named.get(field_name(column))
        if adjusted is None or not self.is_envelope or adjusted.unnamed:
            return adjusted
        return None

    @classmethod
    def parse(cls, avro_json: str) -> DebeziumSchema:
        """Parse a registered Avro schema.

        Args:
            avro_json: The Avro schema as JSON text.

        Raises:
            AvroSchemaError: The text is not an Avro schema, or not an Avro schema that Debezium
                registers.
        """
        try:
            schema = json.loads(avro_json)
        except ValueError as error:
            raise _refused_avro_schema(f"the schema is not JSON: {error}") from error
        reader = _Reader()
        record = reader.read("", schema)
        if record.avro_type != "record":
            raise _refused_avro_schema(f"the schema is of type {record.avro_type}, not a record")
        name = reader.full_name(schema, "")
        fields = {inner.name: inner for inner in record.fields}
        if {"op", "source", "after"} <= fields.keys():
            return cls(
                avro_json=avro_json,
                name=name,
                before=fields["before"].fields if "before" in fields else (),
                after=fields["after"].fields,
                source=fields["source"].fields,
                envelope=tuple(fields),
            )
        return cls(avro_json=avro_json, name=name, key=record.fields)


def _marked_event_schema(event: Any) -> str:
    """Return the Avro schema, as JSON, of a record with the fields ``event`` and ``mark``.

    Args:
        event: The event's Avro schema, parsed from JSON.
    """
    mark = {"type": "fixed", "name": "tributary_mark", "size": len(END_MARK)}
    fields = [{"name": "event", "type": event}, {"name": "mark", "type": mark}]
    return json.dumps({"type": "record", "name": "tributary_event", "fields": fields})


def _without_unread_fields(kind: Any) -> Any:
    """Return the Avro type of ``source``, reduced to the fields that Tributary reads.

    Args:
        kind: The type, parsed from JSON.
    """
    if isinstance(kind, list):
        return [_without_unread_fields(branch) for branch in kind]
    if not isinstance(kind, Mapping) or kind.get("type") != "record":
        return kind
    return {**kind, "fields": [entry for entry in kind["fields"] if entry["name"] in _SOURCE_TYPES]}


class _Reader:
    """Parses the types of one Avro schema.

    It remembers each named type, since later fields of the schema can refer to the type by name.
    """

    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, tuple[DebeziumField, ...]]] = {}

    def full_name(self, schema: Any, namespace: str) -> str:
        name = str(schema.get("name", ""))
        space = schema.get("namespace", namespace)
        return f"{space}.{name}" if space and "." not in name else name

    def read(self, name: str, schema: Any, namespace: str = "", **given: Any) -> DebeziumField:
        """Parse a field.

        Args:
            name: The field's name.
            schema: The field's Avro type, parsed from JSON.
            namespace: The namespace for type names without a namespace of their own.
            **given: Further attributes of the `DebeziumField`.
        """
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1:
                raise _refused_avro_schema(
                    f"field {name!r} is a union of {len(branches)} types", field=name
                )
            given["nullable"] = len(branches) < len(schema)
            return self.read(name, branches[0], namespace, **given)
        if isinstance(schema, str):
            return self._by_name(name, schema, namespace, given)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise _refused_avro_schema(f"field {name!r} has no Avro type", field=name)
        kind = schema["type"]
        if isinstance(kind, (list, Mapping)):
            return self.read(name, kind, namespace, **given)
        given["connect_name"] = schema.get("connect.name")
        given["parameters"] = {
            str(key): str(value) for key, value in schema.get("connect.parameters", {}).items()
        }
        if kind == "record":
            return self._record(name, schema, namespace, given)
        if kind in ("array", "map"):
            inner = self.read("", schema["items" if kind == "array" else "values"], namespace)
            return DebeziumField(name, kind, element=inner, **given)
        if kind == "enum":
            self._named[self.full_name(schema, namespace)] = (schema, ())
            return DebeziumField(name, "string", **given)
        if kind == "fixed":
            self._named[self.full_name(schema, namespace)] = (schema, ())
            return DebeziumField(name, "bytes", **given)
        return self._by_name(name, kind, namespace, given)

    def _by_name(
        self, name: str, kind: str, namespace: str, given: dict[str, Any]
    ) -> DebeziumField:
        """Return the Avro field of a primitive type, or of a type that the schema has defined.

        Args:
            name: The field's name.
            kind: The type's name.
            namespace: The namespace for type names without a namespace of their own.
            given: Further attributes of the field.
        """
        if kind in _PRIMITIVES or kind == "null":
            return DebeziumField(name, kind, **given)
        for full in (kind, f"{namespace}.{kind}"):
            if full in self._named:
                schema, fields = self._named[full]
                given["connect_name"] = schema.get("connect.name")
                kind = {"record": "record", "enum": "string", "fixed": "bytes"}[schema["type"]]
                return DebeziumField(name, kind, fields=fields, **given)
        raise _refused_avro_schema(f"field {name!r} has the unknown type {kind!r}", field=name)

    def _record(
        self, name: str, schema: Any, namespace: str, given: dict[str, Any]
    ) -> DebeziumField:
        """Return the field of an Avro record, and remember the record as a named type."""
        full = self.full_name(schema, namespace)
        space = full.rpartition(".")[0]
        fields = []
        for entry in schema.get("fields", ()):
            inner: dict[str, Any] = {}
            if "default" in entry:
                inner = {"has_default": True, "default": entry["default"]}
            fields.append(self.read(str(entry["name"]), entry["type"], space, **inner))
        self._named[full] = (schema, tuple(fields))
        return DebeziumField(name, "record", fields=tuple(fields), **given)


def _refused_avro_schema(reason: str, **context: Any) -> AvroSchemaError:
    """Return the error for an Avro schema that Debezium does not write."""
    return AvroSchemaError(
        f"not a schema that Debezium writes: {reason}",
        remedy="Check that Debezium's connector writes the topic with an Avro converter.",
        **context,
    )
