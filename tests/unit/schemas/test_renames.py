"""A renamed column goes on under its new name in the lake only if the settings say so."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.catalog import Catalog
from schemas.changes import Change, ChangeType, RenameColumn, RewriteColumn, Verdict, WidenType
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.renames import Renames, related
from schemas.table import Column
from tests.unit.schemas.catalogs import FACTS, LAKE, LAKE_TYPES, column, with_columns


def compared(
    now: dict[str, Any],
    entries: dict[str, str],
    *,
    placing: tuple[str, ...] = ("id",),
    lake: LakeColumns | None = None,
    left_out: tuple[str, ...] = (),
    rules: dict[str, dict[str, Any]] | None = None,
    frozen: bool = False,
) -> tuple[Change, ...]:
    wanted = [
        Column(
            one["name"],
            one["shown"],
            LAKE_TYPES.get(one["shown"], "string"),
            **(rules or {}).get(one["name"], {}),
        )
        for one in now["columns"].values()
        if one["name"] not in left_out
    ]
    return diff(
        Catalog.read(FACTS),
        Catalog.read(now),
        lake or LakeColumns(LAKE),
        Rules(wanted, frozen=frozen, renames=Renames(entries, frozenset(placing))),
        Evidence(),
    )


def renamed(shown: str = "text", **facts: Any) -> dict[str, Any]:
    return with_columns({"2": column("remark", shown, written="800")}, **facts)


def test_names_lead_back_as_far_as_the_entries_go() -> None:
    chain = Renames({"c": "b", "b": "a", "x": "y"})
    assert chain.between("a", "c") == ("b", "a")
    assert chain.between("b", "c") == ("b",)
    assert chain.between("z", "c") == ()
    assert chain.between("a", "x") == ()


@pytest.mark.parametrize("entries", [{"b": "a", "a": "b"}, {"b": "b"}, {"b": "c", "c": "d"}])
def test_entries_that_lead_in_a_circle_or_nowhere_end(entries: dict[str, str]) -> None:
    assert Renames(entries).between("nothing", "b") == ()


def test_all_names_of_a_column_belong_together() -> None:
    entries = {"c": "b", "b": "a", "x": "y"}
    for name in "abc":
        assert related(entries, name) == {"a", "b", "c"}
    assert related(entries, "other") == {"other"}


def test_a_column_with_an_entry_goes_on_under_its_new_name() -> None:
    (change,) = compared(renamed(), {"remark": "note"})
    assert isinstance(change, RenameColumn)
    assert (change.verdict, change.moves_lake, change.former) == (Verdict.FILL, True, ("note",))
    assert change.to_json()["to"] == "remark"


def test_two_renames_between_two_looks_have_the_name_in_the_middle() -> None:
    (change,) = compared(renamed(), {"remark": "comment", "comment": "note"})
    assert isinstance(change, RenameColumn)
    assert (change.verdict, change.former) == (Verdict.FILL, ("comment", "note"))


@pytest.mark.parametrize("entries", [{"remark": "note"}, {"note": "old"}, {"x": "y"}])
def test_an_entry_that_waits_or_stays_changes_nothing(entries: dict[str, str]) -> None:
    assert compared(FACTS, entries) == ()


@pytest.mark.parametrize("entries", [{}, {"remark": "price"}, {"comment": "note"}])
def test_without_an_entry_of_its_own_it_says_which_would_do(entries: dict[str, str]) -> None:
    (change,) = compared(renamed(), entries)
    assert (change.verdict, change.moves_lake) == (Verdict.BOOTSTRAP, False)
    assert "columns.renames: {remark: note}" in change.why


@pytest.mark.parametrize(
    ("now", "options", "why"),
    [
        (renamed(), {"placing": ("note",)}, "finds or partitions rows by it"),
        (renamed(), {"placing": ("remark",)}, "finds or partitions rows by it"),
        (
            renamed(),
            {"lake": LakeColumns({**LAKE, "remark": "string"}, frozenset({"remark"}))},
            "already has a column 'remark'",
        ),
        (with_columns({"2": column("Note")}), {}, "already has a column 'note'"),
        (
            with_columns({"2": column("remark"), "4": column("note")}, attributes=4),
            {},
            "another column has the name 'note' now",
        ),
        (
            with_columns({"2": column("late"), "4": column("Note")}, attributes=4),
            {},
            "another column has the name 'Note' now",
        ),
        (renamed(attributes=4), {}, "was added and dropped"),
        (renamed(), {"left_out": ("remark",)}, "leave the new name out"),
    ],
)
def test_what_nobody_can_follow_exactly_needs_a_copy(
    now: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    entries = {"remark": "note", "Note": "note", "late": "Note"}
    (change, *_) = compared(now, entries, **options)
    assert isinstance(change, RenameColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert why in change.why
    assert change.former == ()


def test_names_that_were_swapped_need_a_copy() -> None:
    now = with_columns({"2": column("price"), "3": column("note", "numeric(10,2)")})
    changes = compared(now, {"price": "note", "note": "price"})
    assert [change.verdict for change in changes] == [Verdict.BOOTSTRAP] * 2


def test_a_type_that_only_widens_is_followed_with_it() -> None:
    now = with_columns({"3": column("cost", "numeric(20,2)", written="800")})
    rename, widen = compared(now, {"cost": "price"})
    assert isinstance(widen, WidenType)
    assert (rename.verdict, widen.verdict, widen.moves_lake) == (
        Verdict.FILL,
        Verdict.EVOLVE,
        True,
    )


def test_another_type_or_a_rewrite_at_once_needs_a_copy() -> None:
    now = with_columns({"3": column("cost", "text", written="800")})
    _, other = compared(now, {"cost": "price"})
    assert isinstance(other, ChangeType)
    assert other.verdict is Verdict.BOOTSTRAP
    _, rewrite = compared(renamed(relfilenode=9), {"remark": "note"})
    assert isinstance(rewrite, RewriteColumn), "USING may have changed its rows"
    assert rewrite.verdict is Verdict.BOOTSTRAP


HIDDEN = {"hide": "mask", "plain": "string"}


@pytest.mark.parametrize(
    ("lake", "rule", "verdicts"),
    [
        (LakeColumns(LAKE, hidden={"note": ("mask", "string")}), HIDDEN, []),
        (LakeColumns(LAKE, hidden={"note": ("mask", "string")}), {}, [Verdict.BOOTSTRAP]),
        (LakeColumns(LAKE), HIDDEN, [Verdict.BOOTSTRAP]),
        (LakeColumns(LAKE, read_by_key=frozenset({"note"})), {"read_by_key": True}, []),
        (LakeColumns(LAKE, read_by_key=frozenset({"note"})), {}, [Verdict.BOOTSTRAP]),
        (LakeColumns(LAKE), {"read_by_key": True}, [Verdict.BOOTSTRAP]),
    ],
)
def test_rules_must_be_the_same_under_both_names(
    lake: LakeColumns, rule: dict[str, Any], verdicts: list[Verdict]
) -> None:
    rename, *others = compared(renamed(), {"remark": "note"}, lake=lake, rules={"remark": rule})
    assert rename.verdict is Verdict.FILL
    assert [other.verdict for other in others] == verdicts


def test_a_frozen_table_leaves_out_what_it_has_left_out_under_any_name() -> None:
    entries = Renames({"remark": "note"})
    before, now = Catalog.read(FACTS), Catalog.read(renamed())
    assert entries.renamed_columns(before, now, LAKE) == {"remark"}
    assert entries.renamed_columns(before, now, {"id", "price"}) == frozenset()


def test_a_column_that_the_lake_does_not_carry_may_have_any_name() -> None:
    lake = LakeColumns({name: kind for name, kind in LAKE.items() if name != "note"})
    (change,) = compared(renamed(), {"remark": "note"}, lake=lake, left_out=("remark",))
    assert change.verdict is Verdict.IGNORE
    (change,) = compared(renamed(), {"remark": "note"}, lake=lake)
    assert change.verdict is Verdict.BOOTSTRAP, "nobody knows the values of until now"
