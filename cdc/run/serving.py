"""Whether readers are sent to the generation that a table's record in the state store names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import LostHistoryError
from cdc.lake.publish import read_pointer
from cdc.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.state import TableRecord


def check_serving(spark: SparkSession, record: TableRecord) -> None:
    """Refuse to go on with a generation that readers are not sent to.

    A state store that was restored from a backup names a former generation: what is applied there
    reaches nobody.

    Args:
        spark: The session whose file systems are used.
        record: The table; only one that is kept up to date is looked at.

    Raises:
        LostHistoryError: Record and pointer do not agree.
        LakeError: The pointer cannot be read.
    """
    attempt = record.attempt
    if attempt is None or State.INCREMENTAL not in (record.state, record.resume_to):
        return
    shared = record.shard if attempt.shard is not None else None
    base = shared.base_path if shared is not None else record.base_path
    pointer = read_pointer(spark, base)
    if pointer is not None and pointer.path == attempt.path:
        return
    known = f"the state store knows generation {record.generation}, attempt {attempt.id}"
    if pointer is None:
        found = "readers are sent nowhere: there is no pointer"
    else:
        shown = pointer.current
        found = (
            f"readers are sent to generation {shown.generation}, attempt {shown.attempt},"
            f" published at {shown.published_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    raise LostHistoryError(
        f"{known} of table {record.table}, and {found} in {base}",
        remedy="Was the state store or the lake restored from a backup? Restore the other one from"
        f" the same time; or run `tributary bootstrap {record.table}`, which makes a new"
        " generation.",
        table=record.table,
        path=base,
    )


def no_offsets(record: TableRecord, reason: str) -> LostHistoryError:
    """The error of a table whose generation does not say up to where it has read."""
    return LostHistoryError(
        f"the lake does not say up to where table {record.table} was read: {reason}",
        remedy=f"Copy the table again: `tributary bootstrap {record.table}`.",
        table=record.table,
        topic=record.topic,
    )
