"""Reads topics' UUIDs from Kafka's client library, which leaks the objects that hold them.

For each topic that it describes, confluent-kafka 2.16 makes an object with the topic's UUID, and
never gives back a reference of its own. So the object stays in memory for ever. A process that
describes thousands of topics in each round of runs would need gigabytes after a few days, and
Python's garbage collector would visit all these objects again and again.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import confluent_kafka as ck


class _Description:
    """A description of a topic that holds its UUID by one reference."""

    def __init__(self) -> None:
        self.topic_id = ck.Uuid(1, 2)


_OWN = _Description()
_PROVEN: dict[type, bool] = {}
"""By type of descriptions, whether the library leaks a reference to the UUID in each of them."""


def topic_uuid(description: Any) -> str:
    """Return the UUID in a topic's description, and drop the library's surplus reference to it.

    The reference is dropped only if the library provably leaks it.

    Args:
        description: A ``TopicDescription`` that no other thread uses.
    """
    text = str(description.topic_id)
    is_uuid = isinstance(description.topic_id, ck.Uuid)
    if is_uuid and _references(description) == _references(_OWN) + 1:
        kind = type(description)
        if kind not in _PROVEN:
            _PROVEN[kind] = _holders(description) == _holders(_OWN)
        if _PROVEN[kind]:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(description.topic_id))
    return text


def _references(description: Any) -> int:
    """Return the number of references to the UUID in a description, plus a constant."""
    uuid = description.topic_id
    return sys.getrefcount(uuid)


def _holders(description: Any) -> tuple[int, int]:
    """Return how many objects refer to the UUID in a description, and how often itself does.

    The first number is too high by a constant. This function visits all objects of the process, so
    it is called once for each type.
    """
    uuid = description.topic_id
    own = sum(value is uuid for value in getattr(description, "__dict__", {}).values())
    return len(gc.get_referrers(uuid)), own
