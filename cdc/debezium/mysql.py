"""Debezium's connectors for MySQL and MariaDB: their settings, heartbeats and stored positions.

The settings were checked with Debezium 3.6.1 on MySQL 9.7, and with Debezium 3.5.0 on MariaDB
10.11.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cdc.config import MysqlSourceConfig
from cdc.debezium.include_list import OWN, entry, include_list, listed
from cdc.debezium.kind import (
    COMMON_FORBIDDEN,
    COMMON_HARMLESS,
    COMMON_REASONS,
    COMMON_SETTINGS,
    FOLLOWED_SETTINGS,
    LARGEST_REQUEST,
    NOT_SET,
    AuditRules,
    Beat,
    SettingFinding,
)
from cdc.debezium.names import SCHEMA
from cdc.errors import ConfigError
from cdc.log.binlog_position import BinlogPosition, StoredPosition
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, MysqlEndpoint, SourceConfig
    from cdc.debezium.names import CaptureNames
    from cdc.log.position import LogPosition

INCLUDE_LIST = "table.include.list"
SERVER_ID = "database.server.id"
"""The setting with the number that identifies a reader of the binlog to the primary.

If another client begins to read the binlog with this number, the primary disconnects the reader.
"""
_HISTORY = "schema.history.internal"

_CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}

_SETTINGS: Mapping[str, str] = {
    **COMMON_SETTINGS,
    # By default, the connector locks the whole primary while it reads all tables' definitions.
    "snapshot.locking.mode": "none",
    # The connector then refuses a row that has fewer values than the connector knows columns, and
    # no other row. The runs compare the whole definition (`cdc.capture.known_definition`).
    "inconsistent.schema.handling.mode": "fail",
    # The schema history must have every table. A table that is added later needs its definition.
    f"{_HISTORY}.store.only.captured.tables.ddl": "false",
    f"{_HISTORY}.store.only.captured.databases.ddl": "false",
    f"{_HISTORY}.skip.unparseable.ddl": "false",
    # The connector reports DDL statements in the topic whose name is the prefix.
    "include.schema.changes": "true",
    "time.precision.mode": "adaptive_time_microseconds",
    "bigint.unsigned.handling.mode": "long",
    # A year below 100 stays as it is; the adjuster would make it one of 1970 to 2069.
    "enable.time.adjuster": "false",
    "topic.naming.strategy": "io.debezium.schema.DefaultTopicNamingStrategy",
    # With keep-alive, a thread of the connector opens a lost connection again, and requests the
    # binlog after the GTIDs that the connector's client has read. The client can count a running
    # transaction as read, once it has read a statement such as XA START, or MariaDB's SAVEPOINT.
    # Then the server leaves out the rest of the transaction, and no error shows the loss. Otherwise
    # the client reads the transaction again, and the stored position has its GTID too early.
    # Without keep-alive, a connector whose connection was lost fails, or it stays RUNNING and reads
    # nothing, until a run restarts the connector.
    "connect.keep.alive": "false",
}

_RULES = AuditRules(
    reasons={
        **COMMON_REASONS,
        "connect.keep.alive": "a connection that is opened again inside a transaction can leave out"
        " its other rows",
        "snapshot.locking.mode": "the connector would lock the primary when it starts",
        "inconsistent.schema.handling.mode": "changes of unknown tables would be left out",
        f"{_HISTORY}.store.only.captured.tables.ddl": "no table could be added later",
        f"{_HISTORY}.store.only.captured.databases.ddl": "no table could be added later",
        f"{_HISTORY}.skip.unparseable.ddl": "rows would be read by an outdated definition",
        f"{_HISTORY}.kafka.topic": "definitions would be those of another connector",
        "include.schema.changes": "a changed definition could not be traced to its statement",
        "bigint.unsigned.handling.mode": "large numbers would be read in the wrong form",
        "enable.time.adjuster": "years below 100 would become 1970 to 2069",
    },
    forbidden=(
        *COMMON_FORBIDDEN,
        (r"table\.exclude\.list", "the include list is the only filter"),
        (r"(?:schema|database)\.(?:include|exclude)\.list", "the include list is the only filter"),
        (r"message\.key\.columns", "keys come from the table's primary key"),
        (r"snapshot\.(?!mode$|locking\.mode$).*", "the connector must take no snapshot"),
        (
            r"gtid\.(?:source\..*|ignore\.on\.recovery|new\.channel\.position)",
            "transactions could be left out, or be missing without an error",
        ),
        (
            r"event\.deserialization\.failure\.handling\.mode",
            "replaced by another setting; may contradict it",
        ),
        # A buffer would keep back the changes that MariaDB logs and then rolls back. But if a
        # transaction is larger than the buffer, only its first events arrive.
        (r"binlog\.buffer\.size", "rows of transactions that exceed it would be lost"),
        (
            rf"{re.escape(_HISTORY)}(?:\.ddl\.filter|\.producer\.acks)?",
            "the history of definitions could lack some",
        ),
        (
            r"database\.initial\.statements|driver\.sessionVariables",
            "they change the sessions that read definitions and write heartbeats",
        ),
        (
            r"ddl\.parser\.type|resolve\.create\.table\.like\.schema"
            rf"|{re.escape(_HISTORY)}\.prefer\.ddl",
            "definitions would be derived by a parser that was not tried",
        ),
    ),
    harmless={
        **COMMON_HARMLESS,
        "binlog.buffer.size": frozenset({"0"}),
        "ddl.parser.type": frozenset({"default"}),
        "resolve.create.table.like.schema": frozenset({"false"}),
        f"{_HISTORY}.prefer.ddl": frozenset({"false"}),
        "gtid.ignore.on.recovery": frozenset({"false"}),
        "event.deserialization.failure.handling.mode": frozenset({"fail"}),
        _HISTORY: frozenset({"io.debezium.storage.kafka.history.KafkaSchemaHistory"}),
        f"{_HISTORY}.producer.acks": frozenset({"all", "-1"}),
    },
)

_TLS = {
    "mysql": {
        mode: mode for mode in ("disabled", "preferred", "required", "verify_ca", "verify_identity")
    },
    # MariaDB's connector has no mode that uses TLS only if the server offers it.
    "mariadb": {
        "disabled": "disable",
        "preferred": "disable",
        "required": "trust",
        "verify_ca": "verify-ca",
        "verify_identity": "verify-full",
    },
}
_KEEP_ALIVE_MS = 10_000
_LOST_AFTER = 6
"""Number of keep-alive intervals without a record after which a connection counts as lost.

