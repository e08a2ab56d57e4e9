"""Which state of the source's catalog the lake's newest commit records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.config import LakeConfig
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import LakeColumn
from cdc.lake.timeline import Committed
from cdc.run.comparison import Comparison, judged
from cdc.run.follow import follow, seen_at
from schemas.catalog import Catalog
from schemas.changes import AddColumn, Change, Verdict
from schemas.evolution import Evidence, Rules, diff
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema
from tests.handoffs import handed
from tests.unit.schemas.catalogs import FACTS, LAKE, changed, column

TABLE = TableId("shop", "public", "orders")
COLUMNS = tuple(
    Column(one["name"], one["shown"], LAKE[one["name"]]) for one in FACTS["columns"].values()
)
SCHEMA = TableSchema(TABLE, COLUMNS, ("id",))


class Followed:
    """A fake lake table with its newest commit."""

    def __init__(self) -> None:
        handoff = handed(map(LakeColumn.of, COLUMNS), fingerprint=Fingerprint(FACTS))
        record = CommitRecord(kind="handoff", table=TABLE, attempt="a", handoff=handoff)
        self.latest = Committed("1", "commit", record)
        self.commits = 0

    def empty_commit(self, record: CommitRecord, _guard: object) -> str:
        self.commits += 1
        return str(1 + self.commits)

    def look(self, facts: dict[str, Any]) -> tuple[Change, ...]:
        """The changes that a run finds; the run records the new catalog unless a copy is needed."""
        handoff = self.latest.record.require_handoff()
        lake = handoff.lake_columns
        changes = diff(handoff.catalog, Catalog.read(facts), lake, Rules(COLUMNS), Evidence())
        if Verdict.gravest(change.verdict for change in changes) is Verdict.BOOTSTRAP:
            return changes
        table = SimpleNamespace(table=TABLE)
        source = SimpleNamespace(schema=lambda *_: SCHEMA)
        context = SimpleNamespace(
            sources={TABLE.source: source},
            lake=lambda *_, **_settings: self,
            config=SimpleNamespace(lake=LakeConfig(url="file:///lake")),
            run_id="r",
        )
        compared = Comparison(
            cast("Any", table), Fingerprint(facts), cast("Any", None), COLUMNS, lake, changes
        )
        _, self.latest = follow(
            cast("Any", context), cast("Any", None), self.latest, compared, cast("Any", None)
        )
        return changes


GRANTED = {"columns": {**FACTS["columns"], "2": column("note", written="800")}}
OWNED = {"owner": "b", "named": "800"}
MOVED = {"relfilenode": 900}


def test_what_is_no_change_is_no_reason_for_a_later_one() -> None:
    lake = Followed()
    assert lake.look(changed(**OWNED)) == ()
    (change,) = lake.look(changed(**OWNED | {"named": "900"}))
    assert change.what.startswith("the table had another name or schema for a while")


def test_an_owner_that_comes_back_is_no_other_name() -> None:
    lake = Followed()
    assert lake.look(changed(**OWNED)) == ()
    assert lake.look(changed(named="900")) == ()


def test_a_column_whose_row_was_written_long_before_a_new_file_is_not_rewritten() -> None:
    lake = Followed()
    assert lake.look(changed(**GRANTED)) == ()
    kinds = [type(change).__name__ for change in lake.look(changed(**GRANTED, **MOVED))]
    assert kinds == ["NewFile"]


def test_a_write_of_the_tables_row_alone_changes_no_fact() -> None:
    """GRANT or a first child, even a temporary one, rewrites the table's row in the catalog."""
    written = changed(row_written="9")
    for definition in written["columns"].values():
        definition["as_added"] = not definition["as_added"]
    assert Fingerprint(written).digest == Fingerprint(FACTS).digest
    assert not Fingerprint(FACTS).diff(Fingerprint(written))


def test_the_next_commit_has_the_moment_of_the_newest_look() -> None:
    """Without it, a partition newer than the known catalog would have no row from before that."""
    lake = Followed()
    looked = Fingerprint(changed(snapshot="7:9:8"))
    assert looked.digest == Fingerprint(FACTS).digest
    handoff = seen_at(lake.latest, looked).record.handoff
    assert handoff is not None
    assert handoff.fingerprint.facts == {**FACTS, "snapshot": "7:9:8"}
    assert seen_at(lake.latest, Fingerprint(FACTS)) is lake.latest


@pytest.mark.parametrize("facts", [OWNED, GRANTED], ids=["owner", "grant"])
def test_the_lake_commits_once_for_a_catalog_that_moved_and_not_for_one_that_did_not(
    facts: dict[str, Any],
) -> None:
    lake = Followed()
    lake.look(changed())
    assert lake.commits == 0
    for _ in range(2):
        lake.look(changed(**facts))
    assert lake.commits == 1


@pytest.mark.parametrize(
    ("statements", "owner", "recorded"), [(0, "a", "0-1-5"), (1, "a", "0-1-9"), (0, "b", "0-1-9")]
)
def test_the_position_in_the_log_moves_on_only_after_the_connector_reported_up_to_it(
    statements: int, owner: str, recorded: str
) -> None:
    """A run waits for the connector if catalog or log show a change, and not for new settings."""
    before = Fingerprint({**FACTS, "owner": "a", "read_at": "0-1-5"})
    now = Fingerprint({**FACTS, "owner": owner, "read_at": "0-1-9"})
    assert judged(now, before, statements).facts == {**now.facts, "read_at": recorded}
    assert judged(Fingerprint(FACTS), Fingerprint(FACTS), 0).facts == FACTS


def test_old_rows_of_a_new_column_get_its_default_also_if_that_is_an_empty_text() -> None:
    asked = []

    def stored_value(_table: object, column: Column, stored: str) -> Any:
        asked.append((column.name, stored))
        raise LookupError

    lake = Followed()
    note = AddColumn(verdict=Verdict.FILL, why="", name="note", type="varchar(9)", stored="")
    source = SimpleNamespace(schema=lambda *_: SCHEMA, stored_value=stored_value)
    context = SimpleNamespace(sources={TABLE.source: source})
    compared = Comparison(
        cast("Any", SimpleNamespace(table=TABLE)),
        Fingerprint(FACTS),
        cast("Any", None),
        COLUMNS,
        lake.latest.record.require_handoff().lake_columns,
        (note,),
    )
    with pytest.raises(LookupError):
        follow(cast("Any", context), cast("Any", None), lake.latest, compared, cast("Any", None))
    assert asked == [("note", "")]
