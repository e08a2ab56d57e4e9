"""Compares the columns of a lake table with the source's columns and the table's settings.

The lake's newest commit records the lake's columns, and the fingerprint of the catalog from which
the columns were derived. One commit changes the columns and the fingerprint, so a crash cannot
separate them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cdc.errors import ConfigError, SchemaChangeError
from cdc.lake.key_text import FORM, key_form
from cdc.rows.masking import key_check
from cdc.rows.semantic_types import literal
from cdc.sources import table_rules
from cdc.sources.refused_columns import RENAMED
from cdc.sources.selection import misread
from schemas.catalog import Catalog
from schemas.changes import ChangeKey, ChangeLakePartitions, ChangeType, LoseEvents, Verdict
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.renames import Renames
from schemas.statement_effects import StatementEffects
from schemas.table import Column
from schemas.withheld_columns import withheld

if TYPE_CHECKING:
    from cdc.config import LakeConfig, TableSettings
    from cdc.lake.handoff import Handoff
    from cdc.run.truncates import Truncates
    from cdc.sources.partition_files import PartitionFiles
    from cdc.sources.source_facts import Look, SourceTable
    from cdc.sources.table_reader import TableReader
    from schemas.changes import Change
    from schemas.fingerprint import Fingerprint
    from schemas.table import TableId
    from schemas.type_rule import TypeRule


@dataclass(frozen=True)
class Comparison:
    """A run's comparison of a lake table with its source.

    Args:
        source_table: The table in the source's catalog.
        fingerprint: The fingerprint that the run's next commit records (`judged`).
        settings: The table's settings. For a frozen table, they select only the lake's columns.
        wanted: The columns that these settings replicate.
        lake: The lake's columns.
        changes: How the source and the settings differ from what the lake's newest commit records,
            and other reasons for a new copy.
        ignored: Columns that are not replicated because the table is frozen.
        statements: Number of DDL statements on the table since the catalog was read for the lake's
            newest commit. 0 for a source whose catalog shows every change.
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
    source: TableReader,
    look: Look,
    settings: TableSettings,
    handoff: Handoff,
    config: LakeConfig,
    *,
    truncates: Truncates,
) -> Comparison:
    """Compare a lake table with its source's catalog, for a run.

    Args:
        source: The source.
        look: The table in the source's catalog, and its fingerprint.
        settings: The table's settings.
        handoff: The handoff document in the lake's newest commit, with the lake's columns.
        config: The lake's settings, with the secret key of hashes.
        truncates: Finds TRUNCATE events in the topic. The topic is searched only if one transaction
            gave new files to all partitions of the table.

    Raises:
        ConfigError: The settings change the partition columns of a shard.
        CaptureError: The connector does not capture a TRUNCATE of the table in time.
        SecretError: The key of hashes cannot be read.
        SchemaChangeError: The connector may confuse a type with another type of the same name.
        UnsupportedTypeError: A replicated column has an unsupported type.
        SchemaError: The settings name a missing column, or a column's name is invalid in the lake.
    """
    lake, source_table = handoff.lake_columns, look.table
    before, now = handoff.catalog, Catalog.read(look.fingerprint.facts)
    placing = {*handoff.key, *settings.key_columns, *settings.partitioned_columns}
    allowed = Renames(settings.columns.renames, frozenset(placing))
    renamed = allowed.renamed_columns(before, now, lake.types.keys() - lake.dropped)
    ruled = frozen(settings, source_table, lake, renamed)
    wanted = _replicated_columns(source, source_table, ruled)
    files = source.partition_files
    attached = [one.number for name, one in now.partitions.items() if name not in before.partitions]
    evidence = Evidence(
        stored={column.name: column.old_values for column in source_table.columns},
        empty=files.empty(attached) if attached and files is not None else (),
        truncated=_truncated_partitions(files, source_table.table, before, now, truncates),
        statements=look.statements or StatementEffects(),
    )
    rules = Rules(
        wanted,
        frozen=ruled is not settings,
        keyed=not settings.appends,
        keeps_deleted=settings.delete_mode == "soft",
        keeps_truncated=settings.on_truncate != "apply",
        renames=allowed,
        key=handoff.key,
    )
    changes = diff(before, now, lake, rules, evidence) + _misplaced_values(source_table, now)
    if not any(isinstance(change, ChangeKey) for change in changes):
        changes += _another_key(source_table, settings, handoff)
    changes += _changes_by_settings(source_table, wanted, settings, handoff, config)
    ignored = () if ruled is settings else _columns_left_out(settings, source_table, lake, renamed)
    count = evidence.statements.count
    seen = judged(look.fingerprint, handoff.fingerprint, count)
    return Comparison(source_table, seen, ruled, wanted, lake, changes, ignored, count)


