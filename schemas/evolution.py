"""Lists the schema changes of a table, each with its verdict and the reason for the verdict.

The function `diff` compares the catalog that the lake follows with the current catalog. Runs,
`tributary schema diff` and `tributary schema check` all call this function, so they agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from schemas.catalog import LABEL, Catalog, CatalogColumn, not_before
from schemas.changes import (
    AddColumn,
    Change,
    ChangeDefault,
    ChangeIdentity,
    ChangeKey,
    ChangeNullability,
    ChangeParts,
    ChangeType,
    DropColumn,
    LoseEvents,
    NarrowType,
    NewFile,
    RenameColumn,
    RewriteColumn,
    Verdict,
    WidenType,
)
from schemas.generated_columns import recomputed
from schemas.lost_events import identified_otherwise, lost_events
from schemas.renames import Renames
from schemas.statement_effects import StatementEffects
from schemas.table import Column
from schemas.widening import SOURCE_WIDER, holds_rows, more_digits_only, same_values, widens
from schemas.withheld_columns import no_longer_withheld


@dataclass(frozen=True)
class LakeColumns:
    """What a comparison of two catalogs needs to know about the source's columns in the lake.

    Args:
        types: Spark type by column name.
        dropped: The columns that the source has dropped and the lake still has.
        read_by_key: The columns whose values are read from the source by key.
        hidden: By hidden column, how the lake hides its values (``hash`` or ``mask``), and the
            Spark type of the original values.
    """

    types: Mapping[str, str]
    dropped: frozenset[str] = frozenset()
    read_by_key: frozenset[str] = frozenset()
    hidden: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """A table's settings that decide which schema changes its lake table follows.

    Args:
        wanted: The columns that the settings replicate, with their lake types.
        frozen: Whether the lake leaves new columns out (``on_schema_change: freeze``).
        keyed: Whether the lake table has a key; False for an append table.
        keeps_deleted: Whether the lake keeps rows that the source deletes.
        keeps_truncated: Whether the lake keeps its rows when the source table is truncated.
        renames: The renames of columns that the settings allow.
        key: The key columns of the lake table; empty for an append table.
    """

    wanted: Iterable[Column]
    frozen: bool = False
    keyed: bool = True
    keeps_deleted: bool = False
    keeps_truncated: bool = False
    renames: Renames = field(default_factory=Renames)
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a comparison of two catalogs needs to know besides the catalogs' descriptions.

    Args:
        stored: By column, the values that PostgreSQL's catalog stores for rows that are older than
            the column: one value for each file of the table; None for a file without a value.
        empty: Object ids of partitions without rows.
        truncated: Object ids of partitions that were truncated themselves. A truncation of the
            whole table does not count.
        statements: For MySQL and MariaDB, the effects of the statements in the binlog.
    """

    stored: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    empty: Collection[int] = ()
    truncated: Collection[int] = ()
    statements: StatementEffects = field(default_factory=StatementEffects)


def diff(
    before: Catalog, now: Catalog, lake: LakeColumns, rules: Rules, evidence: Evidence
) -> tuple[Change, ...]:
    """Return the schema changes from the catalog that the lake follows to the current catalog.

    On PostgreSQL, a new column's value in old rows is known if the table still has the same file:
    the catalog stores the value, or the value is NULL. In a new file, old rows can have any value.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
        lake: The lake's columns.
        rules: The table's settings.
        evidence: Facts that the two catalogs do not show.
    """
    return tuple(_Diff(before, now, lake, rules, evidence).changes())


