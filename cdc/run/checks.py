"""The facts about a source's capture that every run looks at again, once for all its tables."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.debezium import CaptureNames, audit, names
from cdc.errors import ConnectError

if TYPE_CHECKING:
    from cdc.run.context import RunContext
    from cdc.sources.values import ServerIdentity, SlotHealth
    from cdc.state import TableRecord

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptureFacts:
    """How one source and tier is captured now.

    Args:
        names: Its publication, slot and connector.
        server: The primary.
        slot: The slot; None when it is gone.
        problems: What the connector's configuration does to the changes, one sentence each.
    """

    names: CaptureNames
    server: ServerIdentity
    slot: SlotHealth | None
    problems: tuple[str, ...]


class CaptureChecks:
    """Gathers :class:`CaptureFacts` once per source and tier. Safe to share among threads."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._known: dict[tuple[str, str], CaptureFacts] = {}
        self._lock = threading.Lock()

    def facts(self, record: TableRecord) -> CaptureFacts:
        """The facts of the source and tier of a table.

        Raises:
            SourceError: The primary cannot be reached.
        """
        key = (record.table.source, record.tier)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._gather(record)
            return self._known[key]

    def _gather(self, record: TableRecord) -> CaptureFacts:
        name = record.table.source
        source = self._context.sources[name]
        capture = names(name, self._context.config.source(name), record.tier)
        return CaptureFacts(
            names=capture,
            server=source.identity(),
            slot=source.slot_health(capture.slot),
            problems=self._connector(capture),
        )

    def _connector(self, capture: CaptureNames) -> tuple[str, ...]:
        """What is wrong with the connector's configuration.

        What is in Kafka stays right while Connect is down or the connector is deleted: the slot
        keeps the rest. Only a configuration that loses or alters changes stops the tables.
        """
        if self._context.connect is None:
            return ()
        try:
            effective = self._context.connect.connector(capture.connector)
        except ConnectError as error:
            _log.warning("the configuration of %s was not checked: %s", capture.connector, error)
            return ()
        if effective is None:
            _log.warning("there is no connector %s: changes wait in its slot", capture.connector)
            return ()
        exactly_once = self._context.config.connect.exactly_once
        findings = audit(effective, capture, exactly_once=exactly_once)
        return tuple(f"connector {capture.connector}: {finding}" for finding in findings)
