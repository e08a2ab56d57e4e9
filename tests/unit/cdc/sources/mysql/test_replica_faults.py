"""Conditions under which a replica silently differs from its primary, as the servers show them."""

from __future__ import annotations

import pytest

from cdc.sources.mysql.replica_faults import Applying, Executed, errant, filters, lenient

OURS = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4f22fb58-82db-22f2-af44-d91bba530673"


@pytest.mark.parametrize(
    "name",
    [
        *("do_db", "ignore_db", "do_table", "ignore_table", "wild_do_table", "wild_ignore_table"),
        *("rewrite_db", "ignore_server_ids", "do_domain_ids", "ignore_domain_ids"),
    ],
)
def test_a_filter_of_any_channel_is_named(name: str) -> None:
    unfiltered = {f"replicate_{name}": "", "source_host": "db1"}
    assert filters(Applying((unfiltered, unfiltered), {})) == []
    filtered = {**unfiltered, f"replicate_{name}": "1"}
    assert filters(Applying((unfiltered, filtered), {})) == [f"replicate_{name}"]


RDS = "innodb_memcache.cache_policies,mysql.plugin,mysql.rds_history,mysql.rds_sysinfo"


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("ignore_table", RDS, False),
        ("ignore_table", f"{RDS},mysql.ibbackup_binlog_marker, sys.x", False),
        ("ignore_table", f"{RDS},shop.orders", True),
        ("ignore_table", f"shop.mysql,{RDS}", True),
        ("wild_ignore_table", r"mysql.backup\_%,performance_schema.%,performance\_schema.%", False),
        ("wild_ignore_table", "mysql%.%", True),
        ("wild_ignore_table", "%.rds_history", True),
        ("wild_ignore_table", "mysql.%,sho_.%", True),
        ("do_table", RDS, True),
        ("wild_do_table", "mysql.%", True),
        ("ignore_db", "mysql", True),
    ],
)
def test_a_filter_of_the_servers_own_tables_leaves_out_nothing_of_ours(
    name: str, value: str, named: bool
) -> None:
    found = filters(Applying(({f"replicate_{name}": value},), {}))
    assert found == ([f"replicate_{name}"] if named else [])
    assert filters(Applying(({},), {f"replicate_{name}": value})) == found


def test_a_filter_that_only_a_setting_shows_is_named() -> None:
    assert filters(Applying(({},), {"replicate_rewrite_db": "a->b"})) == ["replicate_rewrite_db"]
    assert filters(Applying(({},), {"replicate_rewrite_db": ""})) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, []),
        ({"slave_skip_errors": "OFF", "slave_exec_mode": "STRICT"}, []),
        ({"replica_skip_errors": "OFF", "replica_exec_mode": "STRICT"}, []),
        ({"slave_run_triggers_for_rbr": "NO"}, []),
        ({"slave_run_triggers_for_rbr": "YES"}, ["slave_run_triggers_for_rbr = YES"]),
        ({"slave_run_triggers_for_rbr": "LOGGING"}, ["slave_run_triggers_for_rbr = LOGGING"]),
        ({"slave_skip_errors": "1062,1032"}, ["slave_skip_errors = 1062,1032"]),
        ({"replica_skip_errors": "ALL"}, ["replica_skip_errors = ALL"]),
        ({"slave_exec_mode": "IDEMPOTENT"}, ["slave_exec_mode = IDEMPOTENT"]),
        ({"replica_exec_mode": "IDEMPOTENT"}, ["replica_exec_mode = IDEMPOTENT"]),
        (
            {"slave_exec_mode": "IDEMPOTENT", "replica_exec_mode": "IDEMPOTENT"},
            ["replica_exec_mode = IDEMPOTENT"],
        ),
    ],
)
def test_an_applier_that_continues_after_errors_is_named(
    settings: dict[str, str], named: list[str]
) -> None:
    assert lenient(Applying(({},), settings)) == named


@pytest.mark.parametrize(
    ("replica", "primary", "found"),
    [
        ("", "", ""),
        (f"{OURS}:1-5", f"{OURS}:1-9", ""),
        (f"{OURS}:1-9,{OTHER}:1-2", f"{OURS}:1-9", f"{OTHER}:1-2"),
        (f"{OURS}:1-10", f"{OURS}:1-9", f"{OURS}:10"),
    ],
)
def test_errant_transactions_of_mysql(replica: str, primary: str, found: str) -> None:
    assert errant(Executed(replica), Executed(primary), "mysql") == found


@pytest.mark.parametrize(
    ("replica", "primary", "found"),
    [
        pytest.param(Executed("", "0-1-9", 2), Executed("0-1-9", "", 1), "", id="log updates off"),
        pytest.param(Executed("0-1-9", "0-1-9", 2), Executed("0-1-12", "", 1), "", id="behind"),
        pytest.param(
            *(Executed("0-1-9,0-2-5", "0-1-9", 2), Executed("0-1-9", "", 1), "0-2-5"),
            id="own write, hidden by the primary's higher numbers",
        ),
        pytest.param(
            *(Executed("0-2-10,0-1-9", "0-1-9", 2), Executed("0-1-9", "", 1), "0-2-10"),
            id="own write, the last one",
        ),
        pytest.param(
            *(Executed("7-2-1,0-1-9", "0-1-9", 2), Executed("0-1-9", "", 1), "7-2-1"),
            id="own write in a domain of its own",
        ),
        pytest.param(
            *(Executed("0-3-5,0-1-9", "0-1-9", 2), Executed("0-1-9", "", 1), "0-3-5"),
            id="written to the server between",
        ),
        pytest.param(
            *(Executed("0-1-9,5-8-70", "0-1-9,5-8-70", 2), Executed("0-1-9", "", 1), ""),
            id="another primary's domain",
        ),
        pytest.param(
            *(Executed("0-2-5,0-1-9", "0-1-9", 2), Executed("0-2-5,0-1-9", "", 1), ""),
            id="the replica was the primary",
        ),
        pytest.param(
            *(Executed("0-7-4,0-2-5,0-1-9", "0-1-9", 2), Executed("0-1-9", "0-2-5", 1), ""),
            id="from before the primary's log",
        ),
    ],
)
def test_errant_transactions_of_mariadb(replica: Executed, primary: Executed, found: str) -> None:
    assert errant(replica, primary, "mariadb") == found
