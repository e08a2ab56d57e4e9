"""Gathers the evidence of captures from the servers, once for each capture."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from cdc.capture.evidence import (
    Beats,
    CaptureEvidence,
    CleanupPolicy,
    ConnectorFacts,
    ConnectorHealth,
    known,
)
from cdc.capture.judgement import of_capture, of_table
from cdc.capture.log_looks import LogLooks
from cdc.capture.recovery import explained
from cdc.capture.remembered_losses import loss_scopes, remember, table_scope
from cdc.capture.server_queries import ServerOpeners, ServerQueries
from cdc.capture.skipped_definitions import skipped
from cdc.capture.stray_topics import stray_topics, written_since
from cdc.capture.task_looks import TaskLooks
from cdc.capture.type_looks import TypeLooks, require_own_types
from cdc.capture.unneeded_tables import of_unneeded
from cdc.debezium import (
    ReportedStatements,
    audit,
    captured_tables,
    fresh_starts,
    stored_position,
)
from cdc.errors import ConnectError, StateError
from cdc.kafka import never_compacted
from cdc.log.continuity import Continuity
from cdc.store.kept_task_looks import TaskLook
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cdc.capture.evidence import Answer, SignsOfLife
    from cdc.capture.sent_records import SentRecords
    from cdc.connect import ConnectClient, ConnectorStatus
    from cdc.debezium import CaptureNames, DefinitionChange, Definitions
    from cdc.kafka import KafkaAdmin
    from cdc.log.position import LogPosition
    from cdc.run.context import RunContext
    from cdc.sources.base import SourceCapture
    from cdc.sources.sent_table import SentTable
    from cdc.store.kept_type_looks import TypeLook
    from cdc.store.loss_counts import Loss
    from cdc.store.table_state import TableRecord
    from schemas.table import Column, TableId

_log = logging.getLogger(__name__)

_CUT_OFF = frozenset({State.REGISTERED, State.NEEDS_BOOTSTRAP, State.RETIRED})
"""States in which a table is not affected by a past loss of changes in the table's capture."""


def gather(
    names: CaptureNames,
    servers: ServerOpeners,
    *,
    sent: SentRecords,
    definitions: Callable[[], Definitions] | None = None,
    life: Callable[[KafkaAdmin], SignsOfLife] | None = None,
    looks: LogLooks | None = None,
) -> CaptureEvidence:
    """Return the evidence of one capture.

    After the first error of a server, no further query is sent to this server.

    Args:
        names: The capture.
        servers: The servers.
        sent: Reads what the connector has sent to Kafka. If ``sent.exactly_once`` is True, a
            connector that writes without Kafka transactions counts as wrongly configured.
        definitions: Returns the reader of the DDL statements that connectors report; None leaves
            the statements out of the evidence.
        life: Finds out whether the connector sends changes; None leaves this fact out of the
            evidence.
        looks: Compares the end of the source's log with the end that the previous comparison
            recorded; None leaves the comparison out of the evidence.
    """
    sent = sent.using(servers.kafka)
    database, workers = ServerQueries(servers.source), ServerQueries(servers.connect)
    topics = ServerQueries(servers.kafka)
    server = database.ask(lambda it: it.identity())  # it logs in: the next queries go there, too
    log = database.ask(lambda it: it.capture(names).log_health())
    connector = workers.ask(lambda it: _gather_connector_facts(it, names, sent.exactly_once))
    # The stored position is read after the log, as `LogHealth.problem` requires.
    stored = sent.answer(names, log, workers.ask(lambda it: stored_position(it, names)))
    at = None if isinstance(stored, TributaryError) else stored
    policies = topics.ask(lambda it: _gather_cleanup_policies(it, names))
    signs = topics.ask(lambda it: None if life is None else life(it))
    beats = topics.ask(lambda _: sent.beats(names, server))
    # The statements are read last. If their topic is missing, Kafka has answered the other queries.
    statements = topics.ask(lambda _: _gather_statements(definitions, names))
    forgotten = topics.ask(lambda _: _gather_skipped(definitions, names, at, connector))
    return CaptureEvidence(
        names=names,
        log=log,
        lost=database.ask(lambda _: known(log).problem(at, exactly_once=sent.exactly_once)),
        unreadable=database.ask(lambda it: it.capture(names).unreadable()),
        obstacles=database.ask(lambda it: tuple(it.capture(names).audit())),
        server=server,
        continuity=database.ask(
            lambda it: None if looks is None else looks.compare(names, it.capture(names))
        ),
        members=database.ask(lambda it: _gather_members(it.capture(names))),
        topics=policies,
        connector=connector,
        stored=stored,
        statements=statements,
        starts=tuple(fresh_starts(_gathered_changes(statements))),
        skipped=forgotten,
        life=signs,
        beats=Beats(trouble=beats) if isinstance(beats, TributaryError) else beats,
    )


