"""The lines of `status TABLE` about the space that a table takes in the lake."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from cdc.store.table_state import LakeSize
from operate.cli.status import show_status
from operate.render import Renderer
from operate.status import Status, TableStatus
from tests.records import table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
GIB = 2**30


@pytest.mark.parametrize("named", [True, False], ids=["named", "of all"])
def test_a_table_that_is_named_says_what_it_takes_and_what_stays_for_readers(
    named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    record = table_record(
        base_path="file:///lake/orders",
        updated_at=NOW,
        size=LakeSize(GIB, 6 * GIB, 2 * GIB, NOW),
    )
    table = TableStatus(record, 0, NOW, 0.0, 900)
    assert table.to_json()["lake_size"] == {
        "image_bytes": GIB,
        "kept_bytes": 6 * GIB,
        "other_generations_bytes": 2 * GIB,
        "measured_at": NOW,
    }

    show_status(Renderer(), Status((table,), ()), named=named)

    told = " ".join(capsys.readouterr().out.split())
    text = (
        "1 GiB of current files, 6 GiB of older files that are kept for readers, and 2 GiB of"
        " other generations; measured 2026-01-02 03:04:05 UTC"
    )
    assert (text in told) is named
