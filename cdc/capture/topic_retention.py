"""Finds topics with a setting that lets them delete changes before runs have read the changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.capture.captured_tables import captures_of, listed
from cdc.capture.watch import UNREAD
from cdc.kafka import Expiry, expiries

if TYPE_CHECKING:
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord


@dataclass(frozen=True)
class Expiring:
    """Captured topics that can delete unread changes, all because of the same setting.

    Args:
        expiry: The setting and its effect.
        topics: The topics, in order.
    """

    expiry: Expiry
    topics: tuple[str, ...]

    @property
    def message(self) -> str:
        """The message for an operator: the topics, and the effect of the setting on them."""
        return f"{self._named}: {self.expiry.what}"

    @property
    def remedy(self) -> str:
        """What a person must do so that the captured topics keep unread changes."""
        return self.expiry.remedy(self._named)

    def to_json(self) -> dict[str, Any]:
        """Return the message, the remedy and the topics as values for JSON."""
        topics = list(self.topics)
        return {"message": self.message, "remedy": self.remedy, "topics": topics}

    @property
    def _named(self) -> str:
        return f"{'topic' if len(self.topics) == 1 else 'topics'} {listed(self.topics)}"


def expiring(context: RunContext, records: Iterable[TableRecord]) -> list[Expiring]:
    """Return the captured topics that can delete changes before a run reads them.

    The topics are grouped by the setting that lets them delete unread changes.

    Args:
        context: The runs' context.
        records: The tables. They include paused tables, whose topics must retain changes the
            longest. The topics of the tables' captures are checked, too.

    Raises:
        KafkaError: The cluster does not answer.
    """
    wanted: dict[str, int] = {}
    retention_ms = context.config.kafka.topic.retention_ms
    read = (record for record in records if record.state not in UNREAD)
    for one in captures_of(context.config, read):
        wanted |= dict.fromkeys(one.topics, retention_ms)
        for topic in one.names.evidence_topics:
            own = one.names.topic_config(topic)
            wanted[topic] = int(own.get("retention.ms", retention_ms))
    known = dict(context.topic_settings)
    context.topic_settings.clear()
    # A topic that cannot be read is reported by the run of its table.
    known |= context.kafka.topic_configs_each(wanted.keys() - known.keys())[0]
    found: defaultdict[Expiry, list[str]] = defaultdict(list)
    for topic in sorted(wanted.keys() & known.keys()):
        for expiry in expiries(known[topic], wanted[topic]):
            found[expiry].append(topic)
    return [Expiring(expiry, tuple(topics)) for expiry, topics in found.items()]
