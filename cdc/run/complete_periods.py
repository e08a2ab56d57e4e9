"""Announces the hours and days up to which tables are complete.

A look (one check of the tables) reads four facts, whose order is part of the proof: the newest
heartbeats, then the ends of the topics, then the tables' records, and last the health of each
capture. A change that the source committed before a heartbeat has an offset below the ends that
were read after the heartbeat. So once a lake commit has reached these ends, the lake has the
change. If the change was lost instead, the capture's health shows the loss.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.gathering import Captures
from cdc.capture.judgement import Severity, of_capture, of_table
from cdc.capture.remembered_losses import check_losses
from cdc.capture.topic_facts import topic_facts
from cdc.debezium import latest_heartbeat
from cdc.errors import KafkaError
from cdc.run.late_rows import untimely
from cdc.run.period_markers import write_markers
from cdc.runtime.failpoints import crash
from cdc.store.announcements import Announcements, Proof
from cdc.store.completeness import CompletenessRules, Seen, proven_until, thinned
from cdc.store.late_commits import LateCommits
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.judgement import Finding
    from cdc.debezium import CaptureNames
    from cdc.run.context import RunContext
    from cdc.sources.log_health import LogHealth
    from cdc.store.announcements import Announced, Announcement
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)

_MOST_BEATS = 32
"""The largest number of heartbeats that a process keeps for a table whose lake is behind."""


@dataclass(frozen=True)
class _Wanted:
    """A table whose next period (hour or day) can be over.

    Args:
        record: The table's record.
        rules: What the settings say about the table's periods.
        lateness_s: The setting ``allowed_lateness_s``.
        known: What was announced about the table's periods; None if nothing was announced.
    """

    record: TableRecord
    rules: CompletenessRules
    lateness_s: int
    known: Announced | None

    @property
    def moved(self) -> bool:
        """Whether the last announcement was made for an earlier copy of the table."""
        return self.known is not None and self.known.attempt != str(self.record.attempt_id)

    def can_be_due(self, now: datetime) -> bool:
        """Whether a check at the time ``now`` can lead to the announcement of a period."""
        if self.known is None or self.moved:
            return True
        return self.rules.expected_at(self.known.newest_end) <= now

    def proof(self, record: TableRecord, proven: datetime) -> Proof | None:
        """Return the proof that the due periods are complete; None if no announcement is due.

        Args:
            record: The table's record.
            proven: The time up to which the table is proven to be complete.
        """
        newest = None if self.known is None else self.known.newest_end
        periods = list(self.rules.due(proven, newest))
        return Proof(record, self.rules, proven, periods) if periods or self.moved else None


def note_beats(context: RunContext, records: Iterable[TableRecord]) -> None:
    """Before a run of tables, read and keep the newest heartbeats, and then the topics' ends.

    If a table changes all the time, the lake lacks records of the table's topic even after a run.
    But after a run, the lake has all records that the topic had before the run. So the ends from
    before the run can prove that a period is complete. If no period of any table can be over, this
    function reads nothing.

    Raises:
        TributaryError: The state store or Kafka cannot be used.
    """
    _remember_beats(context, _tables_to_announce(context, records))


def announce_periods(
    context: RunContext, records: Iterable[TableRecord], silent: Collection[CaptureNames] = ()
) -> list[Announcement]:
    """Announce the complete periods of tables, and write the marker files that are missing.

    If no period of any table can be over, no server is asked.

    Args:
        context: The runs' context.
        records: The tables.
        silent: The captures that send no changes. Nothing is announced for their tables.

    Returns:
        The announcements that this call made. A period that was announced before can be among them:
        the call can announce it again.

    Raises:
        TributaryError: The state store, Kafka or the lake cannot be used.
    """
    known = {one.table: one for one in records if _rules_of_periods(context, one) is not None}
    if not known:
        return []
    store = Announcements(context.store)
    wanted = [
        one
        for one in _tables_to_announce(context, known.values())
        if context.capture(one.record) not in silent
    ]
    _remember_beats(context, wanted)
    proofs = (
        list(_proofs_of_healthy_captures(context, _proofs_of_completeness(context, wanted)))
        if wanted
        else []
    )
    made = store.announce(proofs, datetime.now(timezone.utc)) if proofs else []
    for one in made:
        _log.info("table %s: %s is complete, revision %d", one.table, one.name, one.revision)
    if made:
        crash("complete.before_marker")
    write_markers(context, store, known)
    return made


def _rules_of_periods(context: RunContext, record: TableRecord) -> CompletenessRules | None:
    """Return a table's rules for periods; None if it has no rules or its settings are invalid."""
    try:
        settings = context.config.settings_on_plan(record.table, record.tier)
    except TributaryError:
        return None  # the table's run reports it
    return CompletenessRules.of(settings)


