"""The conditions under which PostgreSQL's log has every change of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.sources.postgres.column_type import plain_type_of, type_of
from cdc.sources.source_facts import Leaf, SourceColumn, SourceTable
from cdc.sources.table_rules import Obstacle, usable_keys
from schemas.withheld_columns import misplacing

_REFUSED = "PostgreSQL refuses UPDATE and DELETE"
_NOT_LOGGED = {
    "unlogged": (
        "is UNLOGGED, so its changes are not in the log",
        "Run ALTER TABLE ... SET LOGGED, which rewrites the table.",
    ),
    "foreign": (
        "is a foreign table, so its changes are in another server's log",
        "Add the other server as a source, and onboard the table that holds the rows.",
    ),
    "other": (
        "is not an ordinary table, so its changes are not in the log",
        "Onboard the table that holds the rows.",
    ),
}


class PostgresTableRules:
    """The rules of PostgreSQL; see `cdc.sources.table_rules.TableRules`."""

    def not_in_log(self, table: SourceTable) -> Obstacle | None:
        """Return why a PostgreSQL table cannot be copied or captured; None if it can."""
        generated = [one.name for one in table.columns if one.generated]
        return (
            _unlogged_kind(table)
            or _inheriting_relatives(table)
            or _unlogged_partition(table)
            or self.misplaced(table, generated)
        )

    def misplaced(self, table: SourceTable, withheld: Collection[str]) -> Obstacle | None:
        """Return a problem if the PostgreSQL connector would assign values to wrong columns.

        The log does not contain generated columns. When Debezium 3.7.0 finds an unknown label of an
        enum, it reads the table's definition from the catalog, which includes these columns.
        Debezium then assigns values to columns by the columns' order. So each column after a
        generated column gets the value of a later column. A run recognizes such an event by the
        generated column in the event's schema.

        The function returns a problem in two cases:

        - The table has an enum, and events have no field for the generated column. So no run
          recognizes the wrong values.
        - A column's type is a domain over an enum. The connector never knows the labels of the
          domain, so it assigns the values of each event to wrong columns.

        Args:
            table: The table.
            withheld: The table's generated columns that the log does not contain.
        """
        first = misplacing([one.name for one in table.columns], withheld)
        if first is None:
            return None
        return _beside_domain(table, first) or _beside_enum(table, withheld)

    def without_key(self, table: SourceTable) -> Obstacle:
        """Return the problem of a PostgreSQL table without a key, and ways to solve it."""
        relation, usable = table.table.relation, usable_keys(table)
        choices = [f"1. give it a primary key: ALTER TABLE {relation} ADD PRIMARY KEY (...)"]
        if usable:
            columns = ", ".join(usable[0])
            choices.append(
                f"2. use its unique index on ({columns}): ALTER TABLE {relation} REPLICA IDENTITY"
                f" USING INDEX <name of that index>, and key_columns: [{columns}] for the table"
            )
        else:
            choices.append(
                f"2. add a unique index on columns that are NOT NULL, then ALTER TABLE {relation}"
                " REPLICA IDENTITY USING INDEX <index>, and key_columns: [...]"
            )
        choices.append(
            f"3. with such an index, ALTER TABLE {relation} REPLICA IDENTITY FULL and key_columns:"
            " [...] (each UPDATE and DELETE then logs the whole old row)"
        )
        choices.append(
            "4. if rows are only inserted, mode: append for the table: the lake then holds each"
            " inserted row, and updates and deletes are not captured"
        )
        harm = (
            ""
            if table.replica_identity == "full"
            else "; once it is published, PostgreSQL refuses its UPDATE and DELETE"
        )
        return (
            f"has no key, so a change cannot be applied to exactly one row{harm}",
            "Choose: " + "; ".join(choices) + ".",
        )

    def not_applicable(self, table: SourceTable, key: Sequence[str]) -> Obstacle | None:
        """Return a problem if PostgreSQL refuses changes, or does not log the key of old rows.

        PostgreSQL checks the replica identity of the partition that has the row, and not of the
        root table. The replica identity of a new partition is the root table's primary key; without
        a primary key, the new partition has no replica identity.
        """
        return (
            _identity_nothing(table)
            or _deferrable_identity(table)
            or _future_partitions(table)
            or next(
                (found for leaf in table.leaves if (found := _partition_without_key(leaf, key))),
                None,
            )
            or _refused_full_identity(table)
            or _identity_without_key(table, key)
        )

    def unique_index(self, table: SourceTable, columns: str) -> str:
        """Return PostgreSQL's statement that creates a unique index without blocking writes."""
        return f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.table.relation} ({columns})"

    def without_null_or_default(self, table: SourceTable) -> str:
        """Return two alternatives as SQL, for a message: set NOT NULL, or drop the default.

        The PostgreSQL statements have ``...`` in place of the column's name.
        """
        relation = table.table.relation
        return f"ALTER TABLE {relation} ALTER COLUMN ... SET NOT NULL, or DROP DEFAULT"

    def log_note(self, table: SourceTable) -> str:
        """Return a note for operators about updates and deletes of a PostgreSQL append table."""
        note = "mode append: updates and deletes are not captured"
        if table.kind != "partitioned":
            return note
        return (
            f"{note}, except that an UPDATE that moves a row to another partition adds the row as a"
            " new one: PostgreSQL publishes it as an insert"
        )

    def notes(self, table: SourceTable) -> tuple[str, ...]:
        """Return notes for operators about a PostgreSQL table that can be replicated."""
        found = []
        if table.replica_identity == "full":
            found.append("replica identity FULL: each UPDATE and DELETE logs the whole old row")
        enum = next((one for one in table.columns if type_of(one).kind == "e"), None)
        if enum is not None and (first := _first_misplacing(table)):
            found.append(
                f"a new label of {enum.type} (column {enum.name}) asks for a new copy at its first"
                f" row, since columns are behind the generated column {first}"
            )
        return tuple(found)


