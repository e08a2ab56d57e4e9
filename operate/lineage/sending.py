"""Sends the histories as OpenLineage events, and keeps in the state store what was sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from cdc.store.history import StateEntry
from cdc.store.lineage import LineagePosition, Unsent
from operate.lineage.client_secrets import keep_client_secrets
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from cdc.store.lineage import Numbered
    from operate.context import Services
    from operate.lineage.events import Subject
    from schemas.table import TableId

MOST = 100
"""Maximum number of entries of each history whose events are sent before the position is stored."""
_CLOSE_S = 60.0
"""How long a transport that sends in the background may take for the events, in seconds."""
_LONGEST_S = 300.0
"""The longest pause after a failure, in seconds."""
# A remote's URL can have a login, so the client must not look for a repository around the process.
_CLIENT = {"facets": {"source_code_location": {"disabled": True}}}

_log = logging.getLogger(__name__)


class LineageError(TributaryError):
    """The receiver of lineage events does not take an event, or no receiver is configured."""


@dataclass(frozen=True)
class Wanted:
    """What the events to send contain.

    Args:
        namespace: The namespace of jobs.
        messages: Whether events have the messages of errors, which can quote values of rows.
    """

    namespace: str
    messages: bool = False


class Lineage:
    """Sends OpenLineage events for those entries of the histories that were not sent yet.

    Args:
        services: The services of the command.
        wanted: What the events contain.
        since: Entries from this time on are sent, also those that were sent before. If entries of
            the namespace were ever sent, older unsent entries are sent, too. If None, only unsent
            entries are sent.

    Raises:
        ConfigError: OpenLineage's client is not installed.
    """

    def __init__(self, services: Services, wanted: Wanted, since: datetime | None = None) -> None:
        try:
            from openlineage.client.event_v2 import set_producer

            from operate.lineage.events import PRODUCER
        except ImportError:
            raise lacking() from None
        set_producer(PRODUCER)  # of facets
        self._services = services
        self._wanted = wanted
        self._unsent = Unsent(services.store, wanted.namespace)
        self._at = self._unsent.position() if since is None else self._unsent.since(since)

    def shown(self) -> Iterator[str]:
        """Yield the events as JSON; nothing is sent, and nothing counts as sent.

        Raises:
            StateError: The state store cannot be used.
        """
        from openlineage.client.serde import Serde

        for _, events in self._batches():
            yield from map(Serde.to_json, events)

    def send(self) -> int:
        """Send the events, and return their number.

        Raises:
            LineageError: The receiver does not take an event, or no receiver is configured.
            StateError: The state store cannot be used.
        """
        count = 0
        for after, events in self._batches():
            if events:
                with _client() as emit:
                    for event in events:
                        emit(event)
            self._unsent.keep(after)
            self._at = after
            count += len(events)
        return count

    def follow(self, interval_s: float, ended: threading.Event) -> Iterator[int]:
        """Send new events at intervals until ``ended`` is set; yield the number of events sent.

        If there are no new events, nothing is yielded.

        After a failure, the next try sends the same events again. Each failure doubles the wait.

        Args:
            interval_s: The time between two tries, in seconds.
            ended: Ends the loop.
        """
        pause = interval_s
        while True:
            try:
                if sent := self.send():
                    yield sent
                pause = interval_s
            except ConfigError:
                raise
            except TributaryError as error:
                _log.warning("%s; %s", error, error.remedy)
                pause = min(pause * 2, max(_LONGEST_S, interval_s))
            if ended.wait(pause):
                return

    def _batches(self) -> Iterator[tuple[LineagePosition, list[RunEvent]]]:
        """Yield batches of events of unsent entries, each with the position after these entries."""
        at = self._at
        while True:
            entries, after = self._unsent.after(at, MOST)
            if not entries:
                return
            yield after, self._events(entries)
            at = after

    def _events(self, entries: list[Numbered]) -> list[RunEvent]:
        from operate.lineage.events import ends_copy, events_of

        subjects: dict[TableId, Subject] = {}
        found: list[RunEvent] = []
        for noted in entries:
            entry, began = noted.entry, None
            if isinstance(entry, StateEntry):
                if not ends_copy(entry):
                    continue
                began = self._unsent.copy_began(entry.table, entry.generation, noted.number)
            if entry.table not in subjects:
                subjects[entry.table] = self._subject(entry.table)
            found += events_of(subjects[entry.table], noted, began)
        return found

    def _subject(self, table: TableId) -> Subject:
        from operate.lineage.events import Subject

        store = self._services.store
        return Subject(
            self._services.config,
            store.installation.name,
            self._wanted.namespace,
            self._wanted.messages,
            table,
            store.get(table),
            store.schema_history(table),
        )


@contextmanager
def _client() -> Iterator[Callable[[RunEvent], None]]:
    """Open OpenLineage's client with the client's settings; at the end, wait until events are sent.

    Each call reads the settings again, so that a renewed key is used.

    Yields:
        A function that sends an event. It raises a `LineageError` from the client's first failure
        on, since some transports wait for minutes before each failure.
    """
    from openlineage.client import OpenLineageClient

    keep_client_secrets()
    config: dict[str, Any] = dict(_CLIENT)
    try:
        client = OpenLineageClient(config=config)
    except Exception as error:  # noqa: BLE001 - each transport has errors of its own
        raise _unusable_client_error(error) from None
    # The client prints the events if no setting names a transport.
    printed = client.transport.kind == "console"
    if client.transport.kind == "noop" or (
        printed and not _is_transport_named(client.config.transport)
    ):
        raise _no_receiver_error()
    logged = _Refusals()
    log = logging.getLogger("openlineage.client.transport")
    log.addHandler(logged)

    def emit(event: RunEvent) -> None:
        client.emit(event)
        if logged.first is not None:
            raise _refused_events_error(logged.first)

    try:
        yield emit
        whole = client.close(_CLOSE_S)
    except Exception as error:  # each transport has errors of its own
        # A transport that sends in the background would go on, and leave its thread behind.
        with suppress(Exception):
            client.close(0.0)
        if isinstance(error, LineageError):
            raise error from None
        raise _refused_events_error(_error_on_one_line(error)) from None
    finally:
        log.removeHandler(logged)
    if logged.first is not None:
        raise _refused_events_error(logged.first)
    if not whole:
        raise _refused_events_error(f"events were not sent within {_CLOSE_S:g} s")


def _is_transport_named(transport: Mapping[str, Any] | None) -> bool:
    """Whether the settings of OpenLineage's client name the kind of its transport."""
    return bool((transport or {}).get("type"))


