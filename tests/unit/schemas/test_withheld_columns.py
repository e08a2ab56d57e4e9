"""Columns that the log does not have, and the values of columns after them."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.catalog import Catalog, ColumnKey
from schemas.changes import LoseEvents, Verdict
from schemas.withheld_columns import misplacing, no_longer_withheld, withheld
from tests.unit.schemas.catalogs import column, compared, with_columns

LABELS = {"label 1": "a", "label 2": "b"}


def catalog(*columns: dict[str, Any], **facts: Any) -> Catalog:
    numbered = dict.fromkeys(("1", "2", "3")) | {str(n): one for n, one in enumerate(columns, 5)}
    return Catalog.read(with_columns(numbered, keys={}, **facts))


def generated(name: str) -> dict[str, Any]:
    return column(name, generated=True, default="(id + 1)")


ENUM = column("mood", "mood", parts=LABELS, parts_written={})


def test_generated_columns_are_withheld_unless_the_publication_has_them() -> None:
    columns = (column("id"), generated("g"), generated("v"))
    assert withheld(catalog(*columns)) == {"g", "v"}
    assert withheld(catalog(*columns, sent_generated=["g"])) == {"v"}
    assert withheld(catalog(*columns, source_kind="mysql", primary_key=[])) == set()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("id", "a"), None),
        (("id", "g", "a"), "g"),
        (("id", "a", "g"), None),
        (("id", "a", "g", "h"), None),
        (("g", "h", "id"), "g"),
        ((), None),
    ],
)
def test_only_values_behind_a_withheld_column_are_misplaced(
    names: tuple[str, ...], found: str | None
) -> None:
    assert misplacing(names, {"g", "h"}) == found


@pytest.mark.parametrize("now", [None, generated("other"), column("g")])
def test_a_withheld_column_that_loses_its_name_asks_for_a_copy(now: dict[str, Any] | None) -> None:
    def verdicts(*around: dict[str, Any]) -> list[Verdict]:
        before = (column("id"), *around[:1], generated("g"), *around[1:])
        after = catalog(*((now or column("x")) if one["name"] == "g" else one for one in before))
        if now is None:
            (number,) = (n for n, one in after.columns.items() if one.name == "x")
            after = Catalog(**{**vars(after), "columns": _without(after, number)})
        return [one.verdict for one in no_longer_withheld(catalog(*before), after)]

    assert verdicts(ENUM, column("n")) == [Verdict.BOOTSTRAP]
    assert verdicts(ENUM) == [], "nothing is behind it"
    assert verdicts(column("m"), column("n")) == [], "without labels, nothing is read again"


def _without(found: Catalog, number: ColumnKey) -> dict[ColumnKey, Any]:
    return {n: one for n, one in found.columns.items() if n != number}


def test_a_comparison_of_catalogs_names_the_column() -> None:
    before = with_columns({"2": generated("g"), "4": ENUM}, attributes=4)
    found = compared(with_columns({"2": None, "4": ENUM}, attributes=4), before=before)
    (lost,) = (one for one in found if isinstance(one, LoseEvents))
    assert lost.verdict is Verdict.BOOTSTRAP
    assert "'g'" in str(lost)
