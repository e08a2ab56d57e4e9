"""Topics that a connector has made for tables that do not exist.

After ALTER SCHEMA ... RENAME, a connector that starts sends a table's changes to the topic of its
name of that time. It goes on with that even if the schema has its former name again, until it
starts once more or the table is altered. The catalog shows nothing of that: a repeated GRANT leaves
the same trace.
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
        tables: Its tables.
        topics: The topics of the cluster.
        known: The topics of all tables on the plan, or that were on it, and of all tables that
            exist.
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
    """Keep the stray topics with a record from after a table's attempt began.

    Others are left over from an earlier copy: what they have is in this one.

    Args:
        strays: The stray topics of each table.
        sent: The send time of each topic's newest record, by the sender's clock.
        began: When the attempt of each table began.
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
