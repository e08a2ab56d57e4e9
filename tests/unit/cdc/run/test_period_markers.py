from __future__ import annotations

import json
from datetime import datetime, timezone

from cdc.run.period_markers import PeriodMarker, PeriodPartition
from cdc.store.announcements import Announcement
from schemas.table import TableId

# The second 02:00 of the night in which summer time ends.
HOUR = Announcement(
    TableId("shop", "public", "orders"),
    "hour",
    "Europe/Berlin",
    "2026-10-25T02+01:00",
    starts_at=datetime(2026, 10, 25, 1, tzinfo=timezone.utc),
    ends_at=datetime(2026, 10, 25, 2, tzinfo=timezone.utc),
    announced_at=datetime(2026, 10, 25, 2, 3, tzinfo=timezone.utc),
    proven=datetime(2026, 10, 25, 2, 1, tzinfo=timezone.utc),
    generation=2,
    attempt="a",
    instant="20261025020200000",
    revision=3,
)


def test_a_marker_has_the_facts_of_its_period_and_the_version_of_its_form() -> None:
    assert json.loads(PeriodMarker.of(HOUR).to_json()) == {
        "table": "shop:public.orders",
        "period": "2026-10-25T02+01:00",
        "zone": "Europe/Berlin",
        "start": "2026-10-25T01:00:00Z",
        "end": "2026-10-25T02:00:00Z",
        "announced_at": "2026-10-25T02:03:00Z",
        "watermark": "2026-10-25T02:01:00Z",
        "revision": 3,
        "generation": 2,
        "instant": "20261025020200000",
        "partition": None,
        "format": 1,
    }


def test_a_marker_names_the_partition_of_its_period() -> None:
    marker = PeriodMarker.of(HOUR, PeriodPartition("happened_at_hour", "2026-10-25T02+0100"))
    assert json.loads(marker.to_json())["partition"] == {
        "column": "happened_at_hour",
        "value": "2026-10-25T02+0100",
    }


def test_the_files_name_has_no_colon_since_hadoop_allows_none() -> None:
    assert PeriodMarker.of(HOUR).file_name == "2026-10-25T02+0100.json"
