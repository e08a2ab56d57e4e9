"""Limits for the requests that a commit of a small table and a look at an idle table make.

Most tables of a large plan are small or idle, so these fixed costs decide how many tables a machine
can follow. If a change needs a higher limit, lower the cost, or explain here what the cost is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.capture.gathering import Captures
from cdc.capture.topic_facts import topic_facts, with_settings
from cdc.rows import kafka_records
from cdc.rows.kafka_records import GroupIds
from cdc.run import run_table, run_tables
from cdc.run.context import Turn
from cdc.store.table_state import TableRecord
from operate import readiness_check
from operate.check import check
from operate.discover import discover
from operate.run import Runs
from stack.mysql_software import MARIADB
from stack.postgres import POSTGRES
from tests.integration.rigs.counted import counted
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

COMMIT = {
    # The lease with the newest record, the counted losses and the quarantine; the lease under
    # Hudi's lock; the record of the commit; the history of the run with the release of the lease.
    # The last two stay apart: upkeep of the lake table can follow the commit under the lease for
    # minutes, and the state store shows the commit meanwhile.
    "transactions": 4,
    "statements": 15,
    # Each read must see others' new commits: that of the run's check, of the writer just before the
    # commit begins, and of the guard just before it completes.
    "opens": 3,
    # Those of the batch's summary and of Hudi's write.
    "jobs": 5,
    # Whether the last applied record is still in the topic.
    "kafka": 1,
}
"""The most that a commit may ask, for each kind of source. What has no bound must not be asked."""
OF_KIND = {
    POSTGRES: {"source": 12, "py4j": 340},
    MARIADB: {"source": 15, "logins": 1, "py4j": 430},
}
"""The same of a kind of source: statements and logins to read the table's catalog and fingerprint.

Python waits for each call of the JVM. A warm commit has made 296 of them, 321 on a busy machine,
and 390 for MariaDB, whose keys the run decodes by the server's catalog.

A run reads the catalog in any case, also if the fingerprint is that of the last check of idle
tables. It needs the catalog and the fingerprint of one moment, which is later than the events that
it applies: transactions that the fingerprint's snapshot does not show can have changed the catalog
(`UnseenError`). And the fingerprint lacks what other tables and types decide, for example whether
the connector can confuse a type.

PostgreSQL: the settings of the session and of the transaction, its isolation level, the extensions,
the table, its columns, their types, the names of types, types of the same name, unique indexes, the
fingerprint, and the entry in the publication.
"""
ROUND = {"transactions": 1, "statements": 1, "kafka": 4}
"""The most that a round without work may ask, for any number of idle tables: the time by the state
store's clock, and four questions to Kafka about all topics together."""
LOOK = {
    POSTGRES: {
        "transactions": 14,
        "statements": 14,
        "plan": 2,
        "kafka": 17,
        "consumers": 1,
        "reads": 1,
        "connect": 4,
        "source": 20,
        "logins": 1,
    },
    MARIADB: {
        "transactions": 12,
        "statements": 12,
        "plan": 2,
        "kafka": 26,
        "consumers": 1,
        "reads": 1,
        "connect": 4,
        "source": 35,
        "logins": 6,
    },
}
"""The same for a round that also checks the idle tables and their one capture. What it asks of
Connect, the source and the state store is asked once for each capture."""
RUN_READS_PLAN = 10
"""The most often that a command of one run may read the whole plan: once for its tables, twice for
captures (before and after their evidence), once to find what is left of tables that left the plan,
and once for each check after the run that must see what other commands have changed meanwhile.
Records that have not changed are not parsed again."""
MORE_TABLES = 4
"""How many tables a test adds. They may add fewer logins to `check` and `discover`: on a slow
machine, a session that has waited for twenty seconds is closed. Each look of MariaDB's had a login
of its own: eight for a table of `check`, and five for one of `discover`."""
TRIES = 3
"""How often a round is counted. The least counts are compared, since heartbeats come meanwhile, and
since upkeep of the lake table follows some commits."""

