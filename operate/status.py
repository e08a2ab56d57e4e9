"""``status``: collects the state, position and freshness of tables, and the state of captures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from cdc.capture.captured_tables import captures_of
from cdc.capture.judgement import of_stream
from cdc.capture.remembered_losses import loss_scopes, of_remembered_losses
from cdc.run import plan
from cdc.store.checks import Checks
from cdc.store.commit_counts import commit_counts
from cdc.store.kept_task_looks import KeptLooks
from cdc.store.lease import held_leases
from cdc.store.loss_counts import Loss, Losses
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import State, TableRecord
from cdc.store.verifications import Verifications
from operate.capture_status import CaptureStatus, capture_status
from operate.check_status import CheckStatus, statuses
from operate.conditions import BY_STATE, Condition, half_copied, joined, of_targets, to_json
from operate.empty_store import EmptyStore, empty_store
from operate.first_events import first_events
from operate.forgotten_tables import also_captured
from operate.periods import table_periods
from operate.readers import readers_within
from operate.server_answers import Answers, end_offsets
from operate.shards import SharedStatus, shared_tables
from operate.shown_targets import shown_shortfalls
from operate.table_notes import edit_notes, generation_notes, queried_notes
from operate.table_outcome import abandoned, unfinished
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.capture.evidence import CaptureEvidence
    from cdc.capture.judgement import Finding
    from cdc.config import TableSettings
    from cdc.store.checks import CheckRecord
    from cdc.store.history import RunEntry
    from cdc.store.kept_task_looks import TaskLook
    from cdc.store.lease import HeldLease
    from cdc.store.verifications import VerifyRecord
    from operate.conditions import Found
    from operate.context import Services
    from operate.periods import TablePeriods
    from operate.readers import ReaderStatus
    from operate.targets import Shortfall

_log = logging.getLogger(__name__)
_SHOWN_RUNS = 5


@dataclass(frozen=True)
class TableStatus:
    """The current status of one table on the plan.

    Args:
        record: The table's record in the state store.
        events_behind: Number of offsets between `TableRecord.applied_offsets` and the end of the
            topic, including offsets of open Kafka transactions. At most this many events wait.
            None if no copy has ended, if Kafka did not answer, or if the topic ends before the
            lake's offsets, since the topic was deleted or cut off.
        watermark: Event time up to which the table is complete; None if this time is not known.
            This time can be later than the last commit's watermark. If the lake has all events of
            the topic and Connect writes in Kafka transactions, the newest heartbeat counts, too. If
            events wait, the time just before the first waiting event can count
            (`operate.first_events`).
        freshness_s: Seconds since the watermark, less ``allowed_lateness_s``. Without a watermark:
            seconds since `TableRecord.applied_at` if events wait in the topic, otherwise None.
        target_s: The freshness target, in seconds.
        quarantined: Number of the table's quarantined records. The watermark is earlier than the
            first quarantined record.
        notes: Notes for the operator.
        build: The record of the table's next generation; None if no generation is being built.
        runs: The table's last runs, newest first; empty if `status` shows all tables.
        lost: Why the lake table can no longer continue from its stream; None if it can continue.
            The next run records this reason in the table's state.
        abandoned: Whether the table was published, and waits for a copy that no process works on.
        half_copied: Whether the table or its next generation has an unfinished copy that no process
            works on.
        lease: The table's lease; None if no process holds it.
        verified: The newest result of ``verify`` for the table's copy; None if there is none.
        checks: The configured checks of the table's data, and their newest results.
        periods: The complete hours or days; None if the settings ask for none.
    """

    record: TableRecord
    events_behind: int | None
    watermark: datetime | None
    freshness_s: float | None
    target_s: int
    quarantined: int = 0
    notes: tuple[str, ...] = ()
    build: TableRecord | None = None
    runs: tuple[RunEntry, ...] = ()
    lost: Finding | None = None
    abandoned: bool = False
    half_copied: bool = False
    lease: HeldLease | None = None
    verified: VerifyRecord | None = None
    checks: tuple[CheckStatus, ...] = ()
    periods: TablePeriods | None = None

    @property
    def late(self) -> bool:
        """Whether the table is INCREMENTAL and ``freshness_s`` is above the freshness target."""
        following = self.record.state is State.INCREMENTAL
        return following and self.freshness_s is not None and self.freshness_s > self.target_s

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is not as it should be with the table."""
        found = {
            Condition.LATE: self.late,
            Condition.QUARANTINED: bool(self.quarantined),
            Condition.HALF_COPIED: self.half_copied,
            Condition.LOST: self.lost is not None,
            Condition.DRIFT: self.verified is not None and not self.verified.equal,
            Condition.CHECK_FAILED: any(check.alarms for check in self.checks),
        }
        state = BY_STATE.get(self.record.state)
        return tuple(one for one in Condition if found.get(one) or one is state)

    @property
    def remedy(self) -> str | None:
        """What ``status`` asks an operator to do for the table; None if no action is needed."""
        lost = None if self.lost is None else self.lost.remedy
        return self.record.remedy or lost or unfinished(self.record)

    def to_json(self) -> dict[str, Any]:
        """The table's status as plain values."""
        record, commit, attempt = self.record, self.record.last_commit, self.record.attempt
        return {
            "table": str(record.table),
            "state": record.state.value,
            "resume_to": None if record.resume_to is None else record.resume_to.value,
            "generation": record.generation,
            "tier": record.tier,
            "shard": None if record.shard is None else record.shard.name,
            "shard_of": None if record.shard is None else record.shard.of,
            "topic": record.topic,
            "path": None if attempt is None else attempt.path,
            "position": None if commit is None else commit.position,
            "offsets": None if commit is None else dict(commit.offsets),
            "watermark": self.watermark,
            "last_commit": None if commit is None else commit.committed_at,
            "instant": None if commit is None else commit.instant,
            "freshness_s": self.freshness_s,
            "freshness_target_s": self.target_s,
            "late": self.late,
            "conditions": [one.value for one in self.conditions],
            "events_behind": self.events_behind,
            "quarantined": self.quarantined,
            "verified": None if self.verified is None else self.verified.summary,
            "checks": [check.to_json() for check in self.checks],
            "complete_periods": None if self.periods is None else self.periods.to_json(),
            "lake_size": None if record.size is None else asdict(record.size),
            "reason": record.reason,
            "error": record.error,
            "remedy": self.remedy,
            "lost": None if self.lost is None else self.lost.message,
            "retry_at": record.retry_at,
            "failures": record.failures,
            "handoff": None
            if attempt is None
            else {
                "attempt": str(attempt.id),
                "start_offsets": attempt.start_offsets,
                "handoff_offsets": attempt.handoff_offsets,
                "reads_upto": attempt.reads_upto,
            },
            "building": None if self.build is None else _next_generation_json(self.build),
            "notes": list(self.notes),
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True)
class Status:
    """Everything that ``status`` shows."""

    tables: tuple[TableStatus, ...]
    captures: tuple[CaptureStatus, ...]
    shared: tuple[SharedStatus, ...] = ()
    targets: tuple[Shortfall, ...] = ()
    """The freshness targets that are missed or cannot be kept."""
    empty_store: EmptyStore | None = None
    """What is known about a state store without tables; None if the store has a table's record."""
    readers: tuple[ReaderStatus, ...] = ()
    """The state of each registered reader of the tables."""

    @property
    def needs_bootstrap(self) -> bool:
        """Whether a table is NEEDS_BOOTSTRAP, or waits for a copy that no process works on."""
        return any(
            table.record.state is State.NEEDS_BOOTSTRAP or table.abandoned for table in self.tables
        )

    @property
    def failed(self) -> bool:
        """Whether ``status`` shows a stopped table, a capture's problem, or a lost state store.

        A table has stopped if it has failed, a setting has paused it, or its stream is lost. A
        table that a person has paused has not stopped.
        """
        if self.empty_store is not None and self.empty_store.lost:
            return True
        return any(
            table.record.state is State.FAILED
            or table.record.paused_by_policy
            or table.lost is not None
            for table in self.tables
        ) or any(capture.problem is not None or capture.alarms for capture in self.captures)

    @property
    def conditions(self) -> Found:
        """What is not as it should be with the shown tables and captures."""
        of_tables = [
            {one: [str(table.record.table)] for one in table.conditions} for table in self.tables
        ]
        late_readers = [one for one in self.readers if one.late]
        found = {
            Condition.SILENT: [one.place for one in self.captures if one.problem is not None],
            Condition.READER_LATE: [f"{one.table} {one.state.name}" for one in late_readers],
            Condition.OVER_LIMIT: [one.place for one in self.captures if one.alarms],
            Condition.EMPTY_STORE: self.empty_store.connectors if self.empty_store else [],
        }
        return joined(*of_tables, of_targets(self.targets), found)

    def to_json(self) -> dict[str, Any]:
        """Everything that ``status`` shows, as plain values."""
        return {
            "tables": [table.to_json() for table in self.tables],
            "captures": [capture.to_json() for capture in self.captures],
            "shared": [one.to_json() for one in self.shared],
            "targets": [one.to_json() for one in self.targets],
            "readers": [one.to_json() for one in self.readers],
            "conditions": to_json(self.conditions),
            "empty_store": None if self.empty_store is None else self.empty_store.to_json(),
        }