@dataclass(frozen=True)
class _Diff:
    _before: Catalog
    _now: Catalog
    _lake: LakeColumns
    _rules: Rules
    _evidence: Evidence

    @cached_property
    def _wanted(self) -> Mapping[str, Column]:
        return {column.name: column for column in self._rules.wanted}

    @property
    def _on_postgres(self) -> bool:
        return self._now.source_kind == "postgres"

    @cached_property
    def _new_file(self) -> bool:
        now = self._now.files
        return any(now.get(name) != file for name, file in self._before.files.items())

    def changes(self) -> Iterator[Change]:
        yield from self._table_changes()
        rewritten = False
        for old, new in self._now.column_pairs(self._before):
            if old is None and new is not None:
                yield self._added(new)
            elif new is None and old is not None:
                yield self._dropped(old)
            elif old is not None and new is not None:
                for change in self._kept_column_changes(old, new):
                    # A widened column can be the cause of a new file. A statement with USING can
                    # also be the cause, and could have changed rows.
                    rewritten |= isinstance(change, (RewriteColumn, ChangeType)) and not isinstance(
                        change, WidenType
                    )
                    yield change
        present = {column.name for column in self._now.columns.values()}
        for name in self._lake.types:
            if name in present and name not in self._wanted and name not in self._lake.dropped:
                why = "the settings leave it out: it stays in the lake, NULL from then on"
                yield DropColumn(verdict=Verdict.EVOLVE, why=why, name=name, left_out=True)
        if self._new_file and not rewritten and self._on_postgres:
            why = "if the rewrite changed rows, `tributary verify` shows them"
            yield NewFile(verdict=Verdict.EVOLVE, why=why)

    def _table_changes(self) -> Iterator[Change]:
        before, now, statements = self._before, self._now, self._evidence.statements
        empty, truncated, grave = self._evidence.empty, self._evidence.truncated, statements.grave
        yield from lost_events(before, now, empty=empty, truncated=truncated, statements=grave)
        carried = self._wanted.keys() & self._lake.types.keys()
        yield from recomputed(before, now, carried, statements)
        yield from no_longer_withheld(before, now)
        if self._rules.keyed:
            yield from identified_otherwise(before, now)
            yield from self._sharing_keys()
        same = (before.primary_key, before.identity_key) == (now.primary_key, now.identity_key)
        if not same or before.key_made != now.key_made:
            yield ChangeKey(
                verdict=Verdict.BOOTSTRAP if self._rules.keyed else Verdict.EVOLVE,
                why="rows of an append table are not found by a key"
                if not self._rules.keyed
                else "the table may have had another key for a while, and events of that time"
                " have that key"
                if same
                else "rows of the lake are found by their key",
                old=_shown_key_of_catalog(before),
                new=_shown_key_of_catalog(now),
            )
        was, found = before.replica_identity, now.replica_identity
        if was is not None and found is not None and was != found:
            verdict, why = self._another_identity(was, found)
            yield ChangeIdentity(verdict=verdict, why=why, old=was, new=found)

    def _sharing_keys(self) -> Iterator[LoseEvents]:
        key = self._rules.key
        why = (
            f"without the index, several rows may have had one key ({', '.join(key)}) for a while,"
            " and an event of one of them changes the lake's row of another"
        )
        for statement in self._evidence.statements.shares_keys(key, self._now.primary_key):
            yield LoseEvents(verdict=Verdict.BOOTSTRAP, why=why, fact=statement)

    def _another_identity(self, was: str, found: str) -> tuple[Verdict, str]:
        if not self._rules.keyed:
            return Verdict.EVOLVE, "events of an append table need no key"
        if not {was, found} <= {"default", "full"}:
            return Verdict.BOOTSTRAP, "the key of events changes, or events have none"
        # FULL has every column of an old row, DEFAULT only the primary key.
        if not set(self._rules.key) <= set(self._now.primary_key):
            why = "with DEFAULT, old rows in events lack the lake's key, which the settings choose"
            return Verdict.BOOTSTRAP, why
        return Verdict.EVOLVE, "the key of events stays the same"

    def _added(self, column: CatalogColumn) -> Change:
        verdict, why, stored = self._new_column(column)
        return AddColumn(
            verdict=verdict,
            why=why,
            name=column.name,
            type=column.type,
            stored=stored,
            frozen=self._rules.frozen and not column.generated,
        )

    def _new_column(self, column: CatalogColumn) -> tuple[Verdict, str, str | None]:
        if column.generated:
            return Verdict.IGNORE, "it is generated, so the log does not carry it", None
        again = column.name in self._lake.types and column.name not in self._lake.dropped
        if self._rules.frozen and not again:
            return Verdict.IGNORE, "on_schema_change is freeze", None
        if column.name not in self._wanted:
            return Verdict.IGNORE, "the settings leave it out", None
        if held := [one for one in self._lake.types if one.lower() == column.name.lower()]:
            why = f"the lake still has the values of a column {held[0]!r} that was dropped"
            return Verdict.BOOTSTRAP, why, None
        if not self._on_postgres:
            hidden = bool(self._wanted[column.name].hide)
            return self._evidence.statements.verdict(column, hidden=hidden)
        if self._now.added_and_dropped(self._before):
            why = "another column was added and dropped meanwhile, and events may have its values"
            return Verdict.BOOTSTRAP, why, None
        if label := self._label_written_since(column):
            why = (
                f"label {label!r} of its type was written later, and events may have another"
                " label for it"
            )
            return Verdict.BOOTSTRAP, why, None
        values = set(self._evidence.stored.get(column.name, ()))
        # Without a default, only a table without rows takes a new column that allows no NULL.
        if self._uncorrected and not column.nullable and not (values - {None} and column.as_added):
            why = f"it may have allowed NULL at first: {self._other_values}"
            return Verdict.BOOTSTRAP, why, None
        if values <= {None}:
            if self._new_file:
                why = "the table was rewritten meanwhile, so old rows may have any value in it"
                return Verdict.BOOTSTRAP, why, None
            return Verdict.EVOLVE, "old rows are NULL, as in the source", None
        if len(values) > 1:
            return Verdict.BOOTSTRAP, "its partitions have different values for old rows", None
        (value,) = values
        if self._wanted[column.name].hide:
            why = "old rows get a default, and the lake hides the values of the column"
            return Verdict.BOOTSTRAP, why, None
        return (
            Verdict.FILL,
            f"old rows get the default that it was added with, {_shown_stored_value(value)}",
            value,
        )

    def _dropped(self, column: CatalogColumn) -> Change:
        carried = column.name in self._lake.types and column.name not in self._lake.dropped
        return DropColumn(
            verdict=Verdict.EVOLVE if carried else Verdict.IGNORE,
            why="it stays in the lake, NULL from then on"
            if carried
            else "the lake does not carry it",
            name=column.name,
        )

    def _kept_column_changes(self, old: CatalogColumn, new: CatalogColumn) -> Iterator[Change]:
        name, wanted, former = new.name, self._wanted.get(new.name), old.name
        if former != name:
            renamed = self._renamed(former, name)
            yield renamed
            if renamed.verdict is not Verdict.FILL:
                return
        carried = self._lake.types.get(former)
        if carried is not None and self._evidence.statements.is_another(former):
            why = "another column took its name, so rows have other values without an event"
            yield RewriteColumn(verdict=Verdict.BOOTSTRAP, why=why, name=name)
            return
        if wanted is not None and (carried is None or former in self._lake.dropped):
            if not self._rules.frozen:
                why = "the lake left it out until now, so its values are unknown"
                yield AddColumn(verdict=Verdict.BOOTSTRAP, why=why, name=name, type=new.type)
        elif wanted is not None and carried is not None:
            yield from self._retyped(old, new, carried, wanted.lake_type)
            yield from _type_part_changes(old, new)
            yield from self._replaced(old, new)
        yield from self._nullability(old, new)
        if old.default != new.default:
            yield ChangeDefault(
                verdict=Verdict.EVOLVE,
                why="each event has the values of its row",
                name=name,
                old=old.default,
                new=new.default,
            )

    def _nullability(self, old: CatalogColumn, new: CatalogColumn) -> Iterator[ChangeNullability]:
        changed = old.nullable != new.nullable
        # A column of the primary key never allows NULL.
        again = new.written_again(old) or (
            old.domain_written != new.domain_written and new.is_as(old)
        )
        back = again and new.name not in self._now.primary_key
        replaced = self._uncorrected and (changed or back) and new.name in self._wanted
        if changed or replaced:
            yield ChangeNullability(
                verdict=Verdict.BOOTSTRAP if replaced else Verdict.EVOLVE,
                why=self._other_values if replaced else "columns of the lake are nullable",
                name=new.name,
                nullable=new.nullable,
                back=not changed,
            )

    @property
    def _uncorrected(self) -> bool:
        """Whether the lake can keep a wrong value in place of a NULL.

        PostgreSQL's connector reads the NOT NULL constraints from the catalog, not from the WAL. If
        a column is NOT NULL in the catalog, the connector sends a NULL as 0, an empty string or
        1970. There are two cases:

        - A column became NOT NULL, and the connector reads changes from before that moment. Updates
          had to replace each NULL first, and the events of these updates correct the lake.
        - A column now allows NULL, and the connector does not know this yet. For each event that
          can have a wrong value, a run reads the row from the source by key. If a domain was
          changed to allow NULL, the connector knows this only after its next start.

        So a wrong value stays only in a row of an append table, or in a row that the lake keeps
        after a DELETE or TRUNCATE. If the table still has the same file, no TRUNCATE has happened.
        """
        kept = self._rules.keeps_deleted or (self._rules.keeps_truncated and self._new_file)
        return self._on_postgres and (kept or not self._rules.keyed)

    @property
    def _other_values(self) -> str:
        row = "that the source no longer has" if self._rules.keyed else "of an append table"
        what = "earlier events may have another value instead of NULL"
        return f"{what}, and no later event corrects a row {row}"

    def _renamed(self, old: str, new: str) -> RenameColumn:
        carried = old in self._lake.types and old not in self._lake.dropped
        verdict, names = Verdict.BOOTSTRAP, tuple[str, ...]()
        if not carried and new not in self._wanted:
            verdict, why = Verdict.IGNORE, "the lake does not carry it"
        elif not carried:
            why = "the lake left it out until now, so its values are unknown"
        elif obstacle := self._rules.renames.obstacle(
            old, new, self._before, self._now, lake=self._lake.types, wanted=self._wanted
        ):
            why = f"the lake has its values under the old name{obstacle}"
        else:
            verdict, names = Verdict.FILL, self._rules.renames.between(old, new)
            why = "old rows get its values under the new name; the old name is NULL from then on"
        return RenameColumn(verdict=verdict, why=why, name=old, to=new, former=names)

    def _retyped(
        self, old: CatalogColumn, new: CatalogColumn, had: str, has: str
    ) -> Iterator[Change]:
        name, was, now = new.name, old.type, new.type
        evolve, bootstrap = Verdict.EVOLVE, Verdict.BOOTSTRAP
        if (old.name in self._lake.read_by_key) != self._wanted[name].read_by_key:
            why = "the server's text and the values of events can differ"
            yield ChangeType(verdict=bootstrap, why=why, name=name, old=was, new=now)
        elif otherwise := self._hidden_otherwise(old.name, name):
            yield ChangeType(verdict=bootstrap, why=otherwise, name=name, old=was, new=now)
        elif self._wanted[name].read_by_key and was != now:
            why = "the server may print the same value differently"
            yield ChangeType(verdict=bootstrap, why=why, name=name, old=was, new=now)
        elif self._rewritten_by(old, new) or self._evidence.statements.redefined(old, new):
            why = "ALTER ... TYPE sends no events, and with USING its rows may have other values"
            yield RewriteColumn(verdict=bootstrap, why=why, name=name)
        elif had != has:
            if widens(had, has) and holds_rows(was, now, self._now.source_kind):
                why = f"{has} holds every value of {had}"
                yield WidenType(verdict=evolve, why=why, name=name, old=was, new=now, in_lake=True)
            elif widens(has, had):
                why = f"{has} does not hold every value of {had}, and rows may have changed"
                yield NarrowType(verdict=bootstrap, why=why, name=name, old=was, new=now)
            else:
                why = f"the lake cannot change {had} to {has} in place"
                yield ChangeType(verdict=bootstrap, why=why, name=name, old=was, new=now)
        elif was != now and not same_values(was, now, self._now.source_kind):
            why = f"both are {has} in the lake, and may show the same row differently"
            yield ChangeType(verdict=bootstrap, why=why, name=name, old=was, new=now)
        elif was != now:
            why = f"both are {has} in the lake, and hold the same values"
            yield WidenType(verdict=evolve, why=why, name=name, old=was, new=now)

    def _label_written_since(self, column: CatalogColumn) -> str | None:
        """Return a label of a new column's enum if the label can have been renamed, or None.

        A label can have been renamed if its catalog row was written after the earlier read of the
        catalog. A new enum is an exception: one transaction wrote all labels of the enum, and
        this transaction or a later one added the column.
        """
        since = self._before.horizon
        young = {part: xid for part, xid in column.parts_written.items() if not_before(xid, since)}
        made = {*young.values()}
        if len(young) == len(column.parts_written) and len(made) == 1:
            (xid,) = made
            if not not_before(xid, column.written) or xid == column.written:
                return None
        return column.parts[min(young)] if young else None

    def _replaced(self, old: CatalogColumn, new: CatalogColumn) -> Iterator[Change]:
        """Yield a change if another column, now dropped, can have had this column's name."""
        gone = self._now.added_and_dropped(self._before)
        if gone and old.name == new.name and old.written != new.written:
            yield LoseEvents(
                verdict=Verdict.BOOTSTRAP,
                why="the other column may have had this name, and events of that time have its"
                " values",
                fact=f"another column was added and dropped, and column {new.name!r} was altered"
                " since",
            )

    def _rewritten_by(self, old: CatalogColumn, new: CatalogColumn) -> bool:
        """Whether a table rewrite, such as TYPE with USING, can have changed a column's values."""
        if not (self._new_file and self._on_postgres and old.written != new.written):
            return False
        if new.moved_only(old):
            return False
        had, has = self._lake.types[old.name], self._wanted[new.name].lake_type
        if had == has:
            return (old.type, new.type) not in SOURCE_WIDER
        # A change to more digits does not rewrite the rows, but a change of another column can.
        return (
            widens(had, has)
            and more_digits_only(old.type, new.type)
            and not any(
                was.type != now.type and not more_digits_only(was.type, now.type)
                for was, now in self._now.kept_columns(self._before)
            )
        )

    def _hidden_otherwise(self, had: str, name: str) -> str | None:
        """Return why the lake's hidden values do not fit the settings; None if the values fit."""
        wanted, (hide, plain) = self._wanted[name], self._lake.hidden.get(had, ("", ""))
        if wanted.hide != hide:
            return f"columns.{wanted.hide or hide} differs between the settings and the lake's rows"
        if hide == "hash" and wanted.plain != plain:
            return (
                f"the lake has hashes of the text as {plain}, which differs from the text as"
                f" {wanted.plain}"
            )
        return None


