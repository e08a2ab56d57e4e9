"""Opens the servers of a capture, and sends queries to each until its first error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.evidence import Answer
    from cdc.connect import ConnectClient
    from cdc.kafka import KafkaAdmin
    from cdc.sources.base import Source

S = TypeVar("S")
T = TypeVar("T")


class ServerQueries(Generic[S]):
    """Sends queries to one server until the server's first error.

    After this error, each further query is answered with the same error, without a request. So a
    server that is down costs one time-out, and not one per query.

    Args:
        opened: Opens the server's client.
    """

    def __init__(self, opened: Callable[[], S]) -> None:
        self._opened = opened
        self._away: TributaryError | None = None

    def ask(self, look: Callable[[S], T]) -> Answer[T]:
        """Return the server's answer to a query, or the first error of the server."""
        if self._away is None:
            try:
                return look(self._opened())
            except TributaryError as error:
                self._away = error
        return self._away


@dataclass(frozen=True)
class ServerOpeners:
    """Functions that open the clients of a capture's servers.

    Args:
        source: Opens the source database.
        kafka: Opens Kafka.
        connect: Opens Kafka Connect.
    """

    source: Callable[[], Source]
    kafka: Callable[[], KafkaAdmin]
    connect: Callable[[], ConnectClient]
