"""Removes former generations whose retention time is over, for INCREMENTAL tables.

Each copy of a table ends with such a removal, too. This module removes the generations whose
retention time ends after the table's last copy.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.errors import LeaseHeldError
from cdc.lake.generations import FolderKind, Generation, generations, superfluous
from cdc.lake.ownership import Ownership
from cdc.lake.publish import attempts_there, delete_attempts
from cdc.run.commits import keep_size
from cdc.run.published_generation import check_serving
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.lake.pointer import Pointer
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)


def remove_former(
    context: RunContext, records: Iterable[TableRecord], *, limit_s: float = math.inf
) -> None:
    """After runs, remove former generations that readers no longer need, in a random order.

    A failure is logged and not raised. A table's folder in the lake is read only if the pointer
    names more former generations than the settings retain, and the retention time of a former
    generation is over.

    Args:
        context: The runs' context. ``context.served`` has the pointers that this process has read.
        records: The tables.
        limit_s: Seconds after which no further table's generations are removed.
    """
    deadline = time.monotonic() + limit_s
    shuffled = [*records]
    random.shuffle(shuffled)
    for record in shuffled:
        if time.monotonic() >= deadline:
            return
        pointer = context.served.with_former.get(record.table)
        if pointer is None:
            continue
        try:
            _remove_superfluous(context, record, pointer)
        except LeaseHeldError as held:
            _log.info("former generations of table %s are removed later: %s", record.table, held)
        except TributaryError as error:
            _log.warning("former generations of table %s were not removed: %s", record.table, error)


def _remove_superfluous(context: RunContext, record: TableRecord, pointer: Pointer) -> None:
    """After a run, remove those former generations of a table that readers no longer need."""
    settings, attempts = context.settings(record), [one.attempt for one in pointer.former]
    owner = Ownership.of(record, context.store.installation)
    if len(attempts) > settings.retain_generations:
        if not _removable_generations(pointer, attempts, settings, owner):
            return
        attempts = attempts_there(context.spark, record.base_path, attempts)
    if len(attempts) <= settings.retain_generations:
        context.served.note_nothing_to_remove(record.table, pointer)
    elif _removable_generations(pointer, attempts, settings, owner):
        _remove_under_lease(context, record, settings, attempts)


def _remove_under_lease(
    context: RunContext, record: TableRecord, settings: TableSettings, there: Collection[str]
) -> None:
    """Take the table's lease, read the pointer again, and remove superfluous former attempts."""
    with context.leases.hold(record.resource):
        # The record and the pointer can be older than the lease.
        record = context.store.newest(record)
        pointer = check_serving(context, record)
        owner = Ownership.of(record, context.store.installation)
        gone = (
            _removable_generations(pointer, there, settings, owner) if pointer is not None else []
        )
        delete_attempts(context.spark, record.base_path, [one.attempt for one in gone])
        keep_size(context.spark, context.store, record)
    for one in gone:
        _log.info("removed former attempt %s of table %s", one.attempt, record.table)


def _removable_generations(
    pointer: Pointer, there: Collection[str], settings: TableSettings, owner: Ownership
) -> list[Generation]:
    """Return the former generations among ``there`` that a run can remove now.

    Args:
        pointer: The table's pointer.
        there: UUIDs of the former attempts that still have a folder.
        settings: The table's settings.
        owner: Recognizes the attempts (copies of the table) of other installations.
    """
    folders = dict.fromkeys((pointer.current.attempt, *there), 0)
    keep, now = timedelta(seconds=settings.readers_keep_s), datetime.now(timezone.utc)
    found = generations(folders, pointer, (), owner.is_other)
    gone = superfluous(found, settings.retain_generations, keep=keep, now=now)
    return [one for one in gone if one.kind is FolderKind.FORMER]