def status(
    services: Services,
    tables: Sequence[TableId],
    *,
    answers: Answers | None = None,
    brief: bool = False,
) -> Status:
    """Return the status of the given tables; if none is given, of all tables on the plan.

    If a service cannot be reached, only the figures from this service are missing.

    Args:
        services: The services of the command.
        tables: The tables.
        answers: Asks the servers; by default an `Answers`, which has no time limit of its own.
        brief: Whether to leave out the notes that take time for each table.
    """
    wanted, plan_records = set(tables), services.store.tables()
    answers = Answers(services) if answers is None else answers
    records = [
        record
        for record in plan_records
        if (record.table in wanted if wanted else record.state is not State.RETIRED)
    ]
    # Read the heartbeats before the ends of the topics: every commit before a heartbeat is then
    # below its topic's end.
    captured = captures_of(services.config, records)
    captured += [] if wanted else also_captured(services, answers)
    answered = answers.captures([one.names for one in captured])
    store, sources = services.store, services.config.sources
    captures = tuple(
        capture_status(store, one, of, sources[of.names.source].log_limits, plan_records)
        for one, of in zip(answered, captured, strict=True)
    )
    evidence = {
        (one.source, one.tier): it.evidence for one, it in zip(captures, answered, strict=True)
    }
    ends, trouble = end_offsets(answers, records)
    lacking = Quarantine(services.store).counts()
    beats = {(one.source, one.tier): one.beat_at for one in captures}
    scopes = (loss_scopes(one.names, *(it.table for it in one.followed)) for one in captured)
    losses = Losses(services.store).seen(*chain.from_iterable(scopes))
    tasks = KeptLooks(services.store).all(one.names.connector for one in evidence.values())
    now = services.store.now()  # this machine's clock can hide how late tables are
    look = _SharedFacts(
        *(now, ends, trouble, lacking, evidence, beats, losses, tasks),
        held=held_leases(services.store),
        verified=Verifications(services.store).all(),
        checks=Checks(services.store).all(),
        commits=commit_counts(services.store),
        periods=table_periods(services, records),
        waiting=first_events(answers, records, ends, lacking, now),
        brief=brief,
    )
    found = _table_statuses(services, look, records, with_runs=bool(wanted))
    shown = {table.record.table: (table.events_behind, table.late) for table in found}
    targets = () if trouble else shown_shortfalls(answers, plan_records, shown, now)
    empty = None if plan_records else empty_store(services, answers)
    known = readers_within(services, answers, records)
    return Status(tuple(found), captures, shared_tables(found), tuple(targets), empty, known)


