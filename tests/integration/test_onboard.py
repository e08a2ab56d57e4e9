"""Onboarding on the real stack: what it creates, what it refuses, and what it does not touch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from uuid import uuid4

import pytest

from cdc.errors import CaptureError, ConnectError, LeaseHeldError, SourceError, StateError
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.slot_capture import Slot
from cdc.store.attempt import Attempt
from cdc.store.table_state import Cause, State, transition
from operate import tier_capture as capture_module
from operate.context import Services
from operate.lifecycle import offboard, pause, published_path, resume, retry
from operate.onboard import bootstrap
from operate.resync import resync
from operate.run import Runs
from operate.status import TableStatus, status
from operate.table_outcome import unfinished
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import cold as cold
from tests.integration.rigs.shop import shop as shop


def test_a_second_table_leaves_the_first_ones_connector_alone(shop: Shop) -> None:
    for name in ("orders", "lines"):
        shop.create(name, 2000)
    with shop.writing(
        "UPDATE orders SET v = v + 1 WHERE id % 97 = 3",
        "UPDATE lines SET v = v + 1 WHERE id % 89 = 3",
    ) as written:
        succeeded(shop.onboard("orders"))
        slot = shop.services.capture(shop.table("orders")).slot
        reader = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}'"
        first, before = shop.scalar(reader), written[0]
        succeeded(shop.onboard("lines"))
        assert first is not None
        assert shop.scalar(reader) == first, "the connector was restarted"
        assert written[0] > before
    assert [result.error for result in shop.run()] == [None] * 2
    for name in ("orders", "lines"):
        found = shop.verify(name)
        assert found.equal
        assert found.rows_compared == 2000
        assert published_path(shop.services, shop.table(name)) == shop.record(name).attempt.path


def test_one_process_at_a_time_changes_what_tables_share(
    cold: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last table could leave, and drop the slot, while another table joins the capture."""
    monkeypatch.setattr(capture_module, "_LEASE_WAIT_S", 0.0)
    for name in ("orders", "lines"):
        cold.create(name, 1)
    succeeded(cold.onboard("orders", with_bootstrap=False))
    names = cold.services.capture(cold.table("orders"))
    services = Services(cold.config(), NullProgress())
    with capture_module.hold_for_change(services, names):
        with pytest.raises(LeaseHeldError, match="capture of"):
            offboard(cold.services, cold.table("orders"), delete_data=False)
        assert isinstance(cold.onboard("lines", with_bootstrap=False)[0].error, LeaseHeldError)
    services.close()
    source = cold.services.source(cold.database.name)
    assert source.capture(names).sent_tables.tables() == [cold.table("orders")]
    assert source.capture(names).kept_log.health() is not None


@pytest.mark.breadth
def test_a_slot_made_anew_behind_the_connector_stops_its_tables(shop: Shop) -> None:
    shop.create("orders", 500)
    succeeded(shop.onboard("orders"))
    capture = shop.services.capture(shop.table("orders"))
    source, connect = shop.services.source(shop.database.name), shop.services.connect
    connect.stop(capture.connector)
    source.capture(capture).kept_log.drop()
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    source.capture(capture).kept_log.create()
    connect.resume(capture.connector)

    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "the slot was recreated" in (shop.record("orders").reason or "")
    found = status(shop.services, [])
    assert "the slot was recreated" in (found.captures[0].problem or "")
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    assert shop.verify("orders").equal
    healed = status(shop.services, []).captures[0]
    assert healed.problem is None
    assert healed.silent_s is not None


@pytest.mark.breadth
def test_a_slot_that_a_connector_without_its_position_made_anew_stops_its_tables(
    shop: Shop,
) -> None:
    """This happens if another Connect cluster takes over after the slot was dropped."""
    followed_for_a_while(shop)
    made_anew(shop)
    assert_noticed_and_copied(shop)


