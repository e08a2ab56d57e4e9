"""Changes of columns, keys, files and partitions, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from schemas.catalog import Catalog
from schemas.changes import (
    AddColumn,
    AddPartition,
    ChangeDefault,
    ChangeIdentity,
    ChangeKey,
    ChangeNullability,
    DropColumn,
    LoseEvents,
    NewFile,
    RenameColumn,
    Verdict,
)
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.statement_effects import OldValue, StatementEffects
from schemas.table import Column
from tests.unit.schemas.catalogs import (
    FACTS,
    LAKE,
    LEAF,
    PUBLICATION,
    changed,
    column,
    compared,
    of_mysql,
    only,
    with_columns,
)


def test_an_unchanged_table_asks_for_nothing() -> None:
    assert compared(deepcopy(FACTS)) == ()


def test_a_column_without_stored_values_comes_as_null() -> None:
    """This holds even with NOT NULL and a default: both were set after the rows were written."""
    facts = column("extra", "integer", nullable=False, default="5")
    change = only(with_columns({"4": facts}), stored={"extra": (None,)})
    assert isinstance(change, AddColumn)
    assert (change.name, change.verdict) == ("extra", Verdict.EVOLVE)


def test_stored_values_fill_old_rows() -> None:
    now = with_columns({"4": column("extra", "integer")})
    change = only(now, stored={"extra": ("{5}",)})
    assert isinstance(change, AddColumn)
    assert (change.verdict, change.stored) == (Verdict.FILL, "{5}")
    assert "that it was added with, 5" in str(change)


def test_a_stored_value_holds_in_a_new_file_too() -> None:
    """A rewrite of the table removes stored values, so this one was stored after the new file."""
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
    """The dropped column may have had the same name, with values that the source no longer has."""
    change = only(with_columns({"5": column("x")}, attributes=5))
    assert change.verdict is Verdict.BOOTSTRAP
    assert "was added and dropped meanwhile" in change.why


def test_a_new_column_before_one_that_came_and_went_needs_a_copy() -> None:
    """The later column may have had the new column's name while that one had another name."""
    change = only(with_columns({"4": column("x")}, attributes=5))
    assert change.verdict is Verdict.BOOTSTRAP
    assert "was added and dropped meanwhile" in change.why
    both = with_columns({"4": column("w"), "5": column("x")}, attributes=5)
    assert [one.verdict for one in compared(both)] == [Verdict.EVOLVE] * 2


def test_a_default_of_a_column_that_the_lake_hides_is_told_to_nobody() -> None:
    now = with_columns({"4": column("ssn")}, attributes=4)
    (change,) = diff(
        Catalog.read(FACTS),
        Catalog.read(now),
        LakeColumns(LAKE),
        Rules(
            [
                *(Column(n, k, LAKE[n]) for n, k in (("id", "integer"), ("note", "text"))),
                Column("price", "numeric(10,2)", LAKE["price"]),
                Column("ssn", "text", "string", hide="mask", plain="string"),
            ]
        ),
        Evidence({"ssn": ("{078-05-1120}",)}),
    )
    assert change.verdict is Verdict.BOOTSTRAP
    assert "078" not in f"{change} {change.to_json()}"


def test_a_column_that_the_lake_only_kept_needs_a_copy_when_it_returns() -> None:
    now = with_columns({"4": column("gone")})
    lake = {**LAKE, "gone": "string"}
    assert only(now, lake=lake, dropped=("gone",)).verdict is Verdict.BOOTSTRAP
    assert compared(deepcopy(FACTS), lake=lake, dropped=("gone",)) == ()


