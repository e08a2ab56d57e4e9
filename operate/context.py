"""The composition root: builds the services that commands use, each once, on first use."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.capture import connector_activity
from cdc.capture.gathering import gather
from cdc.capture.kept_statements import StatementsInStore
from cdc.capture.log_looks import LogLooks
from cdc.capture.onboarded_names import capture_of
from cdc.capture.sent_records import SentRecords
from cdc.capture.server_queries import ServerOpeners
from cdc.config import Config, load
from cdc.config.secret_files import SecretFiles, files_of
from cdc.connect import ConnectClient, ConnectorOwner
from cdc.debezium import CaptureNames, Definitions, names
from cdc.kafka import KafkaAdmin
from cdc.runtime.copy_sessions import CopyBudget
from cdc.runtime.cpu_shares import CpuShares
from cdc.runtime.progress import Interruptible
from cdc.runtime.rounds import Rounds
from cdc.sources import open_source
from cdc.sources.base import Source
from cdc.sources.replay_pause import resume_left_paused
from cdc.store.kept_schemas import KeptSchemas
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from operate.row_estimates import RowEstimates
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from schemas.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.capture.evidence import CaptureEvidence
    from cdc.run import RunContext
    from cdc.run.published_settings import PublishedSettings
    from cdc.runtime.progress import Progress
    from cdc.store.table_state import TableRecord


class Services:
    """The servers and the Spark session that commands use; each is connected on first use.

    Args:
        config: The configuration.
        progress: Shows the progress of long work.
        spark: An open Spark session of the caller, which :meth:`close` leaves open. If None, a
            session is started on first use.

    Several threads can share an instance. Close it with :meth:`close`, or use :func:`services`.
    """

    def __init__(
        self, config: Config, progress: Progress, *, spark: SparkSession | None = None
    ) -> None:
        self.config = config
        self.run_id = str(uuid.uuid4())
        """Identity of the command's runs, in lake commits and in the state store's histories."""
        self._shared_spark = spark
        self.progress = progress
        self.secret_files = SecretFiles(files_of(config.kafka, config.connect, config.state))
        """The files with secrets that the command's clients read once."""
        self.copy_budget = CopyBudget()
        """How many sessions and what read rate the command's copies may use at a source."""
        self.rounds = Rounds()
        """The newest round of ``run --continuous``, which metrics show."""
        self.cpu = CpuShares()
        """Divides the CPU time among the command's runs."""
        self.take_over = False
        """Whether ``onboard`` takes over what another installation has made."""
        self.ends_soon = False
        """Whether the command does not repeat its runs, so that Spark must start fast."""
        self.captured_looks: dict[TableId, str] = {}
        """By table, the digest of a fingerprint.

        All changes from before this fingerprint was read are captured.
        """
        self.row_estimates = RowEstimates()
        """The newest estimates of tables' numbers of rows, for the limits of automatic resyncs."""
        self.without_readers: dict[str, float] = {}
        """By a table's folder, the time of the last search that found no registered readers."""
        self.left_behind: dict[str, str] = {}
        """By capture, a note for the outcome: what the capture has left on a former server."""
        self._sources: dict[str, Source] = {}
        self._lock = threading.RLock()
        self._exit = ExitStack()

    def source(self, name: str) -> Source:
        """Return the configured source with this name; the first use opens the source.

        Raises:
            ConfigError: There is no such source.
        """
        with self._lock:
            if name not in self._sources:
                self._sources[name] = open_source(name, self.config.source(name))
            return self._sources[name]

    @contextmanager
    def reused_sessions(self, sources: Iterable[str]) -> Iterator[None]:
        """Let looks at many tables use each other's sessions until the end of the block.

        Args:
            sources: The tables' sources. Those that are not configured are left out.
        """
        with ExitStack() as series:
            for name in sorted({*sources} & self.config.sources.keys()):
                series.enter_context(self.source(name).reused_sessions())
            yield

    @cached_property
    def interruptible(self) -> Interruptible:
        """The progress display whose tasks ``run`` interrupts, to stop automatic resyncs."""
        return Interruptible(self.progress)

    @cached_property
    def kafka(self) -> KafkaAdmin:
        """The command's client of the Kafka cluster, for topics and offsets."""
        return KafkaAdmin(self.config.kafka)

    @cached_property
    def connect(self) -> ConnectClient:
        """The command's client of Kafka Connect."""
        owner = ConnectorOwner(lambda: self.store.installation.name)
        client = ConnectClient(self.config.connect, owner=owner)
        self._exit.callback(client.close)
        return client

    @cached_property
    def store(self) -> Store:
        """The state store that a command uses.

        A killed process can leave a replica on which the replay of the primary's log is paused. The
        first use of this property also resumes that replay.
        """
        workers = self.config.spark.parallel_tables
        store = Store(self.config.state.connection_url(), self.run_id, threads=workers)
        self._exit.callback(store.close)
        resume_left_paused(store, Leases(store, progress=self.progress), self.source)
        return store

    @cached_property
    def leases(self) -> Leases:
        """The leases that a command takes, so that one process at a time writes to a table."""
        return Leases(self.store, progress=self.progress)

    @cached_property
    def registry(self) -> ConfluentRegistry:
        """The command's client of the schema registry."""
        config = self.config.kafka.registry
        client = ConfluentRegistry(
            RegistryEndpoint(
                config.url,
                username=config.username,
                password=config.password.resolve() if config.password else None,
                ca_file=str(config.ca_file) if config.ca_file else None,
            )
        )
        self._exit.callback(client.close)
        return client

    @cached_property
    def schemas(self) -> KeptSchemas:
        """Avro schemas from the registry, or from the state store if the registry is down."""
        return KeptSchemas(self.registry, self.config.kafka.registry.url, self.store)

    @property
    def sent(self) -> SentRecords:
        """Reads what connectors have sent to Kafka, as evidence about their captures."""
        return SentRecords(
            self.store,
            lambda: self.kafka,
            lambda: self.schemas,
            exactly_once=self.config.connect.exactly_once,
        )

    def definitions(self) -> Definitions:
        """Return a new reader of the table definitions that connectors have reported.

        It reads only the DDL statements that no earlier process of this installation has read.
        """
        return Definitions(self.kafka, self.schemas, StatementsInStore(self.store))

    def take_over_if_asked(self, connector: str) -> None:
        """Take over a connector of another installation, if the command has `--take-over`.

        Raises:
            ConnectError: Connect does not answer, or refuses a request.
        """
        if self.take_over:
            self.connect.take_over(connector, progress=self.progress)

    def capture(self, table: TableId) -> CaptureNames:
        """Return the names of the capture to which the settings assign a table."""
        tier = self.config.table_settings(table).capture_tier
        return names(table.source, self.config.source(table.source), tier)

    def capture_of(self, record: TableRecord) -> CaptureNames:
        """Return the names of a table's capture, as they were when the table was onboarded."""
        return capture_of(self.config, record)

    def evidence(self, capture: CaptureNames) -> CaptureEvidence:
        """Return, without reading topics, the facts that show whether a capture works."""
        return gather(capture, self._servers(capture), sent=self.sent)

    def stream_evidence(
        self, capture: CaptureNames, servers: ServerOpeners | None = None
    ) -> CaptureEvidence:
        """Return the facts that show whether a capture works, including the facts in topics.

        The topics show whether the connector sends changes, and which DDL statements the connector
        has reported. The topic of DDL statements, which PostgreSQL does not have, also shows
        whether the connector ever started without a stored position. The schema history of a
        MariaDB connector is read, too.

        Args:
            capture: The capture.
            servers: Opens the clients of the servers; by default, the clients of this object.
        """
        topics = [*capture.own_topics, *self.store.topics(capture.source, capture.tier)]
        interval_ms = self.config.source(capture.source).heartbeat_interval_ms
        return gather(
            capture,
            servers or self._servers(capture),
            sent=self.sent,
            definitions=self.definitions,
            life=lambda kafka: connector_activity.look(kafka, capture, topics, interval_ms),
            looks=LogLooks(self.store, lambda: self.kafka, lambda: self.schemas),
        )

    def _servers(self, capture: CaptureNames) -> ServerOpeners:
        return ServerOpeners(
            lambda: self.source(capture.source), lambda: self.kafka, lambda: self.connect
        )

    @cached_property
    def published_settings(self) -> PublishedSettings:
        """The settings with which each table was last copied, as read at this property's first use.

        The first use must come soon after the process has read its configuration. If another
        process later copies a table with different settings, runs of this process refuse the table.
        """
        from cdc.run.published_settings import PublishedSettings

        return PublishedSettings([*self.store.tables(), *self.store.builds()])

    @property
    def spark(self) -> SparkSession:
        """The Spark session: started on first use, and made current in the calling thread."""
        from cdc.runtime.spark import in_this_thread

        return in_this_thread(self._session)

    def require_cluster(self) -> None:
        """Start Spark if a cluster is configured.

        A command calls this method before it changes anything, so that it fails before any change
        if the cluster cannot be used.

        Raises:
            ClusterError: The cluster starts no executor, or an executor's versions differ from the
                driver's.
        """
        if self._shared_spark is None and not self.config.spark.local:
            _ = self._session

    @cached_property
    def _session(self) -> SparkSession:
        if self._shared_spark is not None:
            self.cpu.include(self._shared_spark)
            return self._shared_spark
        from cdc.runtime.executors import require_same_versions
        from cdc.runtime.spark import session, stop

        # A command that has not opened the state store may work without one, as `check` does.
        tables = len(self.store.tables()) if "store" in self.__dict__ else 0
        started = session(self.config, tables=tables, ends_soon=self.ends_soon)
        settings = self.config.spark
        self._exit.callback(stop)
        self.cpu.include(started)
        if not settings.local:
            require_same_versions(started, settings.start_timeout_s)
        return started

    @cached_property
    def run_context(self) -> RunContext:
        """The services, settings and run id that all bootstraps and runs of this command share."""
        from cdc.run import RunContext

        published_settings = self.published_settings  # before the start of Spark, which takes time
        return RunContext(
            config=self.config,
            session=self.spark,
            store=self.store,
            kafka=self.kafka,
            registry=self.schemas,
            sources=_Sources(self),
            leases=self.leases,
            progress=self.interruptible,
            run_id=self.run_id,
            connect=self.connect,
            interrupted=self.interruptible.interrupted,
            captured_looks=self.captured_looks,
            published_settings=published_settings,
            secret_files=self.secret_files,
            copy_budget=self.copy_budget,
            rounds=self.rounds,
            cpu=self.cpu,
        )

    def close(self) -> None:
        """Close all connections of a command and end its Spark session."""
        self._exit.close()


class _Sources(Mapping[str, Source]):
    """All configured sources of a command by name; each is opened when looked up."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __getitem__(self, name: str) -> Source:
        return self._services.source(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._services.config.sources)

    def __len__(self) -> int:
        return len(self._services.config.sources)


@contextmanager
def services(config: Path | None, progress: Progress) -> Iterator[Services]:
    """Open a command's services for a ``with`` block, and close them after the block.

    Args:
        config: The configuration file; if None, the file that ``TRIBUTARY_CONFIG`` names, or
            ``./tributary.yaml``.
        progress: Shows the progress of long work.
    """
    opened = Services(load(config), progress)
    try:
        yield opened
    finally:
        opened.close()