@pytest.mark.breadth
def test_a_new_slot_is_noticed_whose_predecessors_counts_were_reset(shop: Shop) -> None:
    """The new slot has decoded more than the former slot since its reset, so counts show no change.

    Only the time of the reset, which the new slot lacks, shows that the slot is new.
    """
    followed_for_a_while(shop)
    slot = shop.services.capture(shop.table("orders")).slot
    shop.database.stack.psql(f"SELECT pg_stat_reset_replication_slot('{slot}')")
    run_without_error(shop)
    made_anew(shop)
    shop.database.execute(*(f"UPDATE orders SET v = 4 WHERE id = {n}" for n in range(1, 101)))
    shop.settle("orders")
    assert_noticed_and_copied(shop)


def followed_for_a_while(shop: Shop) -> None:
    """Let runs apply 100 transactions of 'orders', and look at its capture afterwards."""
    shop.create("orders", 100)
    succeeded(shop.onboard("orders"))
    shop.database.execute(*(f"UPDATE orders SET v = 1 WHERE id = {n}" for n in range(1, 101)))
    shop.settle("orders")
    run_without_error(shop)
    run_without_error(shop)


def made_anew(shop: Shop) -> None:
    """Drop the slot of 'orders', and let its connector create it again after a change.

    The connector has no stored position, so it starts at the new slot, and the change is lost.
    """
    capture = shop.services.capture(shop.table("orders"))
    kept, connect = shop.services.source(shop.database.name).capture(capture), shop.services.connect
    config = connect.connector(capture.connector)
    assert config is not None
    connect.delete(capture.connector)
    kept.kept_log.drop()
    shop.database.execute("UPDATE orders SET v = 2 WHERE id = 1")
    connect.put_connector(capture.connector, config)
    wait_until(lambda: kept.kept_log.reader() is not None, "the connector has made a slot", 60)
    shop.database.execute("UPDATE orders SET v = 3 WHERE id = 2")
    shop.settle("orders")


def assert_noticed_and_copied(shop: Shop) -> None:
    """Assert that the next run stops 'orders', and that a new copy repairs the table."""
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, shop.verify("orders")
    assert "was recreated" in (shop.record("orders").reason or "")
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    run_without_error(shop)
    assert shop.verify("orders").equal


@pytest.mark.breadth
def test_row_security_cannot_hide_rows_from_the_copy(shop: Shop) -> None:
    shop.create("orders", 10)
    shop.database.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    outcome = shop.onboard("orders")[0]
    assert outcome.failed
    assert "row-level security" in str(outcome.error)


def test_a_lost_slot_is_not_made_anew_under_tables_that_follow_it(shop: Shop) -> None:
    """Onboarding another table must not create a new slot, even if the connector is gone, too.

    With a new slot, nothing would show afterwards that changes are missing.
    """
    shop.create("orders", 10)
    shop.create("more", 10)
    succeeded(shop.onboard("orders"))
    capture = shop.services.capture(shop.table("orders"))
    source = shop.services.source(shop.database.name)
    shop.services.connect.delete(capture.connector)
    source.capture(capture).kept_log.drop()
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")

    (refused,) = shop.onboard("more")
    assert refused.failed
    assert str(shop.table("orders")) in str(refused.error)
    assert source.capture(capture).kept_log.health() is None
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    succeeded(shop.onboard("more"))
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    assert shop.verify("orders").equal


def test_a_slot_is_made_anew_whose_publication_was_dropped(cold: Shop) -> None:
    """PostgreSQL looks the publication up as of each change.

    So the slot cannot be read past the first change after the publication was dropped.
    """
    cold.create("orders", 10)
    succeeded(cold.onboard("orders", with_bootstrap=False))
    capture = cold.services.capture(cold.table("orders"))
    cold.database.execute(f"DROP PUBLICATION {capture.publication}", "UPDATE orders SET v = 1")
    # It waits for a heartbeat, which comes only from a slot that can be read.
    succeeded(cold.onboard("orders", with_bootstrap=False))
    source = cold.services.source(cold.database.name)
    assert source.capture(capture).sent_tables.tables() == [cold.table("orders")]


