"""Restarts PostgreSQL's connector if it could still use a former definition of a table or type.

The connector uses a table's definition until the server describes the table again in the WAL. When
the server does so, the connector reads the NOT NULL constraints and the key from the catalog. A
change of a constraint or of the key can already be in the WAL while the catalog does not show it
yet. The connector then reads the former definition again. After ALTER DOMAIN, the server does not
describe the table again. A new session of the connector begins with a description of each table, so
a restart renews the definitions.

When an enum has a new label, the connector reads the table's definition from the catalog. That
definition includes generated columns, which the WAL does not carry. The connector then assigns
values to wrong columns (`schemas.withheld_columns`).

The connector also remembers the first type that it has found for each type name. Until it restarts,
it uses this type, even if the name has passed to another type (`cdc.capture.type_looks`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc.capture.recovery import restart
from cdc.capture.type_looks import TypeLooks
from cdc.debezium import TransactionReader
from cdc.errors import CaptureError, DecodeError
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while
from schemas.avro import DebeziumSchema, split_wire
from schemas.catalog import Catalog
from schemas.errors import AvroSchemaError, UnknownSchemaError, WireFormatError
from schemas.withheld_columns import misplacing, withheld

if TYPE_CHECKING:
    from bootstrap.capture_proof import Capture
    from cdc.config import TableSettings
    from cdc.kafka import KafkaRecord
    from cdc.run import RunContext
    from cdc.sources.base import KeptLog
    from cdc.store.kept_type_looks import TypeLook
    from schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)
_READ_S = 60.0
_RESTART_S = 120.0
_POLL_S = (0.1, 1.0)
_TAIL = 16
"""Number of offsets below a tombstone's offset that the search for its delete covers."""


def renew_definition(
    capture: Capture, context: RunContext, settings: TableSettings, *, wait_s: float
) -> None:
    """Restart the connector before a copy if it could use a former definition of the table.

    The newest event of the topic shows which definition the connector uses. This definition is a
    former one in three cases:

    - The event has a generated column that the WAL does not carry, and after it a column that the
      WAL carries.
    - The event's key has other columns than the table's key. Such an event does not identify the
      row that it changes.
    - The event's schema does not allow NULL for a column in which the table allows NULL, so the
      event has another value in place of a NULL. For most tables, a run reads the right value from
      the source by the row's key. This is not possible for an append table, or for a row that the
      source has deleted and the lake keeps. So the third case is checked only for append tables and
      in soft delete mode.

    The connector is also restarted if the newest event cannot be read, or if the connector can
    mistake the type of a column for another type of the same name.

    Args:
        capture: The table's capture. The connector must have captured all changes from before the
            current definition.
        context: The runs' context.
        settings: The table's settings.
        wait_s: Maximum wait for the capture's lease, in seconds.

    Raises:
        LeaseHeldError: Another process holds the capture's lease.
        CaptureError: The restarted connector does not begin to read the WAL in time.
    """
    kept = capture.source.capture(capture.names).kept_log
    if kept is None:
        return
    definition = _definition_to_copy(capture, settings)
    looks = TypeLooks(context.store, context.kafka)

    def look() -> tuple[TypeLook | None, bool]:
        found = looks.follow(capture.names, capture.source)
        return found, found is not None and str(capture.table) in found.mistaken

    _, mistaken = look()
    if not mistaken and not _newest_is_former(capture, context.registry, definition):
        return
    _log.info(
        "connector %s is restarted: it may have a former definition of table %s, or of a type",
        capture.names.connector,
        capture.table,
    )
    with context.leases.hold(capture.names.resource, wait_s=wait_s):
        before, still = look()
        if mistaken and not still:
            return  # a copy of another table has restarted the connector meanwhile
        _restart_before_copy(capture, kept, max(_RESTART_S, context.config.connect.timeout_s))
        if before is not None:
            looks.begin_again(capture.names, capture.source, before)


def _restart_before_copy(capture: Capture, kept: KeptLog, timeout_s: float) -> None:
    """Restart the connector before a copy; wait until its new session reads the log.

    One request to Kafka Connect stops and starts the connector. So the connector starts again even
    if this process is killed.
    """
    connect, connector = capture.connect, capture.names.connector
    former = kept.reader()
    restart(connect, connector, only_failed=False)

    def lacking() -> str:
        reader = kept.reader()
        return "" if reader not in (None, former) else f"its session is {reader}, was {former}"

    with shown_as(f"restart connector {connector}", capture.progress) as task:
        if late := wait_while(lacking, timeout_s=timeout_s, poll_s=_POLL_S, task=task):
            raise CaptureError(
                f"connector {connector} did not begin another session within {timeout_s:.0f} s:"
                f" {late}",
                remedy="Check the connector's status and log; then run the command again.",
                table=capture.table,
                connector=connector,
            )
    connect.wait_running(connector, progress=capture.progress)


