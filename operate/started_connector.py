"""Waits for a connector that a command has started, and restarts it after its first failure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cdc.capture.recovery import MARK_FIRST, lost_before_restart, restart
from cdc.errors import CaptureError, ConnectError

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services

_log = logging.getLogger(__name__)


class StartedConnector:
    """Restarts what has failed of a connector, once, while a command waits for the connector.

    Kafka Connect can fail a task by an error of its own that does not come again. No run restarts
    the task of a capture whose first tables wait for it, and each repeated command would find it.

    Args:
        services: The services of the command, which holds the capture's lease.
        capture: The capture.
    """

    def __init__(self, services: Services, capture: CaptureNames) -> None:
        self._services = services
        self._capture = capture
        self._restarted = False

    def wait_running(self) -> None:
        """Wait until the connector and its tasks run.

        Raises:
            ConnectError: The connector has failed again, or the limit of the wait has passed.
            CaptureError: A restart would hide that changes were lost.
        """
        connect, name = self._services.connect, self._capture.connector
        try:
            connect.wait_running(name, progress=self._services.progress)
        except ConnectError as error:
            if not self._restart(error):
                raise
            connect.wait_running(name, progress=self._services.progress)

    def require_sound(self) -> None:
        """Check that the connector has not failed; restart it if this is its first failure.

        Raises:
            ConnectError: The connector has failed again.
            CaptureError: A restart would hide that changes were lost.
        """
        try:
            self._services.connect.require_sound(self._capture.connector)
        except ConnectError as error:
            if not self._restart(error):
                raise

    def _restart(self, error: ConnectError) -> bool:
        """Restart what has failed of the connector; return False if it was restarted before.

        Raises:
            CaptureError: A restart would hide that changes were lost.
        """
        services, capture = self._services, self._capture
        source = services.source(capture.source).capture(capture)
        status = services.connect.status(capture.connector)
        if self._restarted or status is None or status.failure is None:
            return False
        self._restarted = True
        lost = lost_before_restart(source, services.connect, capture, services.sent)
        if lost is not None:
            raise CaptureError(
                f"{error.message} (not restarted, since {lost})",
                remedy=MARK_FIRST,
                connector=capture.connector,
            ) from error
        _log.warning("%s; it is restarted once", error.message)
        restart(services.connect, capture.connector)
        return True
