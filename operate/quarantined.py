"""``quarantine``: lists, shows and replays the records that runs left out of the lake."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cdc.errors import StateError
from cdc.store.quarantine import Quarantine, Quarantined
from operate.lifecycle import LEASE_WAIT_S, require
from operate.table_outcome import Outcome

if TYPE_CHECKING:
    from operate.context import Services
    from schemas.table import TableId

_ROW_BYTES = 16


def kept(services: Services, tables: Sequence[TableId]) -> list[Quarantined]:
    """Return the quarantined records of the given tables, without the records' bytes."""
    wanted = set(tables)
    attempts = [
        str(record.attempt.id)
        for record in services.store.tables()
        if record.table in wanted and record.attempt is not None
    ]
    return Quarantine(services.store).list(attempts)


def one(services: Services, table: TableId, offset: int, *, partition: int = 0) -> Quarantined:
    """Return one quarantined record with its bytes.

    Raises:
        StateError: There is no quarantined record at this offset.
    """
    attempt = require(services, table).attempt
    found = None
    if attempt is not None:
        found = Quarantine(services.store).get(str(attempt.id), offset, partition=partition)
    if found is None:
        raise StateError(
            f"table {table} has no quarantined record at offset {offset}",
            remedy=f"See `tributary quarantine list {table}` for its records.",
            table=table,
            offset=offset,
        )
    return found


def replay(services: Services, table: TableId, *, first: int | None = None) -> Outcome:
    """Apply the quarantined records that can be applied now, with the later changes of their rows.

    A record that still cannot be applied stays in quarantine, and a note names it.

    Args:
        services: The services of the command.
        table: The table.
        first: Offset of the first quarantined record to apply. Earlier records stay in quarantine.
            None applies all quarantined records.
    """
    from cdc.run import replay_table

    done = replay_table(
        services.run_context, require(services, table), first=first, lease_wait_s=LEASE_WAIT_S
    )
    state = require(services, table).state
    notes = [
        f"the record at offset {problem.offset} still cannot be applied: {problem.reason}"
        for problem in done.left_out
    ]
    return Outcome(
        table,
        f"replayed {done.records:,} records, and read {done.applied.events:,} changes since then",
        state,
        details={
            "replayed": done.records,
            "left_out": [problem.offset for problem in done.left_out],
            "notes": notes,
        },
    )


def to_json(record: Quarantined, *, with_bytes: bool = False) -> dict[str, Any]:
    """Return a quarantined record as commands show it; ``with_bytes`` adds its bytes in base64."""
    values = {
        "table": str(record.table),
        "topic": record.topic,
        "topic_id": record.topic_id,
        "partition": record.partition,
        "offset": record.offset,
        "schema_id": record.schema_id,
        "reason": record.reason,
        "timestamp": record.timestamp,
        "size": record.size,
        "attempt": record.attempt,
        "run_id": record.run_id,
        "quarantined_at": record.quarantined_at,
    }
    if with_bytes:
        values |= {"key": _bytes_in_base64(record.key), "value": _bytes_in_base64(record.value)}
    return values


def hexdump(data: bytes, limit: int) -> Iterator[str]:
    """Yield a quarantined record's first bytes as lines of offset, bytes and characters."""
    for at in range(0, min(len(data), limit), _ROW_BYTES):
        row = data[at : min(at + _ROW_BYTES, limit)]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:06x}  {row.hex(' '):<{3 * _ROW_BYTES}} {shown}"
    if len(data) > limit:
        yield f"and {len(data) - limit:,} more bytes"


def _bytes_in_base64(data: bytes | None) -> str | None:
    """Return the key or value of a quarantined record in base64, for JSON."""
    return None if data is None else base64.b64encode(data).decode()
