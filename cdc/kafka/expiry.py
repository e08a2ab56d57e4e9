"""Finds the settings by which a topic deletes changes before runs have read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Expiry:
    """A setting by which a topic can delete changes before a run has read them.

    Args:
        setting: The setting's name.
        needed: The value with which the topic retains the changes for long enough.
        what: The effect of the setting's present value, in words.
    """

    setting: str
    needed: str
    what: str

    def remedy(self, topics: str) -> str:
        """Return the remedy: what to set on which topics.

        Args:
            topics: The topics in words, for example ``topic t``.
        """
        return f"Set {self.setting}={self.needed} on {topics}."


def kept_for(settings: Mapping[str, str]) -> str:
    """Return for how long a Kafka topic's settings keep records, in words such as ``for 24.0 h``.

    Args:
        settings: The topic's effective settings.
    """
    kept = _kafka_retention_ms(settings)
    return "for ever" if kept < 0 else f"for {kept / _HOUR_MS:.1f} h"


def expiries(settings: Mapping[str, str], wanted_ms: int) -> Iterator[Expiry]:
    """Yield the settings by which a Kafka topic deletes records too early.

    Args:
        settings: The topic's effective settings.
        wanted_ms: For how long the topic must retain records, in milliseconds; less than 0 means
            forever.
    """
    kept = _kafka_retention_ms(settings)
    if kept >= 0 and (wanted_ms < 0 or kept < wanted_ms):
        bound = "less than kafka.topic.retention_ms" if wanted_ms >= 0 else "and must not expire"
        what = f"changes are kept {kept_for(settings)}, {bound}"
        yield Expiry("retention.ms", str(max(wanted_ms, -1)), what)
    size = int(settings.get("retention.bytes", "-1"))
    if size >= 0:
        what = f"{size} bytes are kept, and older changes are dropped whether they were read or not"
        yield Expiry("retention.bytes", "-1", what)


def _kafka_retention_ms(settings: Mapping[str, str]) -> int:
    """Return for how long a Kafka topic retains records, in milliseconds; -1 means forever."""
    return int(settings.get("retention.ms", "-1"))
