"""Resyncs tables automatically if the lake cannot follow a change that was made at the source.

A table is copied again if its settings request automatic resyncs, and the settings' limits allow a
copy now. If the limits do not allow a copy, the table waits, and the command shows the reason. An
interrupted copy is continued.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cdc.errors import LeaseHeldError
from cdc.run.comparison import settings_digests
from operate.resync import resync
from operate.resync_candidates import is_candidate, why_not_copied
from operate.table_outcome import Outcome
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)


class Unattended:
    """Resyncs the tables whose settings request automatic resyncs.

    Args:
        services: The services of the command.
        records: Returns the current records of the tables.
    """

    def __init__(self, services: Services, records: Callable[[], Iterable[TableRecord]]) -> None:
        self._services = services
        self._records = records
        self.waiting: dict[TableId, str] = {}
        """The tables whose requested resync must wait, each with the reason."""

    def once(self) -> list[Outcome]:
        """Resync the tables whose settings request and allow a resync now, several at a time.

        Returns:
            One outcome per resynced table. A table that another process is copying has no outcome.
        """
        due = []
        waiting: dict[TableId, str] = {}
        for record in self._records():
            try:
                settings = self._services.config.table_settings(record.table)
                if not is_candidate(record, settings):
                    continue
                self._require_newest_settings(record)
                why = why_not_copied(self._services, record, settings)
            except TributaryError as error:
                why = error.message
            if why is None:
                due.append(record.table)
            else:
                waiting[record.table] = why
        outcomes = resync(self._services, due, still=self._needs_copy) if due else []
        # Another process already copies these tables.
        held = {o.table: str(o.error) for o in outcomes if isinstance(o.error, LeaseHeldError)}
        self.waiting = {**waiting, **held}
        return [outcome for outcome in outcomes if outcome.table not in held]

    def _require_newest_settings(self, record: TableRecord) -> None:
        """Raise an error if another process has copied the table with newer settings."""
        config = self._services.config
        settings = config.settings_on_plan(record.table, record.tier)
        digests = settings_digests(settings, config.lake)
        self._services.published_settings.check(record, digests)

    def _needs_copy(self, record: TableRecord) -> bool:
        return is_candidate(record, self._services.config.table_settings(record.table))

    def repeat(
        self, stop: threading.Event, interval_s: float, report: Callable[[list[Outcome]], None]
    ) -> None:
        """Call :meth:`once` at an interval until ``stop`` is set; log errors and continue.

        Args:
            stop: Ends the loop when it is set.
            interval_s: Pause before each call, in seconds.
            report: Receives the outcomes of a call, if there are any.
        """
        while not stop.wait(interval_s):
            try:
                if done := self.once():
                    report(done)
            except TributaryError as error:
                _log.warning("automatic resyncs could not start: %s", error)
            except Exception:  # noqa: BLE001 - later tables would wait until a restart
                _log.exception("automatic resyncs failed, and are tried again")
