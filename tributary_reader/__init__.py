"""Reads published tables from Python into Arrow, without Spark.

``open_table(folder).read()`` returns the rows of a table. ``changes(folder, position)`` returns the
rows that have changed since a position. ``record_reader(folder, name, position)`` records what a
reader has read.
"""

from tributary_reader.errors import ReadError, WholeTableError
from tributary_reader.files import DataFile
from tributary_reader.registered import record_reader
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
    "record_reader",
]
