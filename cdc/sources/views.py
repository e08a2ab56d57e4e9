"""Images of a source's database that sessions read under, and their place in its log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from cdc.log.position import LogPosition
from cdc.sources.values import Marker, ServerIdentity
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.sources.base import Source


class Split(Protocol):
    """S of a view: the view contains exactly the transactions that ended at or before it."""

    def known(self) -> LogPosition:
        """S, once the sessions that read under the view are open.

        Raises:
            cdc.errors.SourceError: They could not be opened so that it is known.
        """

    def failure(self) -> TributaryError | None:
        """Why there will be no S, as far as that is known."""


@dataclass(frozen=True)
class KnownSplit:
    """An S that is known as soon as the view is there.

    Args:
        at: S.
    """

    at: LogPosition

    def known(self) -> LogPosition:
        """S."""
        return self.at

    def failure(self) -> None:
        """None."""


@dataclass(frozen=True)
class View:
    """One consistent image of the database that other sessions can import.

    Args:
        snapshot_id: By which sessions of the same server share it, or come together to open; empty
            where each session has a view of its own, which the replay from O makes exact, too.
        upper_bound: Replayed so far when it was opened; sessions that join later may see more.
        opened_at: When, in UTC.
        on_replica: Whether the sessions go to the replica.
        marker: The marker that every session must see inside the view.
        identity: The server the view was opened on.
        warnings: Checks that the server does not permit, one sentence each.
        split: S; None where only a bound is known.
    """

    snapshot_id: str
    upper_bound: LogPosition
    opened_at: datetime
    on_replica: bool
    marker: Marker
    identity: ServerIdentity
    warnings: tuple[str, ...] = ()
    split: Split | None = None


def wants_exact_view(source: Source, settings: TableSettings) -> bool:
    """Whether copies of a table need a view of a known position.

    Those of a log do, which nothing may be replayed over; and those that are to be of one moment,
    where it is the only view of several sessions.
    """
    return settings.appends or (settings.one_view and not source.shares_views)
