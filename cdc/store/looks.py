"""Stores the newest look of one kind for each connector, in a table of the state store.

A look is the stored result of one reading, for example of the state of the connector's tasks.
Several processes look at the same connector. A process stores its look only if no other process has
replaced the stored look since this process read it. So no process replaces a look that it has not
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import sqlalchemy as sa

from cdc.store.documents import Document

if TYPE_CHECKING:
    from cdc.store.documents import Codec
    from cdc.store.state_store import Store


@dataclass(frozen=True)
class KeptLook(Generic[Document]):
    """A stored look: one reading of a connector's tasks or of type names.

    Args:
        look: The look.
        version: Number of looks that were stored for the connector so far, including this one.
    """

    look: Document
    version: int


class StoredLooks(Generic[Document]):
    """Each connector's newest look of one kind; all processes of a state store share these looks.

    Args:
        store: The state store.
        table: The SQL table of these looks, from `cdc.store.tables.look_table`.
        codec: The codec of the looks.
        what: What the looks examine, ``tasks`` or ``types``, as a word for the texts of errors.
    """

    def __init__(self, store: Store, table: sa.Table, codec: Codec[Document], what: str) -> None:
        self._store = store
        self._table = table
        self._codec = codec
        self._what = what

    def of(self, connector: str) -> KeptLook[Document] | None:
        """Return the newest look that is stored for a connector; None if no look is stored.

        Raises:
            StateError: The state store cannot be used, or the stored document is not such a look.
        """
        asked = sa.select(self._table).where(self._table.c.connector == connector)
        with self._store.transaction() as connection:
            row = connection.execute(asked).first()
        if row is None:
            return None
        look = self._codec.read(row.look, f"the look at the {self._what} of {connector}")
        return KeptLook(look, row.version)

    def forget(self, connector: str) -> None:
        """Delete a connector's stored look, for example when the connector is deleted.

        A new connector of the same name must not be compared with this look: the topics of the new
        connector can be new, and the offsets of new topics begin at 0 again.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            connection.execute(sa.delete(self._table).where(self._table.c.connector == connector))

    def replace(
        self,
        connection: sa.Connection,
        connector: str,
        earlier: KeptLook[Document] | None,
        now: Document,
    ) -> bool:
        """Store a look, unless another process has stored a look since ``earlier`` was read.

        Args:
            connection: The transaction.
            connector: The connector.
            earlier: The look that was read; None if there was none.
            now: The new look.

        Returns:
            Whether the look was stored.

        Raises:
            sqlalchemy.exc.IntegrityError: Another process has just stored the connector's first
                look.
        """
        text, row = self._codec.write(now), self._table.c
        if earlier is None:
            values = {"connector": connector, "version": 1, "look": text}
            connection.execute(sa.insert(self._table).values(**values))
            return True
        unchanged = (row.connector == connector) & (row.version == earlier.version)
        update = sa.update(self._table).where(unchanged)
        done = connection.execute(update.values(version=earlier.version + 1, look=text))
        return done.rowcount == 1
