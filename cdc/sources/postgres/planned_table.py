"""Computes a table as it would be after planned statements.

The statements are not executed, and no table is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from cdc.sources.postgres import catalog, misread_types
from cdc.sources.postgres.column_type import type_of
from cdc.sources.postgres.connection import Session
from cdc.sources.source_facts import Planned, SourceColumn, SourceTable
from schemas.changes import Change, LoseEvents, RewriteColumn, Verdict
from schemas.errors import DdlError
from schemas.fingerprint import Fingerprint
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.planned_ddl.postgres_statements import (
    Action,
    Add,
    AddKey,
    DropConstraint,
    Leave,
    Retype,
    SetDefault,
    SetIdentity,
    SetNullable,
)
from schemas.table import TableId
from schemas.types_postgres import PostgresType

_CONSTRAINTS = """
SELECT o.conname, o.contype = 'p', coalesce(i.indisreplident, false)
FROM pg_catalog.pg_constraint o
LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = o.conindid
WHERE o.conrelid = %s
"""
_VOLATILE = """
SELECT proname, bool_or(provolatile = 'v') FROM pg_catalog.pg_proc
WHERE proname = ANY(%s) GROUP BY proname
"""
_PLANNED = "planned"
_IDENTITIES = {"default": "d", "full": "f", "nothing": "n", "index": "i"}
_LONGER = ("varchar", "varbit", "timestamp", "timestamptz", "time", "timetz", "interval")
"""Types whose limit, such as a length, can be raised or dropped without a rewrite of the rows."""


@dataclass(frozen=True)
class Lookups:
    """Answers that only the PostgreSQL server can give.

    Args:
        type: Takes the name of a type, such as ``numeric(10,2)``, and returns the type.
        volatile: Takes names of functions. Returns the names of the functions whose value can
            differ for each row.
        constraints: A mapping from each constraint's name to two values: whether the constraint is
            the primary key, and whether the constraint's index is the replica identity.
        misread: Takes the name of a type. Returns `SourceColumn.misread_as` for columns of this
            type.
    """

    type: Callable[[str], PostgresType]
    volatile: Callable[[Collection[str]], frozenset[str]]
    constraints: dict[str, tuple[bool, bool]]
    misread: Callable[[str], str] = lambda _: ""


def after_statements(
    session: Session, table: SourceTable, fingerprint: Fingerprint, actions: Sequence[Action]
) -> Planned:
    """Return a PostgreSQL table as it would be after planned actions.

    An action is a parsed part of a statement, such as a new column. The function queries the server
    for the facts in `Lookups`.
    """

    def number(text: str) -> int:
        found = session.execute("SELECT to_regtype(%s)::oid", (text,)).fetchone()
        if found is None or found[0] is None:
            raise _unfit_statements(table.table, f"there is no type {text}")
        return int(found[0])

    def misread(text: str) -> str:
        kind = number(text)
        return misread_types.others(session, table.table.schema, {kind}).get(kind, "")

    def type_named(text: str) -> PostgresType:
        # The query selects a NULL of this type: the description of its result has the modifier.
        answer = session.execute(sql.SQL("SELECT NULL::{}").format(sql.SQL(text)))
        result = answer.pgresult
        modifier = result.fmod(0) if result is not None else -1
        return catalog.read_type(session, number(text), modifier)

    def volatile(names: Collection[str]) -> frozenset[str]:
        rows = session.execute(_VOLATILE, (list(names),)).fetchall()
        unknown = sorted(set(names) - {row[0] for row in rows})
        if unknown:
            raise _unfit_statements(table.table, f"there is no function {', '.join(unknown)}")
        return frozenset(row[0] for row in rows if row[1])

    known = session.execute(_CONSTRAINTS, (table.number,)).fetchall()
    lookups = Lookups(type_named, volatile, {row[0]: (row[1], row[2]) for row in known}, misread)
    return planned(table, fingerprint, actions, lookups)


def planned(
    table: SourceTable, fingerprint: Fingerprint, actions: Sequence[Action], lookups: Lookups
) -> Planned:
    """Return a PostgreSQL table as it would be after planned actions, such as a new column.

    Raises:
        DdlError: An action does not fit the table.
    """
    draft = _Draft(table, fingerprint, lookups)
    for action in actions:
        draft.apply(action)
    return draft.result()


class _Draft:
    """The description of a PostgreSQL table, to which planned actions are applied one by one."""

    def __init__(self, table: SourceTable, fingerprint: Fingerprint, lookups: Lookups) -> None:
        self._table, self._lookups = table, lookups
        self._facts: dict[str, Any] = deepcopy(dict(fingerprint.facts))
        self._columns = {
            column.number: column for column in table.columns if column.number is not None
        }
        self._key = table.primary_key
        self._beyond_catalog: list[Change] = []
        self._next = int(self._facts["attributes"])

    def result(self) -> Planned:
        table = replace(
            self._table,
            columns=tuple(self._columns[number] for number in sorted(self._columns)),
            primary_key=self._key,
            unique_indexes=(*self._table.unique_indexes, *((self._key,) if self._key else ())),
        )
        return Planned(table, Fingerprint(self._facts), tuple(self._beyond_catalog))

    def apply(self, action: Action) -> None:
        if isinstance(action, Add):
            self._add(action)
        elif isinstance(action, Drop):
            self._drop(action)
        elif isinstance(action, AddKey):
            self._set_key(action.columns)
        elif isinstance(action, DropConstraint):
            self._drop_constraint(action)
        elif isinstance(action, SetIdentity):
            self._facts["replica_identity"] = _IDENTITIES[action.identity]
        elif isinstance(action, Leave):
            why = "its changes go to no topic, or to another table's"
            lost = LoseEvents(verdict=Verdict.BOOTSTRAP, why=why, fact=f"the table {action.how}")
            self._beyond_catalog.append(lost)
        else:
            self._alter(action)

    def _add(self, action: Add) -> None:
        if any(column.name == action.name for column in self._columns.values()):
            if action.if_missing:
                return
            raise _unfit_statements(self._table.table, f"column {action.name!r} exists already")
        kind = self._lookups.type(action.type)
        default = action.default
        rewrites = action.rewrites or (
            default is not None and bool(self._lookups.volatile(default.functions))
        )
        stored = None if default is None or rewrites else "{" + default.sql + "}"
        self._next += 1
        self._columns[self._next] = SourceColumn(
            name=action.name,
            type=kind,
            number=self._next,
            nullable=action.nullable,
            generated=action.generated,
            default_sql=None if default is None else default.sql,
            old_values=(stored,),
            misread_as=self._lookups.misread(action.type),
        )
        self._facts["attributes"] = self._next
        self._facts["columns"][str(self._next)] = {
            "name": action.name,
            "shown": str(kind),
            "nullable": action.nullable,
            "default": None if default is None else default.sql,
            "generated": action.generated,
            "written": _PLANNED,
            "as_added": True,
        }
        if rewrites:
            self._rewrite()

    def _drop(self, action: Drop) -> None:
        if action.if_there and not self._numbers(action.name):
            return
        number = self._number(action.name)
        del self._columns[number], self._facts["columns"][str(number)]
        for which, numbers in list(self._facts["keys"].items()):
            if str(number) in numbers.split():  # the index goes with its column
                del self._facts["keys"][which]
        if action.name in self._key:
            self._key = ()

    def _drop_constraint(self, action: DropConstraint) -> None:
        if action.name not in self._lookups.constraints:
            raise _unfit_statements(self._table.table, f"there is no constraint {action.name!r}")
        primary, identity = self._lookups.constraints[action.name]
        if primary:
            self._key = ()
            self._facts["keys"].pop("primary", None)
            self._facts["key_made"] = None
        if identity:
            self._facts["keys"].pop("identity", None)

    def _set_key(self, names: Sequence[str]) -> None:
        """Make columns the primary key of the PostgreSQL table, which also makes them NOT NULL."""
        numbers = [self._number(name) for name in names]
        self._key = tuple(names)
        self._facts["keys"]["primary"] = " ".join(str(number) for number in numbers)
        self._facts["key_made"] = _PLANNED
        for number in numbers:
            self._change(number, nullable=False)

    def _alter(self, action: Rename | Retype | SetNullable | SetDefault) -> None:
        number = self._number(action.name)
        if isinstance(action, Rename):
            self._change(number, name=action.to)
            self._key = tuple(action.to if name == action.name else name for name in self._key)
        elif isinstance(action, SetNullable):
            self._change(number, nullable=action.nullable)
            self._facts["columns"][str(number)]["as_added"] = False
        elif isinstance(action, SetDefault):
            self._change(number, default=action.default)
        else:
            self._retype(number, action)

    def _retype(self, number: int, action: Retype) -> None:
        """Change a PostgreSQL column's type; rewrite the table if the change requires new rows."""
        old, new = type_of(self._columns[number]), self._lookups.type(action.type)
        self._columns[number] = replace(
            self._columns[number], type=new, misread_as=self._lookups.misread(action.type)
        )
        self._facts["columns"][str(number)] |= {"shown": str(new), "written": _PLANNED}
        self._facts["columns"][str(number)] |= {"default_made": _PLANNED}
        if action.using is not None:
            why = f"USING {action.using} may give its rows other values, which send no events"
            self._beyond_catalog.append(
                RewriteColumn(verdict=Verdict.BOOTSTRAP, why=why, name=action.name)
            )
        if not _keeps_rows(old, new):
            self._rewrite()

    def _change(self, number: int, **facts: Any) -> None:
        """Change attributes of a PostgreSQL column and of its entry in the table's fingerprint."""
        column = self._columns[number]
        if "name" in facts:
            column = replace(column, name=facts["name"])
        if "nullable" in facts:
            column = replace(column, nullable=facts["nullable"])
        if "default" in facts:
            column = replace(column, default_sql=facts["default"])
        self._columns[number] = column
        self._facts["columns"][str(number)] |= facts

    def _rewrite(self) -> None:
        """Give the table a new file, as the PostgreSQL server does in a rewrite.

        The rewrite puts the values that the catalog stored for older rows into the rows. So the
        server removes these values from the catalog, and writes the columns' catalog rows again.
        """
        for number, column in self._columns.items():
            if {*column.old_values} - {None}:
                self._columns[number] = replace(column, old_values=(None,))
                self._facts["columns"][str(number)] |= {"written": _PLANNED, "stored": False}
        self._facts["relfilenode"] = _PLANNED
        for leaf in self._facts["leaves"].values():
            leaf["relfilenode"] = _PLANNED

    def _numbers(self, name: str) -> list[int]:
        """Return PostgreSQL's catalog numbers of the columns with this name."""
        return [number for number, column in self._columns.items() if column.name == name]

    def _number(self, name: str) -> int:
        """Return a PostgreSQL column's catalog number; raise `DdlError` without such a column."""
        for number in self._numbers(name):
            return number
        raise _unfit_statements(self._table.table, f"there is no column {name!r}")


def _keeps_rows(old: PostgresType, new: PostgresType) -> bool:
    """Whether PostgreSQL leaves rows as they are if a planned statement changes a column's type."""
    if old == new:
        return True
    if new.typmod == -1 and (old.name, new.name) in (("varchar", "text"), ("text", "varchar")):
        return True
    if old.name != new.name:
        return False
    limits = new.typmod == -1 or (old.typmod != -1 and new.typmod >= old.typmod)
    if old.name == "numeric":
        # Rows stay as they are if only digits before the point are added; the scale is the lower
        # half of the modifier.
        return limits and (new.typmod == -1 or (new.typmod - old.typmod) % (1 << 16) == 0)
    return old.name in _LONGER and limits


def _unfit_statements(table: TableId, why: str) -> DdlError:
    """Return the error for planned statements that do not fit the PostgreSQL table."""
    return DdlError(
        f"the statements do not fit table {table}: {why}",
        remedy="Compare the statements with the current definition of the table on the source.",
        table=table,
    )
