"""Deletes what an offboarded table has in the lake, in the Hive Metastore, and in Kafka.

Generations and a pointer of another installation can be in the same folder. These stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.lake.pointer import POINTER
from cdc.store.table_state import State
from operate.shards import is_beside
from tributary_reader.reader_files import FOLDER as READERS

if TYPE_CHECKING:
    from cdc.store.lease import Lease
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import Shard


def remove_data(services: Services, record: TableRecord, lease: Lease) -> list[str]:
    """Delete an offboarded table: its folder in the lake, its name in the metastore, its topic.

    Args:
        services: The services of the command.
        record: The table's record.
        lease: The table's lease.

    Returns:
        A note on the files and folders that stay in the table's folder, since this installation
        did not make them; empty if nothing stays.
    """
    from cdc.lake.ownership import Ownership
    from cdc.lake.publish import delete_table, read_pointer
    from cdc.run import drop_name
    from cdc.run.period_markers import MARKERS

    owner = Ownership.of(record, services.store.installation)
    if record.shard is not None:
        _leave_shared_table(services, record, record.shard, lease)
    else:
        pointer = read_pointer(services.spark, record.base_path)
        if pointer is None or not owner.is_other(pointer.attempt):
            drop_name(services.spark, services.config, record)
    left = delete_table(services.spark, record.base_path, owner, besides=(READERS, MARKERS))
    services.kafka.delete_topic(record.topic)
    if not left:
        return []
    return [f"{record.base_path} has {', '.join(left)}, which this installation did not make"]


def _leave_shared_table(
    services: Services, record: TableRecord, shard: Shard, lease: Lease
) -> None:
    """Remove an offboarded shard's rows, and the shared lake table if no shard remains."""
    from cdc.lake.ownership import Ownership
    from cdc.lake.publish import delete_path, read_pointer
    from cdc.lake.shards import shared_path
    from cdc.run import drop_name
    from cdc.run.published_generation import known_commit

    owner = Ownership.of(record, services.store.installation)
    path = shared_path(services.spark, shard, owner)
    shared = services.run_context.shared(path)

    def delete_if_last() -> bool:
        with shared.hold_lease():
            others = (one for one in services.store.tables() if one.table != record.table)
            if any(is_beside(one, shard) and one.state is not State.RETIRED for one in others):
                return False
            pointer = read_pointer(services.spark, shard.base_path)
            if pointer is None or pointer.path == path:
                if record.attempt is not None:
                    shown = replace(record.attempt, path=path, shard=shard.name)
                    drop_name(services.spark, services.config, replace(record, attempt=shown))
                # Remove the pointer first: a pointer to a removed table would look like a lost one.
                delete_path(services.spark, f"{shard.base_path}/{POINTER}")
                delete_path(services.spark, f"{shard.base_path}/{READERS}")
            delete_path(services.spark, path)
            return True

    # A table that is deleted takes no commit before, so it can be deleted if it is not whole.
    if not delete_if_last():
        settings, known = services.config.table_settings(record.table), known_commit(record)
        shared.remove(shard, settings, lambda _: lease.check(), known=known)
        delete_if_last()
