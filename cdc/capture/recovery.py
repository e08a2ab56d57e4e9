"""Restarts failed and disconnected connectors, for runs and for commands that wait."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.connector_activity import lost_connection
from cdc.connect import failures
from cdc.debezium import after_truncate, silence_remedy, stored_position
from cdc.errors import (
    CaptureError,
    ConnectError,
    DecodeError,
    KafkaError,
    LeaseHeldError,
    OtherConnectorError,
)
from cdc.store.connector_restarts import LIMIT, Restarts
from schemas.errors import RegistryError, TributaryError
from schemas.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.capture.sent_records import SentRecords
    from cdc.config import Config
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.sources.base import SourceCapture
    from cdc.store.connector_restarts import Restarted
    from cdc.store.lease import Leases
    from cdc.store.state_store import Store

_log = logging.getLogger(__name__)

MARK_FIRST = (
    "Run `tributary run`, which marks the tables of this source and tier, then `tributary"
    " bootstrap` for them. Restart the connector only after that run: it would hide what was lost."
)
"""The remedy for a connector that must not be restarted, because changes were lost."""
RETRY = "run `tributary retry` for one of its tables"
"""The part of a remedy that says how an operator restarts a connector."""
_LOOK_S = 5.0


@dataclass(frozen=True)
class FailedConnector:
    """A connector that has failed, that has a failed task, or that has lost its connection.

    Args:
        reason: The failure, its cause, and the number of restarts so far.
        remedy: What to do.
        given_up: Whether no automatic restart follows: the last allowed restart has been made, or
            changes were lost.
        runs: Whether Connect reports the connector and its tasks as running. If so, the failure is
            a lost connection to the source.
        outage: Whether the connector cannot reach the source. If so, the number of the connector's
            restarts is not limited.
    """

    reason: str
    remedy: str
    given_up: bool = False
    runs: bool = False
    outage: bool = False


def lost_before_restart(
    source: SourceCapture,
    connect: ConnectClient,
    names: CaptureNames,
    sent: SentRecords,
) -> str | None:
    """Return why a failed or disconnected connector must not be restarted; None if it can be.

    If another program has moved the connector's slot past unread changes, these changes are lost. A
    restarted connector would continue after this gap, and the next position that it stores would
    hide the gap. So a run must notice the gap before the restart.

    Args:
        source: The capture on the source's server.
        connect: Kafka Connect.
        names: The capture.
        sent: Reads what the connector has sent to Kafka.

    Returns:
        What was lost, as a sentence without a period. None if nothing was lost, or if the source or
        Connect does not answer. Without an answer, a restart is allowed, because only a restart
        shows when the connector reaches its source again.

    Raises:
        TributaryError: The log begins after Connect's stored position, and it is not known yet
            whether anything was lost: a commit of the connector can be late in Kafka, or Kafka or
            the registry does not answer.
    """
    try:
        log = source.log_health()
        stored = stored_position(connect, names)
    except TributaryError as error:
        _log.info("the log of connector %s was not looked at: %s", names.connector, error)
        return None
    captured = sent.certain_position(names, log, stored)
    try:
        lost = log.problem(captured, exactly_once=sent.exactly_once)
    except TributaryError as error:
        _log.info("the log of connector %s was not looked at: %s", names.connector, error)
        return None
    return None if lost is None else f"{log.title} {lost}"


def restart_connector(
    connect: ConnectClient,
    restarts: Restarts,
    name: str,
    failed: FailedConnector,
    lost: Callable[[], str | None],
) -> FailedConnector:
    """Restart a capture's connector if a restart is due and nothing was lost.

    If several processes call this at once, only one of them restarts the connector.

    Args:
        connect: Kafka Connect.
        restarts: The record of restarts in the state store.
        name: The connector's name.
        failed: The connector's failure.
        lost: Returns the result of `lost_before_restart`.

    Returns:
        The failure. Its reason also names the number of restarts so far, or what forbids a restart.
    """
    if (what := lost()) is not None:
        reason = f"{failed.reason} (not restarted, since {what})"
        return replace(failed, reason=reason, remedy=MARK_FIRST, given_up=True)
    tried = restarts.claim(name, outage=failed.outage)
    tries, refused = _restarts_text(tried, failed), ""
    if tried.now:
        try:
            restart(connect, name, only_failed=not failed.runs)
        except OtherConnectorError as error:
            return replace(failed, reason=f"{failed.reason}, and {error}", remedy=error.remedy)
        except ConnectError as error:
            refused = f", which Connect refused: {error.message}"
    given_up = _is_last_restart(tried, failed) and not tried.now
    return replace(failed, reason=f"{failed.reason} ({tries}{refused})", given_up=given_up)


def restart(connect: ConnectClient, name: str, *, only_failed: bool = True) -> None:
    """Restart a capture's connector, even if it cannot start from its stored offset.

    After a TRUNCATE of several tables, Debezium cannot start from some stored offsets. This call
    first replaces such an offset (see `after_truncate`).

    Args:
        connect: Kafka Connect.
        name: The connector's name.
        only_failed: Whether to restart only what has failed: the connector itself, or its tasks.

    Raises:
        ConnectError: Connect does not answer, or refuses.
    """
    stored = connect.offset(name) or {}
    if after_truncate(stored) == stored:
        connect.restart(name, only_failed=only_failed)
        return
    _log.warning("connector %s goes on after a TRUNCATE of several tables", name)
    connect.change_offset(name, after_truncate)


def explained(name: str, trace: str) -> FailedConnector:
    """Return the failure of a capture's connector, with reason and remedy, from a stack trace."""
    reason = f"connector {name} failed: {redact(failures.explain(trace))}"
    remedy = failures.remedy(trace, f"Correct the cause; to restart it at once, {RETRY}.")
    return FailedConnector(reason, remedy, outage=failures.is_outage(trace))