class _Refusals(logging.Handler):
    """Keeps the first error that a transport of OpenLineage's client logs.

    The transports for Kafka, and for HTTP in the background, raise no error for an event that was
    not delivered: they only log an error.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.first is None:
            self.first = next(iter(record.getMessage().splitlines()), record.levelname)


def lacking() -> ConfigError:
    """Return the error which says that OpenLineage's client is not installed."""
    return ConfigError(
        "the Python package openlineage-python is not installed, which lineage needs",
        remedy="Install the extra: `pip install 'tributary-cdc[lineage]'`.",
        field="openlineage-python",
    )


def _no_receiver_error() -> ConfigError:
    """Return the error which says that no receiver of lineage events is configured."""
    return ConfigError(
        "no receiver of lineage events is configured, or OPENLINEAGE_DISABLED is true",
        remedy="Set OPENLINEAGE_URL, or write openlineage.yml (docs/lineage.md); --dry-run prints"
        " the events.",
        field="OPENLINEAGE_URL",
    )


def _unusable_client_error(error: Exception) -> ConfigError:
    """Return the error which says that OpenLineage's client cannot be used as it is configured."""
    return ConfigError(
        f"OpenLineage's client cannot be used as it is configured: {_error_on_one_line(error)}",
        remedy="Correct what the message names in openlineage.yml, or in the variables that begin"
        " with OPENLINEAGE.",
        field="openlineage.yml",
    )


def _refused_events_error(reason: str) -> LineageError:
    """Return the error which says that the receiver of lineage events does not take the events."""
    return LineageError(
        f"the receiver of lineage events does not take them: {reason}",
        remedy="Check the address and the login that OpenLineage's client has;"
        " OPENLINEAGE_CLIENT_LOGGING=INFO shows its log. Then repeat the command: it sends what was"
        " not sent.",
    )


def _error_on_one_line(error: Exception) -> str:
    """Return an error of a transport of OpenLineage's client on one line."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"