def _gather_members(capture: SourceCapture) -> Mapping[TableId, SentTable]:
    """Gather the tables in a source's list of captured tables; empty if it has no such list."""
    sent = capture.sent_tables
    return {} if sent is None else sent.added()


class Captures:
    """The evidence of every capture, gathered once. Safe to share among threads.

    Args:
        context: The runs' context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._known: dict[tuple[str, str], CaptureEvidence] = {}
        self._losses: dict[tuple[str, str], Mapping[str, Loss]] = {}
        self._tasks: dict[str, Answer[TaskLook | None]] = {}
        self._types: dict[str, Answer[TypeLook | None]] = {}
        self._plan: list[TableRecord] | None = None
        self._topics: Collection[str] = ()
        self._lock = threading.Lock()
        # A lock for each capture: a server that does not answer delays its own captures only.
        self._gathering: dict[tuple[str, str], threading.Lock] = {}

    def evidence(self, record: TableRecord) -> CaptureEvidence:
        """Return the evidence of a table's capture.

        The first call for a capture gathers the evidence. If the evidence shows a loss, the first
        call also counts the loss in the state store.

        If Connect does not answer, the evidence has Connect's error, and nothing is raised. A run
        can go on without this answer: the records in Kafka are correct, and the source retains
        the later changes.

        Raises:
            TributaryError: The primary, Kafka or the registry does not answer. Later calls raise
                the same error without another query. So a thousand tables do not wait for a
                thousand time-outs.
        """
        key = (record.table.source, record.tier)
        with self._gathering_of(key):
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._gathered(self._context.capture(record))
        for error in found.errors:
            if not isinstance(error, ConnectError):
                raise error
        return found

    def _gathering_of(self, key: tuple[str, str]) -> threading.Lock:
        """Return the lock under which a capture's evidence is gathered."""
        with self._lock:
            return self._gathering.setdefault(key, threading.Lock())

    def _gathered(self, names: CaptureNames) -> CaptureEvidence:
        """Gather a capture's evidence, and count the losses that the evidence shows."""
        context, before = self._context, self._planned()
        found = gather(
            names,
            ServerOpeners(
                source=lambda: context.sources[names.source],
                kafka=lambda: context.kafka,
                connect=context.connected,
            ),
            sent=context.sent,
            definitions=lambda: context.definitions,
            looks=context.looks,
        )
        records = self._records(names)
        found = replace(found, strays=self._strays(names, records))
        _warn_of_unknown_connector(found)
        self._note_unneeded(found, before)
        self._follow_tasks(found, records)
        self._types[names.connector] = self._follow_types(found)
        compared = found.continuity
        if isinstance(compared, Continuity) and not context.looks.is_newest(names, compared):
            # Another process has looked meanwhile, and has counted a loss that it found; or a
            # command has created the slot again, from which no table has read before.
            found = replace(found, continuity=None)
        losses = Losses(context.store)
        remember(losses, names.resource, of_capture(found))
        for table in found.strays:
            remember(losses, table_scope(names, table), of_table(found, table, ()))
        if isinstance(found.continuity, Continuity):
            context.looks.leave(names, found.continuity)
        tables = (one.table for one in records)
        self._losses[names.source, names.tier] = losses.seen(*loss_scopes(names, *tables))
        return found

    def _note_unneeded(self, found: CaptureEvidence, before: Iterable[TableRecord]) -> None:
        """Record a capture's tables that the plan does not need, and log each new warning once."""
        context, name = self._context, found.names.connector
        unneeded = of_unneeded(context.store, found, before)
        context.forgotten[found.names.resource] = unneeded.forgotten
        texts = [f"{one.message}. {one.remedy}" for one in unneeded.all]
        said = context.unneeded.get(name, ())
        for text in texts:
            if text not in said:
                _log.warning("%s", text)
        context.unneeded[name] = texts

    def look_at_all(self, records: Collection[TableRecord]) -> None:
        """Gather the evidence of all captures of the tables, so that each loss is counted.

        The signs of a loss can appear and vanish while all tables of a capture are PAUSED, FAILED
        or being copied, or before a table has moved to the capture. Without this call, no run
        would notice such a loss.

        Raises:
            StateError: The state store cannot be used.
        """
        tables = {record.table for record in records}
        moving = (one for one in self._planned() if one.beside and one.table in tables)
        dependent = (record for record in (*moving, *records) if record.state not in _CUT_OFF)
        by_capture = {(one.table.source, one.tier): one for one in dependent}
        for (source, tier), record in by_capture.items():
            try:
                self.evidence(record)
            except TributaryError as error:
                _log.warning("the capture of %s, tier %s, was not checked: %s", source, tier, error)

    def gather_again(self, record: TableRecord) -> CaptureEvidence:
        """Gather the evidence of a table's capture again, and return the new evidence.

        Later calls of `evidence` also return the new evidence.

        Raises:
            TributaryError: As for `evidence`.
        """
        key = (record.table.source, record.tier)
        with self._gathering_of(key):
            self._known.pop(key, None)
        return self.evidence(record)

    def _records(self, names: CaptureNames) -> list[TableRecord]:
        """Return the state store's records of the tables that follow a capture."""
        of = (names.source, names.tier)
        return [one for one in self._planned() if (one.table.source, one.tier) == of]

    def _planned(self) -> list[TableRecord]:
        """Return the records of all tables; one read of the store serves all captures.

        A table that moves to another tier has two records: its own record in the former tier, and
        its next generation's record in the new tier.
        """
        with self._lock:
            if self._plan is None:
                tables = self._context.store.tables()
                tiers = {one.table: one.tier for one in tables}
                builds = self._context.store.builds()
                moving = [one for one in builds if tiers.get(one.table) != one.tier]
                self._plan = [*tables, *moving]
            return self._plan

    def _follow_tasks(self, capture: CaptureEvidence, records: Sequence[TableRecord]) -> None:
        """Search for ends of the connector's tasks, and count the losses of changes at these ends.

        If a server does not answer, a later run repeats this search.
        """
        context, names = self._context, capture.names
        try:
            looks = TaskLooks(
                context.store,
                context.kafka,
                context.registry,
                exactly_once=context.config.connect.exactly_once,
            )
            beat = capture.beats.record
            found = looks.follow(names, records, lambda: context.sources[names.source], beat)
        except StateError:
            raise
        except TributaryError as error:
            _log.warning("the tasks of %s were not checked: %s", names.connector, error)
            self._tasks[names.connector] = error
            return
        self._tasks[names.connector] = found

    def _follow_types(self, found: CaptureEvidence) -> Answer[TypeLook | None]:
        """Compare the source's types with the last stored look at types; return the newest look.

        The result is None if the connector does not look up types by their names. If a server does
        not answer, the result is the server's error.
        """
        context, names = self._context, found.names
        for error in found.errors:
            if not isinstance(error, ConnectError):
                return error  # another query would wait for the same server
        try:
            looks = TypeLooks(context.store, context.kafka)
            return looks.follow(names, context.sources[names.source])
        except TributaryError as error:
            return error

    def _strays(
        self, names: CaptureNames, records: Sequence[TableRecord]
    ) -> dict[TableId, list[str]]:
        """Return each table's stray topics that got a record after the table's attempt began.

        The result is empty if a server does not answer. `cdc.capture.stray_topics` explains what
        stray topics are.
        """
        context = self._context
        began = {one.table: one.attempt.started_at for one in records if one.attempt is not None}
        if names.reports_definitions or not began:
            return {}  # such a connector reports the statements that rename tables
        planned = {one.topic for one in self._plan or ()}
        try:
            self._topics = self._topics or context.kafka.all_topics()
            found = stray_topics(names, began, self._topics, planned)
            if found:
                there = context.sources[names.source].table_names()
                known = planned | {names.topic(one) for one in there}
                found = stray_topics(names, began, self._topics, known)
            sent = context.kafka.newest_times(sorted({*chain.from_iterable(found.values())}))
        except TributaryError as error:
            _log.warning("the topics of %s were not checked: %s", names.connector, error)
            return {}
        return written_since(found, sent, began)

    def statements(self, record: TableRecord) -> list[DefinitionChange]:
        """Return the DDL statements that the capture's connector has reported for a table.

        Raises:
            TributaryError: A server did not answer.
        """
        reported = known(self.evidence(record).statements)
        return [] if reported is None else reported.by_table.of(record.table)

    def doubt(self, record: TableRecord) -> str | None:
        """Return a message if, because a task ended, a table may lack rows or have rows twice.

        The result is None if no row is in doubt, or if the ends of tasks could not be searched.
        """
        look = self._tasks[self.evidence(record).names.connector]
        return look.doubt(record) if isinstance(look, TaskLook) else None

    def unjudged(self, record: TableRecord) -> str | None:
        """Return a message if it is not judged yet whether a task's end lost a table's changes.

        The result is None in all other cases. A loss that was recorded as doubtful counts as
        judged, because no later look at the connector's tasks can find out more about this loss.
        """
        name = self.evidence(record).names.connector
        look = self._tasks[name]
        if isinstance(look, TaskLook):
            return look.unjudged(record)
        why = "there is no heartbeat" if look is None else str(look)
        return f"the ends of the tasks of connector {name} are not judged: {why}"

    def require_own_types(self, record: TableRecord, used: Iterable[Column]) -> None:
        """Refuse a table if the connector may have confused a column's type with another type.

        `cdc.capture.type_looks` explains how a connector confuses types.

        Args:
            record: The table.
            used: The columns that are replicated.

        Raises:
            SchemaChangeError: A look at the source's types, the newest one or one since the
                table's start offset O, found a column that the connector may have misread.
            TributaryError: A server did not answer.
        """
        look = known(self._types[self.evidence(record).names.connector])
        require_own_types(look, record, used)

    def losses(self, record: TableRecord) -> Mapping[str, Loss]:
        """Return the losses of a table's capture and of the capture's tables.

        The losses were read from the state store after the capture's evidence was gathered. The
        keys are the names that `loss_scopes` returns.
        """
        return self._losses[record.table.source, record.tier]