@dataclass(frozen=True)
class Definition:
    """The parts of a table's current definition with which an event's schemas are compared.

    Args:
        nullable: The columns for which the event's schema must allow NULL, since the table allows
            NULL; empty if no column is checked for this.
        key: The columns of the primary key, which must be the event's key; empty if the event's key
            is not checked.
        withheld: The columns that the WAL does not carry.
    """

    nullable: Collection[str] = ()
    key: Collection[str] = ()
    withheld: Collection[str] = ()

    @property
    def concerns_rows(self) -> bool:
        """Whether the schema of an event's row must be checked."""
        return bool(self.nullable or self.withheld)


def is_former(
    key_schema: DebeziumSchema | None, row_schema: DebeziumSchema | None, now: Definition
) -> bool:
    """Whether the connector could have used a former definition for an event; asked before a copy.

    Args:
        key_schema: The schema of the event's key; None if the event has no key.
        row_schema: The schema of the event's row; None if the topic no longer has the row, or if
            the row is not checked.
        now: The table's current definition.
    """
    if now.key and (key_schema is None or not _has_key_of_table(key_schema, now.key)):
        return True
    if not now.concerns_rows or row_schema is None:
        return now.concerns_rows
    if misplacing([one.column for one in row_schema.after], now.withheld):
        return True
    fields = map(row_schema.field, now.nullable)
    return any(one is not None and not one.nullable for one in fields)


def _definition_to_copy(capture: Capture, settings: TableSettings) -> Definition:
    """Return the current definition of a table that is about to be copied."""
    table = capture.source.table(capture.table)
    corrected = not (settings.appends or settings.delete_mode == "soft")
    nullable = () if corrected else table.columns_with_nulls(trust_domains=True)
    by_primary_key = table.replica_identity in ("default", "full") and not settings.key_columns
    key = table.primary_key if by_primary_key and not settings.appends else ()
    fingerprint = capture.source.capture(capture.names).fingerprint(capture.table, on_replica=False)
    return Definition(nullable, key, withheld(Catalog.read(fingerprint.facts)))


def _newest_is_former(capture: Capture, registry: SchemaRegistry, now: Definition) -> bool:
    """Whether the topic's newest event could have a former definition; asked before a copy."""
    newest = capture.kafka.latest_record(capture.topic)
    if newest is None:
        return False
    try:
        if TransactionReader(capture.kafka, registry).truncates(newest) is not None:
            now = replace(now, key=())  # A TRUNCATE has no key, whatever the table's key is.
        key_schema = _writer_schema(registry, newest.key)
        row_schema = (
            _writer_schema(registry, _newest_event_value(capture, newest))
            if now.concerns_rows
            else None
        )
    except (DecodeError, WireFormatError, AvroSchemaError, UnknownSchemaError):
        return True
    return is_former(key_schema, row_schema, now)


def _has_key_of_table(schema: DebeziumSchema, key: Collection[str]) -> bool:
    """Whether an event's schema has the key of the table that is about to be copied."""
    return len(schema.key) == len(key) and all(schema.field(name) is not None for name in key)


def _writer_schema(registry: SchemaRegistry, data: bytes | None) -> DebeziumSchema | None:
    """Return the schema of ``data``, an event's key or value; None if ``data`` is None."""
    if data is None:
        return None
    schema_id, _ = split_wire(data)
    return DebeziumSchema.parse(registry.schema(schema_id))


def _newest_event_value(capture: Capture, newest: KafkaRecord) -> bytes | None:
    """Return the value of the topic's newest event; None if the topic no longer has the value.

    If the newest record is a tombstone, the newest event is the delete before the tombstone.
    """
    if newest.value is not None:
        return newest.value
    topic, partition = capture.topic, newest.partition
    first = max(newest.offset - _TAIL, capture.kafka.start_offsets(topic)[partition])
    before = capture.kafka.read(topic, partition, first, newest.offset, timeout_s=_READ_S)
    return next((one.value for one in reversed([*before]) if one.value is not None), None)
