"""Which facts of a table may change during its copy; each fact is tested alone."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.catalog import Catalog
from schemas.copy_spoiling import spoiling
from schemas.table import Column
from tests.unit.schemas.catalogs import FACTS, LAKE_TYPES, LEAF, PUBLICATION, changed, column

SPOILED, UNSPOILED = True, False


def note(**facts: Any) -> dict[str, Any]:
    """The facts to change so that column 2, ``note``, has these properties."""
    return {"columns": {**FACTS["columns"], "2": column("note", **facts)}}


def more(**facts: Any) -> dict[str, Any]:
    return {"columns": {**FACTS["columns"], "4": column("x", **facts)}, "attributes": 4}


def leaf(name: str = "public.o1", **facts: Any) -> dict[str, Any]:
    known = {**LEAF, "oid": 101, "relfilenode": 201, "kind": "r", "persistence": "p"}
    return {"leaves": {"public.o1": known, name: {**known, **facts}}}


NEW_LEAF = leaf("public.o2", oid=301, relfilenode=301)

# The fact, what it is now, whether that spoils the copy, and why.
TABLE: list[tuple[str, dict[str, Any], bool, str]] = [
    ("oid", {"oid": 8}, SPOILED, "another table: the rows of the former one are in the lake"),
    ("relfilenode", {"relfilenode": 8}, SPOILED, "a view of before reads nothing in a new file"),
    ("kind", {"kind": "r"}, SPOILED, "partitioned or not: other rows"),
    ("owner", {"owner": "b", "named": "800"}, UNSPOILED, "the view and the log are the same"),
    ("named", {"named": "800"}, SPOILED, "another name for a while: its changes were elsewhere"),
    ("persistence", {"persistence": "u"}, SPOILED, "changes were not in the log"),
    ("attributes", {"attributes": 4}, SPOILED, "chunks may have the column that came and went"),
    ("replica_identity", {"replica_identity": "f"}, UNSPOILED, "events keep their key"),
    ("replica_identity", {"replica_identity": "n"}, SPOILED, "events have no key"),
    ("columns", more(), SPOILED, "some chunks have it, others not"),
    ("columns", more(generated=True), SPOILED, "nothing reads it, and nothing needs it"),
    ("columns", {"columns": {"1": FACTS["columns"]["1"]}}, SPOILED, "as one that is new"),
    ("columns.name", {"columns": {**FACTS["columns"], "2": column("n")}}, SPOILED, "half is n"),
    ("columns.shown", note(shown="bigint"), SPOILED, "half of the chunks have the former type"),
    ("columns.type", note(type=9), UNSPOILED, "of types that print alike, a file tells"),
    ("columns.typmod", note(typmod=9), UNSPOILED, "the type as printed has it"),
    ("columns.nullable", note(nullable=False), UNSPOILED, "columns of the lake are nullable"),
    ("columns.generated", note(generated=True), SPOILED, "the log no longer has it"),
    ("columns.default", note(default="'d'"), UNSPOILED, "rows bring their values along"),
    ("columns.written", note(written="800"), UNSPOILED, "GRANT, SET STATISTICS: no row is written"),
    (
        "columns.written",
        note(written="800") | {"relfilenode": 8},
        SPOILED,
        "with a new file it was ALTER ... TYPE ... USING",
    ),
    ("columns.granted", note(granted="{b=r/a}"), UNSPOILED, "the log has all columns"),
    ("columns.options", note(options="100"), UNSPOILED, "SET STATISTICS: no row is written"),
    (
        "columns.written",
        {"columns": {n: {**one, "written": "800"} for n, one in FACTS["columns"].items()}},
        SPOILED,
        "all at once: a partition of another table for a while",
    ),
    (
        "columns.written",
        {
            "columns": {
                n: {**one, "written": "800"} if n != "1" else one
                for n, one in FACTS["columns"].items()
            }
        },
        SPOILED,
        "two of them may have had each other's names while a chunk was read",
    ),
    (
        "columns.domain",
        note(domain={"typnotnull": True, "xmin": "8"}),
        UNSPOILED,
        "as the column's",
    ),
    ("columns.default_made", note(default_made=9), UNSPOILED, "rows bring their values along"),
    ("columns.stored", note(stored=True), UNSPOILED, "a new file tells of a rewrite"),
    ("columns.as_added", note(as_added=True), UNSPOILED, "a GRANT on the table writes its row"),
    ("columns.parts_written", note(parts_written={"label 7": "8"}), UNSPOILED, "of no label"),
    ("columns.parts", note(parts={"label 7": "calm"}), UNSPOILED, "no row has it yet"),
    ("columns.parts", note(parts={"field 7 1": "int"}), SPOILED, "all rows show it at once"),
    ("keys", {"keys": {"primary": "2"}}, SPOILED, "rows of the lake are found by it"),
    ("key_made", {"key_made": 9}, SPOILED, "another key for a while: events were keyed by it"),
    ("partition_of", {"partition_of": "public.p"}, SPOILED, "its changes are that table's"),
    ("leaves", NEW_LEAF, SPOILED, "it has rows, and may have had them when it was attached"),
    ("leaves", {"leaves": {}}, SPOILED, "its rows are in the lake, and go without an event"),
    ("leaves", leaf(relfilenode=8), SPOILED, "as the table's own"),
    ("leaves", leaf(attached="800"), SPOILED, "detached for a while: changes sent no events"),
    ("leaves", leaf(persistence="u"), SPOILED, "changes are not in the log"),
    ("children", {"children": {"public.c": "800"}}, SPOILED, "rows whose changes are not its own"),
    (
        "publication",
        {"publication": {**PUBLICATION, "pubowner": "11", "written": "800"}},
        UNSPOILED,
        "another owner publishes the same",
    ),
    (
        "publication",
        {"publication": {**PUBLICATION, "written": "800"}},
        SPOILED,
        "what was set meanwhile may have kept changes out of the log",
    ),
    (
        "publication",
        {"publication": {**PUBLICATION, "pubupdate": False, "written": "800"}},
        SPOILED,
        "updates are no events",
    ),
    (
        "publication",
        {"publication": None, "publication_entry": None},
        SPOILED,
        "one that is gone has no tables",
    ),
    ("publication_entry", {"publication_entry": 8}, SPOILED, "taken out for a while"),
]


def found(
    now: dict[str, Any],
    *,
    empty: tuple[int, ...] = (),
    keyed: bool = True,
    keeps_deleted: bool = False,
    **before: Any,
) -> list[str]:
    facts = changed(**leaf(), **before)
    wanted = [
        Column(one["name"], one["shown"], LAKE_TYPES.get(one["shown"], "string"))
        for one in {**facts, **now}["columns"].values()
    ]
    catalogs = Catalog.read(facts), Catalog.read({**facts, **now})
    key = ("id",) if keyed else ()
    return [*spoiling(*catalogs, wanted=wanted, empty=empty, key=key, keeps_deleted=keeps_deleted)]


@pytest.mark.parametrize(
    ("now", "spoiled"), [row[1:3] for row in TABLE], ids=[f"{row[0]}: {row[3]}" for row in TABLE]
)
def test_each_fact_of_a_table_that_is_copied(now: dict[str, Any], *, spoiled: bool) -> None:
    assert bool(found(now)) is spoiled, found(now)


def test_the_table_has_every_fact() -> None:
    facts = {row[0] for row in TABLE}
    assert FACTS.keys() - facts == {"source_kind"}, "a table does not change its server's kind"
    assert {f"columns.{name}" for name in column("x")} - facts == set()


def test_what_a_run_follows_spoils_nothing_of_a_log_but_for_a_partition_that_no_chunk_has() -> None:
    for now in ({"keys": {"primary": "2"}}, {"replica_identity": "n"}):
        assert found(now, keyed=False) == []
    assert found(NEW_LEAF, empty=(301,)) == []
    assert found(NEW_LEAF, empty=(301,), keyed=False)


def test_a_column_that_no_longer_allows_null_spoils_a_copy_that_no_event_corrects() -> None:
    assert found(note(nullable=False)) == []
    assert found(note(nullable=False), keyed=False)
    assert found(note(nullable=False), keeps_deleted=True)


def test_a_column_that_may_have_allowed_null_for_a_while_spoils_such_a_copy_too() -> None:
    assert found(note(written="800")) == []
    for options in ({"keyed": False}, {"keeps_deleted": True}):
        assert "may have refused NULL for a while" in found(note(written="800"), **options)[0]
        assert found(note(written="800", options="100"), **options) == [], "SET STATISTICS"


def test_an_owner_explains_no_name_that_was_another_before() -> None:
    """Each look is compared with the facts of the look before, which already has the owner."""
    owned = {"owner": "b", "named": "800"}
    assert found(owned) == []
    assert found(owned | {"named": "900"}, **owned) != []
