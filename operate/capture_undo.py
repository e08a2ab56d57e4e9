"""The removal of what a refused onboarding created: an unread slot keeps the log for ever.

Only what was not there before is removed. The names may be shared with another installation that
this one does not know, and this one must not drop its slot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from operate.lost_capture import on_plan
from operate.tier_capture import leave, members
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from operate.tier_capture import Group

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """The parts of a capture before an onboarding.

    Args:
        connector: Whether its connector existed.
        kept_log: Whether the source kept its log, or needs nothing for that.
        tables: The tables in it.
    """

    connector: bool
    kept_log: bool
    tables: frozenset[TableId]


def look(services: Services, names: CaptureNames) -> Found | None:
    """Read the parts of a capture; None when tables are on the plan, since then the capture stays.

    Raises:
        ConnectError: Kafka Connect cannot be queried.
        SourceError: The source cannot be queried.
    """
    if on_plan(services, names):
        return None
    kept = services.source(names.source).capture(names).kept_log
    return Found(
        connector=services.connect.connector(names.connector) is not None,
        kept_log=kept is None or kept.exists(),
        tables=members(services, names),
    )


def undo(services: Services, group: Group, before: Found | None) -> str:
    """Remove what was not there before, unless a table is on the plan; topics stay.

    Returns:
        The parts that could not be removed and how to do it by hand; empty when nothing is left.
    """
    names = group.capture
    if before is None or on_plan(services, names):
        return ""
    on_source = services.source(names.source).capture(names)
    steps: list[tuple[str, Callable[[], object]]] = []
    if not before.connector:
        delete = partial(services.connect.delete, names.connector, progress=services.progress)
        steps.append((f"connector {names.connector}", delete))
    if not before.kept_log and (kept := on_source.kept_log) is not None:
        steps.append((kept.title, kept.drop))
    if before.connector or before.kept_log or before.tables:
        for table in group.tables:
            if table not in before.tables:
                steps.append((f"table {table} in it", partial(leave, services, names, table)))
    elif (sent := on_source.sent_tables) is not None:
        steps.append((sent.title, sent.drop))
    left = [text for what, step in steps if (text := _failure(what, step)) is not None]
    if not left:
        return ""
    return (
        f"This command could not remove all that it had created: {'; '.join(left)}. Remove it by"
        " hand, or onboard again soon: a slot without a reader retains the log."
    )


def _failure(what: str, step: Callable[[], object]) -> str | None:
    try:
        step()
    except TributaryError as error:
        _log.warning("%s could not be removed: %s", what, error)
        return f"{what} ({error.message})"
    return None
