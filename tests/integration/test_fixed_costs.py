"""Limits for the requests that a commit of a small table and a look at an idle table make.

Most tables of a large plan are small or idle, so these fixed costs decide how many tables a machine
can follow. If a change needs a higher limit, lower the cost, or explain here what the cost is for.
"""

from __future__ import annotations

from collections import Counter

from cdc.capture.gathering import Captures
from cdc.capture.topic_facts import topic_facts, with_settings
from cdc.run import run_table, run_tables
from cdc.run.context import Turn
from tests.integration.rigs.counted import counted
from tests.integration.rigs.running import Orders
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

TRANSACTIONS = 7
"""Transactions in the state store per commit: the lease with the newest record, the counted losses,
the quarantined records, the lease under Hudi's lock, the record of the commit, the history of the
run, and the release of the lease."""
STATEMENTS = 15
"""SQL statements in these transactions, without BEGIN and COMMIT."""
OPENS = 3
"""Reads of the lake table's metadata per commit: by the run's check, by the writer just before the
commit begins, and by the guard just before it completes. Each must see others' new commits."""
JOBS = 5
"""Spark jobs per commit: those of the batch's summary and of Hudi's write."""
PY4J = 340
"""Calls from Python to the JVM per commit; Python waits for each. A warm commit has made 296,
and 321 on a busy machine."""
SOURCE = 20
"""SQL statements on the source: one session reads the table's catalog and its fingerprint."""
KAFKA = 1
"""Requests to Kafka: one asks whether the last applied record is still in the topic."""
REST = 0


def test_runs_leave_no_connection_to_the_jvm_behind(orders: Orders) -> None:
    """Each run has threads of its own, and each of them calls Java."""
    client = orders.replication.spark.sparkContext._gateway._gateway_client
    open_ones = list[int]()
    for row in range(6):
        orders.execute(f"INSERT INTO T VALUES ({row}, 'a', 'b', 1)")
        assert orders.run().commits == 1
        open_ones.append(len(client.deque))
    assert open_ones[-1] <= open_ones[1] + 1, open_ones


def test_what_a_commit_and_an_idle_table_cost(orders: Orders) -> None:
    shared = orders.replication
    context = shared.context()
    for row in range(3):  # the first two warm the process up
        orders.execute(f"INSERT INTO T VALUES ({row}, 'a', 'b', 1)")
        shared.settle()
        record, captures = shared.record(orders.name), Captures(context)
        captures.evidence(record)  # a round has asked for this, once for all tables
        topics = with_settings(context, topic_facts(context, [record.topic]))
        with counted(shared) as spent:
            topic = topics[record.topic]
            result = run_table(context, record, captures=captures, topic=topic, turn=Turn())
        assert (result.error, result.commits) == (None, 1)
    bounds = {
        "transactions": TRANSACTIONS,
        "statements": STATEMENTS,
        "opens": OPENS,
        "jobs": JOBS,
        "py4j": PY4J,
        "kafka": KAFKA,
        "rest": REST,
        "source": SOURCE,
    }
    over = {what: count for what, count in spent.items() if count > bounds[what]}
    assert not over, f"a commit costs {dict(spent)}"
    assert {*bounds} - {"rest"} <= {*spent}, "something is no longer counted"

    name = f"{orders.name[:40]}_other"
    shared.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
    shared.add(name)
    shared.settle()
    run_tables(context, [shared.record(name)])  # it notes the settings of the table
    both = [shared.record(orders.name), shared.record(name)]
    assert run_tables(context, both) == []
    for look in (False, True):
        rounds = list[Counter[str]]()
        for records in (both[:1], both):
            with counted(shared) as asked:
                assert run_tables(context, records, look_at_idle=look) == []
            rounds.append(asked)
        assert rounds[0] == rounds[1], "another idle table adds no call"
        assert rounds[0]["kafka"] > 0
        assert rounds[0]["jobs"] == 0, "idle tables need no job of Spark"
