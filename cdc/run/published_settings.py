"""Recognizes tables that another process has copied with newer settings than this process has.

A process reads its configuration once, at its start. Another process can read a later configuration
and copy a table with it. This process must not copy the table again with older settings: a column
that is hashed now would be published without a hash.

The clocks of two machines do not show which settings are newer. So each process notes at its start
each table's attempt (copy), and the settings with which the attempt was made. If a table's record
later names another attempt or other settings, another process has changed the table. If the
settings in the record then differ from this process's settings, those in the record are newer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc.errors import OlderSettingsError

if TYPE_CHECKING:
    from uuid import UUID

    from cdc.run.comparison import SettingsDigests
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord


class PublishedSettings:
    """The attempts (copies of tables) whose settings are not newer than those of this process.

    Safe to share among threads.

    Args:
        at_start: The records of all tables and new generations, as read just after this process
            had read its configuration. If they were not read (None), each attempt is accepted at
            its first check.
    """

    def __init__(self, at_start: Iterable[TableRecord] | None = None) -> None:
        self._complete = at_start is not None
        self._known: dict[UUID, _Made] = {}
        self._refused: dict[tuple[UUID, _Made], OlderSettingsError] = {}
        self._lock = threading.Lock()
        for record in at_start or ():
            if record.attempt is not None:
                self.note(record.attempt)

    def note(self, attempt: Attempt) -> None:
        """Record that the attempt's settings are not newer than the settings of this process."""
        with self._lock:
            self._known[attempt.id] = _recorded_digests(attempt)

    def check(self, record: TableRecord, own: SettingsDigests | None) -> None:
        """Refuse a table whose attempt another process has made with newer settings.

        Args:
            record: The table's current record.
            own: Digests of the table's settings in this process; None if these settings cannot be
                used for the table.

        Raises:
            OlderSettingsError: The settings of the attempt differ from ``own``, and were recorded
                after this process's start.
        """
        attempt = record.attempt
        if attempt is None:
            return
        made = _recorded_digests(attempt)
        same = own is not None and all(
            one in (None, mine) for one, mine in zip(made, own, strict=True)
        )
        if same or (attempt.id not in self._known and not self._complete):
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
        """Return the error with which `check` refused a table; None if `check` did not refuse."""
        attempt = record.attempt
        if attempt is None:
            return None
        return self._refused.get((attempt.id, _recorded_digests(attempt)))


_Made = tuple[str | None, str | None]
"""The digests of an attempt's settings; None for a digest that the attempt does not have."""


def _recorded_digests(attempt: Attempt) -> _Made:
    """Return the digests of settings that the copy or the newest run of an attempt recorded."""
    return attempt.settings_digest, attempt.policies_digest