def _replicated_columns(
    source: TableReader, table: SourceTable, settings: TableSettings
) -> tuple[Column, ...]:
    """Return a run's replicated columns; refuse a type that the connector may confuse with another.

    If a connector starts while another type has the same name as a column's type, the connector's
    events can lack the column's values. The catalog does not show when the connector started. So
    the table needs a new copy even if the other type no longer exists at the next run.

    Raises:
        SchemaChangeError: Another type has the same name as the type of a replicated column. The
            error names all such columns.
    """
    if not (columns := misread(table, settings)):
        return source.columns(table, settings)
    found = ", ".join(f"{one.name!r} ({one.type}) for {one.misread_as}" for one in columns)
    others = ", ".join(sorted({one.misread_as for one in columns}))
    raise SchemaChangeError(
        f"the connector can take the type of columns of table {table.table} for another one of the"
        f" same name: {found}. If it has started since, it sends NULL, 0 or an empty text for their"
        " values; this run has applied no event",
        remedy=f"Rename {others}: {RENAMED}. Or take columns that are not in the key into"
        " columns.as ({COLUMN: string}) or columns.exclude. In both cases, run `tributary bootstrap"
        f" {table.table}` afterwards: the new copy replaces what came wrong.",
        table=table.table,
        field=", ".join(one.name for one in columns),
    )


def judged(now: Fingerprint, before: Fingerprint, statements: int) -> Fingerprint:
    """Return the fingerprint that a run's commit records after a comparison.

    This is ``now``, the fingerprint of the newest look at the catalog. If neither the catalog nor
    the DDL statements that the connector has reported show a change, the result is ``now`` with the
    log position of ``before``. The connector may still have to report a statement from between
    ``before`` and ``now``. With the older position, a later run counts that statement.

    Args:
        now: The fingerprint of the newest look at the catalog.
        before: The fingerprint that the lake's newest commit has recorded.
        statements: Number of DDL statements on the table since ``before`` that the connector has
            reported.
    """
    unchanged = not statements and now.digest == before.digest
    return now.with_read_at(before) if unchanged else now


def _truncated_partitions(
    files: PartitionFiles | None,
    table: TableId,
    before: Catalog,
    now: Catalog,
    truncates: Truncates,
) -> frozenset[int]:
    """Return the numbers of the partitions that may have been truncated since the last run.

    Only a TRUNCATE that sends no event counts, such as the TRUNCATE of a single partition.

    The result is empty if one transaction gave new files to all partitions and sent a TRUNCATE
    event: this was one TRUNCATE of the whole table.
    """
    kept = {name: one.number for name, one in now.partitions.items() if name in before.partitions}
    renewed = {
        number: before.files[name]
        for name, number in kept.items()
        if before.files[name] != now.files[name]
    }
    if not renewed or files is None:
        return frozenset()
    found = files.truncated(table, renewed, before.horizon)
    if found != set(kept.values()):
        return found
    writer = files.written_together(found)
    return frozenset() if writer is not None and truncates.has(writer) else found


def _misplaced_values(source_table: SourceTable, now: Catalog) -> tuple[Change, ...]:
    """Return a `LoseEvents` for a run if events can have values in wrong columns, else nothing."""
    found = table_rules(now.source_kind).misplaced(source_table, withheld(now))
    if found is None:
        return ()
    problem, remedy = found
    return (LoseEvents(verdict=Verdict.BOOTSTRAP, why=remedy, fact=f"the table {problem}"),)


def _another_key(
    source_table: SourceTable, settings: TableSettings, handoff: Handoff
) -> tuple[Change, ...]:
    """Compare the settings' key with the lake's key in a run; return the change of key, if any."""
    had = handoff.key
    wanted = () if settings.appends else tuple(settings.key_columns) or source_table.primary_key
    if wanted == had:
        return ()
    why = "rows of the lake are found by their key, which the settings change"
    old, new = (f"({', '.join(key)})" for key in (had, wanted))
    return (ChangeKey(verdict=Verdict.BOOTSTRAP, why=why, old=old, new=new),)


def _changes_by_settings(
    source_table: SourceTable,
    wanted: Sequence[Column],
    settings: TableSettings,
    handoff: Handoff,
    config: LakeConfig,
) -> tuple[Change, ...]:
    """Return a run's changes of key text, partitions and hash key that the settings cause."""
    return (
        *_another_key_text(wanted, settings, handoff),
        *other_partitions(source_table.table, settings, handoff),
        *_another_hash_key(source_table, wanted, handoff, config),
    )


def _another_key_text(
    wanted: Iterable[Column], settings: TableSettings, handoff: Handoff
) -> tuple[Change, ...]:
    """Return a change of the key if runs now write keys in another text form than the lake has.

    Return nothing if the text form is the same.
    """
    key = [column for column in wanted if column.name in handoff.key]
    had, form = handoff.key_text, key_form(key, shared=bool(settings.from_))
    if form in (None, had):
        return ()
    why = "rows of the lake are found by that text"
    shown = f"({', '.join(handoff.key)})"
    old, new = f"{shown} as text of form {had or 1}", f"{shown} as text of form {form}"
    return (ChangeKey(verdict=Verdict.BOOTSTRAP, why=why, old=old, new=new),)


