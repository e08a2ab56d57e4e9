"""Checks that no change of a table, of its settings or of its server spoils the table's copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError
from schemas.catalog import Catalog
from schemas.copy_spoiling import spoiling, spoiling_facts
from schemas.fingerprint import Fingerprint

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.sources.base import Marker
    from cdc.sources.table_reader import TableReader
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord


def unspoiled(
    source: TableReader,
    settings: TableSettings,
    record: TableRecord,
    attempt: Attempt,
    now: Fingerprint,
) -> Attempt:
    """Check that no change of the table since the last check spoils the table's copy.

    Args:
        source: The source.
        settings: The table's settings.
        record: The table's record.
        attempt: The attempt, with the fingerprint of the last check.
        now: The current fingerprint.

    Returns:
        The attempt with the current fingerprint. The next check compares with this fingerprint.

    Raises:
        AttemptSpoiledError: A change spoils the copy. The error names each such change.
    """
    known = attempt.fingerprint or Fingerprint({})
    if known.digest == now.digest:
        return attempt
    if found := [*_spoiling_changes(source, settings, record, known, now)]:
        raise AttemptSpoiledError(
            f"table {record.table} was changed while it was copied: {'; '.join(found)}",
            remedy="Nothing to do: the copy begins again. If this repeats, leave the table's"
            " definition alone until the copy is done.",
            table=record.table,
        )
    # The first run judges the statements from the first look on.
    return replace(attempt, fingerprint=now.with_read_at(known))


def _spoiling_changes(
    source: TableReader,
    settings: TableSettings,
    record: TableRecord,
    known: Fingerprint,
    now: Fingerprint,
) -> Iterable[str]:
    """Return a description of each change that spoils the copy."""
    before, after = Catalog.read(known.facts), Catalog.read(now.facts)
    if after.source_kind != "postgres":
        return known.diff(now) if settings.appends else spoiling_facts(known, now)
    files = source.partition_files
    attached = [
        one.number for name, one in after.partitions.items() if name not in before.partitions
    ]
    return spoiling(
        before,
        after,
        wanted=source.columns(source.table(record.table), settings),
        empty=files.empty(attached) if attached and files is not None else (),
        key=() if settings.appends else tuple(settings.key_columns) or before.primary_key,
        keeps_deleted=settings.delete_mode == "soft",
    )


def require_same_settings(record: TableRecord, attempt: Attempt, digest: str) -> None:
    """Check that the copied rows were written with the current settings.

    Args:
        record: The table's record.
        attempt: The attempt that copied the rows.
        digest: The digest of the current settings.

    Raises:
        AttemptSpoiledError: The settings, or the secret key of the hashes, have changed since the
            copy began.
    """
    if attempt.settings_digest not in (None, digest):
        raise AttemptSpoiledError(
            f"the settings of table {record.table} (columns, key, mode, lake.hash_key) were changed"
            " while it was copied",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
        )


def require_same_order(record: TableRecord, attempt: Attempt, now: str | None) -> None:
    """Check that the source sorts the table's key as it did when the attempt's chunks were planned.

    A chunk is a range of keys. If the order changes, a row that was in a remaining chunk can move
    to the range of a chunk that is already copied. Then no chunk copies the row. The fingerprint
    shows that a collation was replaced, but not that the collation's library has a new version.

    Args:
        record: The table's record.
        attempt: The attempt, with its planned chunks.
        now: The result of the source's `key_order` under the view that is now open.

    Raises:
        AttemptSpoiledError: The attempt has several chunks, and the order of keys can differ now:
            the source sorts the key by another version of a library, or an index can sort the key
            differently from the server.
    """
    if len(attempt.chunks) > 1 and (now is None or now != attempt.key_order):
        found = "not certain" if now is None else now or "by no library"
        raise AttemptSpoiledError(
            f"source {record.table.source} sorts the key of table {record.table} in another way"
            f" since its copy was cut into ranges (was {attempt.key_order or 'by no library'}; is"
            f" {found})",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
        )


def require_same_server(record: TableRecord, marker: Marker) -> None:
    """Check that the primary is still the server on which the copy began.

    That server was recorded together with the start offset O, and again with the view.

    Raises:
        AttemptSpoiledError: The primary is another cluster, or is on another timeline. The copy, or
            the events from O on, can then have rows that the former primary had and the present
            primary lacks.
    """
    found = (marker.system_identifier, marker.timeline)
    for server in record.attempt.servers if record.attempt is not None else ():
        known = (server.system_identifier, server.timeline)
        for name, was, now in zip(("system identifier", "timeline"), known, found, strict=True):
            if was is not None and now is not None and was != now:
                raise AttemptSpoiledError(
                    f"source {record.table.source} became another server while table"
                    f" {record.table} was copied: its {name} was {was}, is {now}",
                    remedy="Nothing to do: the copy begins again.",
                    table=record.table,
                )
