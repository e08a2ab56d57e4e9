"""Which changes a restarted connector has decoded by a later definition, without GTIDs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc.store.attempt import Attempt
from cdc.store.kept_task_looks import KeptLooks
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from tests.records import READY
from tests.unit.cdc.capture.looks_in_memory import asked, beat, looks_at, losses, record
from tests.unit.cdc.task_topics import NAMES, START, Topics, in_binlog, learned

NAMES_MYSQL = replace(NAMES, kind="mysql")
HISTORY = NAMES_MYSQL.schema_history_topic
ORDERS = str(record().table)
REORDERED = ("id", "b", "a")


def orders(o: int = 0) -> TableRecord:
    attempt = Attempt(READY.id, START, "p", start_offsets={0: o})
    return replace(record(), attempt=attempt)


def history(topics: Topics, *, altered_at: int = 50, place: int = 900, **more: Any) -> None:
    """The schema history of an altered table: the snapshot, and the later statement."""
    snapshot = {"snapshot": "INITIAL", "server_id": 0}
    topics.add(learned(0, 100, -9_000, topic=HISTORY, position=snapshot))
    topics.add(learned(1, place, altered_at, topic=HISTORY, columns=REORDERED, **more))


def look(folder: Path, topics: Topics, one: TableRecord | None = None) -> dict[str, int]:
    looks_at(folder, topics).follow(NAMES_MYSQL, [one or orders()], asked)
    return losses(folder)


@pytest.mark.parametrize("outdated", [{}, {"gtids": "3e11fa47:1-6"}], ids=["never", "earlier"])
@pytest.mark.parametrize("sent_before", [True, False], ids=["after another task", "first of all"])
def test_rows_from_before_a_statement_that_the_next_task_sends_are_a_loss(
    tmp_path: Path, sent_before: bool, outdated: dict[str, Any]
) -> None:
    """The server has no GTIDs now; if it had GTIDs before, all positions still contain them."""
    topics = Topics()
    history(topics, position=outdated)
    beat(topics, "a", at=10)
    assert look(tmp_path, topics) == {}
    if sent_before:
        topics.add(in_binlog(0, 300, 0, "c", topic="orders", task="a", at=20, decoded=20))
    # The former task had read the statement at 50, and had these rows in its queue.
    topics.add(in_binlog(1, 400, 0, "c", topic="orders", task="b", at=61, decoded=60))
    topics.add(in_binlog(2, 950, 0, "c", topic="orders", task="b", at=62, decoded=61))
    beat(topics, "b", at=70)
    assert look(tmp_path, topics) == {ORDERS: 1}
    assert look(tmp_path, topics) == {ORDERS: 1}, "a loss is counted once"


@pytest.mark.parametrize("later_looks", [0, 2])
def test_rows_that_the_next_task_sends_after_its_first_heartbeat_are_judged_once(
    tmp_path: Path, later_looks: int
) -> None:
    """The look that finds the new task does not find any of the task's rows in the topic yet."""
    topics = Topics()
    history(topics)
    topics.add(in_binlog(0, 300, 0, "c", topic="orders", task="a", at=5, decoded=5))
    beat(topics, "a", at=10)
    assert look(tmp_path, topics) == {}
    for number in range(1 + later_looks):
        beat(topics, "b", at=60 + number * 600)
        assert look(tmp_path, topics) == {}
    topics.add(in_binlog(1, 400, 0, "c", topic="orders", task="b", at=2001, decoded=2000))
    beat(topics, "b", at=2002)
    assert look(tmp_path, topics) == {ORDERS: 1}
    topics.add(in_binlog(2, 410, 0, "c", topic="orders", task="b", at=2003, decoded=2002))
    beat(topics, "b", at=2004)
    assert look(tmp_path, topics) == {ORDERS: 1}, "only the first change is judged"


