"""Columns that allow or refuse NULL for a while, and tables whose rows no event can correct."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.changes import ChangeNullability, Verdict
from tests.unit.schemas.catalogs import LAKE, changed, column, compared, only, with_columns


def test_a_column_that_no_longer_allows_null_asks_for_a_copy_where_no_event_corrects_rows() -> None:
    """PostgreSQL's connector reads the present catalog for events that are older."""
    now = with_columns({"2": column("note", nullable=False)})
    change = only(now, keyed=False)
    assert isinstance(change, ChangeNullability)
    assert change.verdict is Verdict.BOOTSTRAP
    assert only(now).verdict is Verdict.EVOLVE, "a later event corrects the row of a key"
    deleted = only(now, keeps_deleted=True)
    assert (deleted.verdict, "no longer has" in deleted.why) == (Verdict.BOOTSTRAP, True)
    truncated = {**now, "relfilenode": 300}
    assert only(now, keeps_truncated=True).verdict is Verdict.EVOLVE, "the table has its rows"
    found = compared(truncated, keeps_truncated=True)
    assert Verdict.BOOTSTRAP in {one.verdict for one in found}
    assert Verdict.BOOTSTRAP not in {one.verdict for one in compared(truncated)}
    without = {name: kind for name, kind in LAKE.items() if name != "note"}
    found = compared(now, keyed=False, lake=without, left_out=("note",))
    assert Verdict.BOOTSTRAP not in {one.verdict for one in found}


def test_a_column_that_begins_to_allow_null_asks_for_a_copy_where_no_event_corrects_rows() -> None:
    """The connector may still believe in NOT NULL, and send another value in place of NULL."""
    before = changed()
    before["columns"]["2"] = column("note", nullable=False)
    now = with_columns({"2": column("note")})
    for options in ({"keyed": False}, {"keeps_deleted": True}):
        change = only(now, before=before, **options)
        assert (change.verdict, "allows NULL" in change.what) == (Verdict.BOOTSTRAP, True)
    assert only(now, before=before).verdict is Verdict.EVOLVE, "rows are read by their key"


@pytest.mark.parametrize("options", [{"keyed": False}, {"keeps_deleted": True}])
@pytest.mark.parametrize(
    ("facts", "stored", "verdict"),
    [
        ({"nullable": True}, None, Verdict.EVOLVE),
        ({"nullable": False}, None, Verdict.BOOTSTRAP),
        ({"nullable": False, "as_added": True}, None, Verdict.BOOTSTRAP),  # the last write only
        ({"nullable": True}, "{5}", Verdict.FILL),
        ({"nullable": False}, "{5}", Verdict.BOOTSTRAP),
        ({"nullable": False, "as_added": True}, "{5}", Verdict.FILL),
    ],
)
def test_a_new_column_that_may_have_allowed_null_at_first_asks_for_a_copy_there(
    options: dict[str, bool], facts: dict[str, bool], stored: str | None, verdict: Verdict
) -> None:
    now = with_columns({"4": column("x", "integer", **facts)}, attributes=4)
    added = only(now, stored={"x": (stored,)}, **options)
    assert added.verdict is verdict
    assert only(now, stored={"x": (stored,)}).verdict is not Verdict.BOOTSTRAP, "rows are corrected"


@pytest.mark.parametrize(
    ("was", "found", "asked"),
    [
        ({}, {"typnotnull": True, "xmin": "8"}, "no longer allows NULL"),
        ({"xmin": "8"}, {}, "may have allowed NULL for a while"),
        ({"typnotnull": False, "xmin": "8"}, {"typnotnull": False}, "refused NULL for a while"),
        ({"typnotnull": True}, {"typnotnull": False, "xmin": "8"}, "allows NULL"),
        ({}, {"typacl": "{b=U/a}", "xmin": "8"}, None),
        ({}, {"typdefault": "3", "xmin": "8"}, None),
        ({"xmin": "8", "typowner": 9}, {}, None),
    ],
)
def test_a_domain_may_refuse_null_as_a_column_does(
    was: dict[str, Any], found: dict[str, Any], asked: str | None
) -> None:
    domain = {"typnotnull": False, "typowner": 10, "typdefault": None, "typacl": None, "xmin": "7"}
    refusing = {**domain, "typnotnull": True}
    start = domain if "xmin" not in was else refusing
    before = changed()
    before["columns"]["2"] = column("note", domain={**start, **was})
    now = with_columns({"2": column("note", domain={**start, **found})})
    for options in ({"keyed": False}, {"keeps_deleted": True}):
        copied = [
            one.what
            for one in compared(now, before=before, **options)
            if one.verdict is Verdict.BOOTSTRAP
        ]
        assert [asked in what for what in copied] == [True] if asked else not copied
    verdicts = {one.verdict for one in compared(now, before=before)}
    assert Verdict.BOOTSTRAP not in verdicts, "a later event corrects the row of a key"


def test_a_column_that_may_have_allowed_null_for_a_while_asks_for_a_copy_there() -> None:
    for nullable, otherwise in ((False, "allowed"), (True, "refused")):
        before = changed()
        before["columns"]["2"] = column("note", nullable=nullable)
        now = with_columns({"2": column("note", nullable=nullable, written="800")})
        change = only(now, before=before, keyed=False)
        assert change.verdict is Verdict.BOOTSTRAP
        assert f"may have {otherwise} NULL for a while" in change.what
        assert only(now, before=before, keeps_deleted=True).verdict is Verdict.BOOTSTRAP
        assert compared(now, before=before) == (), "a later event corrects the row of a key"
        without = {name: kind for name, kind in LAKE.items() if name != "note"}
        apart = {"keyed": False, "lake": without, "left_out": ("note",)}
        assert compared(now, before=before, **apart) == ()


@pytest.mark.parametrize(
    "explained",
    [
        {"options": "100"},  # SET STATISTICS
        {"granted": "{b=r/a}"},
        {"default": "'x'"},
    ],
)
def test_what_explains_that_a_column_was_written_asks_for_no_copy(
    explained: dict[str, Any],
) -> None:
    now = with_columns({"2": column("note", written="800", **explained)})
    for options in ({"keyed": False}, {"keeps_deleted": True}):
        assert not [one for one in compared(now, **options) if isinstance(one, ChangeNullability)]
    key = with_columns({"1": column("id", "integer", nullable=False, written="800")})
    assert compared(key, keyed=False) == (), "a column of the primary key never allows NULL"
