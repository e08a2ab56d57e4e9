"""Tables that onboarding refuses; a dry run and `discover` must refuse them in the same words."""

from __future__ import annotations

from typing import cast

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.capture.evidence import CaptureEvidence
from cdc.debezium import CaptureNames
from cdc.store.table_state import State
from operate import check
from operate.copy_order import largest_first
from operate.discover import at_source, discover
from operate.dryrun import onboarding_steps
from operate.onboard import onboard
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import cold as cold
from tests.integration.rigs.sources import capture_of


def no_look(names: CaptureNames) -> CaptureEvidence:
    """Fail, since no table of a capture is on the plan."""
    raise AssertionError(names)


def test_a_table_without_a_key_is_refused_and_the_others_go_on(cold: Shop) -> None:
    cold.create("orders", 10)
    cold.database.execute("CREATE TABLE history (at timestamptz, note text)")
    outcomes = cold.onboard("history", "orders", with_bootstrap=False)
    refusal = outcomes[0].error
    assert refusal is not None
    for choice in ("REPLICA IDENTITY USING INDEX", "REPLICA IDENTITY FULL", "key_columns"):
        assert choice in refusal.remedy
    assert outcomes[1].state is State.REGISTERED
    source = cold.services.source(cold.database.name)
    publication = cold.services.capture(cold.table("orders")).publication
    assert capture_of(source, publication).sent_tables.tables() == [cold.table("orders")]
    cold.database.execute("INSERT INTO history VALUES (now(), 'a')", "UPDATE history SET note = ''")


def test_tables_that_would_share_a_topic_are_refused(cold: Shop) -> None:
    cold.create('"a b"', 1)
    cold.create("a_b", 1)
    outcomes = cold.onboard("a b", "a_b", with_bootstrap=False)
    assert [outcome.failed for outcome in outcomes] == [True, True]
    assert "would both write to topic" in str(outcomes[0].error)
    succeeded(cold.onboard("a_b", with_bootstrap=False))
    later = cold.onboard("a b", with_bootstrap=False)
    assert later[0].failed


def test_a_table_whose_path_is_taken_leaves_the_publication_again(cold: Shop) -> None:
    cold.tables = {"public.*": {"name": "one/place"}}
    cold.reconfigure()
    for name in ("first", "second"):
        cold.create(name, 1)
    outcomes = cold.onboard("first", "second", with_bootstrap=False)
    assert [outcome.failed for outcome in outcomes] == [False, True]
    assert "would be written to" in str(outcomes[1].error)
    publication = cold.services.capture(cold.table("first")).publication
    source = cold.services.source(cold.database.name)
    assert capture_of(source, publication).sent_tables.tables() == [cold.table("first")]


def test_tables_that_cannot_be_captured_stop_no_other(cold: Shop) -> None:
    """A migration keeps one table locked, and the topic of another one has two partitions."""
    names = ("well", "locked", "split")
    for name in names:
        cold.create(name, 10)
    capture = cold.services.capture(cold.table("well"))
    admin = AdminClient(cold.config().kafka.librdkafka_config())
    topic = NewTopic(capture.topic(cold.table("split")), num_partitions=2, replication_factor=1)
    for done in admin.create_topics([topic]).values():
        done.result(30)
    with psycopg.connect(cast("Database", cold.database).dsn()) as migration:
        migration.execute("LOCK TABLE locked IN SHARE UPDATE EXCLUSIVE MODE")
        well, locked, split = cold.onboard(*names, with_bootstrap=False)
        migration.rollback()
    assert well.state is State.REGISTERED
    assert "lock timeout" in str(locked.error)
    assert "has 2 partitions, not 1" in str(split.error)
    source = cold.services.source(cold.database.name)
    sent = capture_of(source, capture.publication).sent_tables
    assert sent.tables() == [cold.table("well")], "the refused ones are not captured"
    succeeded(cold.onboard("locked", with_bootstrap=False))


def test_tables_are_listed_while_one_of_them_is_rewritten(
    cold: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """VACUUM FULL keeps a table from being measured, for hours if it is large.

    Only `discover` shows sizes, after a wait of ten seconds. Wildcards and `check` measure nothing,
    and the order of copies asks for the sizes of tables that are copied.
    """
    for name in ("well", "locked"):
        cold.create(name, 10)
    cold.database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (9)",
    )
    source, well, parts = (
        cold.services.source(cold.database.name),
        cold.table("well"),
        cold.table("parts"),
    )
    with psycopg.connect(cast("Database", cold.database).dsn()) as rewriting:
        rewriting.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        wanted = at_source(cold.services, ["public.*"])
        (line,) = check._table_checks(cold.services, cold.database.name, [], no_look)
        assert largest_first(cold.services, [parts, well], 0) == [well, parts]
        assert "not measured" not in caplog.text
        everything = source.tables()
        assert "not measured" in caplog.text
        rewriting.rollback()
    assert {table.name for table in wanted.tables} == {"well", "locked", "parts"}
    assert line.detail.startswith("4 found, 0 on the plan")
    assert source.table_names() == [one.table for one in everything]
    sizes = {one.table: one.total_bytes for one in source.tables()}
    some = [well, parts, cold.table("gone")]
    assert source.total_bytes(some) == {one: sizes[one] for one in (well, parts)}
    assert sizes[well] > sizes[parts] > 0


