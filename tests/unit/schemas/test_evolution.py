from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from schemas.catalog import Catalog
from schemas.changes import (
    AddColumn,
    AddPartition,
    Change,
    ChangeDefault,
    ChangeIdentity,
    ChangeKey,
    ChangeNullability,
    ChangeParts,
    ChangeType,
    DropColumn,
    LoseEvents,
    NarrowType,
    NewFile,
    RenameColumn,
    RewriteColumn,
    Verdict,
    WidenType,
)
from schemas.evolution import LakeColumns, diff
from schemas.table import Column
from schemas.widening import keeps_rows, prints_alike, widens

LAKE_TYPES = {
    "smallint": "int",
    "integer": "int",
    "bigint": "bigint",
    "text": "string",
    "numeric(10,2)": "decimal(10,2)",
    "numeric(20,2)": "decimal(20,2)",
    "numeric(20,4)": "decimal(20,4)",
}


def column(name: str, shown: str = "text", **facts: Any) -> dict[str, Any]:
    plain = {"name": name, "type": 1, "typmod": -1, "shown": shown, "nullable": True}
    return {**plain, "default": None, "generated": False, "written": "700", **facts}


FACTS: dict[str, Any] = {
    "oid": 100,
    "relfilenode": 200,
    "kind": "p",
    "owner": "o",
    "named": "700",
    "attributes": 3,
    "persistence": "p",
    "replica_identity": "d",
    "columns": {
        "1": column("id", "integer", nullable=False),
        "2": column("note"),
        "3": column("price", "numeric(10,2)"),
    },
    "keys": {"primary": "1"},
    "leaves": {"public.o1": {"oid": 101, "relfilenode": 201, "replica_identity": "d"}},
    "publication_entry": 7,
}
LAKE = {"id": "int", "note": "string", "price": "decimal(10,2)"}


def changed(**facts: Any) -> dict[str, Any]:
    return {**deepcopy(FACTS), **facts}


def with_columns(columns: dict[str, dict[str, Any] | None], **facts: Any) -> dict[str, Any]:
    now = changed(**facts)
    for number, one in columns.items():
        if one is None:
            del now["columns"][number]
        else:
            now["columns"][number] = one
    return now


def compared(
    now: dict[str, Any],
    *,
    lake: dict[str, str] | None = None,
    dropped: tuple[str, ...] = (),
    stored: dict[str, tuple[str | None, ...]] | None = None,
    left_out: tuple[str, ...] = (),
    empty: tuple[int, ...] = (),
    frozen: bool = False,
    keyed: bool = True,
) -> tuple[Change, ...]:
    wanted = [
        Column(one["name"], one["shown"], LAKE_TYPES.get(one["shown"], "string"))
        for one in now["columns"].values()
        if one["name"] not in left_out and not one["generated"]
    ]
    return diff(
        Catalog.read(FACTS),
        Catalog.read(now),
        wanted=wanted,
        lake=LakeColumns(lake or LAKE, frozenset(dropped)),
        stored=stored or {},
        empty=empty,
        frozen=frozen,
        keyed=keyed,
    )


def only(*arguments: Any, **options: Any) -> Change:
    (change,) = compared(*arguments, **options)
    return change


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


def test_an_unchanged_table_asks_for_nothing() -> None:
    assert compared(deepcopy(FACTS)) == ()


def test_a_column_without_stored_values_comes_as_null() -> None:
    """Also NOT NULL and with a default of its own: both were set after its rows were written."""
    facts = column("extra", "integer", nullable=False, default="5")
    change = only(with_columns({"4": facts}), stored={"extra": (None,)})
    assert isinstance(change, AddColumn)
    assert (change.name, change.verdict) == ("extra", Verdict.EVOLVE)


def test_stored_values_fill_old_rows() -> None:
    now = with_columns({"4": column("extra", "integer")})
    change = only(now, stored={"extra": ("{5}",)})
    assert isinstance(change, AddColumn)
    assert (change.verdict, change.stored) == (Verdict.FILL, "{5}")
    assert "of then, 5" in str(change)


def test_a_stored_value_holds_in_a_new_file_too() -> None:
    """A rewrite removes it, so it is younger than the file."""
    now = with_columns({"4": column("extra", "integer")}, relfilenode=9)
    added, new_file = compared(now, stored={"extra": ("{5}",)})
    assert (added.verdict, new_file.verdict) == (Verdict.FILL, Verdict.EVOLVE)


