"""Finds stray topics: topics that got a table's changes because the table's schema was renamed.

The name of a table's topic contains the name of the table's schema. If a connector starts after a
schema was renamed (ALTER SCHEMA ... RENAME), it sends the table's changes to a topic with the new
name. After the schema is renamed back, the connector still uses this topic, until it starts again
or the table is altered.

The catalog cannot show that a schema was renamed and then renamed back. The rename updates the
schema's catalog row, but a GRANT updates this row in the same way.
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
    """Return a mapping from each captured table to the topics that can be its stray topics.

    The name of a stray topic begins with the capture's prefix and ends with the table's name.

    Args:
        names: The capture.
        tables: The capture's tables.
        topics: The topics of the cluster.
        known: The proper topics of all tables. The result leaves them out.
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
    """Return each captured table's stray topics that got a record after the table's copy began.

    The records of the other stray topics are older, so the table's copy contains their changes.

    Args:
        strays: The stray topics of each table.
        sent: When each topic's newest record was sent, by the sender's clock.
        began: When the attempt to copy each table began.
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