@pytest.mark.parametrize("form", [dict, of_mysql], ids=["postgres", "mysql"])
@pytest.mark.parametrize("later", [False, True])
def test_a_column_that_returns_in_another_case_needs_a_copy(
    form: Callable[[dict[str, Any]], dict[str, Any]], *, later: bool
) -> None:
    """The lake would get two columns whose names differ only in case."""
    before = changed()
    before["columns"]["2"]["name"] = "Note"
    now = deepcopy(before)
    del now["columns"]["2"]
    looks = [before, deepcopy(now)]
    now["columns"]["4"] = column("note")
    now["attributes"] = 4
    change = diff(
        Catalog.read(form(looks[later])),
        Catalog.read(form(now)),
        LakeColumns({"id": "int", "Note": "string"}, frozenset({"Note"} if later else ())),
        Rules([Column("id", "integer", "int"), Column("note", "text", "string")]),
        Evidence(statements=StatementEffects(added={"note": OldValue(constant=True, null=True)})),
    )[-1]
    assert isinstance(change, AddColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert "'Note'" in change.why


def test_a_column_that_the_settings_left_out_until_now_needs_a_copy() -> None:
    lake = {"id": "int", "price": "decimal(10,2)"}
    change = only(deepcopy(FACTS), lake=lake)
    assert isinstance(change, AddColumn)
    assert change.verdict is Verdict.BOOTSTRAP
    assert compared(deepcopy(FACTS), lake=lake, left_out=("note",)) == ()


def test_a_column_that_the_settings_leave_out_now_stays() -> None:
    change = only(deepcopy(FACTS), left_out=("note",))
    assert isinstance(change, DropColumn)
    assert (change.what, change.verdict) == ("column 'note' was left out", Verdict.EVOLVE)


def test_a_renamed_column_needs_a_copy() -> None:
    change = only(with_columns({"2": column("remark")}))
    assert isinstance(change, RenameColumn)
    assert change.what == "column 'note' was renamed to 'remark'"
    assert change.verdict is Verdict.BOOTSTRAP


def test_a_renamed_column_that_is_not_replicated_is_ignored() -> None:
    lake = {"id": "int", "price": "decimal(10,2)"}
    change = only(with_columns({"2": column("remark")}), lake=lake, left_out=("remark",))
    assert change.verdict is Verdict.IGNORE


@pytest.mark.parametrize(
    "facts",
    [
        {"relfilenode": 999},
        {"leaves": {"public.o1": {**LEAF, "oid": 101, "relfilenode": 9}}},
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
    assert only(changed(keys=keys), keyed=False).verdict is Verdict.EVOLVE, (
        "an append table needs none"
    )


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


@pytest.mark.parametrize(("was", "identity"), [("f", "d"), ("d", "f")])
def test_a_key_of_the_settings_beside_the_primary_key_needs_whole_old_rows(
    was: str, identity: str
) -> None:
    before = changed(replica_identity=was)
    change = only(changed(replica_identity=identity), before=before, key=("note",))
    assert isinstance(change, ChangeIdentity)
    assert change.verdict is Verdict.BOOTSTRAP
    assert "which the settings choose" in str(change)


@pytest.mark.parametrize(
    "facts",
    [
        {"oid": 101},
        {"persistence": "u"},
        {"publication_entry": 8},
        {"leaves": {}},
        {"leaves": {"public.renamed": {**LEAF, "oid": 101, "relfilenode": 201}}},
        {
            "leaves": {
                **FACTS["leaves"],
                "public.o2": {**LEAF, "oid": 9, "relfilenode": 9},
            }
        },
        {"leaves": {"public.o1": {**LEAF, "oid": 9, "relfilenode": 201}}},
        {"named": "900"},
    ],
)
def test_what_loses_events_needs_a_copy(facts: dict[str, Any]) -> None:
    changes = compared(changed(**facts))
    assert any(isinstance(change, LoseEvents) for change in changes)
    assert Verdict.gravest(change.verdict for change in changes) is Verdict.BOOTSTRAP


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"leaves": {"public.o1": {**LEAF, "oid": 101, "relfilenode": 201, "attached": "9"}}},
            "partition public.o1 was detached and attached again",
        ),
        ({"children": {"public.c": "9"}}, "other tables inherit or inherited from it (public.c)"),
        ({"publication": {**PUBLICATION, "written": "9"}}, "its publication was altered"),
        (
            {
                "publication": {
                    **PUBLICATION,
                    "written": "9",
                    "pubowner": "11",
                    "pubupdate": False,
                }
            },
            "its publication was altered",
        ),
    ],
)
def test_what_came_and_went_is_told_in_words(facts: dict[str, Any], told: str) -> None:
    change = only(changed(**facts))
    assert isinstance(change, LoseEvents)
    assert change.verdict is Verdict.BOOTSTRAP
    assert change.fact.startswith(told)


def test_a_new_owner_loses_nothing() -> None:
    assert compared(changed(owner="other", named="900")) == ()


def test_a_new_owner_of_the_publication_loses_nothing() -> None:
    owned = {**PUBLICATION, "written": "9", "pubowner": "11"}
    assert compared(changed(publication=owned)) == ()


def test_changes_are_plain_values_with_their_kind() -> None:
    change = only(with_columns({"2": None}))
    assert change.to_json() == {
        "change": "DropColumn",
        "what": "column 'note' was dropped",
        "why": "it stays in the lake, NULL from then on",
        "verdict": "evolve",
        "name": "note",
        "left_out": False,
    }


def test_the_gravest_verdict_of_nothing_is_to_ignore() -> None:
    assert Verdict.gravest([]) is Verdict.IGNORE
    assert Verdict.gravest([Verdict.FILL, Verdict.EVOLVE]) is Verdict.FILL


def with_partition(**facts: Any) -> dict[str, Any]:
    leaf = {
        **LEAF,
        "oid": 102,
        "relfilenode": 102,
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
        ({"access_method": "columnar"}, (102,)),
    ],
)
def test_any_other_partition_may_have_brought_rows(
    facts: dict[str, Any], empty: tuple[int, ...]
) -> None:
    change = only(with_partition(**facts), empty=empty)
    assert isinstance(change, LoseEvents)
    assert change.verdict is Verdict.BOOTSTRAP
    assert change.fact.startswith("leaves.public.o2 is new")