def disconnected(names: CaptureNames) -> FailedConnector:
    """Return the failure of a running connector that has lost its connection to the source."""
    reason = f"connector {names.connector} runs, but has lost its connection to the server"
    remedy = f"{silence_remedy(names)} To restart it at once, {RETRY}."
    return FailedConnector(reason, remedy, runs=True, outage=True)


class Recovery:
    """Restarts a failed or disconnected connector while a command waits for a capture's changes.

    No run checks the connector during such a wait. Without a restart, one transient failure, for
    example a broken connection, would end the command with a time-out.

    Args:
        connect: Kafka Connect.
        leases: The leases of captures. A restart needs the capture's lease, because another process
            that holds this lease can have stopped the connector on purpose.
        store: The state store, which records the restarts.
        kafka: The cluster, whose records show whether a running connector has a connection.
        config: The configuration of the captures' sources.
        sent: Reads what connectors have sent to Kafka.
    """

    def __init__(
        self,
        connect: ConnectClient,
        leases: Leases,
        store: Store,
        kafka: KafkaAdmin,
        config: Config,
        sent: SentRecords,
    ) -> None:
        self._connect = connect
        self._leases = leases
        self._restarts = Restarts(store)
        self._kafka = kafka
        self._config = config
        self._sent = sent
        self._next_look = 0.0

    def restart_if_failed(self, names: CaptureNames, source: SourceCapture) -> None:
        """Restart the capture's connector if it has failed or lost its connection.

        Connect and Kafka are queried at most once in five seconds.

        Args:
            names: The capture.
            source: The capture on the source's server.

        Raises:
            CaptureError: The connector failed again after the last allowed restart, or changes were
                lost while it did not run.
        """
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        try:
            failed = self._restarted(names, source)
        except (ConnectError, DecodeError, KafkaError, LeaseHeldError, RegistryError) as error:
            _log.info("connector %s was not restarted: %s", names.connector, error)
            return
        if failed is None:
            return
        _log.warning("%s", failed.reason)
        if failed.given_up:
            raise CaptureError(failed.reason, remedy=failed.remedy, connector=names.connector)

    def _restarted(self, names: CaptureNames, source: SourceCapture) -> FailedConnector | None:
        """Restart a failed or disconnected connector under its capture's lease; return the failure.

        The result is None if there is no failure.
        """
        if self._failure(names) is None:
            return None
        with self._leases.hold(names.resource):
            failed = self._failure(names)
            if failed is None:
                return None
            lost = partial(lost_before_restart, source, self._connect, names, self._sent)
            return restart_connector(self._connect, self._restarts, names.connector, failed, lost)

    def _failure(self, names: CaptureNames) -> FailedConnector | None:
        """Return a connector's failure or lost connection; None if it has neither."""
        status = self._connect.status(names.connector)
        if status is None:
            return None
        if status.failure is not None:
            return explained(names.connector, status.failure)
        lost = status.running and lost_connection(self._kafka, self._config, names)
        return disconnected(names) if lost else None


def _is_last_restart(tried: Restarted, failed: FailedConnector) -> bool:
    """Return whether a capture's connector has had its last automatic restart."""
    return not failed.outage and tried.next_at is None and tried.times >= LIMIT


def _restarts_text(tried: Restarted, failed: FailedConnector) -> str:
    """Describe the restarts of a capture's connector: how many, and when the next is allowed."""
    if _is_last_restart(tried, failed):
        return f"restarted {tried.times} times in a row, and not again by itself"
    again = (
        "" if tried.next_at is None else f", the next one not before {tried.next_at:%H:%M:%S} UTC"
    )
    limit = "" if failed.outage else f" of {LIMIT}"
    return f"restarted, time {tried.times}{limit}{again}"