def _unlogged_kind(table: SourceTable) -> Obstacle | None:
    """Return a problem if a table's kind keeps the table's changes out of PostgreSQL's log."""
    if table.kind == "hypertable":
        return (
            "is a hypertable of TimescaleDB: its rows lie in chunks, so none of its changes is in"
            " the log under its name",
            "Keep the rows to replicate in an ordinary or a partitioned table (PARTITION BY):"
            " hypertables cannot be replicated.",
        )
    if table.kind == "chunk":
        return (
            "is in the schema of TimescaleDB's chunks, which TimescaleDB creates, drops and"
            " rewrites",
            "Onboard ordinary or partitioned tables.",
        )
    if table.kind == "distributed":
        return (
            "is a table of Citus: its rows are in shards, so none of its changes is in the log"
            " under its name",
            "Keep the rows to replicate in an ordinary or a partitioned table (PARTITION BY):"
            " tables of Citus cannot be replicated.",
        )
    if table.access_method:
        return (
            f"has the access method {table.access_method}: a copy would have its rows, but"
            " PostgreSQL decodes changes from the log for heap only",
            f"Run ALTER TABLE {table.table.relation} SET ACCESS METHOD heap (from version 15 on),"
            " which rewrites the table.",
        )
    return None if table.kind in ("table", "partitioned") else _NOT_LOGGED[table.kind]


def _inheriting_relatives(table: SourceTable) -> Obstacle | None:
    """Return a problem if a PostgreSQL table is a partition, or if tables inherit from it."""
    if table.partition_root is not None:
        root = table.partition_root
        return (
            f"is a partition of {root}; a partitioned table is replicated as a whole",
            f"Onboard the root: `tributary onboard {root}`.",
        )
    if table.children:
        return (
            f"has tables that inherit from it ({', '.join(table.children)}): queries of it return"
            " their rows, but the log has the changes of these rows under the other tables",
            "Onboard those tables by themselves, and leave this one out; or make it a partitioned"
            " table (PARTITION BY), which is replicated as a whole.",
        )
    return None


def _unlogged_partition(table: SourceTable) -> Obstacle | None:
    """Return a problem if PostgreSQL does not log changes of a partition that a copy includes."""
    for leaf in table.leaves:
        if leaf.access_method:
            return (
                f"has the partition {leaf.table.relation} with the access method"
                f" {leaf.access_method}: a copy would have its rows, but PostgreSQL decodes changes"
                " from the log for heap only",
                f"Run ALTER TABLE {leaf.table.relation} SET ACCESS METHOD heap (from version 15"
                " on), which rewrites the partition.",
            )
        if leaf.kind != "table":
            return (
                f"has the partition {leaf.table.relation}, which is"
                f" {'UNLOGGED' if leaf.kind == 'unlogged' else f'a {leaf.kind} table'}: a copy"
                " would have its rows, but their changes are not in the log",
                f"Run ALTER TABLE {leaf.table.relation} SET LOGGED."
                if leaf.kind == "unlogged"
                else f"Detach it: ALTER TABLE {table.table.relation} DETACH PARTITION"
                f" {leaf.table.relation}.",
            )
    return None


def _beside_domain(table: SourceTable, first: str) -> Obstacle | None:
    """Return a problem if a PostgreSQL column's type is a domain over an enum (see `misplaced`).

    Args:
        table: A table in which an ordinary column follows a generated column.
        first: The name of the table's first generated column.
    """
    over = next((one for one in table.columns if _is_over_enum(one)), None)
    if over is None:
        return None
    enum = plain_type_of(over)
    return (
        f"has column {over.name} of type {over.type}, a domain over an enum, and columns behind the"
        f" generated column {first}: with such a domain, the connector reads the values of those"
        " columns into other ones",
        f"Give the column the enum itself: ALTER TABLE {table.table.relation} ALTER COLUMN"
        f" {over.name} TYPE {enum}; or add {first} again as the table's last column.",
    )


