"""Views, the consistent images of a source that sessions read, and their position in its log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from cdc.log.position import LogPosition
from cdc.sources.source_facts import Marker, ServerIdentity
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.sources.base import SnapshotReader


class Split(Protocol):
    """S of a view: the view contains exactly the transactions that ended at or before S."""

    def known(self) -> LogPosition:
        """S, once the sessions that read under the view are open.

        Raises:
            cdc.errors.SourceError: The sessions could not be opened so that S is known.
        """

    def failure(self) -> TributaryError | None:
        """Why S will never be known; None while no failure is known."""


@dataclass(frozen=True)
class KnownSplit:
    """An S that is known as soon as the view is open.

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
    """One consistent image of the source that all sessions of a copy read.

    Args:
        snapshot_id: The id by which sessions of one server share the view, or open at the same
            time. It is empty if each session has a view of its own; then the replay from O makes
            the copy exact.
        upper_bound: The position that the server had reached when the view was opened. Sessions
            that have views of their own may see more.
        opened_at: When it was opened, in UTC.
        on_replica: Whether the sessions go to the replica.
        marker: The marker that every session must see inside the view.
        identity: The server the view was opened on.
        warnings: Checks that the server does not permit, one sentence each.
        split: S; None if only a bound is known.
    """

    snapshot_id: str
    upper_bound: LogPosition
    opened_at: datetime
    on_replica: bool
    marker: Marker
    identity: ServerIdentity
    warnings: tuple[str, ...] = ()
    split: Split | None = None


def wants_exact_view(source: SnapshotReader, settings: TableSettings) -> bool:
    """Whether copies of a table need a view of a known position.

    A log needs it, since no event may be replayed over its copy. A table with ``one_view`` needs it
    if sessions of the source cannot share another kind of view.
    """
    return settings.appends or (settings.one_view and not source.shares_views)