@pytest.mark.breadth
def test_a_slot_lost_while_a_table_is_copied_is_made_anew_for_another_attempt(shop: Shop) -> None:
    """Attempts that began with the former slot are given up.

    Changes between the end of the old slot and the start of the new one are in neither.
    """
    for name in ("orders", "lines", "logs"):
        shop.create(name, 300)
    succeeded(shop.onboard("orders", "lines", "logs", with_bootstrap=False))
    capture = shop.services.capture(shop.table("orders"))
    left = {name: copying(shop, name) for name in ("orders", "lines", "logs")}
    source = shop.services.source(shop.database.name)
    shop.services.connect.stop(capture.connector)
    source.capture(capture).kept_log.drop()
    shop.database.execute("UPDATE orders SET v = 7", "UPDATE lines SET v = 8 WHERE id > 9")

    other = Services(shop.config(), NullProgress())
    with other.leases.hold(shop.table("lines")):
        (refused,) = shop.onboard("orders")
        assert f"table {shop.table('lines')} is held by" in str(refused.error)
        assert shop.record("orders").attempt == left["orders"], "all of them, or none"
    other.close()

    succeeded(shop.onboard("lines"))
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    for name in ("orders", "lines"):
        record = shop.record(name)
        assert record.state is State.INCREMENTAL
        assert record.attempt is not None
        assert record.attempt.id != left[name].id
        assert shop.verify(name).equal
    waiting = shop.record("logs")
    assert waiting.state is State.NEEDS_BOOTSTRAP
    assert capture.slot in (waiting.reason or "")


@pytest.mark.breadth
def test_a_generation_that_is_built_does_not_outlive_its_slot(shop: Shop) -> None:
    shop.create("orders", 100)
    succeeded(shop.onboard("orders"))
    record, table = shop.record("orders"), shop.table("orders")
    capture, source = shop.services.capture(table), shop.services.source(shop.database.name)
    beside = replace(record, state=State.REGISTERED, attempt=None, beside=True, version=0)
    build = shop.services.store.put(beside)
    pause(shop.services, table, reason="a migration")
    shop.services.connect.stop(capture.connector)
    source.capture(capture).kept_log.drop()
    shop.database.execute("UPDATE orders SET v = 7")

    (refused,) = resync(shop.services, [table])
    assert refused.error is not None
    assert f"tributary resume {table}`, then `tributary run`" in refused.error.remedy
    resume(shop.services, table)
    (stopped,) = shop.run()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    other = Services(shop.config(), NullProgress())
    with other.leases.hold(build.resource):
        assert shop.onboard("orders")[0].failed, "someone builds it"
    other.close()
    shop.onboard("orders")
    assert shop.services.store.builds() == []
    assert source.capture(capture).kept_log.health() is not None
    succeeded(bootstrap(shop.services, [table]))
    assert shop.verify("orders").equal


