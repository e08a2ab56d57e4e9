"""Finds columns whose type Debezium can confuse with another type of the same name.

PostgreSQL's connector looks up the type of a column by the type's name. For each name, it caches
the first type that it has found since it started. If the name is later given to another type (DROP
TYPE, then CREATE TYPE), the connector still uses the cached type. Then an event can have NULL or a
wrong value, or the connector fails. If the cached type is an enum that lacks a label, the connector
reads the table's definition again at each event with this label, and `cdc.run.later_definitions`
cannot find these events. The source's catalog has only the present type of each name. So each look
(reading of the catalog's types) compares the types with those of the last look, and stores the
types that a name had before.

The connector can use such a former type until it has started again and has read the types again. If
Tributary itself restarts the connector before a copy, Tributary knows when the types were read.
After any other restart, Tributary knows only that the new task read the types before its first
heartbeat, and perhaps before the name got another type. So a look takes the former type into
account until a second new task sends a heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.debezium.task_ends import task_of
from cdc.errors import SchemaChangeError
from cdc.store.kept_type_looks import KeptTypeLooks, NamedType, TypeDoubt, TypeLook
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.sources.base import Source
    from cdc.sources.named_types import NamedTypes, TypedColumn
    from cdc.store.kept_type_looks import Former, Names
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.table import Column

_log = logging.getLogger(__name__)

ROW = "row"
"""The form of row types and composite types, whose values no event brings into the lake."""
_TRIES = 5
"""Maximum number of attempts to store a look while other processes also store looks."""
_NAMES_KEPT = 20_000
"""Maximum number of names whose former types are kept. The connector forgets former types when it
starts again, so only a database that drops tables all the time has more such names.
"""


def changed(before: Names, now: Names, former: Former) -> Former:
    """Return the types that each name had before, updated by a new look at a captured source.

    Args:
        before: A mapping from each name to its types in the previous look.
        now: A mapping from each name to its types in the new look.
        former: The types that each name had before, as known after the previous look.
    """
    found = {name: dict(of) for name, of in former.items()}
    for name, of in before.items():
        for schema, kind in of.items():
            if now.get(name, {}).get(schema) == kind:
                continue
            others = found.pop(name, {})
            known = others.get(schema, ())
            if kind.form == ROW:  # which table had the name does not matter, and there can be many
                known = tuple(one for one in known if one.form != ROW)
            others[schema] = known if kind in known else (*known, kind)
            found[name] = others  # as the newest
    return dict([*found.items()][-_NAMES_KEPT:])


def merged(older: Former, newer: Former) -> Former:
    """Return the former types of two looks; for each name, the types of ``older`` come first."""
    found = {name: dict(of) for name, of in older.items()}
    for name, of in newer.items():
        kept = found.setdefault(name, {})
        for schema, many in of.items():
            kept[schema] = (*kept.get(schema, ()), *many)
    return found


class Mistakes:
    """Finds the types that the connector can confuse with another type of the same name.

    Composite types and the row types of tables are left out, since no event brings a value of such
    a type into the lake.

    Args:
        types: A mapping from each name to its present types.
        former: The types that each name had before, and that the connector can still use.
    """

    def __init__(self, types: Names, former: Former) -> None:
        self._types, self._former = types, _without_present_types(types, former)
        self._renamed = {
            one.oid for of in self._former.values() for many in of.values() for one in many
        }
        self._named = {
            one.oid: (name, schema, one)
            for name, of in types.items()
            for schema, one in of.items()
            if one.form != ROW and (name in self._former or one.oid in self._renamed)
        }

    @property
    def suspects(self) -> tuple[int, ...]:
        """Object ids of the types that the connector can confuse in at least some tables."""
        return tuple(sorted(oid for oid in self._named if self._others(oid)))

    def name(self, oid: int) -> str:
        """Return the name of one of the `suspects`, as ``schema.name``."""
        name, schema, _ = self._named[oid]
        return f"{schema}.{name}"

    def is_mistaken(self, oid: int, table_schema: str, *, array: bool) -> bool:
        """Return whether the connector can misread a column because it confuses the column's type.

        The connector searches a type's name first in the schema of the table, then in all schemas.

        Args:
            oid: The type's object id, one of the `suspects`.
            table_schema: The schema of the column's table.
            array: Whether the column is an array of the type. The connector reads the values of
                some types alike, so the connector may confuse these types without harm, but not the
                types of their arrays.
        """
        name, schema, own = self._named[oid]
        found = self._others(oid)
        if schema == table_schema and oid not in self._renamed:
            found = [*self._former.get(name, {}).get(table_schema, ())]
        return any(one.oid != oid and (array or not one.is_alike(own)) for one in found)

    def _others(self, oid: int) -> list[NamedType]:
        """Return the other types that the connector can have cached for the present name of a type.

        These are all types that had the name before, in any schema. If the type itself was renamed,
        the result also has the present types of this name in other schemas, since the connector may
        have cached one of them.
        """
        name, _, _ = self._named[oid]
        found = [one for many in self._former.get(name, {}).values() for one in many]
        if oid in self._renamed:
            found += self._types[name].values()
        return [one for one in found if one.oid != oid]


def _without_present_types(types: Names, former: Former) -> Former:
    """Return a captured source's former types without those that still have their name.

    If a former type has the same object id as the present type of the name, both are one type, for
    example an enum to which a label was added.
    """

    def gone(name: str, schema: str, many: tuple[NamedType, ...]) -> tuple[NamedType, ...]:
        now = types.get(name, {}).get(schema)
        return tuple(one for one in many if now is None or one.oid != now.oid)

    found = {
        name: {schema: left for schema, many in of.items() if (left := gone(name, schema, many))}
        for name, of in former.items()
    }
    return {name: of for name, of in found.items() if of}


class TypeLooks:
    """Compares a source's types with the types in the last look, and stores each new look.

    All processes that use the same state store share the looks.

    Args:
        store: The state store.
        kafka: The cluster.
    """

    def __init__(self, store: Store, kafka: KafkaAdmin) -> None:
        self._store, self._kafka = store, kafka
        self._looks = KeptTypeLooks(store)

    def follow(self, names: CaptureNames, source: Source) -> TypeLook | None:
        """Compare a source's types with the types in the last look, and store the new look.

        Args:
            names: The capture.
            source: The source.

        Returns:
            The newest look; None if the source's connector does not look up types by their names.

        Raises:
            TributaryError: A server does not answer, or the state store cannot be used.
        """
        read = source.named_types
        if read is None:
            return None

        def next_look(known: TypeLook | None) -> TypeLook:
            if known is None:
                return TypeLook(*read.read())
            look: TypeLook = known
            added: Names = {}
            if known.digest != read.digest():
                digest, types = read.read()
                look, added = replace(known, digest=digest, types=types), known.types
            if added or look.former or look.older:
                look = self._noticed(names, look, added)
            idle = look == known and not look.suspects and not look.doubts
            return look if idle else self._judged(names, read, look)

        return self._move(names, next_look)

    def begin_again(self, names: CaptureNames, source: Source, before: TypeLook) -> None:
        """Store a new look after Tributary has restarted a capture's connector.

        The restarted connector does not know the former types of earlier looks. So the new look's
        former types are only those that lost their names since ``before``. The caller must first
        wait until the connector reads the log in a new session.

        Args:
            names: The capture.
            source: The source.
            before: A look from before the restart.

        Raises:
            TributaryError: A server does not answer, or the state store cannot be used.
        """
        read = source.named_types
        if read is None:
            return

        def next_look(known: TypeLook | None) -> TypeLook:
            digest, types = read.read()
            kept = known or before
            former = changed(kept.types, types, kept.former)
            look = replace(kept, digest=digest, types=types, former=former)
            # Until its end, the former session read the columns of all tables by what names meant.
            look = replace(self._judged(names, read, look), former={}, older={})
            return self._judged(names, read, self._noticed(names, look, before.types))

        self._move(names, next_look)

    def _move(
        self, names: CaptureNames, next_look: Callable[[TypeLook | None], TypeLook]
    ) -> TypeLook:
        """Replace the stored look of a capture, and return the new look.

        Args:
            names: The capture.
            next_look: Takes the stored look, or None if none is stored; returns the new look. It is
                called again if another process has stored a look in the meantime.
        """
        for _ in range(_TRIES):
            kept = self._looks.of(names.connector)
            known = None if kept is None else kept.look
            now = next_look(known)
            if now == known or self._looks.move(names.connector, kept, now):
                break
        return now

    def _noticed(self, names: CaptureNames, look: TypeLook, before: Names) -> TypeLook:
        """Return the look, plus the types that lost their names after the previous look.

        If the newest heartbeat is from a new task, the former types replace the types in
        `TypeLook.older`. The caller must read the present types before the call.

        Args:
            names: The capture.
            look: The new look, with the former types that earlier looks have found.
            before: The types in the previous look; empty if no type has changed since.
        """
        beat = self._kafka.latest_record(names.heartbeat_topic)
        run = (None if beat is None else task_of(beat)) or look.run
        if run != look.run:
            look = replace(look, run=run, former={}, older=look.former)
        return replace(look, former=changed(before, look.types, look.former))

    def _judged(self, names: CaptureNames, read: NamedTypes, look: TypeLook) -> TypeLook:
        """Return a look that also lists the columns that the connector can misread."""
        found = Mistakes(look.types, merged(look.older, look.former))
        suspects = found.suspects
        columns = read.columns_of(suspects) if suspects else ()
        look = replace(
            look, suspects=suspects, mistaken=_mistaken_columns(names.source, found, columns)
        )
        if not look.mistaken and not look.doubts:
            return look
        return replace(look, doubts=self._doubts(names, look))

    def _doubts(self, names: CaptureNames, look: TypeLook) -> dict[str, TypeDoubt]:
        """Return, for each table, the columns that this look or an earlier one has in ``mistaken``.

        Looks from before O, where a table's stream begins, do not count for the table.
        """
        of = (names.source, names.tier)
        records = {
            str(one.table): one
            for one in self._store.tables()
            if (one.table.source, one.tier) == of
        }
        found = {
            table: look.doubts[table]
            for table, record in records.items()
            if look.doubt(record) is not None
        }
        topics = {table: records[table].topic for table in look.mistaken if table in records}
        ends = self._kafka.stable_offsets_many(topics.values()) if topics else {}
        for table, topic in topics.items():
            earlier = found[table].columns if table in found else {}
            columns = {**earlier, **look.mistaken[table]}
            found[table] = TypeDoubt(ends.get(topic, {}).get(0, 0) - 1, columns)
            if columns != earlier:
                _log.warning("table %s: %s", table, _reason_for_doubt(columns))
        return found


def _mistaken_columns(
    source: str, found: Mistakes, columns: Iterable[TypedColumn]
) -> dict[str, dict[str, str]]:
    """Return, for each table, a mapping from columns that can be misread to their types' names."""
    by_table: dict[str, dict[str, str]] = {}
    for one in columns:
        if found.is_mistaken(one.type_id, one.table_schema, array=one.array):
            table = str(TableId(source, one.table_schema, one.table_name))
            by_table.setdefault(table, {})[one.column] = found.name(one.type_id)
    return by_table


