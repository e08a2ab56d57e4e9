"""``readers``: the registered readers of tables, and the lag of each.

A reader writes a file beside the table. The file says what the reader has read. If the lake is on
this machine, each command about readers reads the files. In other lakes, only runs read the files,
since runs have a Spark session. Runs store the result, so ``readers`` and ``status`` need not start
Spark.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from cdc.errors import StateError
from cdc.store.reader_looks import ReaderLooks
from cdc.store.table_state import State
from operate.lake_storage import SparkStorage, folder_here, lake_storage
from schemas.errors import TributaryError
from tributary_reader import reader_files, registered
from tributary_reader.storage import LocalStorage

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.store.reader_state import ReadersLook, ReaderState
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from operate.server_answers import Answers
    from schemas.table import TableId
    from tributary_reader.storage import Storage

_log = logging.getLogger(__name__)
_SEARCH_S = 300.0
"""Seconds from a search that found no readers in a local folder to the folder's next search."""
_AGAIN_S = 50.0
"""Minimum time after which runs read the files of a table's readers again, in seconds."""
_MOST_S = 10.0
"""How long a run may read the files of readers before the run continues, in seconds."""
_SEARCHED_AT_ONCE = 20
"""Maximum number of tables without known readers that one run searches for readers."""
_KNOWN = timedelta(hours=1)
"""Maximum age at which ``status`` and metrics show a run's stored result about readers."""


class Progress(str, Enum):
    """How far a registered reader of a table has come."""

    CURRENT = "current"
    """The reader has read the newest commit."""
    BEHIND = "behind"
    """The reader has not read the newest commit."""
    NEVER = "never"
    """The reader has recorded no instant yet."""
    LOST = "lost"
    """The reader may have missed changes, and must read the whole table again."""
    UNREADABLE = "unreadable"
    """The reader's file or the lake cannot be read, so nothing is known."""


@dataclass(frozen=True)
class ReaderStatus:
    """One registered reader of a table, as ``readers`` and ``status`` show it.

    Args:
        table: The name of the table, or of the lake table that shards share.
        state: What the reader has read.
        looked_at: When the reader's file and the table's commits were read.
        target_s: The limit of `unread_s`, from the setting ``readers``; None if it sets no limit.
    """

    table: str
    state: ReaderState
    looked_at: datetime
    target_s: int | None = None

    @property
    def progress(self) -> Progress:
        """The reader's progress, as a word."""
        if self.state.problem is not None:
            return Progress.UNREADABLE
        if self.state.lost:
            return Progress.LOST
        if self.state.instant is None:
            return Progress.NEVER
        return Progress.CURRENT if self.state.unread_at is None else Progress.BEHIND

    @property
    def lag_s(self) -> float | None:
        """Seconds from the newest commit read so far to `looked_at`; 0 if no commit is unread."""
        if self.progress is Progress.CURRENT:
            return 0.0
        return self._since(self.state.read_at)

    @property
    def unread_s(self) -> float | None:
        """Seconds from the oldest unread commit to `looked_at`; 0 if no commit is unread."""
        if self.progress is Progress.CURRENT:
            return 0.0
        return self._since(self.state.unread_at)

    def _since(self, at: datetime | None) -> float | None:
        return None if at is None else max(0.0, (self.looked_at - at).total_seconds())

    @property
    def late(self) -> bool:
        """Whether a reader with a target misses the target, is lost, or cannot be read."""
        if self.target_s is None:
            return False
        if self.progress in (Progress.LOST, Progress.UNREADABLE):
            return True
        return self.unread_s is not None and self.unread_s > self.target_s

    def to_json(self) -> dict[str, Any]:
        """The reader's status as plain values."""
        return {
            "table": self.table,
            "reader": self.state.name,
            "progress": self.progress.value,
            "instant": self.state.instant,
            "attempt": self.state.attempt,
            "recorded_at": self.state.recorded_at,
            "lag_s": self.lag_s,
            "unread_s": self.unread_s,
            "target_s": self.target_s,
            "late": self.late,
            "problem": self.state.problem,
            "looked_at": self.looked_at,
        }