@pytest.mark.parametrize("default", [None, "5", "random()"])
def test_a_column_in_a_new_file_may_have_any_values(default: str | None) -> None:
    now = with_columns({"4": column("extra", "integer", default=default)}, relfilenode=9)
    assert compared(now, stored={"extra": (None,)})[0].verdict is Verdict.BOOTSTRAP


def test_partitions_that_disagree_need_a_copy() -> None:
    now = with_columns({"4": column("extra", "integer")})
    assert only(now, stored={"extra": (None, "{5}")}).verdict is Verdict.BOOTSTRAP


@pytest.mark.parametrize(
    ("facts", "options"),
    [
        ({"generated": True, "default": "(id + 1)"}, {}),
        ({}, {"left_out": ("extra",)}),
        ({}, {"frozen": True}),
    ],
)
def test_a_new_column_that_is_not_replicated_is_ignored(
    facts: dict[str, Any], options: dict[str, Any]
) -> None:
    now = with_columns({"4": column("extra", "integer", **facts)})
    change = only(now, stored={"extra": ("{5}",)}, **options)
    assert (change.verdict, change.moves_lake) == (Verdict.IGNORE, False)


def test_a_dropped_column_stays() -> None:
    change = only(with_columns({"2": None}))
    assert isinstance(change, DropColumn)
    assert (change.verdict, change.moves_lake) == (Verdict.EVOLVE, True)


def test_a_dropped_column_that_was_not_replicated_is_ignored() -> None:
    lake = {"id": "int", "price": "decimal(10,2)"}
    change = only(with_columns({"2": None}), lake=lake)
    assert change.verdict is Verdict.IGNORE


@pytest.mark.parametrize("frozen", [False, True])
def test_a_column_that_was_dropped_and_added_again_needs_a_copy(*, frozen: bool) -> None:
    now = with_columns({"2": None, "4": column("note")}, attributes=4)
    dropped, added = compared(now, frozen=frozen)
    assert isinstance(dropped, DropColumn)
    assert added.verdict is Verdict.BOOTSTRAP
    assert "was dropped" in added.why


def test_a_new_column_behind_one_that_came_and_went_needs_a_copy() -> None:
    """Events of the one before may have the same name, and values that the source has no more."""
    change = only(with_columns({"5": column("x")}, attributes=5))
    assert change.verdict is Verdict.BOOTSTRAP
    assert "came and went" in change.why
    both = with_columns({"4": column("w"), "5": column("x")}, attributes=5)
    assert [one.verdict for one in compared(both)] == [Verdict.EVOLVE] * 2


def test_a_default_of_a_column_that_the_lake_hides_is_told_to_nobody() -> None:
    now = with_columns({"4": column("ssn")}, attributes=4)
    (change,) = diff(
        Catalog.read(FACTS),
        Catalog.read(now),
        wanted=[
            *(Column(n, k, LAKE[n]) for n, k in (("id", "integer"), ("note", "text"))),
            Column("price", "numeric(10,2)", LAKE["price"]),
            Column("ssn", "text", "string", hide="mask", plain="string"),
        ],
        lake=LakeColumns(LAKE),
        stored={"ssn": ("{078-05-1120}",)},
    )
    assert change.verdict is Verdict.BOOTSTRAP
    assert "078" not in f"{change} {change.to_json()}"


def test_a_column_that_the_lake_only_kept_needs_a_copy_when_it_returns() -> None:
    now = with_columns({"4": column("gone")})
    lake = {**LAKE, "gone": "string"}
    assert only(now, lake=lake, dropped=("gone",)).verdict is Verdict.BOOTSTRAP
    assert compared(deepcopy(FACTS), lake=lake, dropped=("gone",)) == ()


