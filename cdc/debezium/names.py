"""The names of a capture: its publication, slot, connector and topics."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cdc.config.tables import is_append_tier
from cdc.errors import ConfigError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import SourceConfig
    from schemas.catalog import SourceKind

SCHEMA = "tributary"
HEARTBEAT_TABLE = "heartbeat"
HEARTBEAT_LOG_TABLE = "heartbeat_log"
"""The table of heartbeats for a publication without updates: each heartbeat is a new row."""
MARKER_TABLE = "marker"
OWN_TABLES = (HEARTBEAT_TABLE, HEARTBEAT_LOG_TABLE, MARKER_TABLE)

_IDENTIFIER_BYTES = 63
_TOPIC_CHARACTERS = 249
_TOPIC_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class PostgresObjects(NamedTuple):
    """The names of a capture's publication and replication slot on a PostgreSQL primary."""

    publication: str
    slot: str


@dataclass(frozen=True)
class CaptureNames:
    """The names of one capture. Each tier (group of tables) of a source has its own capture.

    Args:
        source: Key of the source in ``tributary.yaml``.
        tier: The capture's tier, with a suffix if the capture is for append tables (without key).
        publication: Publication on the primary, which selects the tables; None for MySQL and
            MariaDB, which have no publications.
        slot: Replication slot on the primary; None for MySQL and MariaDB, which have no slots.
        connector: Connector in Kafka Connect.
        topic_prefix: Prefix of the capture's topic names.
        kind: The kind of source.
    """

    source: str
    tier: str
    publication: str | None
    slot: str | None
    connector: str
    topic_prefix: str
    kind: SourceKind

    def topic(self, table: TableId) -> str:
        """Return the topic to which Debezium writes a table's changes."""
        return topic_for(self.topic_prefix, table.schema, table.name)

    @property
    def placeholder(self) -> str:
        """The string that Debezium sends in place of an unchanged TOAST value.

        Each capture has its own placeholder. The placeholder of another capture counts as an
        ordinary string, which a table can contain.
        """
        owner = self.slot or self.connector
        digest = hashlib.sha256(f"{self.topic_prefix}\0{owner}".encode()).hexdigest()
        return f"__tributary_unavailable_{digest[:32]}__"

    @property
    def on_primary(self) -> PostgresObjects:
        """The names of the publication and the slot on a PostgreSQL primary.

        Raises:
            TypeError: The source is not PostgreSQL.
        """
        if self.publication is None or self.slot is None:
            raise TypeError(f"a PostgreSQL source is needed, not {self.kind}")
        return PostgresObjects(self.publication, self.slot)

    @property
    def resource(self) -> str:
        """The name of the lease that a process holds while it changes this capture."""
        return f"the capture of {self.source}, tier {self.tier}"

    @property
    def append(self) -> bool:
        """Whether the capture's connector is for append tables, which have no key.

        On PostgreSQL, the publication of such a capture has only inserts and TRUNCATE.
        """
        return is_append_tier(self.tier)

    @property
    def heartbeat_table(self) -> str:
        """The table in schema ``tributary`` to which Debezium writes its heartbeats."""
        inserts_only = self.append and self.kind == "postgres"
        return HEARTBEAT_LOG_TABLE if inserts_only else HEARTBEAT_TABLE

    @property
    def heartbeat_topic(self) -> str:
        """The topic of Debezium's heartbeat rows. Each row names the server that wrote it."""
        return topic_for(self.topic_prefix, SCHEMA, self.heartbeat_table)

    @property
    def look_topic(self) -> str:
        """The topic of the heartbeats that Debezium itself sends when it has read from the log.

        These are not the heartbeat rows, which are in the `heartbeat_topic`.
        """
        return f"__debezium-heartbeat.{self.topic_prefix}"

    @property
    def transaction_topic(self) -> str:
        """The topic in which the connector of append tables reports the end of each transaction."""
        return f"{self.topic_prefix}.transaction"

    @property
    def schema_history_topic(self) -> str:
        """The topic of table definitions, which a binlog connector needs to start."""
        return f"{self.topic_prefix}.schema_history"

    @property
    def schema_change_topic(self) -> str:
        """The topic in which a binlog connector reports the DDL statements on tables."""
        return self.topic_prefix

    @property
    def reports_definitions(self) -> bool:
        """Whether the connector reports the DDL statements on tables in a topic."""
        return self.kind != "postgres"

    @property
    def reports_transactions(self) -> bool:
        """Whether the connector reports transactions in a topic, and numbers their events."""
        return self.append

    @property
    def own_topics(self) -> tuple[str, ...]:
        """The capture's topics of heartbeat rows, markers, definitions, DDL and transactions.

        A topic that the connector does not have is left out.
        """
        own: tuple[str, ...] = (self.heartbeat_topic, self.marker_topic)
        if self.reports_definitions:
            own = (*own, self.schema_change_topic, self.schema_history_topic)
        return (*own, self.transaction_topic) if self.reports_transactions else own

    @property
    def evidence_topics(self) -> tuple[str, ...]:
        """The `own_topics` without the topics of heartbeat rows and marker rows."""
        passing = (self.heartbeat_topic, self.marker_topic)
        return tuple(topic for topic in self.own_topics if topic not in passing)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the settings that a topic of the capture needs in addition to ``kafka.topic``.

        Two topics must retain their first records forever. Without the first records of the schema
        history, the connector does not start, since it does not know the columns of any table.
        Without the first records of the topic of DDL statements, a run cannot find out which tables
        the connector knows.
        """
        forever = {"retention.ms": "-1", "retention.bytes": "-1"}
        kept = (self.schema_history_topic, self.schema_change_topic)
        return forever if topic in kept else {}

    @property
    def marker_topic(self) -> str:
        """The topic to which Debezium writes the changes of the table of marker rows."""
        return topic_for(self.topic_prefix, SCHEMA, MARKER_TABLE)


def names(source_name: str, source: SourceConfig, tier: str = "default") -> CaptureNames:
    """Return the names of Debezium's capture of a source and tier, by the source's name templates.

    Raises:
        ConfigError: A name is too long for PostgreSQL, which would silently truncate it.
    """
    filled = {
        key: template.format(source=source_name, tier=tier)
        for key, template in source.name_templates().items()
    }
    connector = filled.get("connector") or filled["slot"]
    for key in ("publication", "slot"):
        if len(filled.get(key, "").encode()) > _IDENTIFIER_BYTES:
            raise ConfigError(
                f"sources.{source_name}.{key}: {filled[key]} is longer than"
                f" {_IDENTIFIER_BYTES} bytes",
                remedy="Shorten the name of the source or tier, or set a shorter template.",
                field=f"sources.{source_name}.{key}",
            )
    return CaptureNames(
        source=source_name,
        tier=tier,
        publication=filled.get("publication"),
        slot=filled.get("slot"),
        connector=connector,
        topic_prefix=filled["topic_prefix"],
        kind=source.kind,
    )


def topic_for(prefix: str, schema: str, table: str) -> str:
    """Return the topic to which Debezium writes a table's changes.

    The rules are Debezium's. The prefix, the schema or the table is left out if it is blank. Each
    UTF-16 unit of a character that Kafka does not allow becomes an underscore. A name of more than
    249 characters is truncated to 249 characters.
    """
    joined = ".".join(part for part in (prefix, schema, table) if part.strip())
    topic = "".join(
        character
        if character in _TOPIC_ALLOWED
        else "_" * (len(character.encode("utf-16-le")) // 2)
        for character in joined
    )
    return topic[:_TOPIC_CHARACTERS]


def topic_collisions(prefix: str, tables: Iterable[TableId]) -> dict[str, list[TableId]]:
    """Return each topic of Debezium that several tables would share, together with these tables.

    Kafka refuses a topic whose name differs from another topic's name only in dots and underscores.
    So two such topics count as one topic. The heartbeat and marker tables also count as tables.
    """
    taken: defaultdict[str, set[TableId]] = defaultdict(set)
    shown: dict[str, str] = {}
    candidates = set(tables)
    for source in {table.source for table in candidates}:
        candidates |= {TableId(source, SCHEMA, own) for own in OWN_TABLES}
    for table in sorted(candidates):
        topic = topic_for(prefix, table.schema, table.name)
        folded = topic.replace(".", "_")
        taken[folded].add(table)
        shown.setdefault(folded, topic)
    return {shown[key]: sorted(group) for key, group in taken.items() if len(group) > 1}