def other_partitions(
    table: TableId, settings: TableSettings, handoff: Handoff
) -> tuple[Change, ...]:
    """Return a run's schema change if the settings name other partition columns than the lake has.

    Raises:
        ConfigError: The table is a shard. A new copy of one shard does not change the partitions of
            the shared table.
    """
    had, wanted = handoff.partition_by, tuple(map(str, settings.partition_by))
    if wanted == had:
        return ()
    old, new = (f"({', '.join(names)})" for names in (had, wanted))
    if settings.from_:
        raise ConfigError(
            f"partition_by of table {table} changed from {old} to {new}, and the lake table that it"
            " shares with other shards keeps its partitions",
            remedy="Set partition_by back. To change it, offboard all shards of the lake table with"
            " --delete-data, and onboard it with --again.",
            table=table,
            field="partition_by",
        )
    why = "the partitions of a lake table are those that it was created with"
    return (ChangeLakePartitions(verdict=Verdict.BOOTSTRAP, why=why, old=old, new=new),)


def _another_hash_key(
    source_table: SourceTable,
    wanted: Sequence[Column],
    handoff: Handoff,
    config: LakeConfig,
) -> tuple[Change, ...]:
    """Return a change of each hashed column if the lake's hashes were made with another hash key.

    Return nothing if ``lake.hash_key`` is the key of the lake's hashes.
    """
    had = handoff.hash_key
    types = {one.name: str(one.type) for one in source_table.columns}
    hashed = [one.name for one in wanted if one.hide == "hash"]
    if had is None or not hashed or key_check(config) == had:
        return ()
    why = "lake.hash_key differs from the key of the lake's hashes"
    return tuple(
        ChangeType(verdict=Verdict.BOOTSTRAP, why=why, name=name, old=types[name], new=types[name])
        for name in hashed
    )


def settings_digest(settings: TableSettings, config: LakeConfig) -> str:
    """Return a digest of all settings that determine a lake table's rows, and of the key of hashes.

    Raises:
        SecretError: The key of hashes cannot be read.
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
        "key_text": FORM,
        "mode": settings.mode,
        "partition_by": tuple(map(str, settings.partition_by)),
        "delete_mode": settings.delete_mode,
        "timestamps_without_zone": settings.timestamps_without_zone,
        "hash_key": key_check(config) if settings.columns.hash else None,
    }
    return _digest_of_settings(made_by)


class SettingsDigests(NamedTuple):
    """Digests of a table's settings, by which a process finds out that its settings are outdated.

    Args:
        settings_digest: Digest of all settings that determine a lake table's rows.
        policies_digest: Digest of the other settings of runs, which change no existing row, for
            example ``on_truncate`` and ``readers_keep``.
    """

    settings_digest: str
    policies_digest: str


def settings_digests(settings: TableSettings, config: LakeConfig) -> SettingsDigests:
    """Return the digests by which runs see that a table's settings have changed.

    Raises:
        SecretError: The key of hashes cannot be read.
    """
    policies = {
        "on_bad_message": settings.on_bad_message,
        "on_incompatible": settings.on_incompatible,
        "on_schema_change": settings.on_schema_change,
        "on_truncate": settings.on_truncate,
        "readers_keep": settings.readers_keep,
        "renames": dict(settings.columns.renames),
    }
    return SettingsDigests(settings_digest(settings, config), _digest_of_settings(policies))


def _digest_of_settings(document: Mapping[str, object]) -> str:
    """Return the SHA-256 digest of settings that a run compares, in hexadecimal."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _columns_left_out(
    settings: TableSettings,
    source_table: SourceTable,
    lake: LakeColumns,
    renamed: Collection[str],
) -> tuple[str, ...]:
    """Return the source's columns that a run does not replicate because the table is frozen."""
    return tuple(
        column.name
        for column in source_table.columns
        if not column.generated
        and (column.name not in lake.types or column.name in lake.dropped)
        and column.name not in renamed
        and settings.columns.selects(column.name)
    )


def frozen(
    settings: TableSettings,
    source_table: SourceTable,
    lake: LakeColumns,
    renamed: Collection[str] = (),
) -> TableSettings:
    """Return a table's settings for a run; for a frozen table, they select the lake's columns only.

    Args:
        settings: The table's settings. `on_schema_change: freeze` makes the table a frozen one.
        source_table: The table in the source's catalog.
        lake: The lake's columns.
        renamed: New names that the source has given to the lake's columns.
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


def fill_value(text: str | None, rule: TypeRule) -> str:
    """Return Spark SQL of the value with which a run fills a new column in the lake's old rows.

    Args:
        text: The value as a string, in hexadecimal for a binary type; None for NULL.
        rule: The type rule by which the copy converts values of the source column's type.
    """
    if text is None:
        return f"CAST(NULL AS {rule.lake_type})"
    read = f"unhex({literal(text)})" if rule.read_type == "binary" else literal(text)
    return f"CAST({rule.from_jdbc(f'CAST({read} AS {rule.read_type})')} AS {rule.lake_type})"
