"""Reads the facts of one scrape: what `status` and `plan` show, within a bounded time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.evidence import CaptureEvidence
from cdc.errors import ConfigError, StateError
from cdc.store.newest_runs import NewestRuns
from operate.bounded_calls import BoundedCalls, Overdue, answer, result
from operate.first_events import FirstEvents
from operate.forecast import Forecast, forecast
from operate.server_answers import Answers, CaptureAnswer, T
from operate.status import Status, status
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.runtime.rounds import Round, Rounds
    from cdc.sources.base import Source
    from cdc.store.history import RunEntry
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_PROBE_PART = 0.4
"""Each service must answer the probe within this fraction of a scrape's time."""
_CAPTURE_PART = 0.8
"""After this fraction of a scrape's time, captures that have not answered are left out."""
_TOPICS_PART = 0.95
"""After this fraction of a scrape's time, missing figures of topics are left out."""

Service = tuple[str, str]
"""The kind of a service, and the source's name; the name is empty if the service is no source."""


@dataclass(frozen=True)
class Facts:
    """What one scrape shows.

    Args:
        up: Whether each service answered.
        read_at: When the facts were read.
        seconds: How long the read took, in seconds.
        status: What `status` shows; None if the state store did not answer.
        forecast: What `plan` shows; None if Kafka did not answer in time, or if `plan` fails.
        runs: The newest run of each table; None if the state store did not answer.
        newest_round: The newest round of runs in this process; None if there is no round.
    """

    up: Mapping[Service, bool]
    read_at: datetime
    seconds: float
    status: Status | None = None
    forecast: Forecast | None = None
    runs: Mapping[TableId, RunEntry] | None = None
    newest_round: Round | None = None


class BoundedAnswers(Answers):
    """Asks the servers what one scrape shows; no wait is longer than the scrape may take.

    First, each service is probed. If a service does not answer the probe, this scrape does not ask
    that service again.

    Args:
        services: The services.
        calls: Makes the calls to the servers, for all scrapes.
        bound_s: The bound of the whole scrape, in seconds.
        first_events: Times of changes that wait in topics. Earlier scrapes have read these times.
    """

    def __init__(
        self,
        services: Services,
        calls: BoundedCalls,
        bound_s: float,
        first_events: FirstEvents | None = None,
    ) -> None:
        super().__init__(services, first_events)
        self._calls = calls
        now = time.monotonic()
        self._until = now + bound_s * _CAPTURE_PART
        self._topics_until = now + bound_s * _TOPICS_PART
        self._away = self._probe(now + bound_s * _PROBE_PART)

    @property
    def up(self) -> dict[Service, bool]:
        """Whether each service has answered the probe."""
        return {service: error is None for service, error in self._away.items()}

    def source(self, name: str) -> Source:
        """Return the source.

        Raises:
            TributaryError: The source does not answer.
        """
        self._require(("source", name))
        return super().source(name)

    def kafka(self) -> KafkaAdmin:
        """Return the client of the Kafka cluster.

        Raises:
            TributaryError: The cluster does not answer.
        """
        self._require(("kafka", ""))
        return super().kafka()

    def connect(self) -> ConnectClient:
        """Return the client of Kafka Connect.

        Raises:
            TributaryError: Connect does not answer.
        """
        self._require(("connect", ""))
        return super().connect()

    def connectors(self) -> list[str]:
        """Return the names of all connectors in Kafka Connect.

        Raises:
            TributaryError: Connect does not answer in time for the scrape.
        """
        connect = self.connect()
        return self.within("the names of connectors", connect.names)

    def captures(self, captures: Sequence[CaptureNames]) -> list[CaptureAnswer]:
        """Ask the servers about all captures at the same time; return one answer per capture."""
        asked = [
            (names, self._calls.start(("capture", names.resource), partial(self.capture, names)))
            for names in captures
        ]
        return [self._answer(names, call) for names, call in asked]

    def within(self, what: str, work: Callable[[], T], *, at_most_s: float | None = None) -> T:
        """Call ``work``, and return its result; raise an error if the scrape's time is up first.

        Args:
            what: What is asked for, in words for errors.
            work: Asks the servers.
            at_most_s: Further limit of the wait, in seconds; None if only the scrape's time counts.

        Raises:
            Overdue: The answer is late, or the call of an earlier scrape has not returned yet.
            TributaryError: A server does not answer.
        """
        # An earlier answer must not be taken: a commit before a heartbeat could be above it.
        call, until = self._calls.start_anew(what, work), self._topics_until
        if at_most_s is not None:
            until = min(until, time.monotonic() + at_most_s)
        return result(call, what, until)

    def _answer(self, names: CaptureNames, call: Future[CaptureAnswer]) -> CaptureAnswer:
        found = answer(call, names.resource, self._until)
        if isinstance(found, CaptureAnswer):
            return found
        return CaptureAnswer(CaptureEvidence.unanswered(names, found), None, found.message)

    def _require(self, service: Service) -> None:
        if (error := self._away.get(service)) is not None:
            raise error

    def _probe(self, until: float) -> dict[Service, TributaryError | None]:
        """Send each service a small request; return each service's error, None if it answers."""
        services, calls = self.services, self._calls
        asked: dict[Service, Future[object]] = {
            ("kafka", ""): calls.start("kafka", lambda: services.kafka.ping()),
            ("connect", ""): calls.start("connect", lambda: services.connect.worker()),
        }
        for name in services.config.sources:
            asked["source", name] = calls.start(
                ("source", name), partial(_identity_of_source, services, name)
            )
        found = {one: answer(call, " ".join(one).strip(), until) for one, call in asked.items()}
        return {
            service: it if isinstance(it, TributaryError) else None for service, it in found.items()
        }


def _identity_of_source(services: Services, name: str) -> object:
    """Ask a source for its identity: the metric ``up`` shows whether the source answers."""
    return services.source(name).identity()


class FactReader:
    """Reads the facts of scrapes.

    Args:
        services: The services. No Spark session is started.
        bound_s: The bound of one scrape, in seconds.
        rounds: The rounds of runs in this process; None if this process runs no tables.
    """

    def __init__(self, services: Services, bound_s: float, rounds: Rounds | None = None) -> None:
        self._services = services
        self._rounds = rounds
        self._bound_s = bound_s
        self._calls = BoundedCalls()
        self._first_events = FirstEvents()
        self._runs: NewestRuns | None = None

    def read(self) -> Facts:
        """Read the facts of one scrape, and return them."""
        began, now = time.monotonic(), datetime.now(timezone.utc)
        try:
            self._runs = self._runs or NewestRuns(self._services.store)
            runs = self._runs.read()
            answers = BoundedAnswers(self._services, self._calls, self._bound_s, self._first_events)
            found = status(self._services, (), answers=answers, brief=True)
            up = {("state_store", ""): True, **answers.up}
            plan = self._forecast(answers)
        except StateError as error:
            _log.warning("metrics: %s", error)
            return Facts({("state_store", ""): False}, now, time.monotonic() - began)
        newest = None if self._rounds is None else self._rounds.newest
        return Facts(up, now, time.monotonic() - began, found, plan, runs, newest)

    def _forecast(self, answers: BoundedAnswers) -> Forecast | None:
        # The ends of thousands of topics take half a second, and `status` has just read them.
        services, ends = self._services, answers.known_ends
        if ends is None:
            return None
        try:
            return answers.within(
                "the forecast", lambda: forecast(services, (), count=0, ends=ends)
            )
        except (ConfigError, Overdue) as error:
            _log.warning("metrics: %s", error)
            return None
