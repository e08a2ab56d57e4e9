"""Data checks of tables on the real stack: their results while source and lake change."""

from __future__ import annotations

from cdc.store.checks import CheckResult
from cdc.store.table_state import State
from operate.conditions import Condition
from operate.data_checks.command import Wanted, run_checks
from operate.lifecycle import pause
from operate.status import status
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop


def checked(shop: Shop, *names: str) -> dict[str, CheckResult]:
    wanted = Wanted(not names, frozenset(names))
    found = run_checks(shop.services, [shop.table("children")], wanted)
    assert not [outcome for outcome in found.outcomes if outcome.failed]
    return {result.check: result for result in found.results}


def family(shop: Shop) -> None:
    """Create ``parents``, and ``children`` that refers to it and has all checks."""
    parents = f"{shop.database.schema}.parents"
    shop.tables = {
        f"{shop.database.schema}.children": {
            "checks": {
                "parents": {
                    "kind": "reference",
                    "columns": ["v"],
                    "references": {"table": parents, "columns": ["id"]},
                },
                "texts": {"kind": "not_null", "columns": ["t"]},
                "numbers": {"kind": "unique", "columns": ["id"]},
                "rows": {"kind": "volume", "every_commits": 1},
                "fresh": {"kind": "freshness", "max_age": "1h"},
                "equal": {"kind": "verify"},
                "none": {"kind": "range", "columns": ["v"], "max": 0, "policy": "pause"},
            }
        }
    }
    shop.reconfigure()
    shop.create("parents", 300)
    shop.create("children", 200)
    shop.database.execute(
        "UPDATE children SET v = id",
        "ALTER TABLE children ADD FOREIGN KEY (v) REFERENCES parents (id)",
    )
    succeeded(shop.onboard("parents", "children"))


@for_each_kind()
def test_rows_refer_to_rows_while_both_tables_change(shop: Shop) -> None:
    family(shop)
    with shop.writing(
        "INSERT INTO parents VALUES ({turn} + 1000, 0, 'new')",
        "INSERT INTO children VALUES ({turn} + 1000, {turn} + 1000, 'new')",
        "UPDATE children SET t = 'changed' WHERE id = {turn} % 200 + 1",
        "DELETE FROM children WHERE id = {turn} + 900",
        "DELETE FROM parents WHERE id = {turn} + 900",
    ) as written:
        for _ in range(3):
            result = checked(shop, "parents")["parents"]
            assert result.outcome == "passed", result.detail
            assert result.counts["rows"] >= 200
        assert written[0] > 10
    constraint = shop.scalar(
        "SELECT constraint_name FROM information_schema.table_constraints"
        f" WHERE table_schema = '{shop.database.schema}' AND table_name = 'children'"
        " AND constraint_type = 'FOREIGN KEY'"
    )
    what = "CONSTRAINT" if shop.database.kind == "postgres" else "FOREIGN KEY"
    shop.database.execute(
        f"ALTER TABLE children DROP {what} {constraint}",
        "DELETE FROM parents WHERE id IN (5, 6)",
    )
    result = checked(shop, "parents")["parents"]
    assert result.outcome == "failed"
    assert result.counts["unmatched"] == 2
    assert "2 of" in result.detail
    assert "to no row of table" in result.detail


@for_each_kind("postgres")
def test_the_checks_of_a_table_find_what_is_wrong_and_pause_it(shop: Shop) -> None:
    family(shop)
    shop.database.execute("UPDATE children SET t = NULL WHERE id <= 3")
    shop.settle("children")
    shop.run()
    table = shop.table("children")
    found = run_checks(shop.services, [table], Wanted(everything=True))
    results = {one.check: one for one in found.results}
    assert {name: one.outcome for name, one in results.items()} == {
        **dict.fromkeys(("parents", "numbers", "rows", "fresh", "equal"), "passed"),
        **dict.fromkeys(("texts", "none"), "failed"),
    }
    assert results["texts"].counts == {"rows": 200, "t": 3}
    assert results["texts"].instant
    assert results["equal"].counts == {"rows": 200}
    assert [one.action for one in found.outcomes] == ["paused by check none"]
    record = shop.record("children")
    assert (record.state, record.paused_by_policy) == (State.PAUSED, True)
    (shown,) = status(shop.services, [table]).tables
    assert set(shown.conditions) == {Condition.PAUSED, Condition.CHECK_FAILED}
    assert not next(one for one in shown.checks if one.name == "rows").due
    again = run_checks(shop.services, [table], Wanted(names=frozenset({"equal", "numbers"})))
    assert {one.check: one.outcome for one in again.results} == {
        "equal": "skipped",
        "numbers": "passed",
    }, "a paused table is not brought up to date"


@for_each_kind()
def test_a_reference_to_a_table_that_is_not_followed_is_no_failure(shop: Shop) -> None:
    family(shop)
    pause(shop.services, shop.table("parents"), reason="a test")
    result = checked(shop, "parents")["parents"]
    assert result.outcome == "skipped"
    assert "is paused" in result.detail
