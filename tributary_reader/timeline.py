"""The timeline of a Hudi table of version 6, read from its files without Hudi."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from fastavro import reader as avro_reader

from tributary_reader.commit_record import COMMIT_KEY, CommitFacts
from tributary_reader.errors import ReadError
from tributary_reader.storage import Storage, properties

_TIMELINE = ".hoodie"
_VERSION = "6"
_FILE = re.compile(r"(\d{17})\.([a-z]+)(?:\.(requested|inflight))?")
_COMMITS = ("commit", "replacecommit")


@dataclass(frozen=True)
class Commit:
    """One completed commit, as a reader finds it.

    Args:
        instant: Hudi's instant, which orders the commits of a table.
        action: ``commit`` or ``replacecommit``.
        metadata: Hudi's metadata of the commit.
    """

    instant: str
    action: str
    metadata: Mapping[str, Any]

    @property
    def stats(self) -> list[Mapping[str, Any]]:
        """Hudi's statistics of each file that the commit wrote."""
        listed = (self.metadata.get("partitionToWriteStats") or {}).values()
        return [stat for stats in listed for stat in stats]

    @property
    def replaced(self) -> frozenset[tuple[str, str]]:
        """Partition and id of each Hudi file group that the commit replaced."""
        listed = (self.metadata.get("partitionToReplaceFileIds") or {}).items()
        return frozenset((partition, file) for partition, files in listed for file in files)

    @property
    def removes_rows(self) -> bool:
        """Whether the commit can have removed rows that readers saw in the table before."""
        if self.action == "replacecommit" and self.metadata.get("operationType") != "CLUSTER":
            return True
        return any(stat.get("numDeletes") for stat in self.stats)

    def note(self, key: str) -> str | None:
        """Return the value of a key in the commit's extra metadata; None if there is no value."""
        return (self.metadata.get("extraMetadata") or {}).get(key) or None


