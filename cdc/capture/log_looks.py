"""Compares the end of a source's log with the end that the last look has recorded.

A look is one such comparison for a capture. Each look also records the present end of the log, as
the look's mark. On PostgreSQL, the mark gives the end as the numbers of transactions and bytes that
the capture's slot has decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.debezium.sent_transactions import sent_since
from cdc.store.log_marks import LogMarks
from cdc.store.loss_counts import Losses

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.log.continuity import Continuity
    from cdc.sources.base import Source, SourceCapture
    from cdc.store.state_store import Store
    from schemas.registry import SchemaRegistry


class LogLooks:
    """Compares the ends of captures' logs with the marks (recorded ends) of earlier looks.

    All processes that use the same state store share the marks.

    Args:
        store: The state store.
        kafka: Opens Kafka, which shows what connectors have sent.
        registry: Opens the registry, which has the writers' schemas.
    """

    def __init__(
        self,
        store: Store,
        kafka: Callable[[], KafkaAdmin],
        registry: Callable[[], SchemaRegistry],
    ) -> None:
        self._store = store
        self._marks = LogMarks(store)
        self._kafka = kafka
        self._registry = registry

    def compare(self, names: CaptureNames, capture: SourceCapture) -> Continuity | None:
        """Compare the end of a source's log with the mark (the end) that the last look stored.

        The result is None if the log cannot be compared.

        Raises:
            TributaryError: The source, Kafka or the registry does not answer, or the state store
                cannot be used.
        """
        earlier = self._marks.of(names.resource)
        return capture.continuity(
            earlier, lambda file: sent_since(self._kafka(), self._registry(), names, file)
        )

    def is_newest(self, names: CaptureNames, found: Continuity) -> bool:
        """Whether the mark with which a log was compared is still the stored mark.

        If another process has replaced or removed the mark meanwhile, a loss that the comparison
        shows must not be counted: either that process has counted the loss, or nothing was lost. A
        second count would discard the copies that began after the first count.

        Raises:
            StateError: The state store cannot be used.
        """
        return self._marks.of(names.resource) == found.earlier

    def leave(self, names: CaptureNames, found: Continuity) -> None:
        """Store the log's end, which a look has found, as the mark for the capture's next look.

        If the look has found a loss, the caller must count the loss before this call. The next look
        begins at this mark, so the next look does not see the loss.

        Raises:
            StateError: The state store cannot be used.
        """
        self._marks.move(names.resource, found.earlier, found.mark)

    def follow(self, names: CaptureNames, source: Source) -> None:
        """Compare the end of a source's log with the last look's mark, and store the new mark.

        If the comparison shows a loss, the loss is counted in the state store.

        Raises:
            TributaryError: As for `compare`.
        """
        capture = source.capture(names)
        found = self.compare(names, capture)
        if found is not None and not self.is_newest(names, found):
            found = self.compare(names, capture)
        if found is None:
            return
        if found.lost is not None:
            Losses(self._store).note(names.resource, f"{capture.log_health().title} {found.lost}")
        self.leave(names, found)
