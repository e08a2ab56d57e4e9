"""Notes the SQL statements that a state store runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from cdc.store.state_store import Store


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Return a list that gets each SQL statement which the store runs in the block."""
    seen = list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    sa.event.listen(store._engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(store._engine, "before_cursor_execute", note)
