"""Partitions that join a followed PostgreSQL table, although the log has none of their changes."""

from __future__ import annotations

import psycopg
import pytest

from cdc.store.table_state import State
from operate.onboard import bootstrap
from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop

JOINED = {
    "unlogged": "CREATE UNLOGGED TABLE unlogged_2 PARTITION OF unlogged DEFAULT",
    "nothing": "CREATE TABLE nothing_2 PARTITION OF nothing DEFAULT",
    "remote": "CREATE FOREIGN TABLE remote_2 PARTITION OF remote DEFAULT SERVER nowhere",
}
REFUSED = {
    "unlogged": "has the partition public.unlogged_2, which is UNLOGGED",
    "nothing": "has the partition public.nothing_2, whose replica identity is",
    "remote": "has the partition public.remote_2, which is a foreign table",
}


@pytest.mark.breadth
def test_a_partition_that_joins_and_has_no_log_stops_its_table_by_name(shop: Shop) -> None:
    """The partition is UNLOGGED, FOREIGN, or has no key.

    The FOREIGN one joins an append table, since a unique index allows no foreign partitions. For
    the one without a key, the server itself refuses the application's changes.
    """
    database = shop.database
    assert isinstance(database, Database)
    database.stack.psql(
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;"
        f"GRANT USAGE ON FOREIGN SERVER nowhere TO {ADMIN}",
        database=database.name,
    )
    shop.tables = {database.label("remote"): {"mode": "append"}}
    shop.reconfigure()
    for name in JOINED:
        key = "" if name == "remote" else " PRIMARY KEY"
        database.execute(
            f"CREATE TABLE {name} (id int{key}, v int) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (10)",
            f"INSERT INTO {name} VALUES (1, 1), (2, 2)",
        )
    database.let_pause()
    succeeded(shop.onboard(*JOINED))
    database.execute(
        *JOINED.values(),
        "INSERT INTO unlogged VALUES (90, 1)",
        "INSERT INTO nothing VALUES (90, 1)",
        "ALTER TABLE nothing_2 REPLICA IDENTITY NOTHING",
    )
    change = "UPDATE nothing SET v = 2 WHERE id = 90"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        database.execute(change)
    shop.run()
    for name in JOINED:
        record = shop.record(name)
        assert record.state is State.NEEDS_BOOTSTRAP, name
        assert f"public.{name}_2" in (record.reason or ""), record.reason
    tables = [shop.table(name) for name in JOINED]
    for name, outcome in zip(JOINED, bootstrap(shop.services, tables), strict=True):
        assert REFUSED[name] in str(outcome.error), outcome.error
    database.execute(
        "ALTER TABLE unlogged_2 SET LOGGED",
        "ALTER TABLE nothing_2 REPLICA IDENTITY DEFAULT",
        change,
        "DROP FOREIGN TABLE remote_2",
    )
    succeeded(bootstrap(shop.services, tables))
    shop.assert_equal(*JOINED)