def test_a_dry_run_tells_everything_and_does_nothing(cold: Shop) -> None:
    kafka = cold.config().kafka.model_dump(by_alias=True, exclude_unset=True)
    cold.reconfigure(kafka={**kafka, "topic": {"max_message_bytes": 2_000_000}})
    cold.create("orders", 10)
    planned = onboarding_steps(cold.services, [cold.table("orders")], with_bootstrap=True)
    text = "\n".join(step.text for step in planned.steps)
    capture = cold.services.capture(cold.table("orders"))
    assert f'ALTER PUBLICATION "{capture.publication}" ADD TABLE ONLY "public"."orders";' in text
    assert f"pg_create_logical_replication_slot('{capture.slot}', 'pgoutput')" in text
    assert f"PUT /connectors/{capture.connector}/config" in text
    assert "password" in text
    password = cold.database.stack.passwords.file("tributary_capture").read_text().strip()
    assert password not in text
    created = {step.where: step.text for step in planned.steps if step.kind == "topic"}
    topics = set(created)
    assert '"max.message.bytes": "2000000"' in created[capture.topic(cold.table("orders"))]

    assert cold.scalar("SELECT count(*) FROM pg_publication") == 0
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert cold.scalar(slots) == 0
    assert not cold.services.kafka.topics(topics)
    assert cold.services.connect.connector(capture.connector) is None
    assert cold.services.store.tables() == []


def test_discover_dry_run_and_onboarding_judge_alike(cold: Shop) -> None:
    """Each table that must be refused is found before anything is created, and stops no other."""
    cold.create("orders", 10)
    stranger = f"stranger_{cold.database.name}"
    cold.database.execute(
        "CREATE TABLE history (note text)",
        "CREATE TABLE odd (id int PRIMARY KEY, bs bit(8), at point, span int4multirange)",
        "CREATE TABLE odd_too (note text, bs bit(8))",
        "CREATE TABLE theirs (id int PRIMARY KEY)",
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        'CREATE TABLE "Strange [x] ""q"".t" (id int PRIMARY KEY)',
        "CREATE UNLOGGED TABLE lost (id int PRIMARY KEY)",
        "CREATE TABLE packed (id int PRIMARY KEY)",
    )
    cold.database.stack.psql(
        "CREATE ACCESS METHOD packed TYPE TABLE HANDLER heap_tableam_handler;"
        " ALTER TABLE packed SET ACCESS METHOD packed;"
        f' CREATE ROLE "{stranger}"; GRANT USAGE, CREATE ON SCHEMA public TO "{stranger}";'
        f' ALTER TABLE theirs OWNER TO "{stranger}"',
        database=cold.database.name,
    )
    try:
        entries = {entry.stats.table: entry for entry in discover(cold.services)}
        wanted = at_source(cold.services, ["public.*"])
        assert set(wanted.tables) == wanted.by_wildcard == set(entries)
        options = {"with_bootstrap": False, "by_wildcard": wanted.by_wildcard}
        planned = onboarding_steps(cold.services, wanted.tables, **options)
        assert cold.scalar("SELECT count(*) FROM pg_publication") == 0
        outcomes = onboard(cold.services, wanted.tables, **options)
    finally:
        cold.database.stack.psql(
            f'REASSIGN OWNED BY "{stranger}" TO CURRENT_USER; DROP OWNED BY "{stranger}";'
            f' DROP ROLE "{stranger}"',
            database=cold.database.name,
        )
    told = {one.table.name: str(one.error) for one in outcomes if one.left_out}
    expected = {
        "history": "has no key",
        "odd": "3 columns of table",
        "odd_too": "for 2 reasons: (1) has no key",
        "theirs": f"belongs to {stranger}",
        "hidden": "row-level security",
        "lost": "is UNLOGGED",
        "packed": "has the access method packed",
    }
    assert set(told) == set(expected)
    assert [name for name, part in expected.items() if part not in told[name]] == []
    assert {one.table.name: str(one.error) for one in planned.refused} == told
    assert {
        name: entry.refusal.message
        for name, entry in ((table.name, one) for table, one in entries.items())
        if entry.refusal is not None
    } == told
    assert [str(one.error) for one in outcomes if one.failed] == []
    assert {one.table.name for one in outcomes if one.state is State.REGISTERED} == {
        "orders",
        'Strange [x] "q".t',
    }
    assert_named_tables_fail(cold)


def assert_named_tables_fail(cold: Shop) -> None:
    """A refused table fails if it is named; an onboarded one fails even by a wildcard."""
    (named,) = onboard(cold.services, [cold.table("history")], with_bootstrap=False)
    assert named.failed
    cold.database.execute("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    (known,) = onboard(cold.services, [cold.table("orders")], by_wildcard=[cold.table("orders")])
    assert known.failed
    # A table that stops the connector stops all of them, before anything is made.
    cold.database.execute(
        'CREATE TABLE "case" (a int PRIMARY KEY, "A" int)', "CREATE TABLE late (id int PRIMARY KEY)"
    )
    problems = [entry.problem for entry in discover(cold.services)]
    assert sum("differ by case only" in problem for problem in problems) == 1
    (also,) = onboard(cold.services, [cold.table('Strange [x] "q".t')], with_bootstrap=False)
    assert "cannot be captured" in str(also.error)
