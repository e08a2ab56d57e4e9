"""The changes that are not allowed on a table, its settings and its server during its copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError
from schemas.catalog import Catalog
from schemas.copy_spoiling import spoiling
from schemas.fingerprint import Fingerprint

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.sources.base import Marker, TableReader
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord


def unspoiled(
    source: TableReader,
    settings: TableSettings,
    record: TableRecord,
    attempt: Attempt,
    now: Fingerprint,
) -> Attempt:
    """Check that the copied rows can still be completed exactly.

    Args:
        source: The source.
        settings: The table's settings.
        record: The table.
        attempt: The copy, with the catalog's facts at its last check.
        now: The facts now.

    Returns:
        The attempt with the facts of now, so that the next check compares with these.

    Raises:
        AttemptSpoiledError: They cannot; names each reason.
    """
    known = attempt.fingerprint or Fingerprint({})
    if known.digest == now.digest:
        return attempt
    if found := [*_spoiling(source, settings, record, known, now)]:
        raise AttemptSpoiledError(
            f"table {record.table} was changed while it was copied: {'; '.join(found)}",
            remedy="Nothing to do: the copy begins again. If this repeats, leave the table's"
            " definition alone until the copy is done.",
            table=record.table,
        )
    return replace(attempt, fingerprint=now)


def _spoiling(
    source: TableReader,
    settings: TableSettings,
    record: TableRecord,
    known: Fingerprint,
    now: Fingerprint,
) -> Iterable[str]:
    """The facts that spoil the copy: any change, if only the log says what was done."""
    before, after = Catalog.read(known.facts), Catalog.read(now.facts)
    if after.source_kind != "postgres":
        return known.diff(now)
    files = source.partition_files
    attached = [leaf["oid"] for name, leaf in after.leaves.items() if name not in before.leaves]
    return spoiling(
        before,
        after,
        wanted=source.columns(source.table(record.table), settings),
        empty=files.empty(attached) if attached and files is not None else (),
        keyed=not settings.appends,
        keeps_deleted=settings.delete_mode == "soft",
    )


def require_same_settings(record: TableRecord, attempt: Attempt, digest: str) -> None:
    """Check that the current settings made the rows that are already copied.

    Raises:
        AttemptSpoiledError: The settings were edited meanwhile, or the key of hashes changed.
    """
    if attempt.settings_digest not in (None, digest):
        raise AttemptSpoiledError(
            f"the settings of table {record.table} (columns, key, mode, lake.hash_key) were changed"
            " while it was copied",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
        )


def require_same_server(record: TableRecord, marker: Marker) -> None:
    """Check that the primary is still the one whose view the attempt has read.

    Raises:
        AttemptSpoiledError: It is another cluster, or on another timeline. The copy may then hold
            rows that the former primary had committed and this one lacks.
    """
    view = record.attempt.view if record.attempt is not None else None
    if view is None:
        return
    for name, known, found in (
        ("system_identifier", view.system_identifier, marker.system_identifier),
        ("timeline", view.timeline, marker.timeline),
    ):
        if known is not None and found is not None and known != found:
            raise AttemptSpoiledError(
                f"source {record.table.source} became another server while table {record.table}"
                f" was copied: its {name.replace('_', ' ')} was {known}, is {found}",
                remedy="Nothing to do: the copy begins again.",
                table=record.table,
            )
