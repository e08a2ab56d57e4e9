"""Closes the connections to the JVM of Python threads that have ended.

Each Python thread that calls Java has a connection of its own, and a thread of its own in the JVM.
py4j closes the connection when the Python thread ends. But the end of a thread can call Java once
more, for example to release an object. Then py4j opens a new connection, which nothing closes.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def close_with_threads(session: SparkSession) -> None:
    """Let each new connection to the JVM close the connections of threads that have ended."""
    gateway: Any = session.sparkContext._gateway
    client = gateway._gateway_client
    client._create_new_connection = _Connections(client).create


class _Connections:
    """The connections that a client of py4j has opened, each with its thread.

    Args:
        client: The client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._opened = client._create_new_connection
        self._owners: list[tuple[threading.Thread, Any]] = []
        self._lock = threading.Lock()

    def create(self) -> Any:
        """Open a connection for the current thread, and close those of threads that have ended."""
        made = self._opened()
        with self._lock:
            owners = [*self._owners, (threading.current_thread(), made)]
            self._owners = [one for one in owners if one[0].is_alive()]
        for thread, connection in owners:
            if not thread.is_alive():
                with suppress(ValueError):  # py4j has removed it
                    self._client.deque.remove(connection)
                connection.close()
        return made
