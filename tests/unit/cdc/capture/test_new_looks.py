"""Which looks at a connector's tasks are stored, and for which capture their losses count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cdc.capture.remembered_losses import table_scope
from cdc.store.kept_task_looks import KeptLooks, TaskLook
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from tests.unit.cdc.capture.looks_in_memory import MOVED, asked, beat, kept, looks_at, record
from tests.unit.cdc.task_topics import NAMES, Topics, event


def test_a_look_that_is_not_new_is_not_written(tmp_path: Path) -> None:
    topics = Topics()
    topics.add(event(0, 1, "c", 1, topic="orders", task="a", at=0))
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    kept = KeptLooks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    first = kept.of("c")
    topics.add(event(1, 2, "c", 2, topic="orders", task="a", at=20))
    beat(topics, "a", at=30)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert kept.of("c") == first
    beat(topics, "a", at=600)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    renewed = kept.of("c")
    assert renewed is not None
    assert (renewed.version, renewed.look.ends) == (2, {"orders": 2})


def test_an_end_that_is_judged_later_is_shown_as_not_judged(tmp_path: Path) -> None:
    """The next task's first record is newer than the last heartbeat of the task before."""
    orders, lines, copying = record(), record("lines"), replace(record(), attempt=None)
    topics, kept = Topics(), KeptLooks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    topics.add(event(0, 1, "c", 1, topic="lines", task="a", at=1))

    def look() -> TaskLook:
        found = looks_at(tmp_path, topics).follow(NAMES, [orders, lines], asked)
        stored = kept.of("c")
        assert stored is not None
        assert found == stored.look, "status reads the stored one"
        return stored.look

    beat(topics, "a", at=10)
    assert look().unjudged(orders) is None
    topics.add(event(0, 1, "d", 1, topic="orders", task="b", at=20, headers=MOVED))
    beat(topics, "b", at=30)
    topics.add(event(1, 2, "c", 1, topic="orders", task="c", at=40))
    for _ in range(2):
        found = look()
        assert str(found.unjudged(orders)).startswith(
            "an end of the connector's tasks in topic orders is not judged yet, since the heartbeat"
            " of 2026-01-02 00:00:30 UTC"
        )
        assert (found.unjudged(lines), found.unjudged(copying), found.task) == (None, None, "a")
        assert found.doubt(orders) is None
    beat(topics, "c", at=50)
    assert look().unjudged(orders) is None
    assert [
        *Losses(Store(f"sqlite:///{tmp_path / 'state.db'}")).seen(table_scope(NAMES, orders.table))
    ]


def test_a_first_look_that_cannot_judge_says_so(tmp_path: Path) -> None:
    topics = Topics()
    topics.add(event(0, 1, "d", 1, topic="orders", task="a", at=5, headers=MOVED))
    beat(topics, "a", at=10)
    topics.add(event(1, 2, "c", 1, topic="orders", task="b", at=20))
    found = looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert found is not None
    assert found.unjudged(record()) is not None
    beat(topics, "b", at=30)
    found = looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert found is not None
    assert found.unjudged(record()) is None


def test_without_a_heartbeat_no_end_is_judged(tmp_path: Path) -> None:
    topics = Topics()
    assert looks_at(tmp_path, topics).follow(NAMES, [record()], asked) is None
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    del topics.records[NAMES.heartbeat_topic], topics.offsets[NAMES.heartbeat_topic]
    found = looks_at(tmp_path, topics).follow(NAMES, [record()], asked)
    assert found is not None
    assert found.unjudged(record()) is not None


def test_a_loss_at_the_end_of_a_task_counts_in_the_capture_of_its_connector(
    tmp_path: Path,
) -> None:
    """If the table moves, its next generation has lost the change, but not the serving one."""
    fast, topics = replace(NAMES, tier="fast"), Topics()
    beat(topics, "a", at=10)
    looks_at(tmp_path, topics).follow(fast, [record()], asked)
    topics.add(event(0, 1, "d", 1, topic="orders", task="a", at=20, headers=MOVED))
    topics.add(event(1, 2, "c", 1, topic="orders", task="b", at=30))
    beat(topics, "b", at=40)
    looks_at(tmp_path, topics).follow(fast, [record()], asked)
    table = record().table
    assert [one.times for one in kept(tmp_path, table_scope(fast, table)).values()] == [1]
    assert dict(kept(tmp_path, table_scope(NAMES, table), str(table))) == {}
