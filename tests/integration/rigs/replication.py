"""Tables that are captured on the real stack and handed over while empty, ready for runs."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc.capture.remembered_losses import loss_scopes, times
from cdc.config import Config
from cdc.connect import ConnectClient
from cdc.debezium import connector_config, names
from cdc.kafka import KafkaAdmin
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import Handoff
from cdc.lake.pointer import Published
from cdc.lake.publish import write_pointer
from cdc.lake.write import LakeTable
from cdc.log.position import Lsn
from cdc.run import RunContext, RunResult, run_tables
from cdc.runtime.progress import NullProgress
from cdc.sources import open_source
from cdc.sources.postgres.source import PostgresSource
from cdc.store.attempt import Attempt, CopyView
from cdc.store.lease import Leases
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord, transition
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from schemas.table import TableId
from tests.integration.rigs.postgres import Database
from tests.records import table_record

CAPTURE_TIMEOUT_S = 60.0


@dataclass
class Replication:
    """The tables of one database, which a test captures and applies to a lake of its own.

    Args:
        database: The test's database. The source has the name of the database.
        spark: The Spark session.
        folder: Holds the state store and the lake.
        tables: The ``tables`` section of the configuration.
    """

    database: Database
    spark: SparkSession
    folder: Path
    tables: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.configure()
        self.store = Store(f"sqlite:///{self.folder / 'state.db'}")
        self.kafka = KafkaAdmin(self.config.kafka)
        self.connect = ConnectClient(self.config.connect)
        self.registry = ConfluentRegistry(RegistryEndpoint(self.config.kafka.registry.url))
        source = open_source(self.database.name, self.config.source(self.database.name))
        assert isinstance(source, PostgresSource)
        self.source = source
        self.capture = names(self.database.name, self.config.source(self.database.name))

    def close(self) -> None:
        self.connect.close()
        self.registry.close()
        self.store.close()

    def configure(self, **tables: Any) -> None:
        """Use the stack's configuration, with settings for tables by ``schema__table``."""
        for name, settings in tables.items():
            self.tables[name.replace("__", ".")] = settings
        document = self.database.document(self.folder)
        document["lake"] = {"url": (self.folder / "lake").as_uri()}
        document["state"] = {"url": f"sqlite:///{self.folder / 'state.db'}"}
        document["tables"] = self.tables
        self.config = Config.model_validate(document)

    def context(self, **changes: Any) -> RunContext:
        return replace(
            RunContext(
                config=self.config,
                session=self.spark,
                store=self.store,
                kafka=self.kafka,
                registry=self.registry,
                sources={self.database.name: self.source},
                leases=Leases(self.store),
                progress=NullProgress(),
                run_id=str(uuid.uuid4()),
                connect=self.connect,
            ),
            **changes,
        )

    def table(self, name: str) -> TableId:
        return TableId(self.database.name, "public", name)

    def add(self, *created: str) -> list[TableRecord]:
        """Capture existing, empty tables, and hand each over to its stream without a copy."""
        self.source.capture(self.capture).prepare()
        ids = [self.table(name) for name in created]
        for table in ids:
            self.kafka.ensure_topic(self.capture.topic(table))
        own = (self.capture.heartbeat_topic, self.capture.marker_topic)
        for topic in own:
            self.kafka.ensure_topic(topic)
        self.source.capture(self.capture).sent_tables.add(ids)
        self.source.capture(self.capture).kept_log.create()
        config = connector_config(
            self.database.name,
            self.config.source(self.database.name),
            "default",
            self.config.kafka,
            self.config.connect,
        )
        self.connect.put_connector(self.capture.connector, config)
        self.connect.wait_running(self.capture.connector)
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(self._hand_over, ids))

    def _hand_over(self, table: TableId) -> TableRecord:
        topic = self.capture.topic(table)
        base = self.config.table_path(table)
        attempt_id = uuid.uuid4()
        marker = self.source.write_marker()
        fingerprint = self.source.capture(self.capture).fingerprint(table, on_replica=False)
        ended = self.source.wait_for_older_transactions(timeout_s=60, progress=NullProgress())
        seen = Losses(self.store).seen(*loss_scopes(self.capture, table))
        losses = times(seen, self.capture, table)
        offsets = self.kafka.stable_offsets(topic)
        now = datetime.now(timezone.utc)
        attempt = Attempt(
            id=attempt_id,
            started_at=now,
            path=f"{base}/attempt={attempt_id}",
            topic_id=self.kafka.topic_id(topic),
            start_offsets=offsets,
            handoff_offsets=offsets,
            marker_id=marker.id,
            x0=ended.by,
            reads_upto=str(marker.position),
            view=CopyView(
                snapshot="",
                upper_bound=str(marker.position),
                opened_at=now,
                on_replica=False,
                system_identifier=marker.system_identifier,
                timeline=marker.timeline,
            ),
            fingerprint=fingerprint,
            losses=losses,
        )
        settings = self.config.table_settings(table)
        described = self.source.table(table)
        schema = self.source.schema(described, settings)
        lake = LakeTable(self.spark, attempt.path, schema, settings)
        lake.empty_commit(
            CommitRecord(
                kind="handoff",
                table=table,
                attempt=str(attempt_id),
                start_offsets=offsets,
                offsets=offsets,
                topic=topic,
                topic_id=attempt.topic_id,
                handoff=Handoff.of_copy(attempt, lake.layout, shared=False, hash_key=None),
            ),
            lambda _timeline: None,
        )
        write_pointer(self.spark, base, Published(attempt.path, 1, str(attempt_id)))
        record = table_record(
            table=table,
            state=State.REGISTERED,
            base_path=base,
            topic=topic,
            updated_at=now,
        )
        record = transition(record, State.BOOTSTRAPPING, at=now, attempt=attempt)
        record = transition(record, State.CATCHING_UP, at=now)
        return self.store.put(transition(record, State.INCREMENTAL, at=now))

    def settle(self) -> None:
        """Wait until Kafka has all changes that are committed on the source now."""
        upto = self.source.write_marker().position
        deadline = time.monotonic() + CAPTURE_TIMEOUT_S
        seen: Lsn | None = None
        while time.monotonic() < deadline:
            slot = self.source.capture(self.capture).kept_log.health()
            seen = slot.confirmed_flush_lsn if slot is not None else None
            if seen is not None and seen >= upto:
                return
            time.sleep(0.05)
        raise AssertionError(f"captured up to {seen} only, not {upto}")

    def run(self, **changes: Any) -> list[RunResult]:
        self.settle()
        return run_tables(self.context(**changes), self.store.tables())

    def run_one(self, **changes: Any) -> RunResult:
        (result,) = self.run(**changes)
        return result

    def record(self, name: str) -> TableRecord:
        record = self.store.get(self.table(name))
        assert record is not None
        return record

    def lake(self, name: str, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        attempt = self.record(name).attempt
        assert attempt is not None
        frame = self.spark.read.format("hudi").load(attempt.path).where(where)
        shown = [f"`{column}`" for column in columns]
        return sorted((tuple(row) for row in frame.selectExpr(*shown).collect()), key=repr)

    def truth(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        listed = ", ".join(f'"{column}"' for column in columns)
        with self.database.connect() as connection:
            rows = connection.execute(f'SELECT {listed} FROM "{name}"'.encode()).fetchall()
        return sorted(rows, key=repr)

    def assert_equal(self, name: str, columns: Sequence[str]) -> None:
        truth = Counter(_hashable(row) for row in self.truth(name, *columns))
        lake = Counter(_hashable(row) for row in self.lake(name, *columns))
        missing, extra = list((truth - lake).items()), list((lake - truth).items())
        assert not missing, f"missing in the lake: {missing[:5]}"
        assert not extra, f"only in the lake: {extra[:5]}"


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    plain = (bytes(value) if isinstance(value, bytearray) else value for value in row)
    return tuple(tuple(value) if isinstance(value, list) else value for value in plain)
