"""Which settings of a table decide what its copy may not go through."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.errors import AttemptSpoiledError
from bootstrap.standstill import unspoiled
from cdc.config import TableSettings
from cdc.store.attempt import Attempt
from schemas.fingerprint import Fingerprint
from schemas.table import Column
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