def _table_statuses(
    services: Services, look: _SharedFacts, records: Sequence[TableRecord], *, with_runs: bool
) -> list[TableStatus]:
    """Return the status of each table, with its newest runs if ``with_runs`` is true."""
    builds = {build.table: build for build in services.store.builds()}
    found = [_table_status(services, look, record, builds.get(record.table)) for record in records]
    if with_runs:
        runs = [services.store.last_runs(record.table, _SHOWN_RUNS) for record in records]
        found = [replace(one, runs=tuple(last)) for one, last in zip(found, runs, strict=True)]
    return found


def _next_generation_json(build: TableRecord) -> dict[str, Any]:
    """Return the JSON by which ``status`` shows the next generation of a table."""
    return {
        "generation": build.generation,
        "state": build.state.value,
        "path": None if build.attempt is None else build.attempt.path,
        "updated_at": build.updated_at,
        "error": build.error,
        "reason": build.reason,
    }


@dataclass(frozen=True)
class _SharedFacts:
    """Facts that one call of `status` reads once for all tables.

    Args:
        now: Time of the read, in UTC and with a time zone.
        ends: By topic, the end offset of each partition, or the error if the topic cannot be read;
            empty if Kafka cannot be queried.
        trouble: Why Kafka cannot be queried; None if Kafka can be queried.
        lacking: Number of quarantined records, by the id of the table's attempt (try at a copy).
        evidence: The facts gathered about each capture and its losses, by source and tier.
        beats: Time of each capture's newest heartbeat, by source and tier.
        losses: The losses of changes that the state store has counted, by capture or table.
        tasks: By connector, the newest stored look at the states of its tasks.
        held: The leases that processes hold, by resource.
        verified: The newest result of ``verify``, by table.
        checks: The newest results of checks, by table and name.
        commits: Number of commits of runs, by table.
        periods: The newest complete period of each table that has complete periods.
        waiting: By table, a time before which the lake has all changes (see `first_events`).
        brief: Whether to leave out the notes that take time for each table.
    """

    now: datetime
    ends: Mapping[str, Mapping[int, int] | TributaryError]
    trouble: str | None
    lacking: Mapping[str, int]
    evidence: Mapping[tuple[str, str], CaptureEvidence]
    beats: Mapping[tuple[str, str], datetime | None]
    losses: Mapping[str, Loss]
    tasks: Mapping[str, TaskLook]
    held: Mapping[str, HeldLease] = field(default_factory=dict)
    verified: Mapping[TableId, VerifyRecord] = field(default_factory=dict)
    checks: Mapping[TableId, Mapping[str, CheckRecord]] = field(default_factory=dict)
    commits: Mapping[TableId, int] = field(default_factory=dict)
    periods: Mapping[TableId, TablePeriods] = field(default_factory=dict)
    waiting: Mapping[TableId, datetime] = field(default_factory=dict)
    brief: bool = False

    def statuses(self, record: TableRecord, settings: TableSettings) -> tuple[CheckStatus, ...]:
        """Return the configured checks of a table's data, each with the newest result."""
        known, commits = self.checks.get(record.table, {}), self.commits.get(record.table, 0)
        newest = self.verified.get(record.table)
        return statuses(
            settings.checks, record, known, now=self.now, commits=commits, verified=newest
        )