for_both = pytest.mark.parametrize(
    "database", kinds(POSTGRES, MARIADB, of=(POSTGRES, MARIADB)), indirect=True
)


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_runs_leave_no_connection_to_the_jvm_behind(shop: Shop) -> None:
    """Each run has threads of its own, and each of them calls Java."""
    onboarded(shop, "orders")
    client = shop.services.spark.sparkContext._gateway._gateway_client
    open_ones = list[int]()
    for row in range(2, 8):
        shop.database.execute(f"INSERT INTO orders VALUES ({row}, 0, 'a')")
        shop.settle("orders")
        (result,) = shop.run()
        assert result.commits == 1
        open_ones.append(len(client.deque))
    assert open_ones[-1] <= open_ones[1] + 1, open_ones


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_runs_an_hour_later_leave_no_more_kafka_settings_in_the_jvm(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(kafka_records, "_GROUP_IDS", GroupIds(clock=lambda: clock[0]))
    onboarded(shop, "orders")
    kept = list[int]()
    for row in range(2, 6):
        shop.database.execute(f"INSERT INTO orders VALUES ({row}, 0, 'a')")
        shop.settle("orders")
        (result,) = shop.run()
        assert (result.commits, result.events) == (1, 1)
        kept.append(kept_kafka_settings(shop.services.spark))
        clock[0] += 3_600.0
    assert kept == kept[:1] * 4
    assert kept[0] > 0


@for_both
def test_what_a_commit_and_an_idle_table_cost(shop: Shop) -> None:
    onboarded(shop, "orders", "other")
    context, kind = shop.services.run_context, shop.database.kind
    run_without_error(shop)
    spent = list[Counter[str]]()
    for row in range(2, 6):  # the first two warm the process up
        shop.database.execute(f"INSERT INTO orders VALUES ({row}, 0, 'a')")
        shop.settle("orders")
        record, captures = shop.record("orders"), Captures(context)
        captures.evidence(record)  # a round has asked for this, once for all tables
        topics = with_settings(context, topic_facts(context, [record.topic]))
        with counted(shop.services) as asked:
            topic = topics[record.topic]
            result = run_table(context, record, captures=captures, topic=topic, turn=Turn())
        assert (result.error, result.commits) == (None, 1)
        spent.append(asked)
    assert_within(least(spent[2:]), {**COMMIT, **OF_KIND[kind]})

    both = [shop.record("orders"), shop.record("other")]
    assert run_tables(context, both) == []
    for look, bounds in ((False, ROUND), (True, LOOK[kind])):
        one, two = (least_of_round(shop, records, look=look) for records in (both[:1], both))
        assert one == two, "another idle table adds no call"
        assert_within(two, bounds)


@for_both
def test_what_a_command_asks_for_each_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_check, "_PARALLEL", 1)
    onboarded(shop, "orders")
    names = [f"more_{number}" for number in range(MORE_TABLES)]
    shop.create("stranger", 1)
    checked = list[int]()
    discovered = [logins_of_discover(shop, 1)]
    for tables in ([], names):
        for name in tables:
            shop.create(name, 1)
        if tables:
            discovered.append(logins_of_discover(shop, 1 + MORE_TABLES))
            succeeded(shop.onboard(*names, with_bootstrap=False))
        with counted(shop.services) as asked:
            lines = [one for one in check(shop.services) if one.name.startswith("table ")]
        assert len(lines) == 1 + len(tables)
        checked.append(asked["logins"])
    assert checked[1] - checked[0] < MORE_TABLES, checked
    assert discovered[1] - discovered[0] < MORE_TABLES, discovered
    with counted(shop.services) as asked:
        Runs(shop.services, shop.services.store.tables).once()
    assert 0 < asked["plan"] <= RUN_READS_PLAN, asked


def logins_of_discover(shop: Shop, strangers: int) -> int:
    """Return how often `discover` logs in if so many tables are not on the plan."""
    with counted(shop.services) as asked:
        entries = discover(shop.services, only_new=True)
    assert [entry.refusal for entry in entries] == [None] * strangers
    return asked["logins"]


def kept_kafka_settings(spark: SparkSession) -> int:
    """Return the number of pairs of group and partition whose settings Spark's source keeps."""
    jvm: Any = spark.sparkContext._jvm
    load = jvm.org.apache.spark.util.Utils.classForName
    source = load("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$", True, False)
    found = source.getField("MODULE$").get(None)
    for name in ("consumerPool", "objectFactory", "keyToKafkaParams"):
        (field,) = [one for one in found.getClass().getDeclaredFields() if name in one.getName()]
        field.setAccessible(True)
        found = field.get(found)
    return int(found.size())


def onboarded(shop: Shop, *names: str) -> None:
    """Create tables of one row, and copy them to the lake."""
    for name in names:
        shop.create(name, 1)
    succeeded(shop.onboard(*names))


def least_of_round(shop: Shop, records: list[TableRecord], *, look: bool) -> Counter[str]:
    """Count rounds in which no table has work, and return the least of each count."""
    rounds = list[Counter[str]]()
    for _ in range(TRIES):
        with counted(shop.services) as asked:
            assert run_tables(shop.services.run_context, records, look_at_idle=look) == []
        rounds.append(asked)
    return least(rounds)


def least(counts: list[Counter[str]]) -> Counter[str]:
    """Return the least of each count."""
    return Counter({what: min(one[what] for one in counts) for what in set().union(*counts)})


def assert_within(counts: Counter[str], bounds: Mapping[str, int]) -> None:
    """Assert that no count is above its bound, and that what has a bound is still counted."""
    over = {what: count for what, count in counts.items() if count > bounds.get(what, 0)}
    assert not over, f"{over} of {dict(counts)}"
    gone = {what for what, bound in bounds.items() if bound and not counts[what]}
    assert not gone, f"no longer counted: {gone}"
