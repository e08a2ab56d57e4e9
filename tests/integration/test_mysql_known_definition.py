"""Statements that connector and server understand differently stop the tables that they change."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.capture.gathering import Captures
from cdc.capture.known_definition import differences, newest
from cdc.capture.remembered_losses import loss_scopes
from cdc.capture.topic_facts import one_topic
from cdc.rows.binlog_values import NUMBER_AS_TRUE
from cdc.run.table import run_table
from cdc.sources.mysql import lookup
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State
from operate.onboard import bootstrap
from operate.resync import resync
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase, mysql_of
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_captured import mysql_capturing
from tests.integration.rigs.mysql_cells import CASES, OWN
from tests.integration.rigs.person import Person
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

pytestmark = pytest.mark.breadth


def test_a_table_stops_whose_definition_the_connector_has_otherwise(shop: Shop) -> None:
    of_mariadb = ["swapped"] if shop.database.kind == MARIADB else []
    names = ["recoded", *of_mariadb]
    shop.database.execute(
        "CREATE TABLE recoded (id int PRIMARY KEY) CHARACTER SET latin1",
        "CREATE TABLE swapped (id int PRIMARY KEY, a varchar(9), b varchar(9))",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard(*names))
    shop.database.execute(
        "ALTER TABLE recoded DEFAULT CHARACTER SET utf8mb4",
        "ALTER TABLE recoded ADD nick varchar(50)",
        "INSERT INTO recoded VALUES (1, '\u00e4')",
        *("ALTER TABLE swapped ADD COLUMN IF NOT EXISTS b varchar(9) AFTER id" for _ in of_mariadb),
        "INSERT INTO swapped VALUES (1, 'a', 'b')",
        "CREATE TABLE late (id int PRIMARY KEY, v varchar(9)) COLLATE latin1_bin",
        "INSERT INTO late VALUES (1, '\u00e4')",
    )
    told = {
        "recoded": "column nick is text in utf8, and the connector has text in latin1",
        "swapped": "its columns come in the order id, a, b, and the connector has id, b, a",
        "late": "column v is text in latin1, and the connector has text in utf8",
    }
    # The catalog of swapped stays the same, so a run may come before its statement and row.
    for name in names:
        shop.settle(name)
    for result in shop.run():
        assert result.state is State.NEEDS_BOOTSTRAP, result
        assert told[result.table.name] in result.error.message
    # Another copy would not change what the connector has.
    for outcome in bootstrap(shop.services, [shop.table(name) for name in names]):
        assert told[outcome.table.name] in str(outcome.error)
    (refused,) = shop.onboard("late")
    assert told["late"] in str(refused.error)
    assert refused.error is not None
    assert "MODIFY" in refused.error.remedy
    shop.database.execute(
        "ALTER TABLE recoded MODIFY nick varchar(50) CHARACTER SET utf8mb4",
        "ALTER TABLE swapped MODIFY b varchar(9) AFTER a",
        "ALTER TABLE late MODIFY v varchar(9) CHARACTER SET latin1 COLLATE latin1_bin",
    )
    succeeded(bootstrap(shop.services, [shop.table(name) for name in names]))
    succeeded(shop.onboard("late"))
    shop.database.execute(
        "INSERT INTO recoded VALUES (2, '\u20ac')",
        "INSERT INTO swapped VALUES (2, 'c', 'd')",
        "INSERT INTO late VALUES (2, '\u00fc')",
    )
    run_without_error(shop)
    shop.assert_equal(*names, "late")


def test_true_of_a_boolean_that_a_statement_declares_is_read_by_key(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs read the number by key. After MODIFY with the real type, events have the number."""
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, flag tinyint(1))",
        "INSERT INTO orders VALUES (1, 2), (2, -1), (3, 0), (4, NULL)",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("orders"))
    asked: list[tuple[int, ...]] = []
    fetch = lookup.fetch_by_key

    def recorded(session: Any, table: Any, schema: Any, keys: Any, columns: Any) -> Any:
        asked.extend(keys)
        return fetch(session, table, schema, keys, columns)

    monkeypatch.setattr(lookup, "fetch_by_key", recorded)
    shop.database.execute(
        "ALTER TABLE orders ADD COLUMN review BOOLEAN",
        "ALTER TABLE orders ADD COLUMN ip INTEGER UNSIGNED",
        "ALTER TABLE orders MODIFY flag BOOL",
        "UPDATE orders SET review = 2, ip = 3232235777 WHERE id = 1",
        "UPDATE orders SET review = FALSE, ip = 7 WHERE id = 3",
        "UPDATE orders SET flag = -128 WHERE id = 4",
        "INSERT INTO orders VALUES (5, TRUE, TRUE, 4294967295)",
    )
    shop.settle("orders")
    run_without_error(shop)
    shop.assert_equal("orders")
    assert sorted(asked) == [(1,), (4,), (5,)]
    rows = shop.lake("orders").select("id", "flag", "review", "ip").collect()
    assert sorted(map(tuple, rows)) == [
        (1, 2, 2, 3232235777),
        (2, -1, None, None),
        (3, 0, 0, 7),
        (4, -128, None, None),
        (5, 1, 1, 4294967295),
    ]
    asked.clear()
    shop.database.execute(
        "ALTER TABLE orders MODIFY review tinyint(1), MODIFY flag tinyint(1)",
        "UPDATE orders SET review = 3, flag = 4 WHERE id = 1",
        "INSERT INTO orders VALUES (6, 1, 1, 1)",
    )
    shop.settle("orders")
    run_without_error(shop)
    shop.assert_equal("orders")
    assert asked == []


