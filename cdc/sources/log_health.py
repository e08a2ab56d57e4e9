"""The health of the log that a source's server retains for one capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from cdc.log.position import LogPosition

Stored = Callable[[], LogPosition | None]
"""Returns the position that Connect has stored; None if Connect has stored no position."""


class LogHealth(Protocol):
    """The health of a source's log for one capture."""

    @property
    def title(self) -> str:
        """The name of the source's log in messages."""

    @property
    def active(self) -> bool | None:
        """Whether a connector reads the source's log now; None if the server does not report it."""

    @property
    def retained_bytes(self) -> int | None:
        """Size of the source's retained log in bytes; None if it is not known."""

    @property
    def danger(self) -> str | None:
        """Why the source's log may soon lose uncaptured changes; None if they are safe."""

    def problem(
        self,
        stored: LogPosition | None = None,
        recorded: LogPosition | None = None,
        *,
        exactly_once: bool = False,
    ) -> str | None:
        """Return why the source's log has lost uncaptured changes; None if none are lost.

        Args:
            stored: The connector's position in the offsets of Kafka Connect. The caller must read
                this position later than it reads this `LogHealth`. None if Connect has stored no
                position, or if the position is not known.
            recorded: A position up to which a lake table has all changes. So these changes were
                captured for certain.
            exactly_once: Whether the connector writes to Kafka in transactions.
        """

    def confirmed_after(
        self, stored: LogPosition | None, *, while_read: bool = False
    ) -> LogPosition | None:
        """Return the position that the server has recorded as captured, if it is after ``stored``.

        The result is None if the recorded position is not after ``stored``, or if the server has
        recorded no position.

        Args:
            stored: The connector's position in the offsets of Kafka Connect; None if there is none.
            while_read: Whether to compare the positions even while a connector reads the log. If
                False, the result is None while a connector reads the log.
        """

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Return the position in the source's log up to which Kafka has all changes.

        The result is None if the position is not known.

        Args:
            stored: Reads the connector's position in the offsets of Kafka Connect.
            exactly_once: Whether the connector writes to Kafka in transactions.
        """

    def facts(self) -> dict[str, Any]:
        """Return a mapping of facts, such as the log's size, for ``status`` and messages."""
