"""Handoffs and views with default facts, for tests that check only some of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from cdc.lake.handoff import Handoff, LakeColumn
from cdc.store.attempt import CopyView
from schemas.fingerprint import Fingerprint

VIEW = CopyView(
    snapshot="00000003-1",
    upper_bound="0/50",
    opened_at=datetime(2026, 1, 2, tzinfo=timezone.utc),
    on_replica=True,
    system_identifier="71",
    timeline=1,
)


def handed(columns: Iterable[LakeColumn], **facts: Any) -> Handoff:
    """A handoff of these columns, with the given facts; the other facts have default values."""
    handoff = Handoff(
        start_offsets={0: 10},
        handoff_offsets={0: 42},
        reads_upto="0/99",
        x0="77",
        marker_id=UUID(int=9),
        topic_id="topic-uuid",
        statements_upto=None,
        statements_topic_id=None,
        view=VIEW,
        fingerprint=Fingerprint({"source_kind": "postgres"}),
        columns=tuple(columns),
        key=("id",),
    )
    return replace(handoff, **facts)