def _warn_of_unknown_connector(evidence: CaptureEvidence) -> None:
    """Log a warning if Connect did not answer, or if a capture's connector does not exist."""
    name = evidence.names.connector
    for error in evidence.errors:
        if isinstance(error, ConnectError):
            _log.warning("the configuration of %s was not checked: %s", name, error)
    if evidence.connector is None:
        _log.warning("there is no connector %s; changes wait in the source's log", name)


def cleanup_policy(settings: Mapping[str, str]) -> CleanupPolicy:
    """Return the cleanup policy of a captured topic, from the topic's effective settings."""
    return CleanupPolicy(settings.get("cleanup.policy", "delete"), never_compacted(settings))


def _gather_cleanup_policies(kafka: KafkaAdmin, names: CaptureNames) -> dict[str, CleanupPolicy]:
    """Gather the policies of a capture's `evidence_topics`, as a mapping from topic to policy."""
    found = kafka.topic_configs(names.evidence_topics)
    return {topic: cleanup_policy(settings) for topic, settings in found.items()}


def _gather_statements(
    definitions: Callable[[], Definitions] | None, names: CaptureNames
) -> ReportedStatements | None:
    """Gather the DDL statements that a connector reported; None if the evidence omits them."""
    if definitions is None or not names.reports_definitions:
        return None
    return definitions().of(names)


