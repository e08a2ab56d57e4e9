"""Removes what a failed onboarding has created of a capture, if no table needs the capture.

A slot without a reader would retain the source's WAL for ever. A slot, publication or connector
that existed before the onboarding is not removed: another installation of Tributary could use the
same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import listed
from cdc.errors import RefusedError
from cdc.store.table_state import State
from operate.lost_capture import users_of
from operate.tier_capture import members, remove_tables
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from operate.table_outcome import Outcome
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
        Text that names what could not be removed, for the onboarding's error; empty if all was
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


def withdrawn(
    services: Services,
    group: Group,
    outcomes: list[Outcome],
    theirs: Collection[TableId],
) -> list[Outcome]:
    """Remove from their capture the tables whose onboarding failed; return all outcomes.

    If these tables cannot be removed, the errors in their outcomes say so, and the onboarding of
    the other tables goes on.

    Args:
        services: The services of the command.
        group: The tables of the onboarding, with their capture.
        outcomes: The tables' outcomes.
        theirs: The tables that another program has put into the capture; they stay in it.
    """
    failed = {one.table for one in outcomes if one.error is not None} - {*theirs}
    try:
        withdraw(services, group, failed)
    except TributaryError as error:
        stuck = _refused_tables(error) or failed
        left = f"It is still captured, since it could not be removed: {error.message}"
        return [
            replace(one, error=one.error.advising(left))
            if one.error is not None and one.table in stuck
            else one
            for one in outcomes
        ]
    return outcomes


def _refused_tables(error: TributaryError) -> set[object]:
    """Return the tables that an error names as refused; empty if it names none."""
    if isinstance(error, RefusedError):
        return {*error.errors}
    return {error.context["refused"]} if "refused" in error.context else set()


def withdraw_new(services: Services, group: Group, before: Collection[TableId]) -> str:
    """Remove the tables that a failed onboarding has added to a capture of other tables.

    For PostgreSQL, only the source is queried, and not Kafka Connect, which can be the cause of the
    failure.

    Args:
        services: The services of the command.
        group: The tables of the onboarding, with their capture.
        before: The tables that the capture contained before the onboarding.

    Returns:
        Text for the onboarding's error, if the tables could not be removed; else an empty string.
    """
    try:
        withdraw(services, group, {*group.tables} - {*before})
    except TributaryError as error:
        return f"Its tables are still captured, since they could not be removed: {error.message}"
    return ""


def withdraw(services: Services, group: Group, tables: Collection[TableId]) -> None:
    """Remove from their capture, in one step, tables whose onboarding failed.

    Tables that are on the plan stay in the capture.
    """
    if not tables:
        return
    records = services.store.tables()
    on_plan = {record.table for record in records if record.state is not State.RETIRED}
    if gone := [table for table in group.tables if table in tables and table not in on_plan]:
        remove_tables(services, group.capture, gone)


def _undo_step(what: str, step: Callable[[], object]) -> str | None:
    """Execute a step by which ``onboard`` undoes a capture; return a message if it failed."""
    try:
        step()
    except TributaryError as error:
        _log.warning("%s could not be removed: %s", what, error)
        return f"{what} ({error.message})"
    return None