def test_a_first_change_that_a_task_decoded_rightly_ends_the_wait_for_it(tmp_path: Path) -> None:
    topics = Topics()
    history(topics)
    beat(topics, "a", at=10)
    look(tmp_path, topics)
    beat(topics, "b", at=60)
    look(tmp_path, topics)
    kept = KeptLooks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    waiting = kept.of("c")
    assert waiting is not None
    assert dict(waiting.look.awaited) == {"orders": 0}
    topics.add(in_binlog(0, 950, 0, "c", topic="orders", task="b", at=61, decoded=61))
    beat(topics, "b", at=70)
    assert look(tmp_path, topics) == {}
    after = kept.of("c")
    assert after is not None
    assert dict(after.look.awaited) == {}


@pytest.mark.parametrize(
    ("of_history", "of_row"),
    [
        pytest.param({}, {"decoded": 49, "at": 61}, id="decoded before the statement was read"),
        pytest.param({"place": 401}, {"pos": 401, "decoded": 60}, id="behind the statement"),
        pytest.param({}, {"gtid": "3e11fa47:7", "decoded": 60}, id="with GTIDs"),
        pytest.param({"table": '"public"."lines"'}, {"decoded": 60}, id="of another table"),
        pytest.param({"position": {"file": "other.000007"}}, {"decoded": 60}, id="another binlog"),
        pytest.param({"altered_at": -900}, {"decoded": 60}, id="from before the copy"),
    ],
)
def test_other_rows_were_decoded_by_their_own_definition(
    tmp_path: Path, of_history: dict[str, Any], of_row: dict[str, Any]
) -> None:
    topics = Topics()
    history(topics, **of_history)
    beat(topics, "a", at=10)
    look(tmp_path, topics)
    facts: dict[str, Any] = {"topic": "orders", "task": "b", "at": 60, **of_row}
    topics.add(in_binlog(1, facts.pop("pos", 400), 0, "c", **facts))
    beat(topics, "b", at=70)
    assert look(tmp_path, topics) == {}


def test_a_statement_that_leaves_the_columns_alone_changes_no_decoding(tmp_path: Path) -> None:
    topics = Topics()
    history(topics)
    topics.add(learned(2, 980, 55, topic=HISTORY, columns=REORDERED))
    beat(topics, "a", at=10)
    look(tmp_path, topics)
    topics.add(in_binlog(1, 950, 0, "c", topic="orders", task="b", at=61, decoded=60))
    beat(topics, "b", at=70)
    assert look(tmp_path, topics) == {}


def test_rows_before_the_copys_first_offset_do_not_count(tmp_path: Path) -> None:
    topics = Topics()
    history(topics)
    beat(topics, "a", at=10)
    look(tmp_path, topics, orders(o=2))
    topics.add(in_binlog(1, 400, 0, "c", topic="orders", task="b", at=61, decoded=60))
    topics.add(in_binlog(2, 950, 0, "c", topic="orders", task="b", at=62, decoded=61))
    beat(topics, "b", at=70)
    assert look(tmp_path, topics, orders(o=2)) == {}
    # A table that was copied after the statement was read, by a clock that is a bit behind.
    later = replace(orders(), attempt=Attempt(READY.id, START + timedelta(hours=1), "p"))
    assert look(tmp_path, topics, later) == {}


def test_a_record_that_is_no_definition_is_a_doubt_and_no_error(tmp_path: Path) -> None:
    topics = Topics()
    topics.add(replace(learned(0, 900, 50, topic=HISTORY), value=b"[1]"))
    beat(topics, "a", at=10)
    look(tmp_path, topics)
    topics.add(in_binlog(1, 400, 0, "c", topic="orders", task="b", at=61, decoded=60))
    beat(topics, "b", at=70)
    found = looks_at(tmp_path, topics).follow(NAMES_MYSQL, [orders()], asked)
    assert found is not None
    assert "not one of a schema history" in found.doubts[ORDERS].what
