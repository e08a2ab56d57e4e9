"""Restarts failed connectors, for runs and for commands that wait for changes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.connect import failures
from cdc.errors import CaptureError, ConnectError, LeaseHeldError
from cdc.store.connector_restarts import LIMIT
from schemas.redaction import redact

if TYPE_CHECKING:
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.store.connector_restarts import Restarted, Restarts
    from cdc.store.lease import Leases

_log = logging.getLogger(__name__)

RETRY = "run `tributary retry` for one of its tables"
"""The instruction, in a remedy, by which an operator restarts a connector."""
_LOOK_S = 5.0


@dataclass(frozen=True)
class FailedConnector:
    """A connector that has failed, or that has a failed task.

    Args:
        reason: The failure, its cause, and the number of restarts so far.
        remedy: What to do.
        given_up: Whether no process restarts the connector any more.
    """

    reason: str
    remedy: str
    given_up: bool


def restart_failed(
    connect: ConnectClient, restarts: Restarts, name: str, trace: str
) -> FailedConnector:
    """Restart a failed connector if a restart is due and unclaimed; return its failure.

    Args:
        connect: Kafka Connect.
        restarts: The restarts so far.
        name: The connector.
        trace: The stack trace of the connector's failure.
    """
    failed = explained(name, trace)
    tried = restarts.claim(name)
    tries, refused = _restarts_text(tried), ""
    if tried.now:
        try:
            connect.restart(name)
        except ConnectError as error:
            refused = f", which Connect refused: {error.message}"
    given_up = tried.next_at is None and tried.times >= LIMIT and not tried.now
    return FailedConnector(f"{failed.reason} ({tries}{refused})", failed.remedy, given_up)


def explained(name: str, trace: str) -> FailedConnector:
    """Return the reason and the remedy of a connector's failure; do not restart it."""
    reason = f"connector {name} failed: {redact(failures.explain(trace))}"
    remedy = failures.remedy(trace, f"Correct the cause; to restart it at once, {RETRY}.")
    return FailedConnector(reason, remedy, given_up=False)


class Recovery:
    """Restarts a failed connector while a command waits for its changes.

    No run checks the connector during such a wait. Without restarts, the command would wait until
    its bound after one transient failure, such as a broken connection or a Kafka transaction that
    timed out.

    Args:
        connect: Kafka Connect.
        leases: Leases of captures. A process that changes a capture holds the capture's lease.
            Such a process can have stopped the connector for a moment.
        restarts: The restarts so far.
    """

    def __init__(self, connect: ConnectClient, leases: Leases, restarts: Restarts) -> None:
        self._connect = connect
        self._leases = leases
        self._restarts = restarts
        self._next_look = 0.0

    def restart_if_failed(self, names: CaptureNames) -> None:
        """Restart the connector if it has failed; query Connect at most once in five seconds.

        Raises:
            CaptureError: The connector failed again after the last allowed restart.
        """
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        try:
            failed = self._restarted(names)
        except (ConnectError, LeaseHeldError) as error:
            _log.info("connector %s was not restarted: %s", names.connector, error)
            return
        if failed is None:
            return
        _log.warning("%s", failed.reason)
        if failed.given_up:
            raise CaptureError(failed.reason, remedy=failed.remedy, connector=names.connector)

    def _restarted(self, names: CaptureNames) -> FailedConnector | None:
        """Restart the connector under its capture's lease; return None if it has not failed."""
        name = names.connector
        if self._failure_reason(name) is None:
            return None
        with self._leases.hold(names.resource):
            trace = self._failure_reason(name)
            if trace is None:
                return None
            return restart_failed(self._connect, self._restarts, name, trace)

    def _failure_reason(self, name: str) -> str | None:
        """Return the stack trace of a connector's failure; None if it has not failed."""
        status = self._connect.status(name)
        return None if status is None else status.failure


def _restarts_text(tried: Restarted) -> str:
    """Return as text how often a connector was restarted, and when the next restart is due."""
    if tried.next_at is None and tried.times >= LIMIT:
        return f"restarted {tried.times} times in a row, and not again by itself"
    again = (
        "" if tried.next_at is None else f", the next one not before {tried.next_at:%H:%M:%S} UTC"
    )
    return f"restarted, time {tried.times} of {LIMIT}{again}"
