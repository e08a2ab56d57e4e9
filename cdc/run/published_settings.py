"""Recognizes tables that another process has copied with other settings than those of this process.

A process reads its configuration once, at its start. If somebody changes a table's settings later
and copies the table in another process, this process must not copy it back: columns that are hashed
now would be published as they are again. Clocks of two machines do not show which settings are
newer. So the process notes at its start with which settings each attempt was made. A table whose
attempt is another one now, or has other settings, was changed since by somebody with a later
configuration.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc.errors import OlderSettingsError

if TYPE_CHECKING:
    from uuid import UUID

    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord


class PublishedSettings:
    """The attempts that were there at this process's start, and those that have its own settings.

    Safe to share among threads.

    Args:
        at_start: The records of all tables and of next generations, as read when this process had
            just read its configuration. None accepts each attempt as it is first seen.
    """

    def __init__(self, at_start: Iterable[TableRecord] | None = None) -> None:
        self._complete = at_start is not None
        self._known: dict[UUID, str | None] = {}
        self._refused: dict[tuple[UUID, str | None], OlderSettingsError] = {}
        self._lock = threading.Lock()
        for record in at_start or ():
            if record.attempt is not None:
                self.note(record.attempt)

    def note(self, attempt: Attempt) -> None:
        """Note an attempt whose settings are no newer than those of this process."""
        with self._lock:
            self._known[attempt.id] = attempt.settings_digest

    def check(self, record: TableRecord, digest: str) -> None:
        """Refuse to go on with a table if another process has made it with newer settings.

        Args:
            record: The table's current record.
            digest: Digest of the table's settings in this process.

        Raises:
            OlderSettingsError: The settings of the table's attempt differ, and the attempt is
                neither from before this process's start nor its own.
        """
        attempt = record.attempt
        if attempt is None:
            return
        made = attempt.settings_digest
        if made is None or made == digest or (attempt.id not in self._known and not self._complete):
            self.note(attempt)
            return
        with self._lock:
            if self._known.get(attempt.id) == made:
                return  # the settings were edited before this process started
            error = OlderSettingsError(
                f"this process has older settings than the published copy of table {record.table}:"
                " another process has copied the table, or followed an edit of its settings, after"
                " this process had read its configuration",
                remedy="Start this process again, so that it reads the configuration. Until then it"
                " leaves the table alone. End other processes that have older settings, too.",
                table=record.table,
                attempt=str(attempt.id),
            )
            self._refused[attempt.id, made] = error
        raise error

    def refusal(self, record: TableRecord) -> OlderSettingsError | None:
        """Return the error by which `check` has refused a table's attempt; None if it has not."""
        attempt = record.attempt
        if attempt is None:
            return None
        return self._refused.get((attempt.id, attempt.settings_digest))