def _table_status(
    services: Services, look: _SharedFacts, record: TableRecord, build: TableRecord | None
) -> TableStatus:
    """Return the status of one table; ``build`` is the record of its next generation."""
    commit, now, end = record.last_commit, look.now, look.ends.get(record.topic)
    place, lost = (record.table.source, record.tier), None
    beat_at, evidence = look.beats.get(place), look.evidence.get(place)
    trouble = end.message if isinstance(end, TributaryError) else look.trouble
    notes = [f"the number of events behind is unknown: {trouble}"] if trouble else []
    notes += generation_notes(record, build)
    target, lateness, unjudged = 0, 0, None
    checks: tuple[CheckStatus, ...] = ()
    if record.table.source in services.config.sources:
        notes += [] if look.brief else edit_notes(services, record)
        with _errors_as_notes(notes):
            settings = services.config.table_settings(record.table)
            target, lateness = settings.freshness_target_s, settings.allowed_lateness_s
            checks = look.statuses(record, settings)
            if not look.brief:
                notes += queried_notes(services, record, settings)
            if evidence is not None:
                stream = of_stream(record, evidence, services.source(record.table.source))
                remembered = of_remembered_losses(look.losses, evidence.names, record)
                tasks = look.tasks.get(evidence.names.connector)
                doubt = None if tasks is None else tasks.doubt(record)
                unjudged = None if tasks is None else tasks.unjudged(record)
                notes += [one for one in (doubt, unjudged) if one is not None]
                lost = next(chain(stream, remembered), None)
    else:
        notes.append(
            f"source {place[0]} is not in the configuration, so nothing follows the table; put"
            f" sources.{place[0]} back, also to offboard it"
        )
    behind, done = None, record.applied_offsets
    if done is not None and isinstance(end, Mapping):
        behind = _events_behind(record, done, end, notes)
    quarantined = 0 if record.attempt is None else look.lacking.get(str(record.attempt.id), 0)
    watermark = None if commit is None else commit.watermark
    # Behind the end of a task that is not judged, events can be missing.
    whole = record.state is State.INCREMENTAL and not quarantined and unjudged is None
    seen = beat_at if behind == 0 else None if lost else look.waiting.get(record.table)
    known = watermark
    if whole and seen is not None:
        known = plan.watermark(watermark, {0: seen}, lateness, now=now)
    # Without Kafka transactions, a heartbeat proves nothing, but an idle table is not late.
    if behind != 0 or services.config.connect.exactly_once:
        watermark = known
    fresh_at = record.applied_at if known is None and behind else known
    allowed = 0 if known is None else lateness
    freshness = None if fresh_at is None else max(0.0, (now - fresh_at).total_seconds() - allowed)
    return TableStatus(
        *(record, behind, watermark, freshness, target, quarantined, tuple(notes), build),
        lost=lost,
        abandoned=abandoned(record, look.held),
        half_copied=half_copied(record, build, look.held),
        lease=look.held.get(str(record.table)),
        verified=_current_verification(record, look.verified.get(record.table)),
        checks=checks,
        periods=look.periods.get(record.table),
    )


