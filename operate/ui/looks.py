"""Reads the fleet's facts for the page: one reading serves all viewers for some seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.errors import StateError
from cdc.store.copy_progress import CopyReports
from operate.bounded_calls import BoundedCalls, Overdue, result
from operate.metrics.exposing import BOUND_S
from operate.metrics.facts import FactReader
from operate.ui import CACHE_S

if TYPE_CHECKING:
    from cdc.store.copy_progress import CopyProgress
    from operate.context import Services
    from operate.metrics.facts import Facts
    from schemas.table import TableId

_KEPT_S = 300.0
"""Maximum age, in seconds, of facts that the page shows while newer facts are read."""
_WAIT_S = 12.0
"""How long a viewer waits for new facts if the known facts are too old, in seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Look:
    """One look: the facts of all tables and captures at one time.

    Args:
        facts: What `status`, `plan` and the newest runs say. The field ``facts.status`` is None if
            the state store did not answer.
        copies: The newest report of each copy, by table and by whether the table's next generation
            is copied.
    """

    facts: Facts
    copies: Mapping[tuple[TableId, bool], CopyProgress] = field(default_factory=dict)


def take_look(services: Services, reader: FactReader) -> Look:
    """Read the facts of all tables and captures once, as one look that the page can show."""
    facts = reader.read()
    try:
        reports = CopyReports(services.store).all() if facts.status is not None else ()
    except StateError as error:
        _log.warning("the progress of copies is not known: %s", error)
        reports = ()
    return Look(facts, {(one.table, one.beside): one for one in reports})


class Looks:
    """The newest look (one reading of the fleet's facts), which all viewers share.

    If the newest look no longer counts as new when a viewer comes, the next look begins. A viewer
    gets the newest look at once if the look is at most some minutes old. If the look is older, the
    viewer waits for the next look.

    Args:
        services: The services. No Spark session is started.
        cache_s: How long a look counts as new, in seconds.
    """

    def __init__(self, services: Services, *, cache_s: float = CACHE_S) -> None:
        self._services = services
        self._cache_s = cache_s
        self._reader = FactReader(services, BOUND_S)
        self._calls = BoundedCalls()
        self._known: tuple[float, Look] | None = None

    def begin(self) -> None:
        """Begin the next look (reading of the facts), unless a look is already being taken."""
        self._calls.start("look", self._take)

    def newest(self) -> Look | None:
        """Return the newest look (reading of the facts); None if no look can be taken now."""
        if (found := self._younger_than(self._cache_s)) is not None:
            return found
        call = self._calls.start("look", self._take)
        if (found := self._younger_than(_KEPT_S)) is not None:
            return found
        try:
            return result(call, "the facts", time.monotonic() + _WAIT_S)
        except Overdue as error:
            _log.warning("ui: %s", error)
        except Exception:  # noqa: BLE001 - unforeseen; it ends this answer, not the process
            _log.exception("ui: the facts could not be read")
        return None

    def _younger_than(self, seconds: float) -> Look | None:
        known = self._known
        return known[1] if known is not None and time.monotonic() < known[0] + seconds else None

    def _take(self) -> Look:
        found = take_look(self._services, self._reader)
        self._known = (time.monotonic(), found)
        return found