def _tables_to_announce(context: RunContext, records: Iterable[TableRecord]) -> list[_Wanted]:
    """Return the INCREMENTAL tables for which a period may be announced as complete now."""
    asked = [
        (record, rules)
        for record in records
        if record.state is State.INCREMENTAL
        and (rules := _rules_of_periods(context, record)) is not None
    ]
    if not asked:
        return []
    calendars = {record.table: rules.calendar for record, rules in asked}
    known = Announcements(context.store).newest(calendars)
    now, config = datetime.now(timezone.utc), context.config
    found = [
        _Wanted(
            *(record, rules),
            config.settings_on_plan(record.table, record.tier).allowed_lateness_s,
            known.get(record.table),
        )
        for record, rules in asked
    ]
    return [one for one in found if one.can_be_due(now)]


def _remember_beats(context: RunContext, wanted: Iterable[_Wanted]) -> None:
    """Read and keep each capture's newest heartbeat, and then the end of each topic."""
    records = [one.record for one in wanted]
    if not records:
        return
    beats = _newest_beats(context, records)
    facts = topic_facts(context, [record.topic for record in records])
    for record in records:
        beat, topic = beats.get(context.capture(record)), facts[record.topic]
        if beat is None or isinstance(topic, KafkaError) or topic.id is None or topic.high is None:
            continue
        seen = context.seen_beats.get(record.topic, [])
        if not seen or seen[-1].beat != beat:
            seen = [*seen, Seen(beat, topic.id, dict(topic.high))]
            context.seen_beats[record.topic] = thinned(seen, _MOST_BEATS)


def _newest_beats(
    context: RunContext, records: Iterable[TableRecord]
) -> Mapping[CaptureNames, datetime]:
    """Return the time of each capture's newest heartbeat; omit a capture if none is found."""
    found = {}
    for names in dict.fromkeys(map(context.capture, records)):
        try:
            beat = latest_heartbeat(context.kafka, context.registry, names)
        except TributaryError as error:
            _log.info("the heartbeats of %s were not read: %s", names.connector, error)
            continue
        if beat is not None:
            found[names] = beat.beat_at
    return found


def _proofs_of_completeness(context: RunContext, wanted: Iterable[_Wanted]) -> Iterator[Proof]:
    """Yield a proof for each table if heartbeats and commits justify a new announcement.

    The health of the captures is checked later.
    """
    tables = {one.record.table: one for one in wanted}
    lacking = Quarantine(context.store).counts()
    now = datetime.now(timezone.utc)
    for record in context.store.tables():
        one, commit, attempt = tables.get(record.table), record.last_commit, record.attempt
        if one is None or commit is None or attempt is None or lacking.get(str(attempt.id)):
            continue
        proven = proven_until(
            context.seen_beats.get(record.topic, ()),
            commit.offsets,
            topic_id=attempt.topic_id,
            lateness_s=one.lateness_s,
            now=now,
        )
        proof = None if proven is None else one.proof(record, proven)
        if proof is not None and record.state is State.INCREMENTAL:
            yield proof


def _proofs_of_healthy_captures(context: RunContext, proofs: Iterable[Proof]) -> Iterator[Proof]:
    """Yield the proofs of tables whose capture is healthy.

    The capture is checked after the proof was found. If a finding can mean missing changes, no
    period of the table is announced, even if the finding stops no run.
    """
    found = list(proofs)
    captures = Captures(context)
    for proof in found:
        try:
            problem = _why_not_announced(context, captures, proof.record)
        except TributaryError as error:
            problem = error.message
        if problem is None:
            yield proof
        else:
            names = ", ".join(one.name for one in proof.periods[-1:]) or "a new copy"
            _log.warning(
                "table %s: %s is not announced as complete: %s", proof.record.table, names, problem
            )


def _why_not_announced(context: RunContext, captures: Captures, record: TableRecord) -> str | None:
    """Return why a table's period must not be announced; None if the table's capture is healthy.

    Raises:
        TributaryError: A server does not answer, or changes are lost.
    """
    evidence, source = captures.evidence(record), context.sources[record.table.source]
    position_check.check_stream(record.table, position_check.Rests.of(record), evidence, source)
    check_losses(captures.losses(record), evidence.names, record)
    if LateCommits(context.store).of(evidence.names.resource) is not None:
        return "it is not known yet whether the capture has lost changes"
    source_table, fingerprint, obstacles = source.capture(evidence.names).audited(record.table)
    known = None if record.attempt is None else record.attempt.fingerprint
    if known is None or known.digest != fingerprint.digest:
        return "the table has changed on the source since its last run"
    findings = [*of_capture(evidence), *of_table(evidence, record.table, obstacles, record)]
    grave = next((one for one in findings if _prevents_announcement(one, evidence.log)), None)
    if grave is not None:
        return grave.message
    settings = context.config.settings_on_plan(record.table, record.tier)
    wrong = untimely(settings, source.schema(source_table, settings))
    return wrong or captures.doubt(record) or captures.unjudged(record)


def _prevents_announcement(finding: Finding, log: LogHealth | TributaryError) -> bool:
    """Whether a finding can mean that changes are missing, so that no period is announced.

    A warning that the log may soon lose changes does not mean this.
    """
    if finding.severity is Severity.WAITING:
        return isinstance(log, TributaryError) or finding.subject != log.title
    return finding.severity is not Severity.UNNEEDED
