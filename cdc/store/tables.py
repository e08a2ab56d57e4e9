"""The state store's tables in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

if TYPE_CHECKING:
    from schemas.table import TableId

FORMAT = 5
"""Version of the SQL tables in this module. A state store of any other version is refused."""

MYSQL = ("mysql", "mariadb")


def _name_type(length: int = 128) -> TypeEngine[str]:
    """Return the state store's SQL type of names, which every server compares byte by byte."""
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *MYSQL)


def _document_type() -> TypeEngine[str]:
    """Return the state store's SQL type of strings of any length, unlike MySQL's TEXT of 64 KiB."""
    return sa.Text().with_variant(mysql.LONGTEXT(), *MYSQL)


def _bytes_type() -> TypeEngine[bytes]:
    """Return the state store's SQL type of bytes of any length, unlike MySQL's BLOB of 64 KiB."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)


metadata = sa.MetaData()

format_rows = sa.Table(
    "tributary_format",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)
"""One row with the `FORMAT` of the store."""

installation_rows = sa.Table(
    "tributary_installation",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("node", sa.BigInteger, nullable=False),
)
"""The identity of the installation, in a single row. The column ``only`` is always 1."""

table_rows = sa.Table(
    "tributary_table",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("beside", sa.Boolean, primary_key=True),
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("record", _document_type(), nullable=False),
)
"""One row per table, and one more for a next generation that a resync builds (``beside``)."""


def _history_table(name: str, *further: sa.Column[Any]) -> sa.Table:
    """Return the SQL table of a history; a row has an entry, the entry's table, and its time.

    Args:
        name: The SQL table's name.
        further: Columns that only this history has.
    """
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        *further,
        sa.Column("source", _name_type(), nullable=False),
        sa.Column("schema_name", _name_type(), nullable=False),
        sa.Column("table_name", _name_type(), nullable=False),
        sa.Column("noted_at", sa.Double, nullable=False, index=True),
        sa.Column("entry", _document_type(), nullable=False),
        sa.Index(f"{name}_table", "source", "schema_name", "table_name", "id"),
        sqlite_autoincrement=True,  # the id of a deleted entry is never given to another one
    )


run_rows = _history_table("tributary_run")
"""The run history: one row per entry, which is one run of a table, or several earlier runs of an
hour."""

state_change_rows = _history_table("tributary_state_change")
"""The history of states: one row per change of a table's state, or of a next generation's state."""

cost_rows = sa.Table(
    "tributary_cost",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("cost", _document_type(), nullable=False),
)
"""One row per table that has run: what its runs cost."""

schema_rows = sa.Table(
    "tributary_registry_schema",
    metadata,
    sa.Column("registry", _name_type(512), primary_key=True),
    sa.Column("schema_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("document", _document_type(), nullable=False),
)
"""One row per schema that was read from a registry and is kept for an outage of the registry."""

quarantine = sa.Table(
    "tributary_quarantine",
    metadata,
    sa.Column("attempt", sa.String(36), primary_key=True),
    sa.Column("partition_no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("record_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("source", _name_type(), nullable=False),
    sa.Column("schema_name", _name_type(), nullable=False),
    sa.Column("table_name", _name_type(), nullable=False),
    sa.Column("topic", _name_type(255), nullable=False),
    sa.Column("topic_id", sa.String(64), nullable=True),
    sa.Column("schema_id", sa.BigInteger, nullable=True),
    sa.Column("reason", _document_type(), nullable=False),
    sa.Column("record_millis", sa.BigInteger, nullable=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("quarantined_millis", sa.BigInteger, nullable=False),
    sa.Column("key_bytes", _bytes_type(), nullable=True),
    sa.Column("value_bytes", _bytes_type(), nullable=True),
    sa.Index("tributary_quarantine_table", "source", "schema_name", "table_name"),
)
"""One row per Kafka record in quarantine."""

schema_change_rows = _history_table(
    "tributary_schema_change",
    sa.Column("entry_key", _name_type(), nullable=False, unique=True),
    sa.Column("needless_at", sa.Double, nullable=True, index=True),
)
"""The schema history: one row per schema change that the lake followed, or at which a table
stopped. `noted_at` is the time in the entry. `needless_at` is NULL as long as the entry must stay;
otherwise the age for `state.keep_history` counts from this time."""

lineage_rows = sa.Table(
    "tributary_lineage",
    metadata,
    sa.Column("namespace", _name_type(255), primary_key=True),
    sa.Column("position", _document_type(), nullable=False),
)
"""One row per namespace of jobs: how far `lineage` has sent the histories as lineage events."""

verification_rows = sa.Table(
    "tributary_verification",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("result", _document_type(), nullable=False),
)
"""One row per table that was ever verified: the newest result of ``verify``."""

check_rows = sa.Table(
    "tributary_check",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("check_name", _name_type(50), primary_key=True),
    sa.Column("record", _document_type(), nullable=False),
)
"""One row per check of a table that was ever executed: the check's newest results."""

check_result_rows = sa.Table(
    "tributary_check_result",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    sa.Column("source", _name_type(), nullable=False),
    sa.Column("schema_name", _name_type(), nullable=False),
    sa.Column("table_name", _name_type(), nullable=False),
    sa.Column("check_name", _name_type(50), nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False, index=True),
    sa.Column("result", _document_type(), nullable=False),
    sa.Index(
        "tributary_check_result_check",
        *("source", "schema_name", "table_name", "check_name", "id"),
    ),
)
"""One row per result of a check: the history of checks."""

commit_count_rows = sa.Table(
    "tributary_commit_count",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("commits", sa.BigInteger, nullable=False),
)
"""One row per table whose runs have committed: the number of commits, which never falls."""

