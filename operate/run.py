"""``run``: executes incremental runs of tables on the plan, once or until stopped."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

from cdc.capture.log_limits import Level
from cdc.run import announce_periods, expiring, note_beats, run_continuously, run_tables, silences
from cdc.runtime.jvm_guard import end_soon
from cdc.runtime.spark import cancel_jobs, has_ended
from cdc.runtime.task_watch import held_cores
from cdc.runtime.waiting import wait_while
from cdc.store.announcements import Announcements
from cdc.store.checks import Checks
from cdc.store.histories import Histories
from cdc.store.lease import held_leases
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import State
from cdc.store.verifications import Verifications
from operate.automatic_resync import Unattended
from operate.check_status import alarming
from operate.conditions import Condition, chosen, joined, needs_copy, of_record, of_targets
from operate.data_checks.pausing import pause_due
from operate.empty_store import empty_store
from operate.exit_codes import ExitCode, exit_code
from operate.forgotten_tables import forgotten_tables
from operate.give_up import give_up, over_limits
from operate.readers import keep_looks, readers
from operate.server_answers import Answers
from operate.signals import handle_ends, leave_terminal
from operate.table_outcome import abandoned
from operate.targets import shortfalls_now
from operate.transactions import Transactions
from operate.unused_slots import UnusedSlotWarnings
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.log_limits import OverLimit
    from cdc.capture.unneeded_tables import Forgotten
    from cdc.debezium import CaptureNames
    from cdc.run import Expiring, RunResult, Silence, Unchecked
    from cdc.store.table_state import TableRecord
    from operate.conditions import Found
    from operate.context import Services
    from operate.empty_store import EmptyStore
    from operate.table_outcome import Outcome
    from operate.targets import Shortfall
    from schemas.table import TableId

    Reported: TypeAlias = "Silence | Forgotten | Expiring | OverLimit | FailedCheck"

_log = logging.getLogger(__name__)
_INTERRUPT_S, _CANCEL_S = 60.0, 1.0
_FOLLOWED = frozenset({State.INCREMENTAL, State.RETIRED})


@dataclass(frozen=True)
class FailedCheck:
    """A check that was not possible after a run, or that found the services set up wrongly.

    Args:
        what: What was checked, for example ``captures``.
        reason: Why the check was not possible, or what is set up wrongly.
        remedy: What to do.
        possible: Whether the check was possible.
    """

    what: str
    reason: str
    remedy: str
    possible: bool = False

    @property
    def message(self) -> str:
        """The failed check as a message for an operator."""
        return self.reason if self.possible else f"{self.what} could not be checked: {self.reason}"

    def to_json(self) -> dict[str, str]:
        """Return the failed check as values for JSON: what was checked, message and remedy."""
        return {"what": self.what, "message": self.message, "remedy": self.remedy}


class Runs:
    """The incremental runs of the command's tables in one Spark session.

    Args:
        services: The services of the command.
        records: Returns the current records of the chosen tables. Each run calls this function. So
            a run also follows tables that were onboarded since the previous run.
        fail_on: The conditions of ``--fail-on``, which decide the exit code; None if it is not set.
    """

    def __init__(
        self,
        services: Services,
        records: Callable[[], list[TableRecord]],
        fail_on: frozenset[Condition] | None = None,
    ) -> None:
        self._services = services
        self._records = records
        self._fail_on = fail_on
        self._made = services.published_settings
        self._failed: set[TableId] = set()
        self._unattended = Unattended(services, records)
        self._slots = UnusedSlotWarnings(services)
        self._transactions = Transactions(services)
        self.silences: list[Silence] = []
        """The captures that sent no changes, as of the last check."""
        self.forgotten: list[Forgotten] = []
        """What captures send although the state store has lost the tables, as of the last check."""
        self.expiring: list[Expiring] = []
        """The topics that could drop changes before a run reads them, as of the last check."""
        self.over_limits: list[OverLimit] = []
        """The captures that hold back too much log, as of the last check."""
        self.given_up: list[OverLimit] = []
        """The captures that this process has given up, since they held back too much log."""
        self.targets: list[Shortfall] = []
        """The freshness targets that are missed or cannot be kept, as of the last check."""
        self.empty_store: EmptyStore | None = None
        """What the last check found about a state store without tables; None if it has tables."""
        self._failing: list[FailedCheck] = []
        self.failed_checks: list[FailedCheck] = []
        """The failed checks of the last call of `watch` that ran to its end."""

    @property
    def unchecked(self) -> list[Unchecked]:
        """The idle tables that the last run could not check.

        The check finds changes without events, such as a rewrite of a table.
        """
        return list(self._services.run_context.unchecked)

    @property
    def empty(self) -> bool:
        """Whether the command's arguments select no table now."""
        return not self._records()

    @property
    def lost_tables(self) -> bool:
        """Whether, at the last check, the state store lacked table records that it must have."""
        return self.empty_store is not None and self.empty_store.lost

    def once(self) -> list[RunResult]:
        """Apply new changes of the command's tables in one run; then check captures and targets."""
        context = self._services.run_context
        try:
            records = self._records()
            note_beats(context, records)
            results = run_tables(context, records)
        except TributaryError:
            self.watch()  # connectors fail, and hold back log, while Kafka is away
            raise
        self._failed |= {result.table for result in results if result.error is not None}
        self.watch()
        return results

    def watch(self, stop: threading.Event | None = None) -> bool:
        """Find silent captures, expiring topics, and missed or impossible freshness targets.

        A silent capture sends no changes. An expiring topic could drop changes that no run has
        read. The method also finds captures that send changes of tables whose records the state
        store has lost. If no table is selected, the method checks whether the state store lacks
        records of tables. If one of these checks cannot be done, the method goes on with the next
        check. The exit code then shows a failure, since the check could have found a problem.

        The method also pauses tables whose data failed a check with the policy ``pause``, reads the
        state of registered readers, and deletes old entries of the histories. If Connect's workers
        support transactions, or if the settings need no transactions, the method announces the
        tables' complete hours and days.

        Args:
            stop: An event that ends continuous runs. If it is set, the method returns after the
                step in progress, and leaves `failed_checks` as it is. The method sets it if
                the state store lacks records of tables.
        """
        self._failing = []
        records: list[TableRecord] | None = None
        with self._checking("tables"):
            records = self._records()
        steps: dict[str, Callable[[list[TableRecord]], object]] = {
            "lost tables": self._look_at_store,
            "forgotten tables": self._look_at_forgotten,
            "tables that checks pause": partial(pause_due, self._services),
            "captures": self._look_at_captures,
            "expiring topics": self._look_at_topics,
            "freshness targets": self._look_at_targets,
            "logs that captures hold back": self._look_at_logs,
            "transactions": self._look_at_transactions,
            "complete periods": self._announce_periods,
            "unused slots": lambda _: self._slots.look(),
            "registered readers": lambda _: keep_looks(self._services),
            "old entries of the histories": self._forget_history,
        }
        for what, step in steps.items() if records is not None else ():
            if stop is not None and stop.is_set():
                return False  # each step can wait for servers that do not answer
            with self._checking(what):
                step(records)
        self.failed_checks = self._failing
        if stop is not None and self.lost_tables:
            stop.set()
        return True

    def _look_at_store(self, records: list[TableRecord]) -> None:
        services = self._services
        self.empty_store = None if records else empty_store(services, Answers(services))

    def _look_at_forgotten(self, records: list[TableRecord]) -> None:
        self.forgotten = forgotten_tables(self._services, Answers(self._services), records)

    def _look_at_captures(self, records: list[TableRecord]) -> None:
        self.silences = silences(self._services.run_context, records)

    def _look_at_topics(self, records: list[TableRecord]) -> None:
        self.expiring = expiring(self._services.run_context, records)

    def _look_at_targets(self, _records: list[TableRecord]) -> None:
        """Judge targets by newly read records, since the steps before can take minutes."""
        context, now = self._services.run_context, self._services.store.now()
        known = context.predictions
        self.targets = shortfalls_now(
            context.config, context.kafka, known, self._records(), known.fresh_at, now
        )

    def _look_at_transactions(self, records: list[TableRecord]) -> None:
        if records and (wrong := self._transactions.look()) is not None:
            self._note(FailedCheck("transactions", wrong.message, wrong.remedy, possible=True))

    def _announce_periods(self, records: list[TableRecord]) -> None:
        if self._transactions.supported:
            silent = {one.capture for one in self.silences}
            announce_periods(self._services.run_context, records, silent)

    @contextmanager
    def _checking(self, what: str) -> Iterator[None]:
        """If the check in the ``with`` block is not possible, note this for `failed_checks`."""
        try:
            yield
        except TributaryError as error:
            self._note(FailedCheck(what, error.message, error.remedy))

    def _note(self, failed: FailedCheck) -> None:
        self._failing.append(failed)
        _log.warning("%s", failed.message)

    def resync(self) -> list[Outcome]:
        """Resync the command's tables that need a resync, if the tables' settings allow it now."""
        outcomes = self._unattended.once()
        self._failed -= {outcome.table for outcome in outcomes}
        self._failed |= {outcome.table for outcome in outcomes if outcome.failed}
        return outcomes

    def repeat(
        self,
        interval_s: float,
        report: Callable[[list[RunResult]], None],
        report_resync: Callable[[list[Outcome]], None],
        report_found: Callable[[str, Sequence[Reported]], None],
        report_targets: Callable[[list[Shortfall]], None],
    ) -> None:
        """Repeat the command's run until a signal arrives or the process must be started again.

        The signals are SIGINT, SIGTERM and SIGHUP (see `handle_ends`). A signal gives the current
        run 20 seconds to finish, and then interrupts it. The next command continues from the last
        commit.

        A second thread resyncs the tables that need a resync, if their settings request automatic
        resyncs. A signal interrupts a resync within a minute, and the next command continues it.
        """
        stop, ending = threading.Event(), list[threading.Timer]()
        copying = threading.Thread(
            target=self._unattended.repeat,
            args=(stop, interval_s, report_resync),
            name="unattended resync",
            daemon=True,
        )

        def on_signal(number: int, _frame: FrameType | None) -> None:
            leave_terminal(number)
            if not stop.is_set():
                ending.append(end_soon())
            stop.set()

        former = handle_ends(on_signal)
        copying.start()
        try:
            run_continuously(
                self._services.run_context,
                self._records,
                stop,
                min_interval_s=interval_s,
                report=self._looking_after_failures(report),
                watch=partial(self._report_changes, stop, report_found, report_targets),
            )
        finally:
            stop.set()
            self._interrupt(copying)
            for timer in ending:
                timer.cancel()
            for kind, handler in former.items():
                signal.signal(kind, handler)

    def _report_changes(
        self,
        stop: threading.Event,
        report_found: Callable[[str, Sequence[Reported]], None],
        report_targets: Callable[[list[Shortfall]], None],
    ) -> None:
        """Check captures, topics and targets, and report what has changed since the last check."""
        known = {silence.capture for silence in self.silences}
        known_expiring, known_targets = self.expiring, _shortfalls_without_figures(self.targets)
        known_forgotten = self.forgotten
        known_limits, given_up = {*map(_exceeded_limit, self.over_limits)}, len(self.given_up)
        known_failed = {*self.failed_checks}
        is_complete = self.watch(stop)
        if lost := self.given_up[given_up:]:
            report_found("given_up", lost)
        if not is_complete:
            return
        self._look_at_secrets(failed=bool(self.unchecked or self.failed_checks))
        if new := [topics for topics in self.expiring if topics not in known_expiring]:
            report_found("expiring", new)
        if {silence.capture for silence in self.silences} != known:
            report_found("silent", self.silences)
        if self.forgotten != known_forgotten:
            report_found("forgotten", self.forgotten)
        if {*map(_exceeded_limit, self.over_limits)} != known_limits:
            report_found("over_limit", self.over_limits)
        if _shortfalls_without_figures(self.targets) != known_targets:
            report_targets(self.targets)
        if {*self.failed_checks} != known_failed:
            report_found("failed_checks", self.failed_checks)

    def _looking_after_failures(
        self, report: Callable[[list[RunResult]], None]
    ) -> Callable[[list[RunResult]], None]:
        """Return a function that reports runs, and checks for changed secrets if a run failed."""

        def reported(results: list[RunResult]) -> None:
            self._look_at_secrets(failed=any(result.error is not None for result in results))
            report(results)

        return reported

    def _look_at_secrets(self, *, failed: bool) -> None:
        if failed:  # continuous runs end if a secret changed
            self._services.secret_files.look()

    def _look_at_logs(self, _records: list[TableRecord]) -> None:
        """Find captures that hold back too much log; give up captures above the highest limit."""
        found = over_limits(self._services, self._records())
        left: list[OverLimit] = []
        for over in found:
            try:
                lost = give_up(self._services, over) if over.level is Level.GIVE_UP else None
            except TributaryError as error:
                _log.warning("the capture of %s could not be given up: %s", over.title, error)
                lost = None
            if lost is None:
                left.append(over)
            else:
                self.given_up.append(lost)
        self.over_limits = left

    def _forget_history(self, _records: list[TableRecord]) -> None:
        """Delete some of the histories' entries that are older than ``state.keep_history``."""
        try:
            keep_s = self._services.config.state.keep_history_s
            Histories(self._services.store).forget(keep_s)
            Announcements(self._services.store).forget(keep_s)
        except TributaryError as error:
            _log.warning("old entries of the histories were not deleted: %s", error)

    def _interrupt(self, copying: threading.Thread) -> None:
        """Interrupt automatic resyncs, cancel their Spark jobs, and wait for a limited time."""
        self._services.interruptible.interrupt()

        def still_copies() -> bool:
            copying.join(_CANCEL_S)  # a pause that the end of the thread cuts short
            if left := copying.is_alive():
                cancel_jobs(self._services.run_context.session)
            return left

        if wait_while(still_copies, timeout_s=_INTERRUPT_S, poll_s=0.0):
            _log.warning(
                "a resync did not stop within %.0f s; the next run continues it", _INTERRUPT_S
            )

    def waiting(self) -> list[TableRecord]:
        """Return the records of the command's tables that are neither INCREMENTAL nor RETIRED."""
        return [record for record in self._records() if record.state not in _FOLLOWED]

    def refused(self) -> list[TributaryError]:
        """Return an error for each table to which another process has applied newer settings.

        Runs of this process leave these tables alone.
        """
        return [error for one in self._records() if (error := self._made.refusal(one)) is not None]

    @property
    def not_resynced(self) -> dict[TableId, str]:
        """The command's tables whose automatic resync must wait, each with the reason."""
        return dict(self._unattended.waiting)

    def conditions(self) -> Found:
        """Return what is not as it should be with the command's tables and captures now."""
        captures = [one.capture for one in self.silences] + [it.capture for it in self.forgotten]
        silent = sorted(f"{one.source}/{one.tier}" for one in captures)
        over = [f"{i.capture.source}/{i.capture.tier}" for i in self.over_limits if i.alarms]
        of_tables = readers(self._services, self._records())
        return joined(
            self._of_tables(),
            of_targets(self.targets),
            {
                Condition.FAILED: sorted(map(str, self._failed)),
                Condition.READER_LATE: [f"{i.table} {i.state.name}" for i in of_tables if i.late],
                Condition.SILENT: silent,
                Condition.OVER_LIMIT: over,
                Condition.EMPTY_STORE: self.empty_store.connectors if self.empty_store else [],
            },
        )

    def _of_tables(self) -> Found:
        """Return the conditions that the state store shows, as a mapping to the affected tables."""
        store = self._services.store
        held, builds = held_leases(store), {build.table: build for build in store.builds()}
        lacking, verified = Quarantine(store).counts(), Verifications(store).all()
        checks, config = Checks(store).all(), self._services.config
        found: dict[Condition, list[str]] = {}
        for record in self._records():
            conditions = of_record(record, builds.get(record.table), held)
            newest = verified.get(record.table)
            if alarming(config, record, checks.get(record.table, {}), newest):
                conditions.append(Condition.CHECK_FAILED)
            if record.attempt_id is not None:
                attempt = str(record.attempt_id)
                conditions += [Condition.QUARANTINED] if lacking.get(attempt) else []
                differs = newest is not None and newest.attempt == attempt and not newest.equal
                conditions += [Condition.DRIFT] if differs else []
            for condition in conditions:
                found.setdefault(condition, []).append(str(record.table))
        return found

    def failing(self) -> Found:
        """Return the conditions that hold and that ``--fail-on`` names; none without the option."""
        return chosen(self.conditions(), self._fail_on) if self._fail_on is not None else {}

    def exit_code(self) -> ExitCode:
        """Return the exit code of ``run``, from the errors of runs and the tables' current states.

        These count as failures, too: a setting has paused a table; a capture sends no changes,
        sends tables that the store has lost, or holds back too much log; a freshness target is
        missed or cannot be kept; `failed_checks` has an entry; the state store lacks tables that it
        must have; another process has applied newer settings to a table; hung tasks occupy cores;
        Spark has ended. The code for a needed bootstrap also applies if a published table waits for
        a copy that no process works on. The state of a table that was never published does not
        count, since the table has no readers yet.

        With ``--fail-on``, the conditions that this option names count, also for tables that were
        never published. In addition, only these failures count: entries of `failed_checks`, lost
        tables, newer settings, hung tasks, and the end of Spark.
        """
        broken = bool(self.failed_checks or self.lost_tables or self.refused())
        broken = broken or bool(held_cores() or has_ended())
        if self._fail_on is not None:
            failing = self.failing()
            return exit_code(failed=broken or bool(failing), needs_bootstrap=needs_copy(failing))
        records = [record for record in self._records() if not record.never_published]
        states = {record.state for record in records}
        held = held_leases(self._services.store)
        return exit_code(
            failed=broken
            or bool(self._failed or self.silences or self.targets or self.forgotten)
            or any(one.alarms for one in self.over_limits)
            or State.FAILED in states
            or any(record.paused_by_policy for record in records),
            needs_bootstrap=State.NEEDS_BOOTSTRAP in states
            or any(abandoned(record, held) for record in records),
        )


def _shortfalls_without_figures(targets: list[Shortfall]) -> set[tuple[TableId, str, bool]]:
    """Return each table of a freshness shortfall, with the cause and whether its target is missed.

    ``run`` reports the shortfalls again when this result changes.
    """
    return {(table, one.cause, one.missed) for one in targets for table in one.tables}


def _exceeded_limit(over: OverLimit) -> tuple[CaptureNames, Level]:
    """Return a capture and its exceeded limit; if one of the two changes, ``run`` reports again."""
    return over.capture, over.level
