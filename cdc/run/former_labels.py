"""Finds events of PostgreSQL with an enum label that has been renamed since.

An event has the name that its label had when the event's transaction committed. ALTER TYPE ...
RENAME VALUE changes what all rows show, and sends no event. Two reads of the catalog show a rename
between them only if the label already existed at the first read. If a label is added and renamed
between two reads, the reads do not show its former name. So a batch is refused if it has a value
that is no label of its column at the newest read of the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import SchemaChangeError
from cdc.rows.columns import OFFSET, PROBLEM
from cdc.rows.masking import hashed_texts
from cdc.rows.semantic_types import quoted
from schemas.catalog import LABEL, CatalogColumn, not_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import LakeConfig
    from cdc.lake.handoff import Handoff
    from schemas.table import TableSchema


@dataclass(frozen=True)
class FormerLabels:
    """A table's enum columns whose values in events can be labels that were renamed since.

    Args:
        labels: The present labels of each such column.
    """

    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, handoff: Handoff) -> FormerLabels:
        """Return the enum columns whose values in events can be labels that were renamed since.

        A column is left out if no label of its type was added or renamed since transaction
        x0 of the handoff: all events from the copy's start offsets O on have the present names.

        Args:
            handoff: The handoff document of the lake's newest commit.
        """
        if handoff.fingerprint.facts["source_kind"] != "postgres":
            return cls()
        events = {one.name for one in handoff.columns if not (one.dropped or one.read_by_key)}
        return cls(
            {
                one.name: frozenset(_present_labels(one))
                for one in handoff.catalog.columns.values()
                if one.name in events and _labels_written_since(one, handoff.x0)
            }
        )

    def require_present(self, changes: DataFrame, schema: TableSchema, lake: LakeConfig) -> None:
        """Refuse a batch if an event's value of an enum column is no present label of the column.

        Args:
            changes: The batch in the normal form of `cdc.rows.decode`. Its values are already
                hashed and masked as the settings require.
            schema: The lake's columns.
            lake: The settings with the secret key that hashes values.

        Raises:
            SchemaChangeError: There is such an event. The error names its offset and the column.
            SecretError: The secret key cannot be read.
        """
        shown = {
            column.name: hashed_texts(labels, lake) if column.hide == "hash" else labels
            for column in schema.columns
            if column.hide != "mask" and (labels := self.labels.get(column.name)) is not None
        }
        if not shown:
            return
        first = [
            F.min(
                F.when(
                    F.col(PROBLEM).isNull() & ~F.col(quoted(name)).isin(*sorted(labels)),
                    F.struct(OFFSET, F.col(quoted(name)).alias("value")),
                )
            ).alias(str(place))
            for place, (name, labels) in enumerate(shown.items())
        ]
        found = changes.agg(*first).first()
        for name, event in zip(shown, found or (), strict=True):
            if event is None:
                continue
            value = "a value" if schema.column(name).hide else repr(event["value"])
            raise SchemaChangeError(
                f"an event of table {schema.table} (offset {event[OFFSET]}) has {value} in column"
                f" {name!r}, which is not a label of the column's type now: the label was renamed"
                " (ALTER TYPE ... RENAME VALUE) after the event, which sent no event",
                remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                table=schema.table,
                offset=event[OFFSET],
                field=name,
            )


def _present_labels(column: CatalogColumn) -> list[str]:
    """Return an enum column's present labels, with which a run compares the labels in events."""
    return [label for part, label in column.parts.items() if part.startswith(LABEL)]


def _labels_written_since(column: CatalogColumn, xid: str) -> bool:
    """Whether a label was added or renamed since ``xid``: events can then have a former label."""
    return any(
        part.startswith(LABEL) and not_before(written, xid)
        for part, written in column.parts_written.items()
    )
