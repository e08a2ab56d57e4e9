"""Checks that Kafka Connect still writes in transactions if the settings require it.

`connect.exactly_once` is a property of connectors, but the workers must support it. Connect checks
this only when a connector is configured. If workers restart without the support, for example from
another image, the connectors go on without transactions.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from cdc.errors import ConnectError
from operate.bounded_calls import BoundedCalls, result
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from operate.context import Services

_log = logging.getLogger(__name__)
_EVERY_S = 600.0
"""Seconds from a check that found workers with support for transactions to the next check."""
_ASK_S = 10.0
"""Longest time to wait for the answer of Kafka Connect, in seconds."""
SET_ON_WORKERS = "Set exactly.once.source.support=enabled on every worker."


class Transactions:
    """The support of Kafka Connect's workers for transactions, as of the last check.

    Args:
        services: The services of the command.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next = 0.0
        self.supported = True
        """Whether the workers had the support at the last look, or the settings do not need it."""

    def look(self) -> ConnectError | None:
        """Return an error if ``connect.exactly_once`` is set and the workers do not support it.

        Workers that lack the support are asked again at each call, other workers every ten minutes.
        If Connect does not answer, the result is None: other checks report the missing answer.
        """
        config = self._services.config
        if not config.connect.exactly_once or time.monotonic() < self._next:
            return None
        connect = self._services.connect
        try:
            call = BoundedCalls().start("worker", connect.worker)
            worker = result(call, "Kafka Connect", time.monotonic() + _ASK_S)
        except TributaryError as error:
            _log.info("Kafka Connect's support for transactions was not checked: %s", error)
            return None
        self.supported = worker.exactly_once is not False
        if not self.supported:
            return ConnectError(
                "connect.exactly_once is true, but Kafka Connect's workers have no exactly-once"
                " source support: connectors write without transactions",
                remedy=f"{SET_ON_WORKERS} Then restart the connectors.",
            )
        self._next = time.monotonic() + _EVERY_S
        return None