def test_a_column_that_the_settings_left_out_until_now_needs_a_copy() -> None:
    lake = {"id": "int", "price": "decimal(10,2)"}
    change = only(deepcopy(FACTS), lake=lake)
    assert isinstance(change, AddColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert compared(deepcopy(FACTS), lake=lake, left_out=("note",)) == ()


def test_a_column_that_the_settings_leave_out_now_stays() -> None:
    change = only(deepcopy(FACTS), left_out=("note",))
    assert isinstance(change, DropColumn)
    assert change.verdict is Verdict.EVOLVE


def test_a_renamed_column_needs_a_copy() -> None:
    change = only(with_columns({"2": column("remark")}))
    assert isinstance(change, RenameColumn)
    assert change.what == "column 'note' was renamed to 'remark'"
    assert change.verdict is Verdict.BOOTSTRAP


def test_a_renamed_column_that_is_not_replicated_is_ignored() -> None:
    lake = {"id": "int", "price": "decimal(10,2)"}
    change = only(with_columns({"2": column("remark")}), lake=lake, left_out=("remark",))
    assert change.verdict is Verdict.IGNORE


def retyped(shown: str, **facts: Any) -> dict[str, Any]:
    return with_columns({"3": column("price", shown, written="800")}, **facts)


def test_a_wider_type_evolves_also_by_a_rewrite() -> None:
    for facts in ({}, {"relfilenode": 9}):
        change, *new_file = compared(retyped("numeric(20,4)", **facts))
        assert isinstance(change, WidenType)
        assert (change.verdict, change.moves_lake) == (Verdict.EVOLVE, True)
        # USING may have changed rows: nothing tells, so it is said.
        assert [type(one) for one in new_file] == ([NewFile] if facts else [])


@pytest.mark.parametrize(
    ("was", "now", "kept"),
    [
        ("varchar(10)", "varchar(20)", True),
        ("varchar(20)", "varchar(10)", False),
        ("varchar(20)", "mediumtext", True),
        ("text", "tinytext", False),
        ("int(11)", "int(5)", True),
        ("datetime(6)", "datetime(3)", False),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('b','a')", False),
        ("char(5)", "varchar(5)", False),
        ("longblob", "longtext", False),
    ],
)
def test_modify_keeps_rows_where_nothing_can_be_cut_off(was: str, now: str, kept: bool) -> None:
    assert keeps_rows(was, now) is kept


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
        wanted=[
            Column("id", "integer", "int"),
            Column("note", "text", "string"),
            Column("price", "numeric", wanted, decimal=wanted != "string"),
        ],
        lake=LakeColumns({**LAKE, "price": had}),
        stored={},
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
        wanted=[Column("id", "integer", "int"), Column("price", "integer", "int")],
        lake=LakeColumns({"id": "int", "price": "int"}),
        stored={},
    )
    assert isinstance(change, WidenType)
    assert change.verdict is Verdict.EVOLVE
    assert isinstance(new_file, NewFile), "USING may have changed rows"