def _gather_skipped(
    definitions: Callable[[], Definitions] | None,
    names: CaptureNames,
    stored: LogPosition | None,
    connector: Answer[ConnectorFacts | None],
) -> str | None:
    """Gather the reason why a connector will skip a captured table's definition at its next start.

    The result is None if the connector will skip no definition, or if the schema history is not
    read.
    """
    listed = connector.listed if isinstance(connector, ConnectorFacts) else None
    if definitions is None or listed is None:
        return None
    return skipped(names, definitions, stored, listed)


def _gathered_changes(
    statements: Answer[ReportedStatements | None],
) -> tuple[DefinitionChange, ...]:
    """Return the DDL statements in a capture's evidence; empty if they were not read."""
    return statements.changes if isinstance(statements, ReportedStatements) else ()


def _gather_connector_facts(
    connect: ConnectClient, names: CaptureNames, exactly_once: bool
) -> ConnectorFacts | None:
    """Gather the settings and the state of a capture's connector; None if it does not exist."""
    effective = connect.connector(names.connector)
    if effective is None:
        return None
    status, listed = connect.status(names.connector), captured_tables(effective, names)
    return ConnectorFacts(
        effective=effective,
        wrong=tuple(audit(effective, names, exactly_once=exactly_once)),
        listed=None if listed is None else frozenset(listed),
        health=health(status),
        other_owner=connect.owner.other(effective),
    )


def health(status: ConnectorStatus | None) -> ConnectorHealth | None:
    """Return the state of a capture's connector, as evidence.

    If the connector has failed, the result has the reason and the remedy, without secrets.

    Args:
        status: The answer of Kafka Connect; None if the connector does not exist. Then the result
            is also None.
    """
    if status is None or status.failure is None:
        return None if status is None else ConnectorHealth(status)
    failed = explained(status.name, status.failure)
    return ConnectorHealth(status, failed.reason, failed.remedy)
