"""Views: consistent images of a source, and their positions in the source's log."""

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
    """The position S of a source's view: the view has all transactions up to S, and no others."""

    def known(self) -> LogPosition:
        """Return the view's position S; call this after all of the view's sessions are open.

        Raises:
            cdc.errors.SourceError: The sessions of the view see the source at different positions.
        """

    def failure(self) -> TributaryError | None:
        """Return the error due to which S cannot be found; None if no error has occurred."""


@dataclass(frozen=True)
class KnownSplit:
    """A view's position S that is known as soon as the view of the source is open.

    Args:
        at: The position S.
    """

    at: LogPosition

    def known(self) -> LogPosition:
        """Return the position S, which the source reported when it opened the view."""
        return self.at

    def failure(self) -> None:
        """Return None, since the position S is already known."""


@dataclass(frozen=True)
class View:
    """What the sessions of a copy read: one image of the source, or an image for each session.

    Args:
        snapshot_id: If all sessions read the same rows, the id that they share. On PostgreSQL, each
            session imports the view by this id; on MySQL and MariaDB, all sessions with this id
            open their views at the same time. Empty if each session opens a view of its own at its
            own time. In that case, the changes that the stream applies from offset O on make the
            copy exact.
        upper_bound: A position of the source's log. If PostgreSQL's sessions import the view, the
            view contains no commit after this position. Otherwise this is the marker's position,
            and the sessions can see commits after this position.
        opened_at: Time at which the view was opened, UTC.
        on_replica: Whether the sessions read the replica.
        marker: The marker that every session must see inside the view.
        identity: Identity of the server on which the view is open.
        warnings: Warnings about checks that the server does not permit, one sentence each.
        split: The position S up to which the view has all transactions, and no others; None if this
            position is not known.
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
    """Whether copies of a source table need an exact view: a view at a known position.

    Copies of an append table need an exact view: if a copy contains a row, the row's event must not
    append the row again. Copies of a table with the setting ``one_view`` need an exact view only if
    the source's sessions cannot share a view. Each session then opens a view of its own, and all
    these views have the same position.
    """
    return settings.appends or (settings.one_view and not source.shares_views)
