"""Which tables a command's arguments select, and the exit code for the tables' outcomes."""

from __future__ import annotations

import pytest

from cdc.config import Config
from cdc.config.patterns import Pattern
from cdc.errors import CaptureError, ConfigError, LostHistoryError
from cdc.store.table_state import State
from operate.exit_codes import ExitCode
from operate.selection import expand, schemas_of, sources_of
from operate.table_outcome import Outcome, exit_code_of, for_each
from schemas.errors import InvalidIdentifierError
from schemas.table import TableId


def config(*sources: str) -> Config:
    one = {
        "primary": {"host": "localhost", "database": "shop"},
        "credentials": {"admin": {"user": "admin"}},
    }
    return Config.model_validate(
        {
            "sources": dict.fromkeys(sources, one),
            "kafka": {
                "bootstrap_servers": "localhost:9092",
                "registry": {"url": "http://localhost:8081"},
            },
            "connect": {"url": "http://localhost:8083"},
            "lake": {"url": "file:///lake"},
        }
    )


ORDERS, LINES = TableId("shop", "public", "orders"), TableId("shop", "public", "lines")
AUDIT = TableId("crm", "audit", "log")
KNOWN = [ORDERS, LINES, AUDIT]


def test_names_come_back_in_the_order_given_and_once() -> None:
    chosen = expand(["public.orders", "public.*"], config("shop"), KNOWN, where="here")
    assert chosen == [ORDERS, LINES]


def test_a_wildcard_covers_all_sources_unless_it_names_one() -> None:
    both = config("shop", "crm")
    assert expand(["*"], both, KNOWN, where="here") == sorted(KNOWN)
    assert expand(["crm:*.*"], both, KNOWN, where="here") == [AUDIT]
    assert sources_of(["crm:*.*", "shop:public.orders"], both) == ["crm"]
    assert sources_of(["*"], both) == ["crm", "shop"]


def test_tables_of_schemas_that_no_wildcard_matches_are_not_asked_for() -> None:
    both = config("shop", "crm")
    asked = schemas_of(["crm:audit.*", "shop_[0-9].orders", "public.orders"], both, "shop")
    assert [asked(one) for one in ("shop_1", "audit", "public", "shop_x")] == [True, *[False] * 3]
    assert schemas_of(["crm:audit.*"], both, "crm")("audit")
    assert schemas_of(["*"], both, "crm")("anything")


def test_a_wildcard_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="matches no table here"):
        expand(["nope.*"], config("shop"), KNOWN, where="here")


def test_a_name_without_a_source_is_refused_when_there_are_several() -> None:
    with pytest.raises(InvalidIdentifierError, match="more than one"):
        expand(["public.orders"], config("shop", "crm"), KNOWN, where="here")


def test_exit_codes() -> None:
    fine = Outcome(ORDERS, "done", State.INCREMENTAL)
    failed = Outcome(LINES, "done", error=CaptureError("no", remedy="yes"))
    lost = Outcome(AUDIT, "done", error=LostHistoryError("gone", remedy="again"))
    assert exit_code_of([fine]) is ExitCode.OK
    assert exit_code_of([fine, failed]) is ExitCode.SOME_FAILED
    assert exit_code_of([failed, lost]) is ExitCode.NEEDS_BOOTSTRAP
    assert exit_code_of([Outcome(ORDERS, "seen", State.NEEDS_BOOTSTRAP)]) is (
        ExitCode.NEEDS_BOOTSTRAP
    )


@pytest.mark.parametrize("parallel", [1, 3])
def test_one_tables_failure_stops_no_other(parallel: int) -> None:
    def work(table: TableId) -> Outcome:
        if table == ORDERS:
            raise CaptureError("refused", remedy="choose")
        if table == LINES:
            raise ValueError("nobody foresaw this")
        return Outcome(table, "done")

    outcomes = for_each(KNOWN, work, action="try", parallel=parallel)
    assert [outcome.table for outcome in outcomes] == KNOWN
    assert [outcome.failed for outcome in outcomes] == [True, True, False]
    assert "unexpected ValueError: nobody foresaw this" in str(outcomes[1].error)


@pytest.mark.parametrize("name", ["arr[0]", "star*", "what?", 'q"uote', "dots.in.name", "[", "a b"])
def test_what_discover_prints_means_that_table_alone(name: str) -> None:
    table, other = TableId("shop", "public", name), TableId("shop", "public", "arr0")
    known = [table, other, TableId("shop", "public", "starry")]
    for written in (str(table), table.relation):
        assert expand([written], config("shop"), known, where="here") == [table]
        assert sources_of([written], config("shop")) == []
        assert Pattern.parse(written).matches(table)
        assert not any(Pattern.parse(written).matches(one) for one in known[1:])
        assert Pattern.parse(written).open_parts <= {"source"}
    assert expand(["public.arr[0]"], config("shop"), known, where="here") == [other]
    assert expand(['"public".arr*'], config("shop"), [other], where="here") == [other]