def test_a_boolean_of_an_append_table_is_refused_or_stops_it_at_the_first_true(
    person: Person,
) -> None:
    """No run can read the number by key; after MODIFY the connector sends it."""
    shop, database = person.shop, mysql_of(person.shop.database)
    early, late = database.label("early"), database.label("late")
    database.execute("CREATE TABLE early (n int)", "INSERT INTO early VALUES (1)")
    database.let_pause()
    shop.tables = {name: {"mode": "append"} for name in (early, late)}
    person.configure()
    person.done("onboard", early)
    database.execute("CREATE TABLE late (n int, flag BOOLEAN)", "INSERT INTO late VALUES (1, 2)")
    database.catch_up()
    told = person.refused("onboard", late).remedy
    assert told.startswith(f"Run ALTER TABLE {database.name}.late MODIFY")
    database.execute("ALTER TABLE late MODIFY flag tinyint(1)")
    person.follow(told)
    database.execute(
        "ALTER TABLE early ADD COLUMN flag BOOL",
        "INSERT INTO early VALUES (2, FALSE), (3, NULL)",
        "INSERT INTO late VALUES (2, -1), (3, TRUE)",
    )
    shop.settle("early")
    person.done("run", early)
    database.execute("INSERT INTO early VALUES (4, 2)")
    shop.settle("early")
    stopped = person.run("run", early)
    assert f"column flag{NUMBER_AS_TRUE}" in stopped.messages
    assert stopped.remedy.startswith(f"Run ALTER TABLE {database.name}.early MODIFY")
    database.execute("ALTER TABLE early MODIFY flag tinyint(1)")
    person.follow(stopped.remedy)
    database.execute("INSERT INTO early VALUES (5, -128)", "INSERT INTO late VALUES (4, 127)")
    for name in ("early", "late"):
        shop.settle(name)
    person.done("run", early, late)
    person.done("verify", early, late)
    rows = {
        name: sorted(shop.lake(name).select("n", "flag").collect()) for name in ("early", "late")
    }
    assert list(map(tuple, rows["early"])) == [(1, None), (2, 0), (3, None), (4, 2), (5, -128)]
    assert list(map(tuple, rows["late"])) == [(1, 2), (2, -1), (3, 1), (4, 127)]


