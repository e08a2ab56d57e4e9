"""The conditions under which MySQL's or MariaDB's binlog has every change of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.sources.mysql.connection import quoted
from cdc.sources.source_facts import SourceTable
from cdc.sources.table_rules import Obstacle, usable_keys
from schemas.types_mysql import FORMER_FORMAT


class MysqlTableRules:
    """The rules of MySQL and MariaDB; see `cdc.sources.table_rules.TableRules`."""

    def not_in_log(self, table: SourceTable) -> Obstacle | None:
        """Return why a MySQL or MariaDB table cannot be copied or captured; None if it can.

        Only ordinary InnoDB tables can be copied while applications write to them. The connectors
        misread TIME, DATETIME and TIMESTAMP columns in the storage format from before MariaDB 10.1.
        The connectors stop at rows with a hidden column.
        """
        if table.kind not in ("table", "partitioned"):
            return (
                "is not an ordinary InnoDB table, so a copy cannot read it under writes",
                f"Run ALTER TABLE {_named(table)} ENGINE = InnoDB. A table with system versioning"
                f" becomes an ordinary one by ALTER TABLE {_named(table)} /*M! DROP SYSTEM"
                " VERSIONING */: without the comment, the statement stops the connectors of the"
                " server.",
            )
        if former := former_formats(table):
            return (
                former,
                f"Run ALTER TABLE {_named(table)} FORCE, which writes all rows in the format of now"
                " (mysql56_temporal_format = ON, the default).",
            )
        if hidden := hidden_columns(table):
            index = quoted(table.hashed_indexes[0])
            return (
                hidden,
                f"Drop each such index (ALTER TABLE {_named(table)} DROP INDEX {index}), or replace"
                " it by a unique index on a short column, such as a generated column with"
                " sha2(...). A connector that has captured such a table must be created again:"
                " offboard all of its tables, then onboard them.",
            )
        return None

    def misplaced(self, table: SourceTable, withheld: Collection[str]) -> Obstacle | None:
        """Return None, since MySQL's and MariaDB's binlog withholds no column."""

    def without_key(self, table: SourceTable) -> Obstacle:
        """Return the problem of a MySQL or MariaDB table without a key, and ways to solve it."""
        usable = usable_keys(table)
        return (
            "has no key, so a change cannot be applied to exactly one row",
            f"Choose: 1. give it a primary key: ALTER TABLE {_named(table)} ADD PRIMARY KEY"
            " (...); 2. set key_columns: [...] for the table, to the columns of a unique index that"
            " are NOT NULL" + (f", for example ({', '.join(usable[0])})." if usable else "."),
        )

    def not_applicable(self, table: SourceTable, key: Sequence[str]) -> Obstacle | None:
        """Return None, since the binlog has the whole old row of each change."""
        return None

    def unique_index(self, table: SourceTable, columns: str) -> str:
        """Return MySQL's or MariaDB's SQL that creates a unique index without blocking writes."""
        return f"CREATE UNIQUE INDEX <name> ON {_named(table)} ({columns})"

    def without_null_or_default(self, table: SourceTable) -> str:
        """Return two alternatives as SQL, for a message: set NOT NULL, or drop the default.

        In MODIFY, ``...`` stands for a column's name and type. In ALTER COLUMN, ``...`` stands for
        the name alone.
        """
        return f"ALTER TABLE {_named(table)} MODIFY ... NOT NULL, or ALTER COLUMN ... DROP DEFAULT"

    def log_note(self, table: SourceTable) -> str:
        """Return a note that updates and deletes of a MySQL or MariaDB append table are ignored."""
        return "mode append: updates and deletes are not captured"

    def notes(self, table: SourceTable) -> tuple[str, ...]:
        """Return an empty tuple: there are no notes on MySQL or MariaDB tables."""
        return ()


def former_formats(table: SourceTable) -> str | None:
    """Return the problem of TIME, DATETIME or TIMESTAMP columns in the format before MariaDB 10.1.

    The connectors misread the values of such columns, and possibly the values of other columns. The
    result is None if the table has no columns in this format.
    """
    names = [column.name for column in table.columns if FORMER_FORMAT in str(column.type)]
    if not names:
        return None
    return (
        f"has columns in the format from before MariaDB 10.1 ({', '.join(map(quoted, names))}),"
        " which the connector reads otherwise"
    )


def hidden_columns(table: SourceTable) -> str | None:
    """Return the problem of unique indexes for which MariaDB logs a hidden column.

    The result is None if the table has no such indexes.

    If a unique index is too long for InnoDB, MariaDB keeps a hash of the index's columns in a
    hidden column. The binlog has this column, and the connector does not know it.
    """
    if not table.hashed_indexes:
        return None
    return (
        f"has unique indexes on long columns ({', '.join(map(quoted, table.hashed_indexes))}), for"
        " which MariaDB logs a hidden column: the first change of the table stops the connector for"
        " all of its tables"
    )


def _named(table: SourceTable) -> str:
    """Return the MySQL or MariaDB table's qualified name, quoted for a statement."""
    return f"{quoted(table.table.schema)}.{quoted(table.table.name)}"
