"""Threads that work for as long as a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def at_work(work: Callable[[int, threading.Event], None], count: int = 1) -> Iterator[None]:
    """Start threads, and wait for their end after the block.

    Args:
        work: What each thread does until the event is set. It gets the thread's number, from 0,
            and the event.
        count: Number of threads.
    """
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(number, stop)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
