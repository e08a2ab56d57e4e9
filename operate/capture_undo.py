"""Removes what a failed onboarding has created of a capture, if no table needs the capture.

A slot without a reader would retain the source's WAL for ever. A slot, publication or connector
that existed before the onboarding is not removed: another installation of Tributary could use the
same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import listed
from operate.lost_capture import users_of
from operate.tier_capture import members, remove_tables
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from operate.tier_capture import Group

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """What existed of a capture before ``onboard`` changed the capture.

    Args:
        connector: Whether the capture's connector existed.
        kept_log: Whether the capture's slot existed. Also True for MySQL and MariaDB, which have no
            slots.
        tables: The tables that the capture contained.
    """

    connector: bool
    kept_log: bool
    tables: frozenset[TableId]


def look(services: Services, names: CaptureNames) -> Found | None:
    """Return what exists of a capture; call this function before ``onboard`` changes the capture.

    The result is None if a table on the plan uses the capture.

    Raises:
        ConnectError: Kafka Connect cannot be queried.
        SourceError: The source cannot be queried.
    """
    if users_of(services, names):
        return None
    kept = services.source(names.source).capture(names).kept_log
    return Found(
        connector=services.connect.connector(names.connector) is not None,
        kept_log=kept is None or kept.exists(),
        tables=members(services, names),
    )


def undo(services: Services, group: Group, before: Found | None) -> str:
    """Remove what ``onboard`` has created of a capture, except the topics.

    If a table on the plan uses the capture, nothing is removed.

    Args:
        services: The services of the command.
        group: The tables of the onboarding, with their capture.
        before: What existed before the onboarding. If None, nothing is removed.

    Returns:
        Text for the onboarding's error, which names what could not be removed; empty if all was
        removed.
    """
    names = group.capture
    if before is None or users_of(services, names):
        return ""
    on_source = services.source(names.source).capture(names)
    steps: list[tuple[str, Callable[[], object]]] = []
    if not before.connector:
        delete = partial(services.connect.delete, names.connector, progress=services.progress)
        steps.append((f"connector {names.connector}", delete))
    if not before.kept_log and (kept := on_source.kept_log) is not None:
        steps.append((kept.title, kept.drop))
    if before.connector or before.kept_log or before.tables:
        if new := [table for table in group.tables if table not in before.tables]:
            remove = partial(remove_tables, services, names, new)
            steps.append((f"its new tables {listed(new)}", remove))
    elif (sent := on_source.sent_tables) is not None:
        steps.append((sent.title, sent.drop))
    left = [text for what, step in steps if (text := _undo_step(what, step)) is not None]
    if not left:
        return ""
    return (
        f"This command could not remove all that it had created: {'; '.join(left)}. Remove it by"
        " hand, or onboard again soon: a slot without a reader retains the log."
    )


@contextmanager
def undone_if_interrupted(names: CaptureNames, undo_all: Callable[[], str]) -> Iterator[None]:
    """Remove what ``onboard`` has created of a capture if a signal ends the ``with`` block.

    No record names the capture or its new tables yet, so nobody would watch them. After the
    removal, the signal's exception is raised again. If the block raises a ``TributaryError``
    instead, nothing is removed here: the caller does it. Each step of the removal has a time limit,
    and a second signal ends the step that is running.

    Args:
        names: The capture.
        undo_all: Removes what was created; returns a text that names what could not be removed.
    """
    try:
        yield
    except TributaryError:
        raise
    except BaseException:
        _log.warning("what was created of %s is removed, if no table needs it", names.resource)
        try:
            if left := undo_all():
                _log.warning("%s", left)
        except TributaryError as error:
            _log.warning("what was created of %s is left: %s", names.resource, error)
        raise


def _undo_step(what: str, step: Callable[[], object]) -> str | None:
    """Execute a step by which ``onboard`` undoes a capture; return a message if it failed."""
    try:
        step()
    except TributaryError as error:
        _log.warning("%s could not be removed: %s", what, error)
        return f"{what} ({error.message})"
    return None