def _reason_for_doubt(columns: Mapping[str, str]) -> str:
    """Describe the captured columns whose types the connector can mistake, for a message."""
    found = ", ".join(f"{name!r} ({kind})" for name, kind in columns.items())
    return f"the connector can take the type of columns for another one that had its name: {found}"


def require_own_types(look: TypeLook | None, record: TableRecord, used: Iterable[Column]) -> None:
    """Refuse a captured table if the connector may have confused the type of a used column.

    Args:
        look: The newest look at the source's types; None if the source's connector does not look up
            types by their names.
        record: The table.
        used: The columns that are replicated.

    Raises:
        SchemaChangeError: A look at the source's types, the newest one or one since the
            table's start offset O, found a column that the connector may have misread.
    """
    if look is None:
        return
    doubtful, sent = look.columns(record), {one.name for one in used if not one.read_by_key}
    columns = {name: kind for name, kind in doubtful.items() if name in sent}
    if not columns:
        return
    raise SchemaChangeError(
        f"table {record.table}: {_reason_for_doubt(columns)}. It keeps the first meaning of a name"
        " until it restarts, and can send NULL or a wrong value; this run has applied no event",
        remedy=f"Run `tributary bootstrap {record.table}`: it restarts the connector, and the new"
        " copy replaces what came wrong.",
        table=record.table,
        topic=record.topic,
        field=", ".join(columns),
    )
