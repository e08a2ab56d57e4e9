"""A database of MySQL or MariaDB whose changes a real connector writes to Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from cdc.config import MysqlSourceConfig, parse
from cdc.debezium import (
    DefinitionChange,
    Heartbeat,
    captured_tables,
    definition_changes,
    latest_heartbeat,
    stored_position,
    wait_for_heartbeat,
)
from cdc.log.binlog_position import StoredPosition
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from cdc.sources.mysql.source import MysqlSource
from schemas.table import TableId
from stack.mysql_software import MYSQL
from stack.ports import HOST
from stack.roles import CAPTURE
from tests.integration.rigs.captured import WAIT_S, CapturedSource, wait_until
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.servers import connect_rest

GtidSet = MysqlGtidSet | MariadbGtidSet

_OWN_TABLES = (
    "CREATE DATABASE IF NOT EXISTS tributary",
    "CREATE TABLE IF NOT EXISTS tributary.heartbeat (source varchar(128) PRIMARY KEY,"
    " server varchar(64) NOT NULL, beat_at timestamp(6) NOT NULL, beats bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tributary.marker (id char(36) PRIMARY KEY)",
    f"GRANT SELECT, INSERT, UPDATE ON tributary.heartbeat TO {CAPTURE}@'{HOST}'",
    f"GRANT SELECT ON tributary.marker TO {CAPTURE}@'{HOST}'",
)


class MysqlCaptured(CapturedSource):
    """One test's capture: connector and topics of its database."""

    def __init__(self, database: MysqlDatabase) -> None:
        document = yaml.safe_load(database.stack.config_text(kinds=[database.kind]))
        (source,) = document["sources"].values()
        document["sources"] = {database.name: {**source, "databases": [database.name]}}
        super().__init__(parse(yaml.safe_dump(document)), database.name)
        self.database = database

    def close(self) -> None:
        self.connect.delete(self.names.connector)
        super().close()

    def start(self, *tables: str) -> None:
        """Bring up the capture of some tables, and wait until it reads the binlog."""
        self.database.root(*_OWN_TABLES)
        for topic in self.names.own_topics:
            self.kafka.ensure_topic(topic, config=self.names.topic_config(topic))
        self.configure(*tables)
        self.wait_for_beat()

    def wait_for_beat(self) -> None:
        after = max(self.kafka.stable_offsets(self.names.heartbeat_topic).values())
        wait_for_heartbeat(self.kafka, self.names, after=after, timeout_s=WAIT_S)

    def configure(self, *tables: str) -> None:
        """Give the connector these tables, and wait until it runs with them."""
        for table in tables:
            self.kafka.ensure_topic(self.topic(table))
        listed = [self.table(table) for table in tables]
        self.connect.put_connector(self.names.connector, self.settings(listed))
        self.connect.wait_running(self.names.connector, timeout_s=WAIT_S)

    def source(self) -> MysqlSource:
        section = self.config.sources[self.name]
        assert isinstance(section, MysqlSourceConfig)
        return MysqlSource(self.name, section)

    def table(self, name: str) -> TableId:
        return TableId(self.name, self.database.name, name)

    def topic(self, name: str) -> str:
        return self.names.topic(self.table(name))

    def listed(self) -> list[TableId] | None:
        effective = self.connect.connector(self.names.connector)
        assert effective is not None
        return captured_tables(effective, self.names)

    def mark(self) -> GtidSet:
        """Write a marker; returns the primary's GTID set after it."""
        self.database.root(f"INSERT INTO tributary.marker (id) VALUES ('{uuid.uuid4()}')")
        return self.position()

    def position(self) -> GtidSet:
        kind = MysqlGtidSet if self.database.kind == MYSQL else MariadbGtidSet
        return kind.parse(self.database.position())

    def stored(self) -> GtidSet | None:
        """The position that Connect has stored for the connector, or None."""
        found = stored_position(self.connect, self.names)
        if isinstance(found, StoredPosition):
            assert found.gtids is not None
            return found.gtids
        assert found is None or isinstance(found, MariadbGtidSet)
        return found

    def wait_until_captured(self, position: GtidSet) -> None:
        """Wait until Connect has stored this position.

        Markers are written meanwhile, since Connect stores a transaction as complete only with
        the first record of a later transaction.
        """

        def reached() -> bool:
            self.mark()
            stored = self.stored()
            return stored is not None and stored.reaches(position)  # type: ignore[arg-type]

        wait_until(reached, f"{position} is stored", WAIT_S, self.describe)

    def changes(self, start: int | None = None) -> list[DefinitionChange]:
        """The changes of table definitions in the connector's topic of such changes."""
        return list(definition_changes(self.kafka, self.registry, self.names, start))

    def latest_beat(self) -> Heartbeat:
        found = latest_heartbeat(self.kafka, self.registry, self.names)
        assert found is not None
        return found

    def forget_offsets(self) -> None:
        """Delete the offsets that Connect has stored for the connector, which must be stopped."""
        with connect_rest(self.database.stack) as connect:
            connect.delete(f"/connectors/{self.names.connector}/offsets").raise_for_status()

    def failure(self) -> str:
        """Wait until the connector has failed; returns the reason."""
        found = ""

        def failed() -> bool:
            nonlocal found
            status = self.connect.status(self.names.connector)
            found = (status and status.failure) or ""
            return bool(found)

        wait_until(failed, "the connector fails", WAIT_S, self.describe)
        return found


@contextmanager
def mysql_capturing(database: MysqlDatabase, *tables: str) -> Iterator[MysqlCaptured]:
    """A started capture, which is removed after the block."""
    captured = MysqlCaptured(database)
    try:
        captured.start(*tables)
        yield captured
    finally:
        captured.close()
