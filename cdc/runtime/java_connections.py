"""Closes a Python thread's connection to the JVM after the thread has ended.

Each Python thread that calls Java has a connection of its own, and a thread of its own in the JVM.
py4j keeps the connections in a list, and removes a connection once when its thread ends. But if
Java has called Python in the thread, for example the guard of a commit, the list has the connection
twice. Without this module, the connection would then stay open.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def close_with_threads(session: SparkSession) -> None:
    """Let each new connection to the JVM close the connections of threads that have ended."""
    gateway: Any = session.sparkContext._gateway
    client = gateway._gateway_client
    create = getattr(client, "_create_new_connection", None)  # other clients share connections
    if create is not None and not isinstance(getattr(create, "__self__", None), _Connections):
        client._create_new_connection = _Connections(client).create


class _Connections:
    """The connections that a client of py4j has opened, each with its thread.

    Args:
        client: The client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._opened = client._create_new_connection
        self._owners: list[tuple[threading.Thread, weakref.ReferenceType[Any]]] = []
        self._lock = threading.Lock()

    def create(self) -> Any:
        """Open a connection for the current thread, and close those of threads that have ended."""
        made = self._opened()
        with self._lock:
            owners = [*self._owners, (threading.current_thread(), weakref.ref(made))]
            ended = [made_then for thread, made_then in owners if not thread.is_alive()]
            self._owners = [one for one in owners if one[0].is_alive() and one[1]() is not None]
        for connection in filter(None, (one() for one in ended)):
            with suppress(ValueError):  # until the list has the connection no more
                while True:
                    self._client.deque.remove(connection)
            connection.close()
        return made