An idle server sends a message in each interval. The time must be longer than 50 s: by the server's
default, a lock on the heartbeat's row can keep the connector waiting for that long.
"""
_SERVER_IDS = (10**9, 2**32 - 1)
# A server's identity, for people; no run compares it. MariaDB has no id that a server keeps when
# it moves.
_IDENTITY = {"mysql": "@@server_uuid", "mariadb": "CONCAT(@@hostname, ':', @@port)"}


@dataclass(frozen=True)
class Mysql:
    """The connector of MySQL or MariaDB. An include list selects its tables.

    Connect stores the connector's position in the binlog. The server does not retain binlogs for
    the connector.

    Args:
        kind: The kind of server, MySQL or MariaDB.
    """

    kind: Literal["mysql", "mariadb"]

    @property
    def connector_class(self) -> str:
        """The Java class of Debezium's connector of MySQL or MariaDB."""
        return _CLASSES[self.kind]

    @property
    def settings_changed_while_running(self) -> tuple[str, ...]:
        """The names of the settings that onboarding may change on a connector in use."""
        return (*FOLLOWED_SETTINGS, INCLUDE_LIST)

    @property
    def rules(self) -> AuditRules:
        """The rules by which `audit` judges Debezium's connector of MySQL or MariaDB."""
        return _RULES

    def settings(self, capture: CaptureNames) -> dict[str, str]:
        """Return the settings that Tributary requires of a MySQL or MariaDB connector."""
        return {
            **_SETTINGS,
            "connector.class": self.connector_class,
            "topic.prefix": capture.topic_prefix,
            "provide.transaction.metadata": str(capture.reports_transactions).lower(),
            f"{_HISTORY}.kafka.topic": capture.schema_history_topic,
        }

    def connection(
        self, source_name: str, source: SourceConfig, connect: ConnectConfig
    ) -> dict[str, str]:
        """Return the settings by which Debezium reaches MySQL or MariaDB."""
        if not isinstance(source, MysqlSourceConfig):
            raise TypeError(f"a {self.kind} source is needed, not {source.kind}")
        endpoint = source.endpoint_for_connect or source.primary
        _refuse_unusable_certificate(source_name, endpoint, connect)
        login = source.credentials.capture
        settings = {
            "database.hostname": endpoint.host,
            "database.port": str(endpoint.port),
            "database.user": login.user,
            "database.ssl.mode": _TLS[self.kind][endpoint.ssl_mode],
        }
        if login.password is not None:
            settings["database.password"] = login.password.connect_reference()
        if self.kind == "mysql" and endpoint.ssl_mode == "disabled":
            # Without TLS the driver encrypts the password with the server's key, and must fetch it.
            settings["driver.allowPublicKeyRetrieval"] = "true"
        return settings

    def more(
        self,
        capture: CaptureNames,
        source: SourceConfig,
        kafka: KafkaConfig,
        tables: Collection[TableId],
    ) -> dict[str, str]:
        """Return Debezium's settings that only a connector of MySQL or MariaDB needs.

        These are the include list, the keep-alive interval, the server id and the schema history.

        The keep-alive interval is a compromise. The connector writes a heartbeat row only when the
        server sends something, and an idle server sends a message only after 0.8 of the interval.
        With the default interval of a minute, each wait for a heartbeat could take almost a minute.
        With a very short interval, a connector could count as disconnected (`lost_after_s`) while
        it waits for a lock on the heartbeat's row.
        """
        largest = kafka.topic.max_message_bytes or LARGEST_REQUEST
        settings = {
            **self.include_settings(tables),
            "connect.keep.alive.interval.ms": str(_keep_alive_ms(source.heartbeat_interval_ms)),
            SERVER_ID: str(server_id(capture.connector)),
            f"{_HISTORY}.kafka.bootstrap.servers": kafka.bootstrap_servers,
            f"{_HISTORY}.producer.max.request.size": str(largest),
            f"{_HISTORY}.producer.buffer.memory": str(2 * largest),
        }
        # The history has its own Kafka clients, which do not use the worker's settings.
        for client in ("producer", "consumer"):
            for key, value in kafka.security.for_connect().items():
                settings[f"{_HISTORY}.{client}.{key}"] = value
        return settings

    def include_settings(self, tables: Collection[TableId]) -> dict[str, str]:
        """Return the setting with the include list of the tables."""
        return {INCLUDE_LIST: include_list(tables)}

    def heartbeat_sql(self, capture: CaptureNames) -> str:
        """Return the SQL statement that the connector runs for each heartbeat.

        The row names the server, so the stream shows between which changes the source switched to
        another server. The row also has the number of heartbeats so far. A missing number shows
        that a change was lost, but no run compares these numbers.
        """
        server = _IDENTITY[self.kind]
        table = f"{SCHEMA}.{capture.heartbeat_table}"
        return (
            f"INSERT INTO {table} (source, server, beat_at, beats)"  # noqa: S608 - fixed names
            f" VALUES ('{capture.connector}', {server}, NOW(6), 1) ON DUPLICATE KEY UPDATE"
            f" server = {server}, beat_at = NOW(6), beats = beats + 1"
        )

    def beat(self, row: Mapping[str, Any]) -> Beat:
        """Return the server's identity and the number of heartbeats, from a heartbeat row."""
        return Beat(str(row["server"]), None, int(row["beats"]))

    def silence_remedy(self, capture: CaptureNames) -> str:
        """Return the remedy for a silent connector of MySQL or MariaDB."""
        return (
            "Check that the capture role may insert into and update tributary.heartbeat (`tributary"
            " onboard` for a table of the source grants that), that no other client of the primary"
            f" has the {SERVER_ID} of connector {capture.connector}, and the log of the Connect"
            " worker: a connector that is far behind reads the binlog up to now first."
            " Restart the connector if it was paused while the server restarted."
        )

    def lost_after_s(self, interval_ms: int) -> float:
        """Return how many seconds a connector may send nothing before it counts as disconnected."""
        return _LOST_AFTER * _keep_alive_ms(interval_ms) / 1000

    def stored_position(self, offset: Mapping[str, Any]) -> LogPosition | None:
        """Return the stored position, up to which Kafka has every change; None if none is stored.

        For MariaDB, the result is a set of GTIDs. For MySQL, it has GTIDs, a file and offset of the
        binlog, or both, as Connect has stored them. The result never includes a transaction that is
        only partly in Kafka.

        For MySQL, the stored file and offset mean this:

        - After a row or a heartbeat inside a transaction, Debezium stores the beginning of the
          transaction's BEGIN, and the number of events and rows to skip. After the commit, it
          stores the end of the commit (BinlogOffsetContext: startNextTransaction,
          commitTransaction). So everything before the stored offset is in Kafka.
        - An event outside of a transaction can have several records: a RENAME TABLE of two tables
          has two. Debezium stores the event's end already with the first of these records. So the
          returned offset is one byte before the stored one. The returned offset is after the
          event's end only when Debezium has stored the offset of a later event.
        """
        gtids = offset.get("gtids")
        if self.kind == "mariadb":
            return None if gtids is None else MariadbGtidSet.parse(str(gtids))
        file, at = offset.get("file"), offset.get("pos")
        place = BinlogPosition(str(file), int(at)).moved(-1) if file and at is not None else None
        if gtids is None and place is None:
            return None
        return StoredPosition(None if gtids is None else MysqlGtidSet.parse(str(gtids)), place)

    def captured_tables(
        self, effective: Mapping[str, str], source_name: str
    ) -> list[TableId] | None:
        """Return the tables in Debezium's include list, without Tributary's own tables."""
        names = listed(effective.get(INCLUDE_LIST, "")) - set(OWN)
        return sorted(TableId(source_name, *name) for name in names)

    def missing_tables(self, effective: Mapping[str, str]) -> Iterator[SettingFinding]:
        """Yield a finding for each of Tributary's own tables that the include list lacks."""
        found = effective.get(INCLUDE_LIST, NOT_SET)
        for name in OWN:
            if name not in listed(found):
                reason = f"changes of {'.'.join(name)} would not be captured"
                yield SettingFinding(INCLUDE_LIST, found, f"a list with {entry(*name)}", reason)


