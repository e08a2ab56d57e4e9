"""Stores the newest look at each table's registered readers: what a run found out about them.

If the lake is in an object store or on HDFS, only runs can read the lake's files, since only runs
have a Spark session. So a run stores what it found, and `status` and the metrics show it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec
from cdc.store.reader_state import ReadersLook
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import reader_rows

if TYPE_CHECKING:
    from cdc.store.state_store import Store

_LOOKS = Codec(ReadersLook, error=StateError, remedy=STORE_REMEDY)


class ReaderLooks:
    """The newest look at the readers of each lake table that has registered readers.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> dict[str, ReadersLook]:
        """Return a mapping from each lake table's folder to the newest look at its readers.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a look.
        """
        with self._store.transaction() as connection:
            rows = connection.execute(sa.select(reader_rows)).all()
        looks = (_LOOKS.read(row.look, "a look at the readers of a lake table") for row in rows)
        return {look.folder: look for look in looks}

    def keep(self, look: ReadersLook) -> None:
        """Store a look at a lake table's readers in place of the table's earlier look.

        Raises:
            StateError: The state store cannot be used.
        """
        text = {"look": _LOOKS.write(look)}
        again = sa.update(reader_rows).where(_row_of_folder(look.folder)).values(**text)
        for _ in range(2):
            try:
                with self._store.transaction() as connection:
                    if connection.execute(again).rowcount != 1:
                        row = {"folder_digest": _folder_digest(look.folder), **text}
                        connection.execute(sa.insert(reader_rows).values(**row))
            except IntegrityError:  # another process has just stored the first look
                continue
            return

    def forget(self, folder: str) -> None:
        """Delete the look at a lake table's readers.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            connection.execute(sa.delete(reader_rows).where(_row_of_folder(folder)))


def _row_of_folder(folder: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the look at the readers of a lake table's folder."""
    return reader_rows.c.folder_digest == _folder_digest(folder)


def _folder_digest(folder: str) -> str:
    """Return the digest by which an SQL row of a look at readers names a lake table's folder."""
    return hashlib.sha256(folder.encode()).hexdigest()
