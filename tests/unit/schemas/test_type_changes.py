"""Changes of columns' types, and the verdicts on them."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.catalog import Catalog, SourceKind
from schemas.changes import (
    ChangeParts,
    ChangeType,
    NarrowType,
    NewFile,
    RewriteColumn,
    Verdict,
    WidenType,
)
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.table import Column
from schemas.widening import holds_rows, keeps_rows, prints_alike, widens
from tests.unit.schemas.catalogs import (
    FACTS,
    LAKE,
    column,
    compared,
    only,
    with_columns,
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "bigint"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_wider_types_hold_every_value(old: str, new: str) -> None:
    assert widens(old, new)
    assert not widens(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "string"),
        ("int", "double"),
        ("bigint", "double"),
        ("decimal(10,2)", "decimal(10,4)"),
        ("decimal(10,2)", "decimal(11,1)"),
        ("int", "decimal(12,0)"),
        ("string", "int"),
        ("timestamp", "timestamp_ntz"),
    ],
)
def test_other_types_do_not(old: str, new: str) -> None:
    assert not widens(old, new)


def retyped(shown: str, **facts: Any) -> dict[str, Any]:
    return with_columns({"3": column("price", shown, written="800")}, **facts)


def test_a_wider_type_evolves_also_by_a_rewrite() -> None:
    for facts in ({}, {"relfilenode": 9}):
        change, *new_file = compared(retyped("numeric(20,4)", **facts))
        assert isinstance(change, WidenType)
        assert (change.verdict, change.moves_lake) == (Verdict.EVOLVE, True)
        # USING can have changed rows: nothing shows it, so the verdict says it.
        assert [type(one) for one in new_file] == ([NewFile] if facts else [])


@pytest.mark.parametrize(
    ("was", "now", "kept"),
    [
        ("varchar(10)", "varchar(20)", True),
        ("varchar(20)", "varchar(10)", False),
        ("varchar(20)", "mediumtext", True),
        ("varbinary(4)", "varbinary(8)", True),
        ("binary(4)", "binary(8)", False),
        ("binary(4)", "binary(4)", True),
        ("decimal(40,2)", "decimal(42,2)", True),
        ("decimal(40,2)", "decimal(42,4)", False),
        ("decimal(40,2) unsigned", "decimal(42,4) unsigned", False),
        ("text", "tinytext", False),
        ("int(11)", "int(5)", True),
        ("datetime(6)", "datetime(3)", False),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('b','a')", False),
        ("char(5)", "varchar(5)", False),
        ("longblob", "longtext", False),
        ("json", "longtext", False),
        ("longtext", "json", False),
        ("point", "geometry", False),
        ("geometry", "longblob", False),
        ("double(8,2)", "double(10,4)", True),
        ("double(8,2)", "double(8,4)", False),  # one of 999999.99 would become 9999.9999
        ("float(8,2)", "float(9,4)", False),
        ("double", "double(12,2)", False),
        ("time(3)", "time(6)", True),
        ("time(6)", "time(3)", False),
        ("year(2)", "year(4)", False),
        ("vector(2)", "vector(3)", False),
        ("bit(8)", "bit(16)", True),
    ],
)
def test_modify_keeps_rows_where_nothing_can_be_cut_off(was: str, now: str, kept: bool) -> None:
    assert keeps_rows(was, now) is kept


@pytest.mark.parametrize(
    ("was", "now", "held"),
    [
        ("float", "double", True),
        ("float(8,2)", "double", True),
        ("float(8,2)", "double(12,2)", False),
        ("float", "double(10,2)", False),
        ("float unsigned", "double unsigned", False),
        ("int(10) unsigned", "bigint(20)", True),
        ("int(10) unsigned zerofill", "bigint(20)", False),
        ("decimal(8,2)", "decimal(12,4)", True),
        ("decimal(8,2) unsigned", "decimal(10,2)", True),
        ("decimal(8,2)", "double", False),
        ("float(8,2)", "decimal(12,2)", False),
    ],
)
@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_modify_that_widens_the_lakes_type_keeps_rows_unless_it_rounds(
    was: str, now: str, *, held: bool, kind: SourceKind
) -> None:
    assert holds_rows(was, now, kind) is held


def test_more_digits_alone_rewrite_nothing_so_that_a_new_file_is_using() -> None:
    change, *_ = compared(retyped("numeric(20,2)"))
    assert isinstance(change, WidenType)
    change, *_ = compared(retyped("numeric(20,2)", relfilenode=9))
    assert isinstance(change, RewriteColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    both = {"1": column("id", "bigint", written="800"), **retyped("numeric(20,2)")["columns"]}
    both["1"] = {**both["1"], "shown": "bigint"}
    changes = compared(with_columns({"1": both["1"], "3": both["3"]}, relfilenode=9))
    assert [type(one) for one in changes[:2]] == [WidenType, WidenType], "id was written anew"


@pytest.mark.parametrize(
    ("was", "now", "alike"),
    [
        ("cidr", "inet", False),
        ("xml", "text", False),
        ("text", "character varying(9)", True),
        ("citext", "text", True),
        ("timestamp(3) without time zone", "timestamp(6) without time zone", True),
    ],
)
def test_types_that_are_one_in_the_lake_may_show_a_row_otherwise(
    was: str, now: str, alike: bool
) -> None:
    assert prints_alike(was, now) is alike


@pytest.mark.parametrize(
    ("had", "wanted", "verdict"),
    [
        ("decimal(10,2)", "decimal(12,2)", Verdict.EVOLVE),
        ("decimal(12,2)", "decimal(10,2)", Verdict.BOOTSTRAP),
        ("string", "decimal(10,2)", Verdict.BOOTSTRAP),
        ("decimal(10,2)", "string", Verdict.BOOTSTRAP),
    ],
)
def test_another_decimal_by_the_settings_alone(had: str, wanted: str, verdict: Verdict) -> None:
    facts = with_columns({"3": column("price", "numeric")})
    catalog = Catalog.read(facts)
    (change,) = diff(
        catalog,
        catalog,
        LakeColumns({**LAKE, "price": had}),
        Rules(
            [
                Column("id", "integer", "int"),
                Column("note", "text", "string"),
                Column("price", "numeric", wanted, decimal=wanted != "string"),
            ]
        ),
        Evidence(),
    )
    assert change.verdict is verdict


def test_other_types_need_a_copy() -> None:
    change = only(retyped("text", relfilenode=9))
    assert isinstance(change, ChangeType)
    assert change.what == "column 'price' changed from numeric(10,2) to text"
    assert change.verdict is Verdict.BOOTSTRAP
    lake = {**LAKE, "price": "decimal(20,2)"}
    narrower = only(retyped("numeric(10,2)", relfilenode=9), lake=lake)
    assert isinstance(narrower, NarrowType)
    assert narrower.verdict is Verdict.BOOTSTRAP


def test_a_type_that_is_the_same_in_the_lake_evolves_unless_rows_were_rewritten() -> None:
    longer = {"2": column("note", "character varying(20)", written="800")}
    change = only(with_columns(longer))
    assert isinstance(change, WidenType)
    assert (change.verdict, change.moves_lake) == (Verdict.EVOLVE, False)
    assert isinstance(only(with_columns(longer, relfilenode=9)), RewriteColumn)


def test_an_integer_that_was_a_smallint_evolves() -> None:
    before = with_columns({"3": column("price", "smallint")})
    now = with_columns({"3": column("price", "integer", written="800")}, relfilenode=9)
    change, new_file = diff(
        Catalog.read(before),
        Catalog.read(now),
        LakeColumns({"id": "int", "price": "int"}),
        Rules([Column("id", "integer", "int"), Column("price", "integer", "int")]),
        Evidence(),
    )
    assert isinstance(change, WidenType)
    assert change.verdict is Verdict.EVOLVE
    assert isinstance(new_file, NewFile), "USING may have changed rows"


def test_a_rewrite_of_an_altered_column_needs_a_copy_although_its_type_is_the_same() -> None:
    change = only(retyped("numeric(10,2)", relfilenode=9))
    assert isinstance(change, RewriteColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert compared(retyped("numeric(10,2)")) == (), "statistics, storage: no row changes"


def made_of(parts: dict[str, str]) -> dict[str, Any]:
    return with_columns({"2": column("note", "mood", parts=parts)})


@pytest.mark.parametrize(
    ("before", "after", "verdicts"),
    [
        ({"label 1": "sad"}, {"label 1": "sad", "label 2": "glad"}, [Verdict.EVOLVE]),
        ({"label 1": "sad"}, {"label 1": "blue"}, [Verdict.BOOTSTRAP]),
        ({"field 1": "text"}, {"field 1": "integer"}, [Verdict.BOOTSTRAP]),
        ({"field 1": "text"}, {}, [Verdict.BOOTSTRAP]),
        ({}, {"field 2": "text"}, [Verdict.BOOTSTRAP]),
    ],
)
def test_what_a_type_is_made_of(
    before: dict[str, str], after: dict[str, str], verdicts: list[Verdict]
) -> None:
    old, now = made_of(before), made_of(after)
    wanted = [
        Column(one["name"], one["shown"], LAKE[one["name"]]) for one in now["columns"].values()
    ]
    changes = diff(
        Catalog.read(old), Catalog.read(now), LakeColumns(LAKE), Rules(wanted), Evidence()
    )
    assert [change.verdict for change in changes] == verdicts
    assert all(isinstance(change, ChangeParts) and "note" in str(change) for change in changes)


@pytest.mark.parametrize(("before", "now"), [(False, True), (True, False), (True, True)])
def test_text_of_the_server_and_values_of_events_do_not_mix(*, before: bool, now: bool) -> None:
    """Both are text in the lake, but after a change of type, the two texts may differ."""
    shown = "character varying" if before and now else "text"
    facts = with_columns({"2": column("note", shown)})
    wanted = [
        Column(
            one["name"], one["shown"], LAKE[one["name"]], read_by_key=now and one["name"] == "note"
        )
        for one in facts["columns"].values()
    ]
    read_by_key = frozenset({"note"} if before else ())
    (change,) = diff(
        Catalog.read(FACTS),
        Catalog.read(facts),
        LakeColumns(LAKE, read_by_key=read_by_key),
        Rules(wanted),
        Evidence(),
    )
    assert isinstance(change, ChangeType)
    assert change.verdict is Verdict.BOOTSTRAP


@pytest.mark.parametrize(
    ("had", "wanted", "verdicts"),
    [
        (None, ("hash", "string"), [Verdict.BOOTSTRAP]),
        (("hash", "string"), None, [Verdict.BOOTSTRAP]),
        (("hash", "string"), ("mask", "string"), [Verdict.BOOTSTRAP]),
        (("hash", "int"), ("hash", "bigint"), [Verdict.BOOTSTRAP]),
        (("hash", "string"), ("hash", "string"), []),
        (("mask", "int"), ("mask", "bigint"), []),
    ],
)
def test_hidden_values_and_others_do_not_mix(
    had: tuple[str, str] | None, wanted: tuple[str, str] | None, verdicts: list[Verdict]
) -> None:
    hide, plain = wanted or ("", "")
    columns = [
        Column(one["name"], one["shown"], LAKE[one["name"]], hide=hide, plain=plain)
        if one["name"] == "note"
        else Column(one["name"], one["shown"], LAKE[one["name"]])
        for one in FACTS["columns"].values()
    ]
    catalog = Catalog.read(FACTS)
    lake = LakeColumns(LAKE, hidden={"note": had} if had else {})
    changes = diff(catalog, catalog, lake, Rules(columns), Evidence())
    assert [change.verdict for change in changes] == verdicts
    assert all(isinstance(one, ChangeType) and "note" in str(one) for one in changes)
