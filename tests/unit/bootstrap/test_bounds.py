"""The bound R of an attempt if the source changes its kind of log position meanwhile."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timezone
from typing import cast

import pytest

from bootstrap.boundary import joined_bounds
from bootstrap.errors import AttemptSpoiledError
from cdc.log.binlog_position import read_position
from cdc.log.position import LogPosition
from cdc.sources.base import Source
from cdc.sources.source_facts import Marker
from cdc.store.attempt import Attempt
from cdc.store.table_state import State
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"
RECORD = table_record(
    table=TableId("shop", "shop", "orders"),
    state=State.BOOTSTRAPPING,
    updated_at=NOW,
    attempt=Attempt(uuid.uuid4(), NOW, "/a"),
)


class Positions:
    """The part of a source that these tests need: it parses positions."""

    def position(self, text: str) -> LogPosition:
        return read_position(text)


def bounds(read: str, marked: str) -> str:
    assert RECORD.attempt is not None
    record = replace(RECORD, attempt=replace(RECORD.attempt, reads_upto=read))
    marker = Marker(uuid.uuid4(), "server", None, read_position(marked))
    return str(joined_bounds(cast("Source", Positions()), record, marker))


def test_the_later_place_is_the_bound() -> None:
    assert bounds("binlog.000003:155", "binlog.000003:900") == "binlog.000003:900"
    assert bounds("binlog.000004:4", "binlog.000003:900") == "binlog.000004:4"


@pytest.mark.parametrize(
    ("read", "marked"),
    [
        ("binlog.000003:155", GTIDS),
        (GTIDS, "binlog.000003:155"),
        ("binlog.000003:155", "other.000003:155"),
    ],
)
def test_a_source_that_counts_otherwise_spoils_the_attempt(read: str, marked: str) -> None:
    with pytest.raises(AttemptSpoiledError, match="has another kind of log position"):
        bounds(read, marked)
