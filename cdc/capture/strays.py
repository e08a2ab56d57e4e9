"""Finds topics that a connector has created for tables that do not exist.

If a connector starts while a schema is renamed (ALTER SCHEMA ... RENAME), it sends a table's
changes to the topic of the table's name at that time. It continues after the schema has its former
name again, until the next start or until the table is altered. The catalog does not show this: a
repeated GRANT changes the same catalog row.
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
    """Find topics with a table's name, under the capture's prefix, that no known table has.

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
    """Return the stray topics with a record from after the start of a table's attempt.

    The copy contains the changes in the other stray topics, which are older.

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
