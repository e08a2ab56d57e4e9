"""Reads published tables from Python into Arrow, without Spark.

``open_table(folder).read()`` returns a table's rows, ``changes(folder, position)`` the rows that
changed since a position.
"""

from tributary_reader.errors import ReadError, WholeTableError
from tributary_reader.files import DataFile
from tributary_reader.snapshot import Snapshot, open_table
from tributary_reader.table_changes import Changes, changes

__all__ = [
    "Changes",
    "DataFile",
    "ReadError",
    "Snapshot",
    "WholeTableError",
    "changes",
    "open_table",
]
