"""Keeps Kafka's client library from leaking an object for each topic that it describes.

confluent-kafka 2.16 makes an object with the UUID of each topic that it describes, and never gives
back a reference of its own. So the object would stay in memory for ever. A process that describes
thousands of topics in each round of runs would need gigabytes after a few days, and Python's
garbage collector would visit all these objects again and again.
"""

from __future__ import annotations

import functools

import confluent_kafka as ck


def share_uuids() -> None:
    """Let the client library make only one object for each UUID; do nothing if this is done.

    The library looks its class up by name for each object that it makes. A function that remembers
    its results takes the place of the class, so that the library leaks references, but no objects.
    The objects cannot be changed.
    """
    if isinstance(ck.Uuid, type):
        ck.Uuid = functools.cache(ck.Uuid)  # type: ignore[assignment, misc]