@pytest.mark.parametrize("fact", ["access_method", "distributed_by_citus"])
def test_rows_that_the_log_no_longer_has_or_lacked_need_a_copy(fact: str) -> None:
    lacking = changed(**{fact: "columnar"}, relfilenode=300)
    for before, now, told in ((FACTS, lacking, "is new"), (lacking, changed(), "is gone")):
        lost = [one for one in compared(now, before=before) if isinstance(one, LoseEvents)]
        assert [one.verdict for one in lost] == [Verdict.BOOTSTRAP]
        assert lost[0].fact.startswith(f"{fact} {told}")


def test_a_partition_with_another_access_method_needs_a_copy() -> None:
    leaf = {**FACTS["leaves"]["public.o1"], "access_method": "columnar"}
    lost = [
        one for one in compared(changed(leaves={"public.o1": leaf})) if isinstance(one, LoseEvents)
    ]
    assert [one.fact for one in lost] == ['leaves.public.o1.access_method is new ("columnar")']


def test_a_partition_without_rows_excuses_no_other_change() -> None:
    now = with_partition()
    now["leaves"]["public.o1"]["oid"] = 999
    assert [change.verdict for change in compared(now, empty=(102,))] == [
        Verdict.EVOLVE,
        Verdict.BOOTSTRAP,
    ]


def test_a_partition_for_a_while_is_seen_behind_a_later_change_of_a_column() -> None:
    """ATTACH and DETACH write the catalog rows of all columns; the later change rewrites one."""
    moved = {n: {**one, "written": "800"} for n, one in FACTS["columns"].items()}
    later = {**moved, "2": {**moved["2"], "nullable": False, "written": "801"}}
    grave = [one for one in compared(changed(columns=later)) if isinstance(one, LoseEvents)]
    assert [one.verdict for one in grave] == [Verdict.BOOTSTRAP]
    spared = {**later, "3": FACTS["columns"]["3"]}
    assert not [one for one in compared(changed(columns=spared)) if isinstance(one, LoseEvents)]


@pytest.mark.parametrize(
    ("row_written", "owner", "noticed"),
    [
        ("801", "o", True),
        ("699", "o", False),  # GRANT on columns alone
        ("801", "other", False),  # the new owner explains both
        ("2", "o", False),  # frozen: older than any transaction
    ],
)
@pytest.mark.parametrize("granted", [None, "{a=r/o}", "{a=r/o,b=r/o}"])
def test_rights_on_all_columns_do_not_hide_a_partition_for_a_while(
    row_written: str, owner: str, granted: str | None, *, noticed: bool
) -> None:
    """GRANT and REVOKE on columns do not write the table's own row in the catalog."""
    before = {n: {**one, "granted": "{a=r/o}"} for n, one in FACTS["columns"].items()}
    after = {n: {**one, "granted": granted, "written": "900"} for n, one in before.items()}
    found = diff(
        Catalog.read(changed(columns=before, snapshot="700:700:")),
        Catalog.read(changed(columns=after, row_written=row_written, owner=owner)),
        LakeColumns(LAKE),
        Rules([Column(one["name"], one["shown"], "string") for one in after.values()]),
        Evidence({}),
    )
    assert any("ATTACH" in str(one) for one in found) is noticed


@pytest.mark.parametrize(
    ("labels", "before"),
    [
        ({"label 1": "690", "label 2": "650"}, "700"),  # written long before
        ({"label 1": "710", "label 2": "710"}, "700"),  # the type was created since
        ({"label 1": "720", "label 2": "720"}, "700"),  # in the transaction that adds the column
        ({"label 1": "2", "label 2": "4294967290"}, str(2**32 + 4)),  # ids have wrapped around
    ],
)
def test_a_new_column_of_an_enum_is_followed(labels: dict[str, str], before: str) -> None:
    now = with_mood(labels)
    assert compared(now, horizon=before)[0].verdict is Verdict.EVOLVE


@pytest.mark.parametrize(
    "labels",
    [
        {"label 1": "710", "label 2": "650"},  # renamed or added since
        {"label 1": "710", "label 2": "715"},  # in a type that was created since
        {"label 1": "730", "label 2": "730"},  # both, after the column
    ],
)
def test_a_label_that_may_have_been_another_one_needs_a_copy(labels: dict[str, str]) -> None:
    (added,) = compared(with_mood(labels), horizon="700")
    assert added.verdict is Verdict.BOOTSTRAP
    assert "'sad'" in added.why


def with_mood(labels: dict[str, str]) -> dict[str, Any]:
    mood = column(
        "mood",
        "mood",
        parts={"label 1": "sad", "label 2": "calm"},
        parts_written=labels,
        written="720",
    )
    return with_columns({"4": mood}, attributes=4)
