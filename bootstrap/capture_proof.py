"""Proves that a table is captured, and waits for its capture to reach a position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError, HandoffTimeoutError
from bootstrap.steps import reaches
from cdc.capture.evidence import known
from cdc.capture.gathering import cleanup_policy, gather
from cdc.capture.judgement import Severity, of_capture, of_table, of_topic
from cdc.capture.known_definition import exact_columns, require_known
from cdc.capture.recovery import Recovery
from cdc.capture.remembered_losses import remember, table_scope
from cdc.capture.server_queries import ServerOpeners
from cdc.connect import failures
from cdc.debezium import keeps_nulls, stored_position
from cdc.errors import CaptureError
from cdc.log.position import shortfall
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import BACKLOG_S, Movement, wait_while_moving
from schemas.errors import TributaryError
from schemas.redaction import redact

if TYPE_CHECKING:
    from cdc.capture.sent_records import SentRecords
    from cdc.config import TableSettings
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames, Definitions
    from cdc.kafka import KafkaAdmin
    from cdc.log.position import LogPosition
    from cdc.run import RunContext
    from cdc.runtime.progress import Progress
    from cdc.sources.base import Source, SourceTable
    from cdc.sources.source_facts import ServerIdentity
    from cdc.store.loss_counts import Losses
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_POLL_S = (0.02, 0.5)


@dataclass(frozen=True)
class Capture:
    """The capture of one table, with the clients that the handoff needs to check it.

    Args:
        table: The table.
        topic: The topic of the table's changes.
        names: Publication, slot and connector.
        source: The source database.
        connect: Kafka Connect.
        kafka: Topics and offsets.
        definitions: The table definitions that the connectors of MySQL and MariaDB have reported.
        sent: Reads what the connector has sent to Kafka.
        recovery: Restarts the connector if it fails during a wait.
        progress: Shows the waits.
    """

    table: TableId
    topic: str
    names: CaptureNames
    source: Source
    connect: ConnectClient
    kafka: KafkaAdmin
    definitions: Definitions
    sent: SentRecords
    recovery: Recovery
    progress: Progress

    @classmethod
    def of(cls, context: RunContext, connect: ConnectClient, record: TableRecord) -> Capture:
        """Return the capture that a table's record names, with the clients of a run's context."""
        return cls(
            table=record.table,
            topic=record.topic,
            names=context.capture(record),
            source=context.sources[record.table.source],
            connect=connect,
            kafka=context.kafka,
            definitions=context.definitions,
            sent=context.sent,
            recovery=Recovery(
                connect,
                context.leases,
                context.store,
                context.kafka,
                context.config,
                context.sent,
            ),
            progress=context.progress,
        )

    def prove(self, table: SourceTable, losses: Losses) -> ServerIdentity:
        """Prove for the handoff that each change of a table becomes an event in the table's topic.

        Args:
            table: The table.
            losses: The counts of losses in the state store, to which the proof adds each loss that
                it finds. A later proof could miss the same loss, since an operator can repair the
                capture before the later proof.

        Returns:
            The identity of the primary that was checked.

        Raises:
            CaptureError: The capture can miss or alter changes. The error names each reason.
            ConnectError: The connector does not reach the state RUNNING.
        """
        names = self.names
        evidence = gather(
            names,
            ServerOpeners(lambda: self.source, lambda: self.kafka, lambda: self.connect),
            sent=self.sent,
            definitions=lambda: self.definitions,
        )
        evidence.require_answers()
        obstacles = self.source.capture(names).audit_table(table)
        policy = cleanup_policy(self.kafka.topic_config(self.topic))
        shared, own = of_capture(evidence), of_table(evidence, self.table, obstacles)
        topic = [*of_topic(self.topic, policy)]
        remember(losses, names.resource, shared)
        remember(losses, table_scope(names, self.table), own if policy.lagging else [*own, *topic])
        # Wait for a connector that does not run yet.
        waits = evidence.connector is not None
        problems = [
            finding.message
            for finding in (*shared, *own, *topic)
            if not (waits and finding.severity is Severity.WAITING)
        ]
        if problems:
            raise CaptureError(
                f"changes of table {self.table} are not captured in full: {'; '.join(problems)}",
                remedy=f"Run `tributary onboard {self.table}`, which restores what is missing;"
                " `tributary check` explains the rest.",
                table=self.table,
                topic=self.topic,
            )
        self.connect.wait_running(self.names.connector, progress=self.progress)
        return known(evidence.server)

    def keeps_nulls(self) -> bool:
        """Return whether the connector sends a NULL as NULL, and not as the column's default."""
        return keeps_nulls(self.connect.connector(self.names.connector) or {})

    def require_known(self, table: SourceTable, settings: TableSettings) -> None:
        """Prove that the connector's definition of the table equals the server's.

        Only connectors of MySQL and MariaDB are checked.

        Args:
            table: The table, as read from the server. The connector must already have captured all
                changes from before this reading.
            settings: The table's settings, which choose the key.

        Raises:
            CaptureError: The definition that the connector has derived from the binlog's statements
                differs from the server's.
        """
        if self.names.reports_definitions:
            changes = self.definitions.of(self.names).changes
            exact = exact_columns(self.source.schema(table, settings))
            require_known(self.table, self.names.connector, changes, table.columns, exact=exact)

    def require_start(
        self, topic_id: str | None, start: Mapping[int, int], *, topic: str | None = None
    ) -> None:
        """Prove that a topic still has all records from the handoff's offsets on.

        Args:
            topic_id: The topic's UUID when the offsets were recorded.
            start: The offsets per partition. For the table's topic, these are the start offsets O.
            topic: Name of the topic; None for the table's topic.

        Raises:
            AttemptSpoiledError: The topic was recreated, or records from these offsets on have
                expired.
        """
        name = topic or self.topic
        found = self.kafka.topic_id(name)
        if found != topic_id:
            raise AttemptSpoiledError(
                f"topic {name} was created again since the copy of table {self.table} began:"
                f" its id was {topic_id}, is {found}",
                remedy="Nothing to do: the copy begins again.",
                table=self.table,
                topic=name,
            )
        earliest = self.kafka.start_offsets(name)
        gone = {
            partition: (offset, earliest.get(partition))
            for partition, offset in start.items()
            if partition not in earliest or earliest[partition] > offset
        }
        if gone:
            listed = ", ".join(
                f"partition {partition}: needed from offset {needed}, begins at {first}"
                for partition, (needed, first) in sorted(gone.items())
            )
            raise AttemptSpoiledError(
                f"topic {name} no longer holds the changes of table {self.table} since its"
                f" copy began ({listed})",
                remedy=f"Raise retention.ms of topic {name} above the time that the copy takes.",
                table=self.table,
                topic=name,
            )

    def wait_until_captured(self, upto: LogPosition, *, timeout_s: float) -> None:
        """Wait, in a handoff, until the connector has captured everything up to a log position.

        Args:
            upto: The position of the source's log, such as R, an upper bound of the copy.
            timeout_s: Maximum wait without progress, in seconds. While the connector makes progress
                through a backlog, the wait continues, up to about six hours.

        Raises:
            HandoffTimeoutError: The position was not captured in time. The error names the position
                that the connector has reached.
            CaptureError: The connector fails repeatedly, or the source has removed a part of its
                log before the connector read that part.
        """
        seen, captured = self._captured_position(), Movement()
        captured.note(seen)

        def reached() -> bool:
            nonlocal seen
            seen = self._captured_position()
            captured.note(seen)
            if not shortfall(seen, upto):
                return True
            self.recovery.restart_if_failed(self.names, self.source.capture(self.names))
            self.source.nudge()
            return False

        self._wait_for_connector(
            f"wait until {self.names.connector} has captured {upto}",
            reached,
            timeout_s,
            lambda: shortfall(seen, upto),
            captured.ended,
        )

    def wait_until_readable(
        self, offsets: Mapping[int, int], *, timeout_s: float, topic: str | None = None
    ) -> None:
        """Wait, in a handoff, until a topic can be read up to ``offsets`` with ``read_committed``.

        Args:
            offsets: The offsets per partition, such as the offsets H of the handoff.
            timeout_s: Maximum wait, in seconds.
            topic: Name of the topic; None for the table's topic.

        Raises:
            HandoffTimeoutError: The topic did not become readable in time: a Kafka transaction
                stays open, or the broker hangs.
        """
        stable: dict[int, int] = {}
        name = topic or self.topic

        def reached() -> bool:
            nonlocal stable
            stable = self.kafka.stable_offsets(name)
            return reaches(stable, offsets)

        self._wait_for_connector(
            f"wait until topic {name} is readable",
            reached,
            timeout_s,
            lambda: (
                f"last stable offsets {show_offsets(stable)}, needed are {show_offsets(offsets)}:"
                " a hanging Kafka transaction holds readers back"
            ),
        )

    def _captured_position(self) -> LogPosition | None:
        """Return the log position that the connector has reached; None if it is unknown.

        Raises:
            CaptureError: The source has removed a part of its log that the connector has not read.
        """
        log = self.source.capture(self.names).log_health()
        if (problem := log.problem()) is not None:
            raise CaptureError(
                f"{log.title} {problem}, and the copy of table {self.table} waits for its changes",
                remedy=f"Run `tributary onboard {self.table}`, which restores the capture.",
                table=self.table,
            )
        return log.captured(
            lambda: stored_position(self.connect, self.names),
            exactly_once=self.sent.exactly_once,
        )

    def _wait_for_connector(
        self,
        what: str,
        reached: Callable[[], bool],
        timeout_s: float,
        describe: Callable[[], str],
        moved: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait in a handoff until ``reached`` returns True.

        ``what`` names the wait in the progress display and in the error. ``describe`` returns what
        is still missing, in words for the error. If ``moved`` returns True at the end of a wait,
        the wait begins again, unless `BACKLOG_S` has passed since the first wait began.

        Raises:
            HandoffTimeoutError: ``reached`` did not return True within ``timeout_s`` seconds.
        """
        with shown_as(what, self.progress) as task:
            if lacking := wait_while_moving(
                lambda: "" if reached() else describe(),
                moved,
                timeout_s=timeout_s,
                most_s=BACKLOG_S,
                poll_s=_POLL_S,
                task=task,
            ):
                raise HandoffTimeoutError(
                    f"table {self.table}: {what} did not end within {timeout_s:.0f} s:"
                    f" {lacking}; {self.evidence()}",
                    remedy="Check the connector's status and log, and the broker's log; then"
                    " run the command again, which goes on from here.",
                    table=self.table,
                    topic=self.topic,
                )

    def evidence(self) -> str:
        """Return the states of connector, log and topic in words, for the error of a wait."""
        return "; ".join(
            _fact_or_error(look)
            for look in (self._connector_facts, self._log_facts, self._offsets_text)
        )

    def _connector_facts(self) -> str:
        status = self.connect.status(self.names.connector)
        if status is None:
            return f"connector {self.names.connector} does not exist"
        tasks = ", ".join(f"task {task.id} {task.state}" for task in status.tasks) or "no task"
        failure = f" ({redact(failures.explain(status.failure))})" if status.failure else ""
        return f"connector {self.names.connector} {status.state}, {tasks}{failure}"

    def _log_facts(self) -> str:
        log = self.source.capture(self.names).log_health()
        facts = ", ".join(f"{name} {value}" for name, value in log.facts().items())
        return f"{log.title}: {log.problem() or facts}"

    def _offsets_text(self) -> str:
        stable = self.kafka.stable_offsets(self.topic)
        high = self.kafka.high_watermarks(self.topic)
        return (
            f"topic {self.topic} stable {show_offsets(stable)}, high watermark {show_offsets(high)}"
        )


def _fact_or_error(look: Callable[[], str]) -> str:
    """Return a fact for the error of a bootstrap's wait, or why the fact cannot be read."""
    try:
        return look()
    except TributaryError as error:
        return str(error)


def show_offsets(offsets: Mapping[int, int]) -> str:
    """Return offsets for the messages of a bootstrap, as ``partition:offset``."""
    return ", ".join(f"{partition}:{at}" for partition, at in sorted(offsets.items())) or "none"