def _type_part_changes(old: CatalogColumn, new: CatalogColumn) -> Iterator[Change]:
    """Yield the schema changes of the labels or fields of a column's type.

    An added label or field is yielded, too. If it were not yielded, the recorded catalog would lack
    the new label or field, and a later comparison would miss its changes.
    """
    for part, was in sorted(old.parts.items()):
        now = new.parts.get(part)
        if was != now and old.type == new.type:
            why = "existing rows show this at once, without an event"
            yield ChangeParts(verdict=Verdict.BOOTSTRAP, why=why, name=new.name, old=was, new=now)
        elif was == now and old.parts_written.get(part) != new.parts_written.get(part):
            why = "it may have had another name for a while, and events of that time have that name"
            yield ChangeParts(verdict=Verdict.BOOTSTRAP, why=why, name=new.name, old=was, new=now)
    for part in sorted(new.parts.keys() - old.parts.keys()):
        if old.type != new.type:
            continue
        label = part.startswith(LABEL)
        why = "no row has it yet" if label else "existing rows show this at once, without an event"
        verdict = Verdict.EVOLVE if label else Verdict.BOOTSTRAP
        yield ChangeParts(verdict=verdict, why=why, name=new.name, old=None, new=new.parts[part])


def _shown_key_of_catalog(catalog: Catalog) -> str:
    """Return a table's key and replica identity as text, as a schema change shows them."""
    key = f"({', '.join(catalog.primary_key)})" if catalog.primary_key else "none"
    identity = ", ".join(catalog.identity_key or ())
    return f"{key}, replica identity ({identity})" if identity else key


def _shown_stored_value(array: str | None) -> str:
    """Return a new column's value in old rows, from an array such as ``{5}``; cut a long value."""
    text = (array or "")[1:-1]
    return text if len(text) <= 60 else f"{text[:60]}..."
