"""Calls a function for many items at once, in threads that do not keep the process alive.

The threads of a ``ThreadPoolExecutor`` do keep it alive: Python waits at its end for all calls of
the pool, also for those that have not begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def fulfil(done: Future[Result], work: Callable[[], Result]) -> None:
    """Call ``work``, and set its result or its error in a future, for the thread that waits."""
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        done.set_exception(error)


def map_in_daemon_threads(
    work: Callable[[Item], Result], items: Iterable[Item], *, at_once: int, name: str
) -> list[Result]:
    """Return the results of ``work`` for the items, in the order of the items.

    Args:
        work: Called for each item.
        items: The items.
        at_once: Number of threads.
        name: The threads' name, which a number follows.

    Raises:
        BaseException: The error of the first item for which ``work`` has failed.
    """
    calls: list[tuple[Future[Result], Item]] = [(Future(), item) for item in items]
    waiting: SimpleQueue[tuple[Future[Result], Item]] = SimpleQueue()
    for call in calls:
        waiting.put(call)

    def serve() -> None:
        while True:
            try:
                done, item = waiting.get_nowait()
            except Empty:
                return
            fulfil(done, partial(work, item))

    for number in range(min(at_once, len(calls))):
        threading.Thread(target=serve, name=f"{name} {number}", daemon=True).start()
    return [done.result() for done, _ in calls]
