"""The facts about captures and topics that every run looks at again, once for all its tables."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.debezium import CaptureNames, audit
from cdc.errors import ConnectError, SourceError
from cdc.position_check import TopicFacts

if TYPE_CHECKING:
    from cdc.position import Lsn
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
        stored: The position that Connect has stored; None when there is none or Connect is away.
        problems: What the connector's configuration does to the changes, one sentence each.
    """

    names: CaptureNames
    server: ServerIdentity
    slot: SlotHealth | None
    stored: Lsn | None
    problems: tuple[str, ...]


class CaptureChecks:
    """Gathers :class:`CaptureFacts` once per source and tier. Safe to share among threads."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._known: dict[tuple[str, str], CaptureFacts | SourceError] = {}
        self._lock = threading.Lock()

    def facts(self, record: TableRecord) -> CaptureFacts:
        """The facts of the source and tier of a table.

        Raises:
            SourceError: The primary cannot be reached. It is asked once: a thousand tables would
                each wait for its time-outs.
        """
        key = (record.table.source, record.tier)
        with self._lock:
            if key not in self._known:
                try:
                    self._known[key] = self._gather(record)
                except SourceError as error:
                    self._known[key] = error
            known = self._known[key]
        if isinstance(known, SourceError):
            raise known
        return known

    def _gather(self, record: TableRecord) -> CaptureFacts:
        source = self._context.sources[record.table.source]
        capture = self._context.capture(record)
        server, slot = source.identity(), source.slot_health(capture.slot)
        stored, problems = self._connector(capture)
        return CaptureFacts(capture, server, slot, stored, problems)

    def _connector(self, capture: CaptureNames) -> tuple[Lsn | None, tuple[str, ...]]:
        """The connector's stored position, and what is wrong with its configuration.

        What is in Kafka stays right while Connect is down or the connector is deleted: the slot
        keeps the rest. Only a configuration that loses or alters changes stops the tables.
        """
        if self._context.connect is None:
            return None, ()
        try:
            effective = self._context.connect.connector(capture.connector)
            stored = self._context.connect.stored_position(capture.connector)
        except ConnectError as error:
            _log.warning("the configuration of %s was not checked: %s", capture.connector, error)
            return None, ()
        if effective is None:
            _log.warning("there is no connector %s: changes wait in its slot", capture.connector)
            return None, ()
        exactly_once = self._context.config.connect.exactly_once
        findings = audit(effective, capture, exactly_once=exactly_once)
        return stored, tuple(f"connector {capture.connector}: {finding}" for finding in findings)


def topic_facts(context: RunContext, topics: Iterable[str]) -> dict[str, TopicFacts]:
    """Topics as they are now, in three calls however many they are.

    Raises:
        KafkaError: The cluster cannot be asked.
    """
    names = list(dict.fromkeys(topics))
    described = context.kafka.topics(names)
    stable = context.kafka.stable_offsets_many(names)
    earliest = context.kafka.start_offsets_many(names)
    return {
        name: TopicFacts(
            id=described[name].id if name in described else None,
            earliest=earliest.get(name, {}),
            stable=stable.get(name, {}),
        )
        for name in names
    }
