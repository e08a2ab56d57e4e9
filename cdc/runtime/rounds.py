"""When the newest round of `run --continuous` ended, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone


@dataclass(frozen=True)
class Round:
    """One round: a search for tables with work, and the offer of these tables to the workers.

    Args:
        ended_at: When the round ended.
        seconds: How long the round took, including the round's checks of captures.
    """

    ended_at: datetime
    seconds: float


class Rounds:
    """The newest round of this process; another thread may read it at any time."""

    def __init__(self) -> None:
        self.newest: Round | None = None
        """The newest round that could reach Kafka and the state store; None if there is none."""

    def note(self, seconds: float) -> None:
        """Record a round that ends now and took ``seconds``."""
        self.newest = Round(datetime.now(timezone.utc), seconds)
