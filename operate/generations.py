"""``generations``: lists the copies of a table in the lake, and removes unneeded ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.errors import StateError
from cdc.lake.generations import FolderKind, Generation, generations, named, superfluous
from operate.lifecycle import LEASE_WAIT_S, forget_build
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Removed:
    """The result of ``generations remove``.

    Args:
        removed: The removed generations.
        left: The remaining generations.
    """

    removed: tuple[Generation, ...]
    left: tuple[Generation, ...]


def look(services: Services, table: TableId) -> list[Generation]:
    """Return a table's generations, also those of other installations, for ``generations list``.

    Raises:
        StateError: The table was never on the plan.
        LakeError: The table's folder cannot be read.
    """
    from cdc.lake.ownership import Ownership
    from cdc.lake.publish import attempt_folders, read_pointer

    record = _known_record(services, table)
    folders = attempt_folders(services.spark, record.base_path)
    pointer = read_pointer(services.spark, record.base_path)
    build = services.store.get(table, beside=True)
    records = [_known_record(services, table), *([build] if build is not None else ())]
    owner = Ownership.of(record, services.store.installation)
    return generations(folders, pointer, records, owner.is_other)


def remove(services: Services, table: TableId, names: Sequence[str] = ()) -> Removed:
    """Remove the generations that an operator names; without names, all unneeded ones.

    A generation is unneeded if it was abandoned, or if it is a former generation that the settings
    do not keep. If an operator names a generation that is still being built, the build is given up.

    Args:
        services: The services of the command.
        table: The table.
        names: Numbers of generations, or beginnings of the UUIDs of the attempts that built them.

    Raises:
        StateError: A name matches no generation, or matches a generation that is in use or belongs
            to another installation. Then nothing is removed.
        LakeError: A folder cannot be deleted. The same command continues the removal.
    """
    from cdc.lake.publish import delete_attempts
    from cdc.run.commits import keep_size

    with services.leases.hold(table, wait_s=LEASE_WAIT_S):
        chosen = _named_generations(services, table, names)
        if any(one.beside for one in chosen):
            forget_build(services, table)
        base = _known_record(services, table).base_path
        delete_attempts(services.spark, base, [one.attempt for one in chosen])
        keep_size(services.spark, services.store, _known_record(services, table))
        return Removed(tuple(chosen), tuple(look(services, table)))


def clean(services: Services, table: TableId) -> None:
    """Remove a table's unneeded generations after a command's copy; a failure is only logged."""
    try:
        gone = remove(services, table).removed
    except TributaryError as error:
        _log.warning("older generations of table %s could not be removed: %s", table, error)
    else:
        for one in gone:
            _log.info("removed %s attempt %s of table %s", one.kind.value, one.attempt, table)


def _named_generations(
    services: Services, table: TableId, names: Sequence[str]
) -> list[Generation]:
    """Return the generations that an operator names; without names, all unneeded ones.

    Raises:
        StateError: A name matches no generation, or matches a generation that is in use or belongs
            to another installation.
    """
    found = look(services, table)
    if not names:
        settings = services.config.table_settings(table)
        keep = timedelta(seconds=settings.readers_keep_s)
        now = datetime.now(timezone.utc)
        return superfluous(found, settings.retain_generations, keep=keep, now=now)
    chosen: dict[str, Generation] = {}
    for name, meant in named(found, names).items():
        if not meant:
            raise StateError(
                f"table {table} has no generation {name}",
                remedy=f"See `tributary generations list {table}`.",
                table=table,
            )
        for one in meant:
            if not (one.removable or one.beside):
                raise _not_removable_error(table, one)
            chosen[one.attempt] = one
    return list(chosen.values())


def _known_record(services: Services, table: TableId) -> TableRecord:
    """Return a table's record for ``generations``; the table must have been on the plan."""
    record = services.store.get(table)
    if record is None:
        raise StateError(
            f"table {table} is not on the plan, and was never on it",
            remedy="See `tributary status` for the tables on the plan.",
            table=table,
        )
    return record


def _not_removable_error(table: TableId, one: Generation) -> StateError:
    """Return the error of ``generations remove`` for a generation that cannot be removed."""
    if one.kind is FolderKind.OTHER:
        return StateError(
            f"attempt {one.attempt} of table {table} is of another installation, which can still"
            " need it, and cannot be removed",
            remedy="Remove it there. If that installation is gone for good, run `tributary onboard"
            f" --take-over --no-bootstrap {table}`, then this command again.",
            table=table,
            attempt=one.attempt,
        )
    if one.kind is FolderKind.SERVING:
        remedy = f"Run `tributary resync {table}` first, which sends readers to a new generation."
    else:
        remedy = f"Run `tributary bootstrap {table}`, which completes it."
    return StateError(
        f"generation {one.number} of table {table} is {one.kind.value} and cannot be removed",
        remedy=remedy,
        table=table,
        attempt=one.attempt,
    )