def _keep_alive_ms(heartbeat_interval_ms: int) -> int:
    """Return Debezium's keep-alive interval for MySQL or MariaDB, in milliseconds.

    An idle server sends a message after 0.8 of this interval. The interval is so long that these
    messages are at least one heartbeat interval apart.
    """
    return max(_KEEP_ALIVE_MS, heartbeat_interval_ms * 5 // 4)


def server_id(connector: str, cluster: str = "") -> int:
    """Return the ``server_id`` with which Debezium registers at the primary, as a replica does.

    The id is a hash, so two connectors practically never have the same id. It is far above the ids
    that people assign to servers.

    Args:
        connector: The connector's name.
        cluster: The id of the Kafka cluster. Two installations can have connectors of the same
            name. These connectors have different ids if the Kafka clusters differ.
    """
    low, high = _SERVER_IDS
    hashed = f"{connector}\0{cluster}" if cluster else connector
    digest = hashlib.sha256(hashed.encode()).digest()
    return low + int.from_bytes(digest[:8], "big") % (high - low + 1)


def _refuse_unusable_certificate(
    source_name: str, endpoint: MysqlEndpoint, connect: ConnectConfig
) -> None:
    """Refuse a certificate in PEM, since Debezium reads certificates only from Java key stores."""
    if endpoint.ssl_cert is None or "database.ssl.keystore" in connect.connector:
        return
    raise ConfigError(
        f"sources.{source_name}: Kafka Connect cannot log in with the certificate"
        f" {endpoint.ssl_cert}, since Debezium's connector reads no PEM files",
        remedy="Put it into a PKCS#12 file on the worker (openssl pkcs12 -export), and name that in"
        " connect.connector as database.ssl.keystore, its password in connect.secrets as"
        " database.ssl.keystore.password. Or give endpoint_for_connect without ssl_cert.",
        field=f"sources.{source_name}.ssl_cert",
    )