@dataclass(frozen=True)
class _LakeTable:
    """A published lake table, which one source table or several shards feed.

    Args:
        name: The name of the table, or of the lake table that shards share.
        folder: The table's folder, which has the pointer.
        here: Whether the folder is on this machine.
        targets: The limit of `ReaderStatus.unread_s`, as a mapping from the reader's name; ``*`` is
            for all other readers.
    """

    name: str
    folder: str
    here: bool
    targets: Mapping[str, int]

    @property
    def expected(self) -> frozenset[str]:
        """The readers that the settings name."""
        return frozenset(self.targets) - {"*"}

    def status(self, look: ReadersLook) -> Iterator[ReaderStatus]:
        """Yield the status of each reader that a look at the readers' files has found."""
        for one in look.readers:
            target = self.targets.get(one.name, self.targets.get("*"))
            yield ReaderStatus(self.name, one, look.at, target)


def readers(
    services: Services, records: Iterable[TableRecord], *, all_known: bool = False
) -> tuple[ReaderStatus, ...]:
    """Return the status of the registered readers of tables; log folders that cannot be read.

    Args:
        services: The services of the command. No Spark session is started.
        records: The records of the tables.
        all_known: Whether to search every folder again, even if it had no readers some minutes ago,
            and to use what runs have stored about readers even if this is old.

    Raises:
        StateError: The state store cannot be used.
    """
    tables, now = _lake_tables(services, records), datetime.now(timezone.utc)
    kept = {} if all(one.here for one in tables) else ReaderLooks(services.store).all()
    found: list[ReaderStatus] = []
    for table in tables:
        if table.here:
            look = _look_at_readers_here(services, table, now, search=all_known)
        else:
            look = kept.get(table.folder)
            if look is not None and not all_known and now - look.at > _KNOWN:
                look = None
        if look is not None:
            found += table.status(look)
    return tuple(found)


def readers_within(
    services: Services, answers: Answers, records: Sequence[TableRecord]
) -> tuple[ReaderStatus, ...]:
    """Return the registered readers of the tables; an empty tuple if the reading takes too long."""
    try:
        return answers.within("the files of readers", lambda: readers(services, records))
    except TributaryError as error:
        _log.warning("readers are not known: %s", error)
        return ()


def keep_looks(services: Services) -> None:
    """Read those files of registered readers that only Spark can read, and store the results.

    Runs call this function about once a minute. It reads the files of each table with known or
    configured readers, and searches some of the other tables for readers. A failure is only logged.
    """
    try:
        tables = [one for one in _lake_tables(services, services.store.tables()) if not one.here]
        looks = ReaderLooks(services.store)
        known = looks.all()
        for folder in known.keys() - {one.folder for one in tables}:
            looks.forget(folder)
        _keep_looks(services, looks, tables, known)
    except TributaryError as error:
        _log.warning("the readers of tables were not looked at: %s", error)


def _keep_looks(
    services: Services,
    looks: ReaderLooks,
    tables: Iterable[_LakeTable],
    known: Mapping[str, ReadersLook],
) -> None:
    """Renew the stored results about readers, the oldest first; then search other tables.

    The function stops after a limited time.
    """
    now, until = datetime.now(timezone.utc), time.monotonic() + _MOST_S
    searched = services.without_readers
    due: list[tuple[float, _LakeTable]] = []
    others: list[tuple[float, _LakeTable]] = []
    for table in tables:
        if (before := known.get(table.folder)) is not None:
            if (now - before.at).total_seconds() >= _AGAIN_S:
                due.append((before.at.timestamp(), table))
        elif table.expected:
            due.append((0.0, table))
        else:
            others.append((searched.get(table.folder, 0.0), table))
    # A process that runs once has searched none before: each such process searches others.
    random.shuffle(others)
    others = sorted(others, key=lambda one: one[0])[:_SEARCHED_AT_ONCE]
    for _, table in (*sorted(due, key=lambda one: one[0]), *others):
        if time.monotonic() > until:
            return
        try:
            storage = SparkStorage(services.spark)
            look = registered.look(storage, table.folder, expected=table.expected)
        except TributaryError as error:
            _log.warning("the readers of table %s are not known: %s", table.name, error)
            continue
        if look.readers:
            looks.keep(look)
            continue
        searched[table.folder] = time.monotonic()
        if table.folder in known:
            looks.forget(table.folder)


