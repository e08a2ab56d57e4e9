"""Finds topics to which a connector sent a table's changes while its schema had another name.

If a connector starts while a schema has another name (ALTER SCHEMA ... RENAME), it sends a table's
changes to the topic of the table's name at that time. The connector goes on doing so after the
schema has got its first name back, until the connector starts again or the table is altered. The
catalog does not show that the schema had another name. The rename changes the schema's row in the
catalog, but so does a repeated GRANT.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cdc.debezium.names import topic_for

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from schemas.table import TableId

_CLOCKS_DIFFER = timedelta(minutes=5)


def stray_topics(
    names: CaptureNames,
    tables: Collection[TableId],
    topics: Iterable[str],
    known: Collection[str],
) -> dict[TableId, list[str]]:
    """Return, by table, unknown topics with the capture's prefix and the table's name.

    Args:
        names: The capture.
        tables: The capture's tables.
        topics: The topics of the cluster.
        known: The topics of all onboarded tables, of all tables that were onboarded before, and of
            all tables that exist.
    """
    begins = f"{names.topic_prefix}."
    others = [
        topic
        for topic in topics
        if topic.startswith(begins) and topic not in known and topic not in names.own_topics
    ]
    ends = {table: f".{topic_for('', '', table.name)}" for table in tables} if others else {}
    found = {table: [one for one in others if one.endswith(end)] for table, end in ends.items()}
    return {table: sorted(strays) for table, strays in found.items() if strays}


def written_since(
    strays: Mapping[TableId, Collection[str]],
    sent: Mapping[str, datetime],
    began: Mapping[TableId, datetime],
) -> dict[TableId, list[str]]:
    """Return the capture's stray topics with a record from after the start of a table's attempt.

    The other stray topics have only older changes, and the table's copy contains these.

    Args:
        strays: The stray topics of each table.
        sent: The send time of each topic's newest record, by the sender's clock.
        began: Start time of each table's attempt.
    """
    found = {
        table: [
            topic
            for topic in topics
            if topic in sent and sent[topic] > began[table] - _CLOCKS_DIFFER
        ]
        for table, topics in strays.items()
    }
    return {table: topics for table, topics in found.items() if topics}
