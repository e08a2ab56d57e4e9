"""Which columns a lake table carries: those of the source now, and those it had before.

What the lake follows stands in its own commits: the columns, and the fingerprint of the catalog
that they were taken from. Both move in one commit, so no crash can part them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cdc.hidden import key_check
from cdc.lake.key_text import FORM, key_form
from cdc.semantic_types import literal
from schemas.catalog import Catalog
from schemas.changes import ChangeKey, ChangeType, NewFile, RenameColumn, Verdict
from schemas.ddl_mysql import Told
from schemas.evolution import LakeColumns, diff
from schemas.renames import Renames
from schemas.table import DROPPED, Column

if TYPE_CHECKING:
    from cdc.config import LakeConfig, TableSettings
    from cdc.sources.base import Source
    from cdc.sources.values import Fingerprint, SourceTable
    from schemas.changes import Change
    from schemas.table import TableSchema
    from schemas.type_rule import TypeRule

KEY_TEXT = "key_text"
"""Where commits say which form of the text of keys the lake's rows have."""


@dataclass(frozen=True)
class Comparison:
    """A lake table beside its source.

    Args:
        source_table: The table as the source's catalog has it.
        fingerprint: That catalog's facts.
        settings: The table's settings, which name the lake's columns alone when it is frozen.
        wanted: The columns that those settings replicate.
        lake: The lake's columns.
        changes: What is not as the lake has it.
        ignored: Columns that a table leaves out because it is frozen.
        statements: How many statements the log tells of since the catalog that the lake follows.
    """

    source_table: SourceTable
    fingerprint: Fingerprint
    settings: TableSettings
    wanted: tuple[Column, ...]
    lake: LakeColumns
    changes: tuple[Change, ...]
    ignored: tuple[str, ...] = ()
    statements: int = 0


def compare(
    source: Source,
    source_table: SourceTable,
    fingerprint: Fingerprint,
    settings: TableSettings,
    handoff: Mapping[str, Any],
    config: LakeConfig,
    told: Told | None = None,
) -> Comparison:
    """Compare a lake table with its source's catalog.

    Args:
        source: The source.
        source_table: The table as its catalog has it.
        fingerprint: The catalog's facts, of the same moment.
        settings: The table's settings.
        handoff: What the lake's newest commit carries of the handoff.
        config: How values are hidden.
        told: What the log tells of statements, where the catalog alone cannot say.

    Raises:
        SecretError: The key of hashes cannot be read.
        UnsupportedTypeError: A column that is replicated has a type without a rule.
        SchemaError: The settings name a column that is not there, or a name is none for a lake.
    """
    lake = lake_columns(handoff)
    before, now = Catalog.read(handoff["fingerprint"]), Catalog.read(fingerprint.facts)
    placing = {*map(str, handoff["key"]), *settings.key_columns, *settings.partition_by}
    allowed = Renames(settings.columns.renames, frozenset(placing))
    renamed = allowed.followed(before, now, lake.types.keys() - lake.dropped)
    ruled = frozen(settings, source_table, lake, renamed)
    wanted = source.columns(source_table, ruled)
    attached = [leaf["oid"] for name, leaf in now.leaves.items() if name not in before.leaves]
    changes = diff(
        before,
        now,
        wanted=wanted,
        lake=lake,
        empty=source.empty_partitions(attached) if attached else (),
        truncated=_truncated(source, before, now),
        stored={column.name: column.old_values for column in source_table.columns},
        told=told,
        frozen=ruled is not settings,
        keyed=not settings.appends,
        renames=allowed,
    )
    if not any(isinstance(change, ChangeKey) for change in changes):
        changes += _another_key(source_table, settings, handoff)
    changes += _another_key_text(wanted, settings, handoff)
    changes += _another_hash_key(source_table, wanted, handoff, config)
    ignored = () if ruled is settings else _left_out(settings, source_table, lake, renamed)
    statements = told.count if told is not None else 0
    return Comparison(source_table, fingerprint, ruled, wanted, lake, changes, ignored, statements)


def _truncated(source: Source, before: Catalog, now: Catalog) -> frozenset[int]:
    """Partitions that were truncated by themselves, which sends no event.

    When all are, it was the whole table most likely, whose TRUNCATE is an event.
    """
    kept = {name: leaf["oid"] for name, leaf in now.leaves.items() if name in before.leaves}
    renewed = {oid for name, oid in kept.items() if before.files[name] != now.files[name]}
    found = source.truncated_partitions(renewed) if renewed else frozenset()
    return frozenset() if found == set(kept.values()) else found


