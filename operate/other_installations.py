"""Keeps an installation from writing to a lake folder that belongs to another installation.

An installation can take such a folder over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.errors import LakeError, OtherInstallationError
from cdc.lake.pointer import read_local
from cdc.store.table_state import State
from operate.lake_storage import folder_here
from operate.lifecycle import LEASE_WAIT_S
from operate.table_outcome import Outcome, for_each

if TYPE_CHECKING:
    from cdc.lake.pointer import Pointer
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_AT_ONCE = 32
"""Number of pointers (files that name a table's serving generation) that are read at a time."""


def refuse_other_lakes(
    services: Services, tables: Sequence[TableId], *, with_spark: bool
) -> dict[TableId, OtherInstallationError]:
    """Return an error for each new table in whose folder another installation has published.

    Tables on the plan are not checked here, since copies and runs check their folders.

    Args:
        services: The services of the command.
        tables: The tables to onboard.
        with_spark: Whether Spark may be started to read folders that are not local. If False, or if
            the lake does not answer, the copy checks the folder later.
    """
    from cdc.lake.ownership import Ownership

    known = {record.table: record for record in services.store.tables()}

    def one(table: TableId) -> OtherInstallationError | LakeError | None:
        record, base = known.get(table), _pointers_folder(services, table)
        owner = Ownership(services.store.installation, table, record)
        try:
            owner.require(_pointer_in_folder(services, base, with_spark=with_spark), base)
        except LakeError as error:
            return error
        return None

    new = [
        table
        for table in tables
        if (record := known.get(table)) is None or record.state is State.RETIRED
    ]
    found: dict[TableId, OtherInstallationError] = {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(new) or 1), thread_name_prefix="pointers") as pool:
        for table, error in zip(new, pool.map(one, new), strict=True):
            if isinstance(error, OtherInstallationError):
                found[table] = error
            elif error is not None:
                _log.info("the folder of table %s was not looked at: %s", table, error)
    return found


def take_over_folders(services: Services, tables: Sequence[TableId]) -> list[Outcome]:
    """Record that this installation takes over other installations' attempts in tables' folders.

    Args:
        services: The services of the command.
        tables: Tables on the plan.

    Returns:
        One outcome per table, in the order given. A table fails if its folder in the lake cannot be
        read, or if another process works on it.

    Raises:
        ClusterError: A cluster is needed to read the lake, and cannot be used.
    """
    if tables and folder_here(services.config, services.config.lake.url) is None:
        services.require_cluster()  # once: for each table, the wait for executors would take long
    return for_each(tables, lambda table: _take_over_folder(services, table), action="take over")


def _take_over_folder(services: Services, table: TableId) -> Outcome:
    """Take over other installations' attempts in the folders of one table."""
    done = Outcome(table, "took its folder over")
    with services.leases.hold(table, wait_s=LEASE_WAIT_S):
        record = services.store.get(table)
        if record is None or not (others := _attempts_of_others(services, record)):
            return done
        taken = (*record.taken_over, *others)
        services.store.put(replace(record, taken_over=taken, updated_at=datetime.now(timezone.utc)))
    _log.info("table %s has taken over attempts %s", table, ", ".join(others))
    return done


def _attempts_of_others(services: Services, record: TableRecord) -> list[str]:
    """Return the UUIDs of other installations' attempts in a table's folders, each once."""
    from cdc.lake.ownership import Ownership

    owner, shard = Ownership.of(record, services.store.installation), record.shard
    found: list[str] = []
    for base in (record.base_path, *(() if shard is None else (shard.base_path,))):
        pointer = _pointer_in_folder(services, base, with_spark=True)
        if pointer is not None:
            found += [one.attempt for one in (pointer.current, *pointer.former)]
        found += _attempts_in_folder(services, base)
    return [one for one in dict.fromkeys(found) if owner.is_other(one)]


def _pointers_folder(services: Services, table: TableId) -> str:
    """Return the folder in which readers find the pointer to a table that a command onboards."""
    shard = services.config.shard(table)
    return services.config.table_path(table) if shard is None else shard.base_path


def _pointer_in_folder(services: Services, base: str, *, with_spark: bool) -> Pointer | None:
    """Return the pointer in a folder; None without a pointer, or if the folder may not be read."""
    from cdc.lake.publish import read_pointer

    if (folder := folder_here(services.config, base)) is not None:
        return read_local(folder)
    return read_pointer(services.spark, base) if with_spark else None


def _attempts_in_folder(services: Services, base: str) -> list[str]:
    """Return the UUIDs of the attempts in a folder; Spark is started only for a remote folder."""
    from cdc.lake.publish import ATTEMPT, attempt_names

    if (folder := folder_here(services.config, base)) is not None:
        return sorted(one.name.removeprefix(ATTEMPT) for one in folder.glob(f"{ATTEMPT}*"))
    return attempt_names(services.spark, base)
