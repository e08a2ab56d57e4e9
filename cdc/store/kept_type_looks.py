"""Stores which type each type name means now, and which types the name meant before.

One reading of these names is called a look. `cdc.capture.type_looks` explains what looks are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.kept_task_looks import first_offset
from cdc.store.looks import StoredLooks
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import type_look_rows

if TYPE_CHECKING:
    from cdc.store.looks import KeptLook
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord


@dataclass(frozen=True)
class NamedType(Part):
    """A type of a source, without its name.

    Args:
        oid: The type's object id. No type that is created later gets the same id.
        form: How the connector reads the type's values, for example ``text`` or ``row``. If two
            types have the same form, the connector reads the values of both in the same way. The
            form of an enum has a digest of the enum's labels. A type that the connector reads like
            no other type has an empty form, and two empty forms do not count as the same.
    """

    oid: int
    form: str = ""

    def is_alike(self, other: NamedType) -> bool:
        """Return whether the connector reads the values of both types in the same way."""
        return self.oid == other.oid or (self.form != "" and self.form == other.form)


Names: TypeAlias = Mapping[str, Mapping[str, NamedType]]
"""A mapping from each type's name to a mapping from schema to type."""
Former: TypeAlias = Mapping[str, Mapping[str, tuple[NamedType, ...]]]
"""The types that names meant earlier.

A mapping from each name to a mapping from schema to types, the oldest first.
"""


@dataclass(frozen=True)
class TypeDoubt(Part):
    """The suspicion that events have wrong values for columns of a table.

    Args:
        offset: The newest offset of the table's topic when a look at the type names last found that
            the connector could mistake the type of one of ``columns``; -1 if the topic was empty
            then.
        columns: The columns that can have wrong values, each with the name of its type.
    """

    offset: int
    columns: Mapping[str, str]


@dataclass(frozen=True)
class TypeLook(Part):
    """One look at the names of a source's types.

    Args:
        digest: A digest of all names and types.
        types: The types by name, then by schema. Arrays that are named after their elements are
            left out.
        run: Identity of the Kafka Connect task that sent the connector's newest heartbeat; empty if
            there is no heartbeat.
        former: By name, then by schema, the types that had the name earlier, oldest first. Only
            types that were found since the first look at the task ``run`` are included.
        older: The field ``former`` of the last look at the preceding task, which the task ``run``
            replaced.
        suspects: Object ids of the types that the connector can mistake for another type.
        mistaken: The columns whose type the connector can mistake for another type: by table and
            column, the name of the column's type.
        doubts: By table, the doubt about all columns that were in ``mistaken`` at this look or at
            an earlier look. An earlier look's doubt is dropped if it concerns no event at or after
            the table's start offset O, if O is not recorded, or if the table has left the capture.
        format: Version of this document.
    """

    digest: str
    types: Names
    run: str = ""
    former: Former = field(default_factory=dict)
    older: Former = field(default_factory=dict)
    suspects: tuple[int, ...] = ()
    mistaken: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    doubts: Mapping[str, TypeDoubt] = field(default_factory=dict)
    format: Literal[1] = 1

    def doubt(self, record: TableRecord) -> TypeDoubt | None:
        """Return the doubt about a table's columns; None if there is no doubt.

        Only a doubt about events at or after the table's start offset O is returned.
        """
        found, first = self.doubts.get(str(record.table)), first_offset(record)
        return None if found is None or first is None or found.offset < first else found

    def columns(self, record: TableRecord) -> Mapping[str, str]:
        """Return the columns whose type the connector can mistake, each with its type's name.

        The result has the table's columns in this look's ``mistaken``, and the columns in the
        table's doubt.
        """
        doubt = self.doubt(record)
        earlier = {} if doubt is None else doubt.columns
        return {**earlier, **self.mistaken.get(str(record.table), {})}


TYPE_LOOKS = Codec(TypeLook, error=StateError, remedy=STORE_REMEDY)
"""The codec with which the state store reads and writes looks at type names (`TypeLook`)."""


class KeptTypeLooks(StoredLooks[TypeLook]):
    """Each connector's newest `TypeLook`; all processes of a state store share these looks.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, type_look_rows, TYPE_LOOKS, "types")

    def move(self, connector: str, earlier: KeptLook[TypeLook] | None, now: TypeLook) -> bool:
        """Replace a look at types, unless another process has replaced the look since it was read.

        Args:
            connector: The connector.
            earlier: The stored look that this process has read; None if none was stored.
            now: The new look.

        Returns:
            Whether the look was replaced.

        Raises:
            StateError: The state store cannot be used.
        """
        try:
            with self._store.transaction() as connection:
                return self.replace(connection, connector, earlier, now)
        except IntegrityError:  # another process has just left the first look
            return False