reader_rows = sa.Table(
    "tributary_reader_look",
    metadata,
    sa.Column("folder_digest", sa.String(64), primary_key=True),
    sa.Column("look", _document_type(), nullable=False),
)
"""One row per lake table whose registered readers are not on this machine: the newest look at them.

The key is a digest of the lake table's folder.
"""

period_rows = sa.Table(
    "tributary_complete_period",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("unit", sa.String(8), primary_key=True),
    sa.Column("zone", _name_type(64), primary_key=True),
    sa.Column("starts_at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.String(36), nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("pending", sa.Boolean, nullable=False, index=True),
    sa.Column("noted_at", sa.Double, nullable=False, index=True),
    sa.Column("entry", _document_type(), nullable=False),
)
"""One row per hour or day that was announced as complete. `pending` says that the marker file of
the hour or day is missing or out of date."""

complete_table_rows = sa.Table(
    "tributary_complete_table",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("unit", sa.String(8), primary_key=True),
    sa.Column("zone", _name_type(64), primary_key=True),
    sa.Column("newest_end", sa.BigInteger, nullable=False),
    sa.Column("late_rows", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.String(36), nullable=False),
)
"""One row for each combination of table, unit (hour or day) and zone: the fields of `Announced`."""

copy_rows = sa.Table(
    "tributary_copy",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
    sa.Column("schema_name", _name_type(), primary_key=True),
    sa.Column("table_name", _name_type(), primary_key=True),
    sa.Column("beside", sa.Boolean, primary_key=True),
    sa.Column("progress", _document_type(), nullable=False),
)
"""One row per copy of a table or of a next generation (``beside``): the copy's progress.

Copies that are under way have a row, and so do copies that have stopped before their end.
"""

restart_rows = sa.Table(
    "tributary_restart",
    metadata,
    sa.Column("connector", _name_type(512), primary_key=True),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Double, nullable=False),
)
"""One row per connector that Tributary has restarted and that has not recovered since."""

loss_rows = sa.Table(
    "tributary_loss",
    metadata,
    sa.Column("scope", _name_type(512), primary_key=True),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("what", _document_type(), nullable=False),
    sa.Column("seen_at", sa.Double, nullable=False),
)
"""One row per capture or table that ever lost changes: the count of losses. No row is ever deleted,
so a count never falls."""

log_mark_rows = sa.Table(
    "tributary_log_mark",
    metadata,
    sa.Column("scope", _name_type(512), primary_key=True),
    sa.Column("server", sa.String(255), nullable=False),
    sa.Column("file", sa.String(512), nullable=False),
    sa.Column("executed", _document_type(), nullable=False),
)
"""One row per capture with a mark: the end of the source's log, as it was last read."""

late_commit_rows = sa.Table(
    "tributary_late_commit",
    metadata,
    sa.Column("scope", _name_type(512), primary_key=True),
    sa.Column("stored", sa.String(64), nullable=False),
    sa.Column("confirmed", sa.String(64), nullable=False),
    sa.Column("since", sa.Double, nullable=False),
)
"""One row per capture with a late commit: the values of the capture's `LateCommit`."""


def look_table(name: str) -> sa.Table:
    """Return an SQL table that has, by connector, the newest look (stored reading) of one kind."""
    return sa.Table(
        name,
        metadata,
        sa.Column("connector", _name_type(512), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("look", _document_type(), nullable=False),
    )


task_look_rows = look_table("tributary_task_look")
"""One row per connector at whose tasks a process has looked: the newest look."""

type_look_rows = look_table("tributary_type_look")
"""One row per connector that finds types by name: the newest look at the types and their names."""

statement_topic_rows = sa.Table(
    "tributary_statement_topic",
    metadata,
    sa.Column("topic", _name_type(255), primary_key=True),
    sa.Column("topic_id", _name_type(64), nullable=False),
    sa.Column("first_offset", sa.BigInteger, nullable=False),
    sa.Column("last_offset", sa.BigInteger, nullable=False),
    sa.Column("sent_ms", sa.BigInteger, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("kept", sa.BigInteger, nullable=False),
    sa.Column("reader", _name_type(64), nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False, index=True),
)
"""One row per topic of DDL statements that was read: the fields of its `StoredRead`, the number of
records that have a row (``kept``), how the statements were read, and when a process last added
records."""

statement_rows = sa.Table(
    "tributary_statement",
    metadata,
    sa.Column("topic", _name_type(255), primary_key=True),
    sa.Column("topic_id", _name_type(64), primary_key=True),
    sa.Column("record_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("record", _document_type(), nullable=False),
)
"""One row per record that was read from a topic of DDL statements and that a run can need."""

paused_replay_rows = sa.Table(
    "tributary_paused_replay",
    metadata,
    sa.Column("source", _name_type(), primary_key=True),
)
"""One row per source whose replica's replay is paused for a moment, or is about to be."""

lease_wishes = sa.Table(
    "tributary_lease_wish",
    metadata,
    sa.Column("waiter", sa.String(36), primary_key=True),
    sa.Column("resource", _name_type(512), nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
"""One row per wait of a process for a lease."""

leases = sa.Table(
    "tributary_lease",
    metadata,
    sa.Column("resource", _name_type(512), primary_key=True),
    sa.Column("owner", sa.String(256), nullable=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("taken_at", sa.Double, nullable=False),
)
"""One row per resource that was ever leased: the lease. No row is ever deleted, so a token never
falls."""


def named(table: TableId) -> dict[str, str]:
    """Return the SQL columns and values with which a row of the state store names a table."""
    return {"source": table.source, "schema_name": table.schema, "table_name": table.name}


def of_table(rows: sa.Table, table: TableId) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a row of the state store is about a table."""
    return sa.and_(*(rows.c[name] == value for name, value in named(table).items()))