def test_a_run_that_another_one_has_overtaken_reads_the_statements_again(shop: Shop) -> None:
    """The statement does not change the catalog, so only the connector's record shows it."""
    statement = {
        MARIADB: "ALTER TABLE orders ADD COLUMN IF NOT EXISTS b varchar(9) AFTER id",
        MYSQL: "CREATE TABLE IF NOT EXISTS orders LIKE model",
    }
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a varchar(9), b varchar(9))",
        "CREATE TABLE model (id int PRIMARY KEY, b varchar(9), a varchar(9))",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("orders"))
    context, record = shop.services.run_context, shop.record("orders")
    topic, captures = one_topic(context, record.topic), Captures(context)
    captures.evidence(record)
    shop.database.execute("INSERT INTO orders VALUES (1, 'a', 'b')")
    shop.settle("orders")
    assert run_table(context, record).commits == 1

    shop.database.execute(statement[shop.database.kind], "INSERT INTO orders VALUES (2, 'a', 'b')")
    shop.settle("orders")
    result = run_table(context, record, captures=captures, topic=topic)
    assert result.state is State.NEEDS_BOOTSTRAP, result
    assert result.error is not None
    assert "come in the order id, a, b, and the connector has id, b, a" in result.error.message
    shop.database.execute("ALTER TABLE orders MODIFY b varchar(9) AFTER a")
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders")


def test_statements_whose_topic_was_recreated_ask_for_a_copy(shop: Shop) -> None:
    """Only the lost RENAME statement shows that the name now belongs to a table with other rows."""
    shop.create("orders", 3)
    shop.create("other", 5)
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("orders"))
    kafka, context = shop.services.kafka, shop.services.run_context
    topic = Captures(context).evidence(shop.record("orders")).names.schema_change_topic
    shop.database.execute(
        "RENAME TABLE orders TO former, other TO orders", "INSERT INTO orders VALUES (9, 9, 'nine')"
    )
    shop.settle("orders")
    kafka.delete_topic(topic)
    wait_until(lambda: not kafka.topics([topic]), "the end of the topic")
    kafka.ensure_topic(topic)
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, result
    assert result.error is not None
    assert f"topic {topic}: it was deleted and created again" in result.error.message


def test_evidence_from_before_a_resync_finds_no_loss_in_the_new_generation(shop: Shop) -> None:
    """The new copy starts at a later position than Connect's stored position in the evidence."""
    shop.database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("orders"))
    context, record = shop.services.run_context, shop.record("orders")
    captures = Captures(context)
    names = captures.evidence(record).names
    succeeded(resync(shop.services, [record.table]))
    topic = one_topic(context, record.topic)
    assert run_table(context, record, captures=captures, topic=topic).error is None
    assert not Losses(context.store).seen(*loss_scopes(names, record.table))
    shop.database.execute("INSERT INTO orders VALUES (1)")
    shop.settle("orders")
    run_without_error(shop)
    shop.assert_equal("orders")


def test_a_healthy_table_of_each_type_is_known_as_the_server_has_it(
    database: MysqlDatabase,
) -> None:
    """The connector has the right definition, read at its start or learned from statements."""
    cases = (*CASES, *OWN[database.kind])
    columns = ", ".join(f"c_{n} {definition}" for n, (definition, _) in enumerate(cases))
    aliases = {
        "integer": 7,
        "numeric(6,2)": "1.50",
        "dec(6,2)": "2.50",
        "fixed": "3",
        "double precision": 0.1,
        "float(30)": 0.1,
        "boolean": True,
        "bool": False,
        "nvarchar(9)": "\u00e4",
        "nchar(9)": "\u20ac",
        "national varchar(9)": "x",
        "character varying(9)": "y",
        "varchar(9) binary": "z",
    }
    if database.kind == MARIADB:
        aliases["json"] = '["\u00e4"]'
        del aliases["varchar(9) binary"]
    texts = ", ".join(f"a_{n} {name}" for n, name in enumerate(aliases))
    values = ", ".join(repr(value) for value in aliases.values())
    database.query(f"CREATE TABLE before_it (id int PRIMARY KEY, {columns})")
    with mysql_capturing(database, "before_it") as captured:
        database.query(f"CREATE TABLE after_it (id int PRIMARY KEY, {columns})")
        database.query(f"CREATE TABLE aliases (id int PRIMARY KEY, {texts})")
        captured.wait_until_captured(captured.position())
        captured.configure("before_it", "aliases")
        captured.wait_for_beat()
        database.query(f"INSERT INTO aliases VALUES (1, {values})")
        (event,) = captured.events(captured.topic("aliases"), 1)
        source = captured.source()
        for name in ("before_it", "after_it", "aliases"):
            known = newest(captured.changes()).get(captured.table(name), ())
            assert differences(known, source.table(captured.table(name)).columns) == []
    assert event.after is not None
    assert list(event.after.values())[1:] == list(aliases.values())