def _beside_enum(table: SourceTable, withheld: Collection[str]) -> Obstacle | None:
    """Return a problem if values of a PostgreSQL table with an enum can be in wrong columns.

    No event shows that values are in wrong columns. This error is possible if a generated column's
    type keeps the column out of events, and an ordinary column follows it.

    Args:
        table: The table.
        withheld: The table's generated columns that the log does not contain.
    """
    enum = next((one for one in table.columns if type_of(one).kind == "e"), None)
    unsent = [
        one.name for one in table.columns if one.name in withheld and not type_of(one).has_field
    ]
    first = misplacing([one.name for one in table.columns], unsent)
    if enum is None or first is None:
        return None
    shown = next(one.type for one in table.columns if one.name == first)
    return (
        f"has column {enum.name} of type {enum.type}, an enum, and columns behind the generated"
        f" column {first} of type {shown}, for which events have no field: from the first row with"
        " a new label on, the connector reads the values of those columns into other ones, and no"
        " event shows it",
        f"Add {first} again as the table's last column; or give {enum.name} the type text.",
    )


def _first_misplacing(table: SourceTable) -> str | None:
    """Return a PostgreSQL table's first generated column; None if no ordinary column follows it."""
    generated = [one.name for one in table.columns if one.generated]
    return misplacing([one.name for one in table.columns], generated)


def _is_over_enum(column: SourceColumn) -> bool:
    """Whether the type of a PostgreSQL column is a domain over an enum."""
    return type_of(column).kind == "d" and plain_type_of(column).kind == "e"


def _identity_nothing(table: SourceTable) -> Obstacle | None:
    """Return a problem if a PostgreSQL table has REPLICA IDENTITY NOTHING."""
    if table.replica_identity != "nothing":
        return None
    return (
        "has REPLICA IDENTITY NOTHING: once it is published, PostgreSQL refuses its UPDATE and"
        " DELETE",
        f"Run ALTER TABLE {table.table.relation} REPLICA IDENTITY DEFAULT (by primary key), or"
        " USING INDEX <unique index>, or FULL; or set mode: append for the table, if its rows are"
        " only inserted.",
    )


def _deferrable_identity(table: SourceTable) -> Obstacle | None:
    """Return a problem if a PostgreSQL table's replica identity is a DEFERRABLE primary key."""
    if (
        table.replica_identity != "default"
        or not table.primary_key
        or table.primary_key in table.unique_indexes
    ):
        return None
    return (
        "has a DEFERRABLE primary key, which does not identify rows in the log: once the table is"
        f" published, {_REFUSED}",
        "Make the primary key NOT DEFERRABLE; or use a unique index that is NOT DEFERRABLE: ALTER"
        f" TABLE {table.table.relation} REPLICA IDENTITY USING INDEX <index>, and key_columns:"
        " [...].",
    )


def _future_partitions(table: SourceTable) -> Obstacle | None:
    """Return a problem if future PostgreSQL partitions would have no replica identity."""
    if table.kind != "partitioned" or table.primary_key:
        return None
    return (
        "is partitioned and has no primary key, so new partitions have no replica identity: once"
        f" the table is published, {_REFUSED} of their rows",
        f"Run ALTER TABLE {table.table.relation} ADD PRIMARY KEY (...), which must contain the"
        " columns that the table is partitioned by; or set mode: append for the table, if its rows"
        " are only inserted.",
    )


def _partition_without_key(leaf: Leaf, key: Sequence[str]) -> Obstacle | None:
    """Return a problem if a PostgreSQL partition's replica identity lacks a key column."""
    lacking = [name for name in key if name not in leaf.identity_columns]
    if not lacking:
        return None
    known = ", ".join(leaf.identity_columns)
    return (
        f"has the partition {leaf.table.relation}, whose replica identity"
        + (
            f" ({known}) lacks {', '.join(lacking)}, so its deletes cannot be applied"
            if known
            else f" is NOTHING: once the table is published, {_REFUSED} of its rows"
        ),
        f"Run ALTER TABLE {leaf.table.relation} REPLICA IDENTITY DEFAULT (by primary key).",
    )


def _refused_full_identity(table: SourceTable) -> Obstacle | None:
    """Return a problem if replica identity FULL makes PostgreSQL refuse changes."""
    whole = any(leaf.replica_identity == "full" for leaf in table.leaves)
    if not table.withheld or not (whole if table.leaves else table.replica_identity == "full"):
        return None
    return (
        f"has generated columns ({', '.join(table.withheld)}) and replica identity FULL: once it is"
        f" published, {_REFUSED} (from version 18 on)",
        f"Run ALTER TABLE {table.table.relation} REPLICA IDENTITY DEFAULT (by primary key), and"
        " the same for each partition.",
    )


def _identity_without_key(table: SourceTable, key: Sequence[str]) -> Obstacle | None:
    """Return a problem if PostgreSQL does not log all columns of the lake's key at a DELETE."""
    if table.logs_whole_rows or set(key) <= set(table.identity_columns):
        return None
    columns, relation = ", ".join(table.identity_columns), table.table.relation
    identity = "DEFAULT" if set(key) <= set(table.primary_key) else "FULL"
    choice = f"; or set key_columns: [{columns}] for the table" if table.identity_columns else ""
    return (
        f"has the key ({', '.join(key)}), but its log identifies deleted rows by"
        f" {columns or 'no column'}",
        f"Run ALTER TABLE {relation} REPLICA IDENTITY {identity}{choice}.",
    )