def _another_key(
    source_table: SourceTable, settings: TableSettings, handoff: Mapping[str, Any]
) -> tuple[Change, ...]:
    """Whether the settings name another key than the lake's rows are written by."""
    had = tuple(map(str, handoff["key"]))
    wanted = () if settings.appends else tuple(settings.key_columns) or source_table.primary_key
    if wanted == had:
        return ()
    why = "rows of the lake are found by their key, which the settings change"
    old, new = (f"({', '.join(key)})" for key in (had, wanted))
    return (ChangeKey(verdict=Verdict.BOOTSTRAP, why=why, old=old, new=new),)


def _another_key_text(
    wanted: Iterable[Column], settings: TableSettings, handoff: Mapping[str, Any]
) -> tuple[Change, ...]:
    """Whether a key has another text than in the lake's rows, which would not be found by it."""
    names = tuple(map(str, handoff["key"]))
    key = [column for column in wanted if column.name in names]
    had, form = handoff.get(KEY_TEXT), key_form(key, shared=bool(settings.from_))
    if form in (None, had):
        return ()
    why = "rows of the lake are found by that text"
    shown = f"({', '.join(names)})"
    old, new = f"{shown} as text of form {had or 1}", f"{shown} as text of form {form}"
    return (ChangeKey(verdict=Verdict.BOOTSTRAP, why=why, old=old, new=new),)


def _another_hash_key(
    source_table: SourceTable,
    wanted: Sequence[Column],
    handoff: Mapping[str, Any],
    config: LakeConfig,
) -> tuple[Change, ...]:
    """Whether equal values would have another hash than the lake's rows have for them."""
    had = handoff.get("hash_key")
    types = {one.name: str(one.type) for one in source_table.columns}
    hashed = [one.name for one in wanted if one.hide == "hash"]
    if had is None or not hashed or key_check(config) == had:
        return ()
    why = "lake.hash_key is another than that of the lake's hashes"
    return tuple(
        ChangeType(verdict=Verdict.BOOTSTRAP, why=why, name=name, old=types[name], new=types[name])
        for name in hashed
    )


def settings_digest(settings: TableSettings, config: LakeConfig) -> str:
    """What of the settings the rows of a lake table are made by, and their key of hashes.

    Raises:
        SecretError: That key cannot be read.
    """
    made_by = {
        "columns": {
            "as": dict(settings.columns.as_),
            **{
                rule: sorted(set(getattr(settings.columns, rule)))
                for rule in ("include", "exclude", "hash", "mask")
            },
        },
        "key_columns": settings.key_columns,
        KEY_TEXT: FORM,
        "mode": settings.mode,
        "partition_by": settings.partition_by,
        "delete_mode": settings.delete_mode,
        "hash_key": key_check(config) if settings.columns.hash else None,
    }
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()


def key_text_fact(schema: TableSchema, *, shared: bool) -> dict[str, Any]:
    """What commits say of the text of keys; nothing where none is made."""
    form = key_form(map(schema.column, schema.key), shared=shared)
    return {KEY_TEXT: form} if form is not None else {}


def hash_key_fact(columns: Iterable[Column], config: LakeConfig) -> dict[str, Any]:
    """What commits say of the key of hashes; nothing where there are none."""
    return {"hash_key": key_check(config)} if any(one.hide == "hash" for one in columns) else {}


def _left_out(
    settings: TableSettings,
    source_table: SourceTable,
    lake: LakeColumns,
    renamed: Collection[str],
) -> tuple[str, ...]:
    """Columns that would be replicated if the table were not frozen."""
    rules = settings.columns
    return tuple(
        column.name
        for column in source_table.columns
        if not column.generated
        and (column.name not in lake.types or column.name in lake.dropped)
        and column.name not in renamed
        and column.name not in rules.exclude
        and (not rules.include or column.name in rules.include)
    )


def frozen(
    settings: TableSettings,
    source_table: SourceTable,
    lake: LakeColumns,
    renamed: Collection[str] = (),
) -> TableSettings:
    """The settings, of a table that is frozen those that name the lake's columns alone.

    Args:
        settings: The table's settings.
        source_table: The table as its catalog has it.
        lake: The lake's columns.
        renamed: Names that columns of the lake have now, and that it is to follow.
    """
    if settings.on_schema_change != "freeze":
        return settings
    excluded = {*settings.columns.exclude, *lake.dropped}
    kept = tuple(
        column.name
        for column in source_table.columns
        if (column.name in lake.types or column.name in renamed) and column.name not in excluded
    )
    return settings.model_copy(
        update={"columns": settings.columns.model_copy(update={"include": kept, "exclude": ()})}
    )


