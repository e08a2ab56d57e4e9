"""The look at a connector's tasks that the state store keeps for the next look."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

from cdc.store.attempt import Attempt
from cdc.store.kept_task_looks import TASK_LOOKS, Doubt, KeptLooks, NextLook, TaskLook
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store
from tests.records import READY, table_record

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, timezone.utc)
FIRST = TaskLook("a", AT, {"t": 12})
SECOND = TaskLook("b", AT, {"t": 15}, {"shop:public.orders": Doubt(13, "rows can be missing")})


def store_in(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / 'state.db'}")


def test_a_look_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert TASK_LOOKS.read(TASK_LOOKS.write(SECOND), "the look") == SECOND
    looks = KeptLooks(store_in(tmp_path))
    assert looks.of("c") is None
    assert looks.move("c", None, NextLook(SECOND))
    kept = looks.of("c")
    assert kept is not None
    assert kept.look == SECOND


def test_a_look_is_replaced_only_by_one_that_has_read_it(tmp_path: Path) -> None:
    looks = KeptLooks(store_in(tmp_path))
    assert looks.move("c", None, NextLook(FIRST))
    assert not looks.move("c", None, NextLook(SECOND))  # of a process that has read none
    first = looks.of("c")
    assert looks.move("c", first, NextLook(SECOND))
    assert not looks.move("c", first, NextLook(FIRST))
    kept = looks.of("c")
    assert kept is not None
    assert kept.look == SECOND


def test_a_loss_is_counted_by_the_process_that_replaces_the_look(tmp_path: Path) -> None:
    looks = KeptLooks(store_in(tmp_path))
    looks.move("c", None, NextLook(FIRST))
    first, found = looks.of("c"), NextLook(SECOND, {"orders": "lost a row", "lines": "lost two"})

    def count(_: int) -> bool:
        return KeptLooks(store_in(tmp_path)).move("c", first, found)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(count, range(8))) == [False] * 7 + [True]
    seen = Losses(store_in(tmp_path)).seen("orders", "lines")
    assert {name: (one.times, one.what) for name, one in seen.items()} == {
        "orders": (1, "lost a row"),
        "lines": (1, "lost two"),
    }


def test_a_look_that_is_forgotten_is_that_of_no_later_connector(tmp_path: Path) -> None:
    looks = KeptLooks(store_in(tmp_path))
    looks.move("c", None, NextLook(SECOND))
    looks.move("other", None, NextLook(FIRST))
    looks.forget("c")
    assert (looks.of("c"), looks.all(["other"])) == (None, {"other": FIRST})
    assert looks.move("c", None, NextLook(FIRST))


def test_a_doubt_ends_with_a_copy_or_an_equal_comparison(tmp_path: Path) -> None:
    before = table_record(attempt=Attempt(READY.id, AT, "p", start_offsets={0: 13}))
    after = table_record(attempt=Attempt(READY.id, AT, "p", start_offsets={0: 14}))
    assert SECOND.doubt(before) == "rows can be missing"
    assert SECOND.doubt(after) is None
    assert SECOND.doubt(table_record()) is None

    looks = KeptLooks(store_in(tmp_path))
    looks.clear_doubt("c", before.table, 14)
    looks.move("c", None, NextLook(SECOND))
    for end, doubts in ((13, SECOND.doubts), (14, {})):
        looks.clear_doubt("c", before.table, end)
        kept = looks.of("c")
        assert kept is not None
        assert kept.look.doubts == doubts
