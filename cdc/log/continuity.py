"""Values by which a later look finds out whether a server's log goes on from an earlier look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogMark:
    """The end of a server's log at one moment.

    Args:
        server: The id that distinguishes the server from those that replicate from it.
        file: The log's newest file, read after `executed`. So each later file begins after that
            position.
        executed: The position up to which the server had executed transactions, as text.
    """

    server: str
    file: str
    executed: str


@dataclass(frozen=True)
class Continuity:
    """A comparison of a server's log with the mark of an earlier look.

    Args:
        earlier: The mark of the earlier look; None if there was none.
        mark: The log's end now.
        lost: Why the log no longer continues from the earlier mark; None if it does.
    """

    earlier: LogMark | None
    mark: LogMark
    lost: str | None = None


@dataclass(frozen=True)
class SentTransaction:
    """A transaction that a connector has sent.

    Args:
        server: The server that executed the transaction: MySQL's id of a server, or the number of
            MariaDB's server, which its GTIDs contain.
        file: The log file from which the connector read the transaction.
        gtid: Its GTID.
        named: The server's name in the row; two servers that had the same number differ in it.
    """

    server: str
    file: str
    gtid: str
    named: str = ""


Sent = Callable[[str], Sequence[SentTransaction]]
"""Takes a log file; returns the transactions that a connector has sent from it or a later file."""
