"""The columns that Tributary adds to rows: each one's name, Spark type and meaning.

Each lake row has :data:`META_COLUMNS`. The rows of some lake tables also have :data:`ROW`,
:data:`DELETED` or :data:`KEY`. The other columns of this module exist only between the decoder and
the writer.
"""

from __future__ import annotations

PREFIX = "_cdc_"
"""Prefix of each column name in this module."""

RESERVED_PREFIXES = (PREFIX, "_hoodie_")
"""Prefixes that no source column's name may have, in upper or lower case."""

# Columns of the lake.

OP = "_cdc_op"
"""Operation that made the row: ``r`` (copied), ``c`` (inserted) or ``u`` (updated). If the table's
deletes are soft, it can also be ``d`` (deleted). A decoded record can also have ``t`` (TRUNCATE) or
``tombstone``. A decoded record that cannot be applied has NULL."""

SOURCE_TS = "_cdc_source_ts"
"""Time of the change on the source, UTC; for a copied row, the start of the attempt."""

POSITION = "_cdc_position"
"""Position of the change in the source's log, as text that sorts in the order of the log."""

OFFSET = "_cdc_offset"
"""Offset of the event in its topic. In an upsert, a key's row with the greatest offset wins."""

SCHEMA_ID = "_cdc_schema_id"
"""Registry id of the schema with which the event was written; NULL for a copied row."""

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
"""Name and Spark type of the columns that precede the source's columns, in order."""

META_NAMES = tuple(name for name, _ in META_COLUMNS)

ROW = "_cdc_row"
"""Record key of an append table. For a copied row, it is the row's place in the copy. For an event
of PostgreSQL, it is the event's place in the topic. For an event of a binlog, it is the event's
place in the binlog and the number of its transaction."""

DELETED = "_cdc_deleted"
"""Whether the row was deleted on the source. Only a table with soft deletes has this column."""

KEY = "_cdc_key"
"""Record key as one text. A lake table has this column if Hudi's own key generators do not build
the key."""

ROW_COLUMN = (ROW, "string")
DELETED_COLUMN = (DELETED, "boolean")
KEY_COLUMN = (KEY, "string")
"""Name and Spark type of a column that only some lake tables have."""

SNAPSHOT_OFFSET = -1
"""The :data:`OFFSET` of a copied row, so that the row sorts before every event."""

SNAPSHOT_POSITION = "0"
"""The :data:`POSITION` of a copied row, which sorts before every position of the log. The text is
short, since each row of a copy has it."""

# Columns of decoded events, which the lake does not have.

PARTITION = "_cdc_partition"
"""Partition of the topic, an int."""

SENT = "_cdc_sent"
"""Kafka's timestamp of the record, in milliseconds since 1970, a bigint."""

TRANSACTION = "_cdc_transaction"
"""Number of the event's transaction on the source, a bigint."""

ORDER = "_cdc_order"
"""Number of the event among the table's events in its transaction, a bigint. Only the events of an
append table have this column."""

UNAVAILABLE = "_cdc_unavailable"
"""Names of the columns whose value the connector did not have, an array; NULL if it had all."""

UNCLEAR = "_cdc_unclear"
"""Names of those columns of :data:`UNAVAILABLE` whose value the event could have changed, an array;
NULL if there are none. There are three cases: the connector could have sent a value in place of a
NULL; a binlog event does not show the value clearly; or the column is always read from the
source."""

PROBLEM = "_cdc_problem"
"""The reason why the record cannot be applied, a string; NULL if it can be applied."""

DECODED_ONLY = (PARTITION, SENT, TRANSACTION, ORDER, UNAVAILABLE, UNCLEAR, PROBLEM)

# Columns of folded rows, which the lake does not have.

MISSING = "_cdc_missing"
"""Names of the columns for which the batch has no value of this row, an array; NULL if there are
none. The lake's row with the same key has these values, unless the row was moved."""

STALE = "_cdc_stale"
"""Names of the columns for which the batch has no value of this row and the lake's value is
outdated, an array; NULL if there are none. Only the source's row has the current values."""

MOVED = "_cdc_moved"
"""Whether the row got its key within the batch, a boolean. If so, the lake's row with that key is
another row."""


def scratch(name: str) -> str:
    """Return the name of a ``_cdc_`` column that exists only within one function."""
    return f"{PREFIX}scratch_{name}"


def is_reserved(name: str) -> bool:
    """Return whether a source column's name begins like a ``_cdc_`` column or a column of Hudi."""
    return name.lower().startswith(RESERVED_PREFIXES)