def lake_columns(handoff: Mapping[str, Any]) -> LakeColumns:
    """The lake's columns as its newest commit names them."""
    return LakeColumns(
        {str(column["name"]): str(column["lake"]) for column in handoff["columns"]},
        dropped=frozenset(str(c["name"]) for c in handoff["columns"] if c["source"] == DROPPED),
        asked=frozenset(str(c["name"]) for c in handoff["columns"] if c.get("asked")),
        hidden={
            str(c["name"]): (str(c["hide"]), str(c["plain"]))
            for c in handoff["columns"]
            if c.get("hide")
        },
    )


def column_facts(column: Column) -> dict[str, Any]:
    """A column as commits name it."""
    return {
        "name": column.name,
        "source": column.source_type,
        "lake": column.lake_type,
        "asked": column.asked,
        **({"hide": column.hide, "plain": column.plain} if column.hide else {}),
    }


def followed(
    handoff: Mapping[str, Any],
    compared: Comparison,
    *,
    fills: Mapping[str, str],
    at: datetime,
    schema_ids: Sequence[int],
    config: LakeConfig,
) -> dict[str, Any]:
    """The handoff of the commit with which the lake follows its source.

    A new column is ``late`` until a batch has shown that its events have begun: events from before
    lack it, and have there what old rows have. It stays ``added``, for events that are replayed.
    In the same way one that was ``renamed`` is looked for under its ``former`` names.

    Args:
        handoff: As the newest commit has it.
        compared: The lake beside its source.
        fills: By new column, Spark SQL of what old rows have.
        at: Now.
        schema_ids: Registry ids of the schemas that were read last.
        config: How values are hidden.
    """
    had = {str(one["name"]): dict(one) for one in handoff["columns"]}
    renamed = {one.to: _renamed(one, had[one.name]) for one in renames(compared.changes)}
    columns = []
    for column in compared.wanted:
        new = renamed.get(column.name, {"late": True, "added": True})
        entry = had.pop(column.name, new)
        if column.name in fills:
            entry["fill"] = fills[column.name]
        columns.append({**entry, **column_facts(column)})
    columns += [
        {"name": name, "source": DROPPED, "lake": entry["lake"]} for name, entry in had.items()
    ]
    told = [change.to_json() for change in compared.changes if not isinstance(change, NewFile)]
    version = {
        "version": schema_version(handoff) + 1,
        "at": at.isoformat(),
        "schema_ids": list(schema_ids),
        "changes": told,
    }
    return {
        **handoff,
        "columns": columns,
        "fingerprint": dict(compared.fingerprint.facts),
        "fingerprint_digest": compared.fingerprint.digest,
        **hash_key_fact(compared.wanted, config),
        **({"schema": version} if told else {}),
    }


def renames(changes: Iterable[Change]) -> Iterator[RenameColumn]:
    """The columns that go on under another name."""
    for change in changes:
        if isinstance(change, RenameColumn) and change.verdict is Verdict.FILL:
            yield change


def _renamed(change: RenameColumn, had: Mapping[str, Any]) -> dict[str, Any]:
    """What the new name takes over; events that lack every name lack what the old one lacked."""
    kept = {key: had[key] for key in ("late", "added", "fill") if key in had}
    return {**kept, "renamed": True, "former": [*change.former, *had.get("former", ())]}


def schema_version(handoff: Mapping[str, Any]) -> int:
    """Counts the changes that the lake has followed, from 1 for the columns as copied."""
    return int((handoff.get("schema") or {}).get("version", 1))


def carried(schema: TableSchema, handoff: Mapping[str, Any]) -> TableSchema:
    """The lake's schema: the source's, and the columns that only the lake still has."""
    names = {column.name for column in schema.columns}
    kept = (
        Column(str(one["name"]), DROPPED, str(one["lake"]))
        for one in handoff["columns"]
        if one["name"] not in names
    )
    return replace(schema, columns=(*schema.columns, *kept))


def fill_value(text: str | None, rule: TypeRule) -> str:
    """Spark SQL of a value that the source gave as the text of what ``read_sql`` makes of it."""
    if text is None:
        return f"CAST(NULL AS {rule.lake_type})"
    read = f"unhex({literal(text)})" if rule.read_type == "binary" else literal(text)
    return f"CAST({rule.from_jdbc(f'CAST({read} AS {rule.read_type})')} AS {rule.lake_type})"
