"""Values that show whether a server's log continues from the end that was recorded earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogMark:
    """The end of a server's log at one moment.

    Args:
        server: The server's id. The servers that replicate from this server have other ids.
        file: Name of the log's newest file. It was read after `executed`. So each file that the
            server begins later begins after the position `executed`.
        executed: The position up to which the server had executed transactions, as text.
    """

    server: str
    file: str
    executed: str


@dataclass(frozen=True)
class Continuity:
    """A comparison of a server's log with the mark that was recorded earlier.

    Args:
        earlier: The recorded mark; None if no mark was recorded.
        mark: The log's end now.
        lost: Why the log does not continue from `earlier`; None if it continues from there.
    """

    earlier: LogMark | None
    mark: LogMark
    lost: str | None = None


@dataclass(frozen=True)
class SentTransaction:
    """A transaction that wrote a heartbeat or a marker, as a connector has sent it.

    Args:
        server: The server that executed the transaction. For MySQL, this is the server's UUID; for
            MariaDB, the server's number in its GTIDs.
        file: The log file from which the connector read the transaction.
        gtid: The transaction's GTID.
        named: The server's name in the row that the transaction wrote. The name distinguishes two
            servers that have had the same number.
    """

    server: str
    file: str
    gtid: str
    named: str = ""


Sent = Callable[[str], Sequence[SentTransaction]]
"""Takes a log file; returns the transactions that a connector has sent from it or a later file."""
