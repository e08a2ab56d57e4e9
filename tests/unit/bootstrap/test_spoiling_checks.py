"""Which changes of a table's definition spoil its copy, depending on the settings."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.errors import AttemptSpoiledError
from bootstrap.spoiling_checks import require_same_order, unspoiled
from cdc.config import TableSettings
from cdc.store.attempt import Attempt, Chunk
from schemas.fingerprint import Fingerprint
from schemas.table import Column
from tests.records import table_record
from tests.unit.schemas.catalogs import FACTS, LAKE, column

COLUMNS = tuple(Column(name, kind, kind) for name, kind in LAKE.items())
SOURCE = SimpleNamespace(
    partition_files=None, table=lambda table: table, columns=lambda *_: COLUMNS
)
STRICT = {**FACTS, "columns": {**FACTS["columns"], "2": column("note", nullable=False)}}


def compared(settings: TableSettings) -> Attempt:
    attempt = Attempt(
        uuid.uuid4(), datetime.now(timezone.utc), "/lake", fingerprint=Fingerprint(FACTS)
    )
    record = cast("Any", SimpleNamespace(table="orders"))
    return unspoiled(cast("Any", SOURCE), settings, record, attempt, Fingerprint(STRICT))


def test_a_column_that_no_longer_allows_null_spoils_copies_whose_rows_no_event_corrects() -> None:
    assert compared(TableSettings()).fingerprint == Fingerprint(STRICT)
    for settings in (TableSettings(delete_mode="soft"), TableSettings(mode="append")):
        with pytest.raises(AttemptSpoiledError, match="note"):
            compared(settings)


PARTED = {
    "source_kind": "mysql",
    "partitioned": True,
    "table_id": "p0:1,p1:2",
    "altered": "p0:0,p1:0",
    "columns": {"id": column("id", nullable=False)},
    "primary_key": ["id"],
    "read_at": "u:1-5",
}
GROWN = {**PARTED, "table_id": "p0:1,p1:2,p2:3", "read_at": "u:9"}


def looked(settings: TableSettings, facts: dict[str, Any]) -> Fingerprint | None:
    attempt = Attempt(
        uuid.uuid4(), datetime.now(timezone.utc), "/lake", fingerprint=Fingerprint(PARTED)
    )
    record = cast("Any", SimpleNamespace(table="orders"))
    found = unspoiled(cast("Any", SOURCE), settings, record, attempt, Fingerprint(facts))
    return found.fingerprint


def test_a_new_partition_leaves_a_copy_alone_whose_first_run_reads_all_statements() -> None:
    assert looked(TableSettings(), GROWN) == Fingerprint({**GROWN, "read_at": "u:1-5"})


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (TableSettings(mode="append"), GROWN),
        (TableSettings(), {**GROWN, "partitioned": False}),
        (TableSettings(), {**GROWN, "engine": "MyISAM"}),
        (TableSettings(), {**PARTED, "table_id": "p0:1,p1:4,p2:3"}),
        (TableSettings(), {**PARTED, "table_id": "p0:1"}),
        (TableSettings(), {**PARTED, "altered": "p0:0,p1:1"}),
    ],
)
def test_any_other_change_of_partitions_spoils_a_copy(
    settings: TableSettings, facts: dict[str, Any]
) -> None:
    with pytest.raises(AttemptSpoiledError, match="was changed while it was copied"):
        looked(settings, facts)


@pytest.mark.parametrize(
    ("chunks", "known", "now", "spoiled"),
    [
        (2, "code: 2.36", "code: 2.36", False),
        (2, "", "", False),
        (1, "code: 2.36", None, False),
        (2, "code: 2.36", "code: 2.31", True),
        (2, "code: 2.36", None, True),
        (2, "", "code: 2.36", True),
        (2, "", None, True),
    ],
)
def test_chunks_of_another_order_are_not_continued(
    chunks: int, known: str, now: str | None, spoiled: bool
) -> None:
    attempt = Attempt(
        uuid.uuid4(),
        datetime.now(timezone.utc),
        "/lake",
        chunks=tuple(Chunk(number, None, None, 1, 1) for number in range(chunks)),
        key_order=known,
    )
    record = table_record(attempt=attempt)
    if not spoiled:
        require_same_order(record, attempt, now)
        return
    with pytest.raises(AttemptSpoiledError, match="sorts the key of table"):
        require_same_order(record, attempt, now)
