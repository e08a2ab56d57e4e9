"""Points a table's name in the catalog of names (Hive Metastore) at the published generation."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.errors import FencedError, LakeError, LeaseHeldError, StateError
from cdc.lake.metastore import CatalogEntry, OtherTableError, forget, show
from cdc.lake.shards import TURN_S
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config import Config
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)
_TRIES = 4


def keep_name(
    context: RunContext,
    record: TableRecord,
    check: Callable[[], None],
    *,
    wait_s: float = TURN_S,
) -> TableRecord:
    """Point a table's name in the catalog of names at the table's published attempt.

    If the settings have given the table another name since the last call, the former name is
    removed. Without a catalog of names, the function does nothing.

    Args:
        context: The runs' context.
        record: The table's record.
        check: Raises FencedError if this process no longer holds the table's lease.
        wait_s: Bound of the wait for another process that changes a shared table, in seconds.

    Returns:
        The table's record as stored, with the name, and with the attempt to which the name points.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name belongs to another table.
        LeaseHeldError: Another process holds the shared table's lease for longer than ``wait_s``.
        FencedError: This process no longer holds the table's lease. The name may point at an
            outdated generation. If so, the table's record shows that the name is not up to date.
        StateError: The state store cannot be reached.
    """
    entry, catalog = _catalog_entry(context.config, record), context.config.catalog
    if entry is None or catalog is None:
        return record
    shared = None if record.shard is None else context.shared(entry.path)
    with nullcontext() if shared is None else shared.hold_lease(wait_s=wait_s):
        check()
        show(context.spark, catalog.metastore, entry)
    try:
        check()
    except FencedError:
        _note_outdated_name(context, record)
        raise
    if (former := _former_entry(record, entry)) is not None:
        _remove_former_name(context.spark, catalog.metastore, former)
    noted = replace(record, named=_note_of_name(catalog.metastore, entry), shown_as=str(entry))
    return record if noted == record else context.store.put(noted)


def _former_entry(record: TableRecord, entry: CatalogEntry) -> CatalogEntry | None:
    """Return the catalog entry of a table's former name; None if the settings have kept the name.

    Also None for a shard, since the templates for names do not apply to a shared lake table.
    """
    if record.shown_as in (None, str(entry)) or record.shard is not None:
        return None
    database, _, name = str(record.shown_as).partition(".")
    return replace(entry, database=database, name=name)


def _remove_former_name(spark: SparkSession, metastore: str, former: CatalogEntry) -> None:
    """Remove the former name that runs kept for a table, if no other table has the name now.

    Raises:
        LakeError: The metastore refuses or cannot be reached.
    """
    try:
        forget(spark, metastore, former)
    except OtherTableError as error:
        _log.info("the former name %s stays: %s", former, error)
    else:
        _log.info("removed the former name %s", former)


def _note_outdated_name(context: RunContext, record: TableRecord) -> None:
    """Store in a table's record that the table's name in the catalog of names may be outdated.

    If another process changes the record at the same time, the function tries again.

    Raises:
        StateError: Other processes changed the record at each try, or the store cannot be reached.
    """
    for tries_left in reversed(range(_TRIES)):
        newest = context.store.newest(record)
        if newest.named is None:
            return
        try:
            context.store.put(replace(newest, named=None))
        except StateError:
            if not tries_left:
                raise
        else:
            return


def follow_name(context: RunContext, record: TableRecord, *, wait_s: float = TURN_S) -> None:
    """Update a table's name in the catalog of names after a run.

    If another process holds the table's lease, nothing happens.

    If the table is a shard and another process holds the shared lake table's lease, the shard's
    record shows that the name is not up to date. `name_idle` then updates the name later.

    This function takes the table's lease. Without the lease, another process could publish a new
    generation at the same time, and this function could then point the name back at the old
    generation.

    Args:
        context: The runs' context.
        record: The table's record.
        wait_s: Bound of the wait for another process that changes a shared table, in seconds.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name belongs to another table.
        FencedError: This process has lost the table's lease meanwhile.
        StateError: The state store cannot be reached.
    """
    if context.config.catalog is None:
        return
    try:
        with context.leases.hold(record.resource) as lease:
            now = context.store.newest(record)
            # A run can commit changes, and then stop its table.
            if State.INCREMENTAL in (now.state, now.resume_to):
                try:
                    keep_name(context, now, lease.check, wait_s=wait_s)
                except LeaseHeldError:
                    context.store.put(replace(now, named=None))
                    raise
    except LeaseHeldError as held:
        _log.info("the name of table %s was not checked: %s", record.table, held)


def name_idle(
    context: RunContext, records: Iterable[TableRecord], *, limit_s: float = math.inf
) -> None:
    """In the catalog of names, update the outdated names of tables without new changes.

    A publication or a run succeeds even if the metastore does not answer, so a name can be
    outdated. A name counts as up to date if the table's record says so, and as outdated in all
    other cases. This function updates the outdated names. It stops at the first error of the
    metastore, since a metastore that does not answer would delay the run once per table. The order
    of the tables is random, so the next call likely begins with another table.

    Args:
        context: The runs' context.
        records: The tables.
        limit_s: Seconds after which no further name is updated.
    """
    followed = [record for record in records if record.state is State.INCREMENTAL]
    random.shuffle(followed)
    deadline = time.monotonic() + limit_s
    for record in followed:
        if time.monotonic() >= deadline:
            return
        try:
            if not _is_name_noted(context.config, record):
                # All tables of the run wait meanwhile. The next look comes soon.
                follow_name(context, record, wait_s=0)
        except FencedError as error:
            _log.info("the name of table %s was not checked: %s", record.table, error)
        except LakeError as error:
            _log.warning("%s", error)
            return
        except TributaryError as error:
            _log.warning("the name of table %s was not checked: %s", record.table, error)


def drop_name(spark: SparkSession, config: Config, record: TableRecord) -> None:
    """Remove the name that runs keep for a table in the catalog of names; the table's data stays.

    If the settings have changed the name since runs last stored the name in the table's record, the
    former name is removed, too.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name belongs to another table.
    """
    entry = _catalog_entry(config, record)
    if entry is not None and config.catalog is not None:
        if (former := _former_entry(record, entry)) is not None:
            _remove_former_name(spark, config.catalog.metastore, former)
        forget(spark, config.catalog.metastore, entry)


def _is_name_noted(config: Config, record: TableRecord) -> bool:
    """Whether a table's record shows that the name in the catalog of names is up to date.

    Also True if there is no catalog of names, or if the table has no attempt yet.
    """
    entry, catalog = _catalog_entry(config, record), config.catalog
    return (
        entry is None or catalog is None or record.named == _note_of_name(catalog.metastore, entry)
    )


def _note_of_name(metastore: str, entry: CatalogEntry) -> str:
    """Return the string that a table's record has while the catalog of names has ``entry``."""
    return f"{metastore} {entry} {entry.path}"


def _catalog_entry(config: Config, record: TableRecord) -> CatalogEntry | None:
    """Return the entry that runs keep for a table in the catalog of names.

    None if there is no catalog of names, or if the table has no attempt.
    """
    shard = record.shard
    name = config.catalog_name(record.table, shard)
    if name is None or record.attempt is None:
        return None
    settings = config.table_settings(record.table)
    partition_by = tuple(one.lake_name for one in settings.partition_by)
    return CatalogEntry(
        *name,
        table_base=record.base_path if shard is None else shard.base_path,
        path=record.attempt.path,
        partition_by=partition_by if shard is None else (shard.column, *partition_by),
    )