def test_a_rewrite_of_an_altered_column_needs_a_copy_although_its_type_is_the_same() -> None:
    change = only(retyped("numeric(10,2)", relfilenode=9))
    assert isinstance(change, RewriteColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert compared(retyped("numeric(10,2)")) == (), "statistics, storage: no row changes"


@pytest.mark.parametrize(
    "facts",
    [
        {"relfilenode": 999},
        {"leaves": {"public.o1": {"oid": 101, "relfilenode": 9, "replica_identity": "d"}}},
    ],
)
def test_a_new_file_alone_is_followed(facts: dict[str, Any]) -> None:
    change = only(changed(**facts))
    assert isinstance(change, NewFile)
    assert (change.verdict, change.moves_lake) == (Verdict.EVOLVE, False)


def test_nullability_and_defaults_are_told_and_followed() -> None:
    now = with_columns({"2": column("note", nullable=False, default="'x'", written="800")})
    nullable, default = compared(now)
    assert isinstance(nullable, ChangeNullability)
    assert isinstance(default, ChangeDefault)
    assert nullable.what == "column 'note' no longer allows NULL"
    assert default.what == "the default of column 'note' was None, is 'x'"
    assert {nullable.verdict, default.verdict} == {Verdict.EVOLVE}


@pytest.mark.parametrize("keys", [{"primary": "1 2"}, {}, {"primary": "1", "identity": "2"}])
def test_another_key_needs_a_copy(keys: dict[str, str]) -> None:
    change = only(changed(keys=keys))
    assert isinstance(change, ChangeKey)
    assert change.verdict is Verdict.BOOTSTRAP
    assert only(changed(keys=keys), keyed=False).verdict is Verdict.EVOLVE, "a log needs none"


def test_a_log_follows_another_replica_identity() -> None:
    change = only(changed(replica_identity="n"), keyed=False)
    assert isinstance(change, ChangeIdentity)
    assert change.verdict is Verdict.EVOLVE


@pytest.mark.parametrize(
    ("identity", "verdict"),
    [("f", Verdict.EVOLVE), ("n", Verdict.BOOTSTRAP), ("i", Verdict.BOOTSTRAP)],
)
def test_replica_identities_evolve_while_events_keep_their_key(
    identity: str, verdict: Verdict
) -> None:
    change = only(changed(replica_identity=identity))
    assert isinstance(change, ChangeIdentity)
    assert change.verdict is verdict


@pytest.mark.parametrize(
    "facts",
    [
        {"oid": 101},
        {"persistence": "u"},
        {"publication_entry": 8},
        {"leaves": {}},
        {
            "leaves": {
                **FACTS["leaves"],
                "public.o2": {"oid": 9, "relfilenode": 9, "replica_identity": "d"},
            }
        },
        {"leaves": {"public.o1": {"oid": 9, "relfilenode": 201, "replica_identity": "d"}}},
        {"named": "900"},
    ],
)
def test_what_loses_events_needs_a_copy(facts: dict[str, Any]) -> None:
    changes = compared(changed(**facts))
    assert any(isinstance(change, LoseEvents) for change in changes)
    assert Verdict.gravest(change.verdict for change in changes) is Verdict.BOOTSTRAP


def test_a_new_owner_loses_nothing() -> None:
    assert compared(changed(owner="other", named="900")) == ()


def test_changes_are_plain_values_with_their_kind() -> None:
    change = only(with_columns({"2": None}))
    assert change.to_json() == {
        "change": "DropColumn",
        "what": "column 'note' was dropped",
        "why": "it stays in the lake, NULL from then on",
        "verdict": "evolve",
        "name": "note",
    }


def test_the_gravest_verdict_of_nothing_is_to_ignore() -> None:
    assert Verdict.gravest([]) is Verdict.IGNORE
    assert Verdict.gravest([Verdict.FILL, Verdict.EVOLVE]) is Verdict.FILL


def with_partition(**facts: Any) -> dict[str, Any]:
    leaf = {
        "oid": 102,
        "relfilenode": 102,
        "replica_identity": "d",
        "kind": "r",
        "persistence": "p",
        **facts,
    }
    return changed(leaves={**deepcopy(FACTS["leaves"]), "public.o2": leaf})


def test_a_partition_without_rows_is_followed() -> None:
    change = only(with_partition(), empty=(102,))
    assert isinstance(change, AddPartition)
    assert (change.verdict, change.name) == (Verdict.EVOLVE, "public.o2")


@pytest.mark.parametrize(
    ("facts", "empty"),
    [
        ({}, ()),
        ({}, (101,)),
        ({"replica_identity": "f"}, (102,)),
        ({"relfilenode": 103}, (102,)),
        ({"persistence": "u"}, (102,)),
        ({"kind": "f"}, (102,)),
    ],
)
def test_any_other_partition_may_have_brought_rows(
    facts: dict[str, Any], empty: tuple[int, ...]
) -> None:
    change = only(with_partition(**facts), empty=empty)
    assert isinstance(change, LoseEvents)
    assert change.verdict is Verdict.BOOTSTRAP
    assert change.fact.startswith("leaves.public.o2 is new")


def test_a_partition_without_rows_excuses_no_other_change() -> None:
    now = with_partition()
    now["leaves"]["public.o1"]["oid"] = 999
    assert [change.verdict for change in compared(now, empty=(102,))] == [
        Verdict.EVOLVE,
        Verdict.BOOTSTRAP,
    ]


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
        Catalog.read(old), Catalog.read(now), wanted=wanted, lake=LakeColumns(LAKE), stored={}
    )
    assert [change.verdict for change in changes] == verdicts
    assert all(isinstance(change, ChangeParts) and "note" in str(change) for change in changes)


@pytest.mark.parametrize(("before", "now"), [(False, True), (True, False), (True, True)])
def test_text_of_the_server_and_values_of_events_do_not_mix(*, before: bool, now: bool) -> None:
    """Both are text in the lake, and a type that changes may print itself otherwise."""
    shown = "character varying" if before and now else "text"
    facts = with_columns({"2": column("note", shown)})
    wanted = [
        Column(one["name"], one["shown"], LAKE[one["name"]], asked=now and one["name"] == "note")
        for one in facts["columns"].values()
    ]
    asked = frozenset({"note"} if before else ())
    (change,) = diff(
        Catalog.read(FACTS),
        Catalog.read(facts),
        wanted=wanted,
        lake=LakeColumns(LAKE, asked=asked),
        stored={},
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
    changes = diff(catalog, catalog, wanted=columns, lake=lake, stored={})
    assert [change.verdict for change in changes] == verdicts
    assert all(isinstance(one, ChangeType) and "note" in str(one) for one in changes)
