"""Finds out whether connectors of two installations write to the topics of one capture.

Two installations whose captures have the same names can share Kafka without sharing Connect or a
database. Each installation would apply the rows of both databases to its lake tables. Only the
heartbeats show the other installation, since each heartbeat names a database server.

One heartbeat of another server does not prove another installation. After a failover, or after a
change of the source's address, the topic still has the former server's heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames, Heartbeat

_MIXED = "another installation writes the changes of another database to the topics of this capture"


def other_server(
    names: CaptureNames,
    beats: Sequence[Heartbeat],
    here: str | None,
    copied_from: Callable[[], Collection[str]],
) -> str | None:
    """Return how a capture's heartbeats show another installation; None if they do not show one.

    Either of these two facts shows another installation:

    - Two tasks send heartbeats in turns, and their heartbeats name different servers. A task has a
      new name at each start, so a former connector cannot send between two heartbeats of one task.
    - The newest heartbeat names a server that is not the present primary, and from which no table
      of the capture was copied. This is judged for PostgreSQL only, because only PostgreSQL's
      heartbeats name a server by the identity that the server reports.

    Args:
        names: The capture.
        beats: Heartbeats in the order of their topic.
        here: The identity of the primary that answers now; None if it is not known.
        copied_from: Returns the servers from which the capture's tables were copied.
    """
    topic = names.heartbeat_topic
    if (servers := _servers_in_turns(beats)) is not None:
        which = f" (source {names.source} is server {here})" if here in servers else ""
        first, second = servers
        what = f"topic {topic} has heartbeats of servers {first} and {second} in turns{which}"
        return f"{what}: {_MIXED}"
    newest = beats[-1].system_identifier if beats else None
    if names.kind != "postgres" or newest is None or here is None or newest == here:
        return None
    known = copied_from()
    if not known or newest in known:
        return None
    return (
        f"the newest heartbeat in topic {topic} is of server {newest}, but source {names.source} is"
        f" server {here}, and no table was copied from {newest}: {_MIXED}"
    )


def _servers_in_turns(beats: Sequence[Heartbeat]) -> tuple[str, str] | None:
    """Return two servers whose heartbeats come to a capture in turns; None if there are none.

    A heartbeat of the second server is between two heartbeats of the first server. One task has
    sent the two outer heartbeats, and another task has sent the heartbeat between them.
    """
    for before, between, after in combinations(beats, 3):
        if between.task is None or before.task is None or before.task != after.task:
            continue
        servers = (before.system_identifier, between.system_identifier)
        if between.task != before.task and servers[0] == after.system_identifier != servers[1]:
            return servers
    return None