def test_a_first_onboarding_that_fails_leaves_no_slot_behind(
    cold: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that is left would retain log until the disk is full, and no command would show it."""
    cold.create("orders", 10)
    cold.create("lines", 10)
    capture = cold.services.capture(cold.table("orders"))
    source = cold.services.source(cold.database.name)
    overridden(cold, poll__interval__ms="never")
    assert cold.onboard("orders", with_bootstrap=False)[0].failed
    assert source.capture(capture).kept_log.health() is None
    assert cold.scalar("SELECT count(*) FROM pg_publication") == 0

    overridden(cold)
    connect = cold.services.connect
    monkeypatch.setattr(capture_module, "wait_for_heartbeat", _silent)
    (refused,) = cold.onboard("orders", with_bootstrap=False)
    assert "no heartbeat" in str(refused.error)
    assert refused.error is not None
    assert refused.error.remedy == "Wait."
    assert source.capture(capture).kept_log.health() is None
    assert connect.connector(capture.connector) is None

    # What somebody else made is left, and a table on the plan keeps everything.
    source.capture(capture).kept_log.create()
    cold.onboard("orders", with_bootstrap=False)
    assert source.capture(capture).kept_log.health() is not None
    assert connect.connector(capture.connector) is None
    monkeypatch.undo()
    succeeded(cold.onboard("orders", with_bootstrap=False))
    monkeypatch.setattr(capture_module, "wait_for_heartbeat", _silent)
    assert cold.onboard("lines", with_bootstrap=False)[0].failed
    assert source.capture(capture).kept_log.health() is not None
    assert connect.connector(capture.connector) is not None


def test_what_a_failed_onboarding_could_not_remove_is_told(
    cold: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.create("orders", 10)
    slot = cold.services.capture(cold.table("orders")).slot
    monkeypatch.setattr(capture_module, "wait_for_heartbeat", _silent)

    def held(*_: object, **__: object) -> bool:
        raise SourceError("the slot is in use", remedy="none")

    monkeypatch.setattr(Slot, "drop", held)
    (refused,) = cold.onboard("orders", with_bootstrap=False)
    assert refused.error is not None
    assert f"slot {slot} (the slot is in use)" in refused.error.remedy
    assert cold.scalar("SELECT count(*) FROM pg_publication") == 0


@pytest.mark.parametrize("how", ["stop", pytest.param("pause", marks=pytest.mark.breadth)])
def test_a_connector_that_was_left_standing_is_resumed(cold: Shop, how: str) -> None:
    """A process that is killed while it changes settings can leave a stopped connector."""
    cold.create("orders", 10)
    cold.create("lines", 10)
    succeeded(cold.onboard("orders", with_bootstrap=False))
    connect, table = cold.services.connect, cold.table("orders")
    connector = cold.services.capture(table).connector
    getattr(connect, how)(connector)
    with pytest.raises(ConnectError, match=r"STOPPED|PAUSED") as caught:
        connect.wait_running(connector, timeout_s=0.5)
    assert "tributary retry" in caught.value.remedy
    succeeded(cold.onboard("lines", with_bootstrap=False))
    getattr(connect, how)(connector)
    assert retry(cold.services, table).action == f"resumed connector {connector}"
    connect.wait_running(connector, timeout_s=1)


def _silent(*_: object, **__: object) -> None:
    raise CaptureError("no heartbeat", remedy="Wait.")


def overridden(shop: Shop, **settings: str) -> None:
    """Reconfigure the shop with raw settings for the connector; ``__`` stands for a dot."""
    connect = shop.config().connect.model_dump(mode="json", exclude_unset=True)
    raw = {name.replace("__", "."): value for name, value in settings.items()}
    shop.reconfigure(connect={**connect, "connector": raw})


def test_settings_that_break_the_capture_are_refused_before_anything_is_made(cold: Shop) -> None:
    cold.create("orders", 10)
    capture = cold.services.capture(cold.table("orders"))
    overridden(cold, skipped__operations="d")
    (refused,) = cold.onboard("orders", with_bootstrap=False)
    assert isinstance(refused.error, CaptureError)
    assert refused.error.context["field"] == "skipped.operations"
    source = cold.services.source(cold.database.name)
    assert source.capture(capture).kept_log.health() is None
    assert source.capture(capture).sent_tables.tables() == []
    assert cold.services.connect.connector(capture.connector) is None
    overridden(cold)
    succeeded(cold.onboard("orders", with_bootstrap=False))


def test_a_connector_that_lost_changes_is_corrected_once_no_table_goes_on_from_them(
    shop: Shop,
) -> None:
    for name in ("orders", "lines"):
        shop.create(name, 100)
    succeeded(shop.onboard("orders", "lines", with_bootstrap=False))
    capture, connect = shop.services.capture(shop.table("orders")), shop.services.connect
    wanted = connect.connector(capture.connector)
    assert wanted is not None
    # As an earlier version left it: nobody follows it, so nothing that it lost is missed.
    connect.put_connector(capture.connector, {**wanted, "skipped.operations": "d"})
    succeeded(shop.onboard("orders"))
    assert connect.connector(capture.connector) == wanted

    left = copying(shop, "lines")
    connect.put_connector(capture.connector, {**wanted, "skipped.operations": "d"})
    connect.wait_running(capture.connector)
    shop.database.execute("DELETE FROM orders WHERE id = 1", "DELETE FROM lines WHERE id = 1")
    (refused,) = bootstrap(shop.services, [shop.table("lines")])
    assert f"no run has marked these tables yet: {shop.table('orders')}" in str(refused.error)
    assert "tributary run" in (refused.error.remedy if refused.error else "")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    succeeded(bootstrap(shop.services, [shop.table("lines"), shop.table("orders")]))
    assert connect.connector(capture.connector) == wanted
    for name in ("orders", "lines"):
        assert shop.verify(name).equal
    assert shop.record("lines").attempt != left


def copying(shop: Shop, name: str) -> Attempt:
    """Put a table into the state that a bootstrap leaves when it is killed after recording O."""
    record, now = shop.record(name), datetime.now(timezone.utc)
    attempt = Attempt(
        id=uuid4(),
        started_at=now,
        path=f"{record.base_path}/attempt=gone",
        topic_id=shop.services.kafka.topic_id(record.topic),
        start_offsets=shop.services.kafka.stable_offsets(record.topic),
        x0="1",
    )
    shop.services.store.put(transition(record, State.BOOTSTRAPPING, at=now, attempt=attempt))
    if name == "lines":
        error = StateError("killed", remedy="none")
        moved = transition(shop.record(name), State.FAILED, at=now, cause=Cause(error=error))
        shop.services.store.put(moved)
    return attempt


def test_a_table_on_its_way_is_never_called_done(cold: Shop) -> None:
    cold.create("orders", 10)
    succeeded(cold.onboard("orders", with_bootstrap=False))
    table = cold.table("orders")
    now = datetime.now(timezone.utc)
    at = {0: 0}
    attempt = Attempt(
        id=uuid4(), started_at=now, path="nowhere", start_offsets=at, handoff_offsets=at
    )
    copying = transition(cold.record("orders"), State.BOOTSTRAPPING, at=now, attempt=attempt)
    cold.services.store.put(copying)
    cold.services.store.put(transition(cold.record("orders"), State.CATCHING_UP, at=now))
    pause(cold.services, table, reason="a TRUNCATE")
    assert f"tributary bootstrap {table}" in resume(cold.services, table).action
    (waiting,) = Runs(cold.services, cold.services.store.tables).waiting()
    assert waiting.state is State.CATCHING_UP
    assert f"tributary bootstrap {table}" in (unfinished(waiting) or "")


def test_an_idle_table_stays_fresh(shop: Shop) -> None:
    shop.create("orders", 10)
    succeeded(shop.onboard("orders"))
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    assert shop.verify("orders").equal

    def seen() -> TableStatus:
        (table,) = status(shop.services, [shop.table("orders")]).tables
        return table

    first = seen()
    assert first.record.last_commit is not None
    assert first.watermark is not None
    wait_until(lambda: (seen().watermark or first.watermark) > first.watermark, "a beat", 30)
    assert seen().record.last_commit == first.record.last_commit, "no commit was needed for it"
    assert seen().runs, "what its last runs did"
    shop.database.execute("UPDATE orders SET v = 2 WHERE id = 1")
    wait_until(lambda: seen().events_behind != 0, "the change in the topic", 30)
    assert seen().watermark == first.record.last_commit.watermark