class Timeline:
    """The completed commits of a table, as a reader found them.

    Args:
        storage: The file access.
        path: Base path of the Hudi table on that storage.

    Raises:
        ReadError: There is no Hudi table of version 6 at the path.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._read: dict[str, Commit] = {}
        self._completed: dict[str, str] = {}
        self._pending: set[str] = set()
        self._cleanings: list[str] = []
        self._rollbacks: dict[str, bool] = {}
        self._plans: dict[str, Mapping[str, Any]] = {}
        self._require_version()
        planned: set[str] = set()
        for name in storage.names(f"{path}/{_TIMELINE}"):
            found = re.fullmatch(_FILE, name)
            if found is None:
                continue
            instant, action, state = found.groups()
            if action in _COMMITS and state is None:
                self._completed[instant] = action
            elif action in _COMMITS or action == "inflight":
                planned.add(instant)
            elif action == "clean" and state == "requested":
                self._cleanings.append(name)
            elif action == "rollback":
                self._rollbacks[instant] = self._rollbacks.get(instant, False) or state is None
        self._pending = planned - self._completed.keys()

    def again(self) -> Timeline:
        """Return the reader's timeline as of now.

        Plans of cleanings and rollbacks that were already read are not read again.
        """
        now = Timeline(self._storage, self.path)
        now._plans = self._plans
        return now

    def _require_version(self) -> None:
        names = ("hoodie.properties", "hoodie.properties.backup")
        texts = (self._storage.text(f"{self.path}/{_TIMELINE}/{name}") for name in names)
        settings = next((found for text in texts if (found := properties(text or b""))), None)
        if settings is None:
            raise ReadError(
                f"there is no Hudi table at {self.path}",
                remedy="`tributary path TABLE` prints where a table is.",
                path=self.path,
            )
        if (version := settings.get("hoodie.table.version")) != _VERSION:
            raise ReadError(
                f"the Hudi table at {self.path} has version {version}; this reader reads version"
                f" {_VERSION} only",
                remedy="Another program upgraded it. Read it with Hudi, or copy the table again.",
                path=self.path,
            )

    @property
    def instants(self) -> list[str]:
        """The instants of the completed commits that are not archived, oldest first."""
        return sorted(self._completed)

    @property
    def newest(self) -> str:
        """The instant of the newest completed commit.

        Raises:
            ReadError: The table has no completed commit.
        """
        if not self._completed:
            raise ReadError(
                f"the Hudi table at {self.path} has no commit",
                remedy="Read it when its copy has ended; `tributary status` shows its state.",
                path=self.path,
            )
        return max(self._completed)

    def is_committed(self, instant: str) -> bool:
        """Whether the commit of an instant is complete, so that readers may use its files.

        Complete commits that Hudi has archived count, too.
        """
        if instant in self._completed:
            return True
        return instant not in self._pending and instant < min(self._completed, default="")

    @cached_property
    def complete_from(self) -> str:
        """The oldest instant for which all of the table's files certainly exist.

        Files that were replaced before this instant may have been deleted.
        """
        oldest = min(self._completed, default="")
        # Without a removal of files, the first commit of the timeline may be the first of all.
        return max([oldest, *(self._retained_from(name) for name in self._cleanings)])

    def keeps(self, instant: str) -> bool:
        """Whether all files that the table had at an instant certainly exist.

        Only plans of cleanings after the instant are read, since an earlier cleaning keeps all
        files of the instant.
        """
        if instant < min(self._completed, default=""):
            return False
        later = (name for name in sorted(self._cleanings, reverse=True) if name[:17] > instant)
        return all(self._retained_from(name) <= instant for name in later)

    def _retained_from(self, name: str) -> str:
        """Return the oldest instant whose files a cleaning keeps; empty if the plan names none."""
        earliest = self._plan(name).get("earliestInstantToRetain") or {}
        return str(earliest.get("timestamp") or "")

    def _plan(self, name: str) -> Mapping[str, Any]:
        """Return Hudi's plan of a cleaning or rollback; empty if archived or not written yet.

        Args:
            name: The plan's file name in the timeline.

        Raises:
            ReadError: The plan cannot be read, for example since it is being written.
        """
        if name not in self._plans:
            text = self._storage.text(f"{self.path}/{_TIMELINE}/{name}")
            if not text:  # archived, or not written yet
                return {}
            try:
                plan = next(avro_reader(io.BytesIO(text)), {})
            except (ValueError, EOFError, IndexError) as error:
                raise ReadError(
                    f"{name} of the Hudi table at {self.path} cannot be read",
                    remedy="Read again: it may have been written meanwhile.",
                    path=self.path,
                ) from error
            self._plans[name] = cast("Mapping[str, Any]", plan)
        return self._plans[name]

    @property
    def undone(self) -> frozenset[str]:
        """The completed commits that another writer has rolled back, or has begun to roll back.

        The files of these commits may be deleted. A chunk's commit is left out once its rollback is
        complete: the copy then copies the chunk again, in a new commit.
        """
        undone: set[str] = set()
        for instant, complete in self._rollbacks.items():
            plan = self._plan(f"{instant}.rollback.requested").get("instantToRollback") or {}
            commit = str(plan.get("commitTime"))
            if commit in self._completed and not (complete and self._is_chunk(commit)):
                undone.add(commit)
        return frozenset(undone)

    def _is_chunk(self, instant: str) -> bool:
        text = self.commit(instant).note(COMMIT_KEY)
        return text is not None and CommitFacts.read(text, instant, self.path).kind == "chunk"

    def commit(self, instant: str) -> Commit:
        """Return a completed commit for a reader.

        Raises:
            ReadError: The commit's file cannot be read, for example since Hudi has archived the
                commit meanwhile.
        """
        if instant not in self._read:
            action = self._completed[instant]
            text = self._storage.text(f"{self.path}/{_TIMELINE}/{instant}.{action}")
            try:
                metadata = json.loads(text or b"")
            except ValueError as error:
                raise ReadError(
                    f"commit {instant} of the Hudi table at {self.path} cannot be read",
                    remedy="Read again: it may have been archived meanwhile.",
                    path=self.path,
                ) from error
            self._read[instant] = Commit(instant, action, metadata)
        return self._read[instant]

    def upto(self, instant: str) -> list[Commit]:
        """Return the completed commits up to an instant for a reader, newest first."""
        return [self.commit(one) for one in reversed(self.instants) if one <= instant]

    def replaced_upto(self, instant: str) -> frozenset[tuple[str, str]]:
        """Return Hudi's file groups that were replaced up to an instant."""
        return frozenset(
            group
            for one, action in self._completed.items()
            if action == "replacecommit" and one <= instant
            for group in self.commit(one).replaced
        )

    def record(self, instant: str) -> CommitFacts | None:
        """Return Tributary's newest record in the commits up to an instant; None without a record.

        Raises:
            ReadError: The record has another format, or lacks a key.
        """
        found = self._newest_note(COMMIT_KEY, instant)
        return None if found is None else CommitFacts.read(found[1], found[0], self.path)

    def note(self, key: str, instant: str) -> str | None:
        """Return the newest value of a key in the extra metadata of commits up to an instant.

        The result is None if no such commit has the key.
        """
        found = self._newest_note(key, instant)
        return None if found is None else found[1]

    def _newest_note(self, key: str, instant: str) -> tuple[str, str] | None:
        """Return the newest commit up to an instant that has the key: its instant and the value."""
        for one in reversed(self.instants):
            if one <= instant and (text := self.commit(one).note(key)) is not None:
                return one, text
        return None