MISUNDERSTOOD = {
    # Table, its definition, statements on it, a row's values, what names the difference, what
    # teaches the connector.
    "recoded": (
        "CREATE TABLE recoded (id int PRIMARY KEY) CHARACTER SET latin1",
        (
            "ALTER TABLE recoded DEFAULT CHARACTER SET utf8mb4",
            "ALTER TABLE recoded ADD nick varchar(50)",
        ),
        "column nick is text in utf8, and the connector has text in latin1",
        "ALTER TABLE recoded MODIFY nick varchar(50) CHARACTER SET utf8mb4",
    ),
    "collated": (
        "",
        ("CREATE TABLE collated (id int PRIMARY KEY, v varchar(9)) COLLATE latin1_bin",),
        "column v is text in latin1, and the connector has text in utf8",
        "ALTER TABLE collated MODIFY v varchar(9) CHARACTER SET latin1",
    ),
    "swapped": (
        "CREATE TABLE swapped (id int PRIMARY KEY, a varchar(9), b varchar(9))",
        ("ALTER TABLE swapped ADD COLUMN IF NOT EXISTS b varchar(9) AFTER id",),
        "its columns come in the order id, a, b, and the connector has id, b, a",
        "ALTER TABLE swapped MODIFY b varchar(9) AFTER a",
    ),
    "replaced": (
        "CREATE TABLE replaced (id int PRIMARY KEY, a varchar(9), b varchar(9))",
        ("CREATE OR REPLACE TABLE replaced (id int PRIMARY KEY, b varchar(9), a varchar(9))",),
        "its columns come in the order id, b, a, and the connector has id, a, b",
        "ALTER TABLE replaced MODIFY a varchar(9) AFTER b",
    ),
    "liked": (
        "CREATE TABLE liked (id int PRIMARY KEY, a varchar(9), b varchar(9))",
        (
            "CREATE TABLE model (id int PRIMARY KEY, b varchar(9), a varchar(9))",
            "CREATE TABLE IF NOT EXISTS liked LIKE model",
        ),
        "its columns come in the order id, a, b, and the connector has id, b, a",
        "ALTER TABLE liked MODIFY b varchar(9) AFTER a",
    ),
}


def test_a_definition_that_the_connector_misunderstands_is_found_and_can_be_taught(
    database: MysqlDatabase,
) -> None:
    # MySQL has no such statements; MariaDB does not log one that does nothing.
    lacking = ("liked",) if database.kind == MARIADB else ("swapped", "replaced")
    cases = {name: case for name, case in MISUNDERSTOOD.items() if name not in lacking}
    for before, *_ in cases.values():
        if before:
            database.query(before)
    with mysql_capturing(database, *cases) as captured:
        source = captured.source()

        def insert(number: int) -> dict[str, bool]:
            """Insert a row into each table; returns, by table, whether the event has its values."""
            same = {}
            for name in cases:
                columns = [one.name for one in source.table(captured.table(name)).columns]
                values = [number, *(f"\u00e4{one}" for one in columns[1:])]
                texts = ", ".join(f"'{value}'" for value in values)
                database.query(f"INSERT INTO {name} VALUES ({texts})")
                event = captured.events(captured.topic(name), number)[number - 1]
                same[name] = event.after == dict(zip(columns, values, strict=True))
            return same

        def differs(name: str) -> list[str]:
            known = newest(captured.changes()).get(captured.table(name), ())
            return differences(known, source.table(captured.table(name)).columns)

        for _, statements, *_ in cases.values():
            for statement in statements:
                database.query(statement)
        assert insert(1) == dict.fromkeys(cases, False)
        for name, (*_, told, _) in cases.items():
            (found,) = differs(name)
            assert told in found, name
        for *_, taught in cases.values():
            database.query(taught)
        assert insert(2) == dict.fromkeys(cases, True)
        assert [differs(name) for name in cases] == [[]] * len(cases)
