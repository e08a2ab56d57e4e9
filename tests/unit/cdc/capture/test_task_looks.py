"""After which last event of a connector's task the next task can skip events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.remembered_losses import table_scope
from cdc.capture.task_end_events import begins_group, is_doubled
from cdc.capture.task_look_scope import is_worth_keeping, with_certain_ends
from cdc.debezium.task_ends import SentChange
from cdc.errors import SourceError
from cdc.kafka import KafkaRecord
from cdc.sources.source_facts import NextInserted
from cdc.store.attempt import Attempt
from cdc.store.kept_task_looks import Doubt, TaskLook
from schemas.table import TableId
from tests.records import READY
from tests.unit.cdc.capture.looks_in_memory import (
    AT,
    MOVED,
    asked,
    beat,
    kept,
    looks_at,
    losses,
    record,
)
from tests.unit.cdc.task_topics import NAMES, Topics, event, headers, in_binlog

LATER = AT + timedelta(minutes=6)


def change(position: str, op: str = "c", row: int = 1) -> SentChange:
    return SentChange(op, position, 7, {"id": row}, {"id": row})


@pytest.mark.parametrize(
    ("last", "before", "after", "begins"),
    [
        (change("9"), None, None, True),
        (change("9"), change("8"), change("10"), True),
        (change("9"), change("9", row=0), change("10"), False),
        (change("9"), change("8"), change("9", row=2), False),
        (change("9", "u"), change("8"), change("10"), False),
    ],
)
def test_a_group_begins_with_an_insert_at_a_position_of_its_own(
    last: SentChange, before: SentChange | None, after: SentChange | None, begins: bool
) -> None:
    assert begins_group(last, before, after) is begins


def test_a_row_is_doubled_if_it_comes_again_at_its_position() -> None:
    assert is_doubled(change("9"), change("9"))
    assert not is_doubled(change("9"), change("9", row=2))
    assert not is_doubled(change("9"), change("10"))
    assert not is_doubled(change("9"), None)


def test_a_topic_whose_newest_record_can_be_of_a_later_task_keeps_its_former_end() -> None:
    look = TaskLook("a", AT, {"idle": 5, "quiet": 7, "busy": 9, "new": 3})
    sent = {"quiet": AT, "busy": AT + timedelta(seconds=1), "new": AT + timedelta(seconds=1)}
    assert with_certain_ends(look, sent, {"busy": 4, "quiet": 6}).ends == {
        "idle": 5,
        "quiet": 7,
        "busy": 4,
    }


@pytest.mark.parametrize(
    ("look", "kept"),
    [
        (TaskLook("a", LATER, {"t": 5}), False),
        (TaskLook("a", AT + timedelta(minutes=4), {"t": 9}), False),
        (TaskLook("a", LATER, {"t": 9}), True),
        (TaskLook("b", AT, {"t": 5}), True),
        (TaskLook("a", AT, {"t": 5}, {"orders": Doubt(4, "why")}), True),
    ],
)
def test_a_look_is_written_only_if_the_next_one_gains_by_it(look: TaskLook, kept: bool) -> None:
    assert is_worth_keeping(look, TaskLook("a", AT, {"t": 5})) is kept


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
@pytest.mark.parametrize(
    ("tier", "last", "following", "lost"),
    [
        ("default", "tombstone", (), True),
        ("default", "delete", (), True),
        ("default", "delete", MOVED, True),  # the delete of the next row with another key
        ("default", "delete", ("__debezium.oldkey",), False),
        ("default_append", "delete", (), False),
    ],
)
def test_an_end_between_the_two_events_of_a_changed_key_is_a_loss(
    tmp_path: Path, kind: Any, tier: str, last: str, following: tuple[str, ...], lost: bool
) -> None:
    """In a compressed transaction of MySQL, all events have the same position and row."""
    names, topics = replace(NAMES, kind=kind, tier=tier), Topics()
    assert names.append == (tier != "default")

    def add(offset: int, op: str, task: str, headers: tuple[str, ...]) -> None:
        facts: dict[str, Any] = {"topic": "orders", "task": task, "at": 20 + offset}
        logged = {"offset": offset, "op": op, "headers": headers, **facts}
        made = event(transaction=2, key=1, **logged)
        topics.add(made if kind == "postgres" else in_binlog(pos=154, row=0, **logged))

    beat(topics, "a", at=10, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    add(0, "u", "a", ())
    add(1, "d", "a", MOVED)
    if last == "tombstone":
        delete = topics.records["orders"][1]
        topics.add(replace(delete, offset=2, value=None))
    add(3, "d" if following == MOVED else "c", "b", following)
    beat(topics, "b", at=30, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    assert losses(tmp_path) == ({str(record().table): 1} if lost else {})


def test_the_first_look_searches_everything_that_came_after_the_copy_began(tmp_path: Path) -> None:
    """The command that onboards a table may look at the tasks only hours after O was recorded."""
    topics = Topics()
    topics.add(event(0, 1, "d", 1, topic="orders", task="a", at=10, headers=MOVED))
    topics.add(event(1, 2, "d", 1, topic="orders", task="b", at=20, headers=MOVED))
    topics.add(event(2, 3, "c", 1, topic="orders", task="c", at=30))
    beat(topics, "c", at=40)
    after = replace(record(), attempt=Attempt(READY.id, AT, "p", start_offsets={0: 1}))
    looks_at(tmp_path, topics).follow(NAMES, [after], asked)
    (lost,) = kept(tmp_path, table_scope(NAMES, after.table)).values()
    assert "after offset 1 of topic orders" in lost.what
    assert "after offset 0" not in lost.what, "the copy has that transaction"


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_other_ends_in_a_binlog_lose_nothing(tmp_path: Path, op: str) -> None:
    names, topics = replace(NAMES, kind="mariadb"), Topics()
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    topics.add(in_binlog(0, 154, 0, op, topic="orders", task="a", at=20))
    topics.add(in_binlog(1, 154, 1, op, topic="orders", task="b", at=21))
    beat(topics, "b", at=30)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    assert losses(tmp_path) == {}


def place(commit: int, lsn: int) -> dict[str, Any]:
    """The facts in an event that say where the log has its change."""
    return {"lsn": lsn, "sequence": f'["{commit}","{lsn}"]'}


@pytest.mark.parametrize(
    ("exactly_once", "following", "beaten", "lost"),
    [
        # The next task sends earlier changes again, also of an earlier transaction, or the delete.
        (False, place(100, 110), 300, False),
        (False, place(90, 95), 300, False),
        (False, place(100, 120), 300, False),
        (False, place(200, 210), 300, True),
        (True, place(200, 210), 300, True),
        (False, None, 300, True),
        (False, None, 90, None),  # the next task can still send the delete again
        (True, None, 90, True),
    ],
)
def test_without_transactions_of_kafka_a_change_that_is_sent_again_is_no_loss(
    tmp_path: Path,
    exactly_once: bool,
    following: dict[str, Any] | None,
    beaten: int,
    lost: bool | None,
) -> None:
    topics = Topics()
    looks = looks_at(tmp_path, topics, exactly_once=exactly_once)
    beat(topics, "a", at=10)
    looks.follow(NAMES, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    topics.add(event(0, 2, "u", 1, task="a", **facts, **place(100, 110)))
    topics.add(event(1, 2, "d", 1, task="a", headers=MOVED, **facts, **place(100, 120)))
    if following is not None:
        topics.add(event(2, 2, "u", 1, task="b", **facts, **following))
    offset = topics.end(NAMES.heartbeat_topic)
    beats: dict[str, Any] = {"topic": NAMES.heartbeat_topic, "at": 30}
    topics.add(event(offset, 3, "c", 1, task="b", **beats, **place(beaten, beaten + 5)))
    found = looks.follow(NAMES, [record()], asked)
    assert losses(tmp_path) == ({str(record().table): 1} if lost else {})
    assert found is not None
    assert found.task == ("a" if lost is None else "b")


class Page:
    """A source whose table has a page of rows.

    Args:
        known: Whether the source's row has the transaction id of its event.
        behind: The key of the next row that was inserted, or None.
    """

    def __init__(self, known: bool, behind: int | None) -> None:
        self.known, self.behind = known, behind

    def table(self, _: TableId) -> Any:
        return SimpleNamespace(columns=())

    def next_inserted(
        self, _table: Any, key: dict[str, Any], transaction: int | None
    ) -> NextInserted:
        assert key == {"id": 1} or transaction == 7
        if not self.known and transaction is not None:
            return NextInserted(known=False)
        key = None if self.behind is None else (str(self.behind),)
        return NextInserted(known=True, key=key)


@pytest.mark.parametrize(
    ("page", "later", "lost", "doubt"),
    [
        (Page(True, None), (), False, False),
        (Page(True, 2), (), True, False),
        (Page(True, 2), ((7, "c", 2),), False, False),
        (Page(False, None), ((8, "u", 3),), False, False),
        (Page(False, 2), ((7, "c", 2),), False, False),
        (Page(False, 2), ((8, "u", 2),), False, True),
        (Page(False, None), ((8, "u", 1),), False, True),
    ],
)
def test_a_row_behind_a_savepoint_is_in_doubt_only_if_it_can_have_been_changed(
    tmp_path: Path, page: Page, later: tuple[Any, ...], lost: bool, doubt: bool
) -> None:
    """The row with key 1 is inserted, and the connector restarts after the row's event."""
    topics = Topics()
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    topics.add(event(0, 7, "c", 1, task="a", lsn=5, **facts))
    for n, one in enumerate(later):
        topics.add(event(1 + n, *one, task="b", lsn=6 + n, **facts))
    beat(topics, "b", at=30)
    found = looks_at(tmp_path, topics).follow(NAMES, [record()], lambda: cast("Any", page))
    assert losses(tmp_path) == ({str(record().table): 1} if lost else {})
    assert found is not None
    assert (found.doubt(record()) is not None) is doubt


