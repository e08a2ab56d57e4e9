"""Values for checking whether a server's log continues from its recorded end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogMark:
    """The end of a server's log at one moment.

    Args:
        server: The server's id. The servers that replicate from this server have other ids. For
            PostgreSQL, a slash and the number of the server's timeline follow.
        file: Name of the log's newest file, read after `executed`. So every file with a higher
            number begins after the position `executed`. For PostgreSQL, this is instead
            the time when the server's statistics were reset, in seconds since 1970. If the
            statistics of the replication slot were ever reset, a slash and the time of this reset
            follow.
        executed: The position up to which the server had executed transactions, as a string. For
            PostgreSQL, the numbers of transactions and of bytes that the replication slot has
            decoded.
    """

    server: str
    file: str
    executed: str


@dataclass(frozen=True)
class Continuity:
    """A comparison of the present end of a server's log with the end that was recorded earlier.

    Args:
        earlier: The end that was recorded earlier; None if no end was recorded.
        mark: The present end.
        lost: A message that says why the log does not continue from `earlier`. None if the log
            continues from `earlier`.
    """

    earlier: LogMark | None
    mark: LogMark
    lost: str | None = None


@dataclass(frozen=True)
class SentTransaction:
    """A transaction that wrote Tributary's heartbeat or marker row, as a connector has sent it.

    Args:
        server: The server that executed the transaction. For MySQL, this is the server's UUID; for
            MariaDB, the server id in the GTID.
        file: The log file from which the connector read the transaction.
        gtid: The transaction's GTID.
        named: The server's name in the row that the transaction wrote. The name distinguishes two
            servers with the same server id.
    """

    server: str
    file: str
    gtid: str
    named: str = ""


Sent = Callable[[str], Sequence[SentTransaction]]
"""Takes a log file; returns the transactions that a connector has sent from this file or a later
file."""