def record(services: Services, table: TableId, name: str, instant: str) -> ReaderStatus:
    """Record that a reader has read a table up to a commit, as ``readers record`` does.

    Raises:
        StateError: The table is not on the plan, or is not published.
        ReadError: The name is not valid, or the table has no such commit.
        LakeError: The reader's file cannot be written.
    """
    place = _published_lake_table(services, table)
    storage = lake_storage(services, place.folder)
    registered.record_instant(storage, place.folder, name, instant)
    look = _renew_readers_look(services, place, storage)
    return next(one for one in place.status(look) if one.state.name == name)


def remove(services: Services, table: TableId, name: str) -> bool:
    """Remove a reader's file, as ``readers remove`` does; return whether there was a file.

    Raises:
        StateError: The table is not on the plan, or is not published.
        ReadError: The name is not valid, or the file cannot be removed.
    """
    place = _published_lake_table(services, table)
    storage = lake_storage(services, place.folder)
    there = reader_files.remove_file(storage, storage.resolve(place.folder), name)
    _renew_readers_look(services, place, storage)
    return there


def _renew_readers_look(services: Services, table: _LakeTable, storage: Storage) -> ReadersLook:
    """Read the files of a table's readers after a command has changed one of these files.

    If the lake is not on this machine, the result is stored.
    """
    services.without_readers.pop(table.folder, None)
    look = registered.look(storage, table.folder, expected=table.expected)
    if not table.here:
        looks = ReaderLooks(services.store)
        if look.readers:
            looks.keep(look)
        else:
            looks.forget(table.folder)
    return look


def _look_at_readers_here(
    services: Services, table: _LakeTable, now: datetime, *, search: bool
) -> ReadersLook | None:
    """Return what registered readers of a local table have read; None if no reader was found."""
    searched, clock = services.without_readers, time.monotonic()
    if not search and clock - searched.get(table.folder, -_SEARCH_S) < _SEARCH_S:
        return None
    try:
        look = registered.look(LocalStorage(), table.folder, expected=table.expected, at=now)
    except (TributaryError, OSError) as error:
        _log.warning("the readers of table %s are not known: %s", table.name, error)
        return None
    if look.readers:
        searched.pop(table.folder, None)
        return look
    searched[table.folder] = clock
    return None


def _published_lake_table(services: Services, table: TableId) -> _LakeTable:
    """Return the published lake table of a table, for commands about readers.

    Raises:
        StateError: The table is not on the plan, or is not published.
    """
    record = services.store.get(table)
    for one in _lake_tables(services, [] if record is None else [record]):
        return one
    raise StateError(
        f"table {table} is not on the plan, or not published yet",
        remedy="See `tributary status` for the tables on the plan and their states.",
        table=table,
    )


def _lake_tables(services: Services, records: Iterable[TableRecord]) -> list[_LakeTable]:
    """Return the published lake tables of records, each once, to find the tables' readers."""
    found: dict[str, _LakeTable] = {}
    for one in records:
        if one.state is State.RETIRED or one.never_published:
            continue
        name, folder = str(one.table), one.base_path
        if one.shard is not None:
            name, folder = one.shard.of, one.shard.base_path
        if folder in found:
            continue
        here = folder_here(services.config, folder) is not None
        found[folder] = _LakeTable(name, folder, here, _lags_of_readers(services, one.table))
    return list(found.values())


def _lags_of_readers(services: Services, table: TableId) -> dict[str, int]:
    """Return the greatest lag that a table's settings allow, in seconds, by the reader's name."""
    try:
        settings: TableSettings = services.config.table_settings(table)
    except TributaryError:  # its source is no longer in the configuration
        return {}
    return {name: one.lag_s for name, one in settings.readers.items()}