def test_without_transactions_of_kafka_a_position_can_be_before_rows_that_were_sent(
    tmp_path: Path,
) -> None:
    """Three of five rows were sent, but the stored position is the one after the first row."""
    topics = Topics()
    looks = looks_at(tmp_path, topics, exactly_once=False)
    beat(topics, "a", at=10)
    looks.follow(NAMES, [record()], asked)
    for n in range(3):
        facts: dict[str, Any] = {"topic": "orders", "task": "a", "at": 20, **place(100, 120)}
        topics.add(event(n, 7, "c", n, **facts))
    topics.add(event(3, 8, "u", 9, topic="orders", task="b", at=25, **place(200, 210)))
    offset = topics.end(NAMES.heartbeat_topic)
    beats: dict[str, Any] = {"topic": NAMES.heartbeat_topic, "at": 30}
    topics.add(event(offset, 9, "c", 1, task="b", **beats, **place(300, 310)))
    looks.follow(NAMES, [record()], lambda: cast("Any", Page(known=True, behind=3)))
    assert losses(tmp_path) == {str(record().table): 1}


@pytest.mark.parametrize(
    ("numbers", "last_alone", "doubled"),
    [
        ((1, 2), False, True),  # two rows of the first record, and the second one again
        ((4, 5), False, False),  # equal rows of a later record
        ((1, 1), True, False),  # the first row of the first record
    ],
)
def test_equal_rows_of_an_append_table_are_doubled_only_in_the_first_record(
    tmp_path: Path, numbers: tuple[int, int], last_alone: bool, doubled: bool
) -> None:
    names, topics = replace(NAMES, tier="default_append"), Topics()
    beat(topics, "a", at=10, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20, "after": "equal"}
    for offset, number in enumerate(numbers[last_alone:]):
        topics.add(event(2 * offset, 7, "c", 1, task="a", lsn=5, number=number, **facts))
    topics.add(event(5, 7, "c", 1, task="b", lsn=5, number=numbers[1] + 1, **facts))
    beat(topics, "b", at=30, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    assert losses(tmp_path) == ({str(record().table): 1} if doubled else {})


@pytest.mark.parametrize(
    ("following", "lost"),
    [
        # The transaction 7 comes again from its first row, from another page or from the same one.
        (event(5, 7, "c", 1, number=1, lsn=50, sequence='[null,"50"]'), True),
        (event(5, 7, "c", 1, number=1, lsn=61, sequence='[null,"61"]'), True),
        # So does an earlier transaction: as the task's first one, or behind one of other tables.
        (event(5, 6, "c", 1, number=1, lsn=20, sequence='[null,"20"]'), True),
        (event(5, 6, "c", 1, number=1, lsn=20, sequence='["10","20"]'), True),
        # The next rows of the transaction, and later transactions.
        (event(5, 7, "c", 1, number=4, lsn=61, sequence='["40","61"]'), False),
        (event(5, 7, "c", 1, number=4, lsn=70, sequence='["40","70"]'), False),
        (event(5, 8, "c", 1, number=1, lsn=90, sequence='["80","90"]'), False),
        (event(5, 8, "c", 1, number=1, lsn=90, sequence='[null,"90"]'), False),
        # This one began before the transactions that the topic has, and ended after them.
        (event(5, 9, "c", 1, number=1, lsn=15, sequence='[null,"15"]'), False),
    ],
)
@pytest.mark.parametrize("tier", ["default", "default_append"])
def test_rows_that_come_again_after_a_lost_position_double_those_of_an_append_table(
    tmp_path: Path, tier: str, following: KafkaRecord, lost: bool
) -> None:
    """The ended task has sent one transaction, and of the next one, two pages of a COPY."""
    names, topics = replace(NAMES, tier=tier), Topics()
    beat(topics, "a", at=10, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    rows = [(6, 20, "10", 1), (7, 50, "40", 1), (7, 61, "40", 2), (7, 61, "40", 3)]
    for offset, (transaction, lsn, commit, number) in enumerate(rows):
        logged = {"lsn": lsn, "sequence": f'["{commit}","{lsn}"]', "number": number}
        topics.add(event(offset, transaction, "c", number, task="a", **logged, **facts))
    came_at = AT + timedelta(seconds=25)
    topics.add(replace(following, topic="orders", headers=headers("b"), timestamp=came_at))
    beat(topics, "b", at=30, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    found = kept(tmp_path, table_scope(names, record().table))
    assert [one.what for one in found.values()] == (
        ["connector c restarted after offset 3 of topic orders, and sent rows again, from offset 5"]
        if lost and tier != "default"
        else []
    )


def test_an_end_before_the_copy_of_an_append_table_is_not_judged(tmp_path: Path) -> None:
    """After a server was replaced, the new server's positions can be lower than the old ones."""
    names, topics = replace(NAMES, tier="default_append"), Topics()
    beat(topics, "a", at=10, names=names)
    copied = replace(record(), attempt=Attempt(READY.id, AT, "p", start_offsets={0: 2}))
    looks_at(tmp_path, topics).follow(names, [copied], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    topics.add(event(0, 7, "c", 1, task="a", number=1, **place(40, 50), **facts))
    topics.add(event(2, 3, "c", 1, task="b", number=1, **place(4, 5), **facts))
    beat(topics, "b", at=30, names=names)
    looks_at(tmp_path, topics).follow(names, [copied], asked)
    assert losses(tmp_path) == {}


def test_an_append_table_waits_for_the_task_that_can_still_send_its_rows_again(
    tmp_path: Path,
) -> None:
    """The first heartbeat of a task without a stored position can be an old one, sent again."""
    names, topics = replace(NAMES, tier="default_append"), Topics()
    beat(topics, "a", at=10, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    topics.add(event(0, 7, "c", 1, task="a", number=1, **place(40, 50), **facts))

    def heartbeat(commit: int, lsn: int) -> TaskLook | None:
        offset = topics.end(names.heartbeat_topic)
        beats: dict[str, Any] = {"topic": names.heartbeat_topic, "task": "b", "at": 30}
        topics.add(event(offset, lsn, "c", 1, **beats, **place(commit, lsn)))
        return looks_at(tmp_path, topics).follow(names, [record()], asked)

    look = heartbeat(0, 30)
    assert look is not None
    assert look.task == "a", "the end is judged later"
    topics.add(event(2, 7, "c", 1, task="b", number=1, **place(0, 50), **facts))
    heartbeat(60, 90)
    assert losses(tmp_path) == {str(record().table): 1}


def test_rows_that_perhaps_come_again_are_in_doubt(tmp_path: Path) -> None:
    names, topics = replace(NAMES, tier="default_append"), Topics()
    beat(topics, "a", at=10, names=names)
    looks_at(tmp_path, topics).follow(names, [record()], asked)
    facts: dict[str, Any] = {"topic": "orders", "at": 20}
    topics.add(event(0, 7, "c", 1, task="a", **place(40, 50), **facts))
    for n in range(5_001):
        topics.add(event(1 + n, 8, "c", n, task="a", **place(60, 70), **facts))
    topics.add(event(6_000, 9, "c", 1, task="b", **place(0, 30), **facts))
    beat(topics, "b", at=30, names=names)
    found = looks_at(tmp_path, topics).follow(names, [record()], asked)
    assert found is not None
    assert str(found.doubt(record())) == (
        "connector c restarted after offset 5001 of topic orders without its stored position: rows"
        " of table shop:public.orders can be doubled; run `tributary verify shop:public.orders`"
    )
    assert losses(tmp_path) == {}


def test_two_processes_that_look_at_once_count_a_loss_once(tmp_path: Path) -> None:
    topics = Topics()
    topics.add(event(0, 1, "c", 1, topic="orders", task="a", at=0))
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    topics.add(event(1, 2, "d", 1, topic="orders", task="a", at=20, headers=MOVED))
    beat(topics, "b", at=30)

    def another() -> None:
        topics.before_times = lambda: None
        looks_at(tmp_path, topics).follow(NAMES, [record()], asked)

    topics.before_times = another
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert losses(tmp_path) == {str(record().table): 1}
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert losses(tmp_path) == {str(record().table): 1}


def test_a_look_at_many_tables_reads_most_of_them_at_once(tmp_path: Path) -> None:
    """In each table's topic, a task ends after an update, so the source need not be asked."""
    topics, records = Topics(), [record(f"t{number}") for number in range(3_000)]
    for one in records:
        for n in range(5):
            topics.add(event(2 * n, n, "u", n, topic=one.topic, task="a", at=0, lsn=n))
    beat(topics, "a", at=0)
    looks_at(tmp_path, topics).follow(NAMES, records, asked)
    for one in records:
        for n in range(5, 10):
            task = "a" if n < 7 else "b"
            topics.add(event(2 * n, n, "u", n, topic=one.topic, task=task, at=n, lsn=n))
    beat(topics, "b", at=30)
    topics.readers = topics.asked = 0
    looks_at(tmp_path, topics).follow(NAMES, records, asked)
    assert losses(tmp_path) == {}
    assert topics.readers == 1
    assert topics.asked == 30, "each read asks for 100 topics"


def test_an_end_that_cannot_be_judged_stays_in_doubt_until_a_copy(tmp_path: Path) -> None:
    topics = Topics()
    beat(topics, "a", at=0)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    topics.add(event(0, 1, "c", 1, topic="orders", task="a", at=10))
    beat(topics, "b", at=30)

    def gone() -> Any:
        raise SourceError("table orders does not exist", remedy="Offboard it.")

    found = looks_at(tmp_path, topics).follow(NAMES, [record()], gone)
    assert found is not None
    assert str(found.doubt(record())) == (
        "the end of a task at offset 0 of topic orders was not judged (table orders does not"
        " exist): rows of table shop:public.orders can be missing; run"
        " `tributary verify shop:public.orders`"
    )
    beat(topics, "b", at=40)
    found = looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert found is not None
    assert found.doubt(record()) is not None
    copied = replace(record(), attempt=Attempt(READY.id, AT, "p", start_offsets={0: 1}))
    found = looks_at(tmp_path, topics).follow(NAMES, [copied], asked)
    assert found is not None
    assert found.doubts == {}
    assert losses(tmp_path) == {}
