"""The columns that this product adds to rows: every name, its Spark type and what it means.

The columns of a lake row are in :data:`META_COLUMNS`, :data:`ROW`, :data:`DELETED` and :data:`KEY`.
The others exist between the decoder and the writer only.
"""

from __future__ import annotations

PREFIX = "_cdc_"
"""Prefix of every name below."""

RESERVED_PREFIXES = (PREFIX, "_hoodie_")
"""No source column may have a name that begins so, in letters of either case."""

# Columns of the lake.

OP = "_cdc_op"
"""Operation that made the row: ``r`` (copied), ``c`` (inserted), ``u`` (updated) or, where deletes
are soft, ``d`` (deleted). Events also have ``t`` (TRUNCATE) and NULL (it cannot be applied)."""

SOURCE_TS = "_cdc_source_ts"
"""Time of the change on the source, UTC; for a copied row, the time at which its view was taken."""

POSITION = "_cdc_position"
"""Position of the change in the source's log, as text that sorts in the order of the log."""

OFFSET = "_cdc_offset"
"""Offset of the event in its topic; the ordering field of upserts."""

SCHEMA_ID = "_cdc_schema_id"
"""Registry id of the schema that the event was written with; NULL for a copied row."""

INGESTED_AT = "_cdc_ingested_at"
"""Time of the run or of the copy that wrote the row, UTC."""

META_COLUMNS: tuple[tuple[str, str], ...] = (
    (OP, "string"),
    (SOURCE_TS, "timestamp"),
    (POSITION, "string"),
    (OFFSET, "bigint"),
    (SCHEMA_ID, "int"),
    (INGESTED_AT, "timestamp"),
)
"""Name and Spark type of the columns before the source's columns, in order."""

META_NAMES = tuple(name for name, _ in META_COLUMNS)

ROW = "_cdc_row"
"""Record key of a table without a key: the place that the row comes from, in the copy, in the topic
or in the binlog; a string."""

DELETED = "_cdc_deleted"
"""Whether the row was deleted on the source, a boolean; only where deletes are soft."""

KEY = "_cdc_key"
"""Record key as one text; only where the key columns are not left to Hudi's own key generators."""

SNAPSHOT_OFFSET = -1
""":data:`OFFSET` of a copied row: it sorts before every event."""

SNAPSHOT_POSITION = "0"
""":data:`POSITION` of a copied row: it sorts before every position. It is short, since each row of
a copy has it."""

# Columns of decoded events, which the lake does not have.

PARTITION = "_cdc_partition"
"""Partition of the topic, an int."""

TRANSACTION = "_cdc_transaction"
"""Number of the event's transaction on the source, a bigint."""

ORDER = "_cdc_order"
"""Number of the event within its transaction, a bigint; only of a table without a key."""

UNAVAILABLE = "_cdc_unavailable"
"""Names of the columns whose value the connector did not have, an array; NULL when it had all."""

UNCLEAR = "_cdc_unclear"
"""Whether a column of :data:`UNAVAILABLE` may have changed, a boolean: its value is a NULL that was
sent as the column's default, or the column is always asked of the source."""

PROBLEM = "_cdc_problem"
"""Why the record cannot be applied, a string; NULL when it can."""

DECODED_ONLY = (PARTITION, TRANSACTION, ORDER, UNAVAILABLE, UNCLEAR, PROBLEM)

# Columns of folded rows, which the lake does not have.

MISSING = "_cdc_missing"
"""Names of the columns whose value the batch does not have, an array; NULL when it has all."""

MOVED = "_cdc_moved"
"""Whether the row came to its key within the batch, a boolean. Then the lake's row under that key
is another row."""


def scratch(name: str) -> str:
    """The name of a column that exists within one function only."""
    return f"{PREFIX}scratch_{name}"


def is_reserved(name: str) -> bool:
    """Whether a source column of that name would collide with a column of ours or of Hudi's."""
    return name.lower().startswith(RESERVED_PREFIXES)
