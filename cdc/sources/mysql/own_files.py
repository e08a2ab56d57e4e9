"""Reads from MySQL's dictionary which files have a table's rows, and how often it got columns.

InnoDB's list of tables (INNODB_TABLES) has both facts. But MySQL makes the whole list for each
query: it opens each table of the server, which takes a minute for 180,000 tables. The facts here
are found by indexes of the dictionary, so their cost does not depend on other tables.

Why no rebuild, TRUNCATE or column that came and went is missed:

- A table that has its own file has a row in INNODB_TABLESPACES_BRIEF with the file's id. A rebuild,
  TRUNCATE or exchange gives the table another file, and the server gives no id to two files. So
  the same id is the same file.
- A column that is added in place is one more column of the file. A column that is dropped in place
  stays in the file as a hidden column, which SHOW EXTENDED COLUMNS shows. So for the same file, the
  number of visible and hidden columns never gets smaller. If a column was added and dropped again,
  the number is higher, and the next look sees it. If columns were only added or only dropped, the
  visible columns differ, which are facts, too.
- Generated columns are not counted. A virtual one is in no file, and one for an index on an
  expression is hidden. A new stored one needs a rebuild.

The time of a table's last ALTER (CREATE_TIME) does not prove this. It is the second in which the
statement began, not the one in which it ended, and replication and SET TIMESTAMP set it. Two
statements can have the same time, and a look can be between their ends.

IMPORT TABLESPACE replaces the rows of a file that keeps its id. It is a statement in the binlog,
after which a run asks for a copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pymysql

from cdc.sources.mysql.connection import Session, quoted
from cdc.sources.mysql.innodb import Stored, catalog_rows, read_stored
from cdc.sources.mysql.primary import NO_TABLE
from schemas.table import TableId

_PART = 100
"""Maximum number of tables that one statement reads."""
_HIDDEN = "DB_ROLL_PTR"
"""A hidden column that InnoDB adds to each table: where it shows, all hidden columns show."""
# Not DEFAULT_GENERATED, which is a default.
_GENERATED = " GENERATED"
_PARTITIONS = """
SELECT count(*) FROM information_schema.PARTITIONS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND PARTITION_NAME IS NOT NULL
"""


def read_own_files(session: Session, tables: Mapping[TableId, bool]) -> dict[TableId, Stored]:
    """Return, for each of the given InnoDB tables of MySQL, its files and changes of its columns.

    INNODB_TABLES is read only for a table without a file of its own, for one whose name can be that
    of another table's partition, and for one whose hidden columns the login may not see.

    Args:
        session: A session of the admin login on the primary.
        tables: For each table, whether it has partitions.

    Raises:
        SourceError: The login lacks PROCESS.
    """
    # In this order: a table that gets new files in between has another id at the next look.
    ids = {
        table: found
        for table, found in _ids(session, tables).items()
        if not tables[table] or len(found) == _count_partitions(session, table)
    }
    columns = {table: _count_columns(session, table) for table in sorted(ids, key=str)}
    known = {
        table: Stored(ids[table], f"{count} columns")
        for table, count in columns.items()
        if count is not None
    }
    return known | read_stored(session, "mysql", tables.keys() - known.keys())


def _ids(session: Session, tables: Mapping[TableId, bool]) -> dict[TableId, dict[str, int]]:
    """Return, for each table with files of its own, the file's id of each partition by name."""
    # With these characters, a table's name can look like the name of another table's partition.
    by_name = {
        f"{table.schema}/{table.name}": table
        for table in tables
        if not {"/", "#"}.intersection(table.schema + table.name)
    }
    found: defaultdict[TableId, dict[str, int]] = defaultdict(dict)
    for names in _parts(sorted(by_name)):
        single = [name for name in names if not tables[by_name[name]]]
        conditions = [f"NAME IN ({', '.join(['%s'] * len(single))})"] if single else []
        values = list(single)
        for name in names:
            if tables[by_name[name]]:
                # The names of partitions follow after #, whose next character is $.
                conditions.append("NAME >= %s AND NAME < %s")
                values += [f"{name}#", f"{name}$"]
        place = f"INNODB_TABLESPACES_BRIEF WHERE {' OR '.join(conditions)}"
        for row in catalog_rows(session, place, values, columns="NAME, SPACE"):
            name, _, part = str(row["NAME"]).replace("#P#", "#p#").partition("#p#")
            if table := by_name.get(name):
                # The ids of partitions are a list with commas.
                found[table][part.replace(",", "@002c")] = int(row["SPACE"])
    return found


def _count_partitions(session: Session, table: TableId) -> int:
    """Return the number of a MySQL table's partitions; each subpartition counts as one."""
    return int(session.value(_PARTITIONS, (table.schema, table.name)))


def _count_columns(session: Session, table: TableId) -> int | None:
    """Return the number of columns in a MySQL table's file, with those that were dropped in place.

    The result is None if the login may not see hidden columns, and 0 if the table does not exist.
    """
    try:
        rows = session.named(
            f"SHOW EXTENDED COLUMNS FROM {quoted(table.schema)}.{quoted(table.name)}"
        )
    except pymysql.MySQLError as error:
        if error.args and error.args[0] in NO_TABLE:
            return 0
        raise
    if not any(row["Field"] == _HIDDEN for row in rows):
        return None
    return sum(_GENERATED not in str(row["Extra"]) for row in rows)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names in parts, each of which one statement reads."""
    for first in range(0, len(names), _PART):
        yield names[first : first + _PART]