def _events_behind(
    record: TableRecord, done: Mapping[int, int], ends: Mapping[int, int], notes: list[str]
) -> int | None:
    """Return how many offsets the lake is behind the topic; None if the topic was cut off.

    A topic that ends before the lake's offsets was deleted and created again, or has lost records.
    Then nothing shows how many changes the lake lacks. If the table is INCREMENTAL or FAILED, a
    note reports the topic's end.
    """
    for partition, offset in done.items():
        if (end := ends.get(partition, 0)) < offset:
            if record.state in (State.INCREMENTAL, State.FAILED):
                notes.append(
                    f"partition {partition} of topic {record.topic} ends at offset {end}, but the"
                    f" lake has its records up to offset {offset}: the topic was deleted or cut"
                    " off; the table's next run says what to do"
                )
            return None
    return sum(end - done.get(partition, 0) for partition, end in ends.items())


def _current_verification(record: TableRecord, newest: VerifyRecord | None) -> VerifyRecord | None:
    """Return, for ``status``, the newest result of ``verify`` if it is about the present copy."""
    return newest if newest is not None and newest.attempt == str(record.attempt_id) else None


@contextmanager
def _errors_as_notes(problems: list[str]) -> Iterator[None]:
    """Append the message of a TributaryError of the ``with`` block to the notes of ``status``."""
    try:
        yield
    except TributaryError as error:
        problems.append(error.message)
