"""Reads the rows of a few keys from the source again and again, while the lake catches up."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from operate.verify.suspects import Key
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.sources.base import RowLookup, SourceTable
    from schemas.table import TableSchema

_PAUSE_S = 0.01


class Sampler:
    """Reads suspect rows from the primary again and again, in a thread, during a ``with`` block.

    The first sample is complete before the block begins. The last sample begins after the block has
    ended.

    Args:
        source: The source.
        table: The table.
        schema: The table's lake schema.
        keys: The keys of the suspect rows, which differed between source and lake.
    """

    def __init__(
        self, source: RowLookup, table: SourceTable, schema: TableSchema, keys: Sequence[Key]
    ) -> None:
        self._source, self._table, self._schema = source, table, schema
        self._keys = list(keys)
        self._columns = [column.name for column in schema.columns]
        self._rows: defaultdict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._absent: set[Key] = set()
        self._stop = threading.Event()
        self._error: TributaryError | None = None
        self._thread = threading.Thread(
            target=self._sample_until_stopped, name="sampler", daemon=True
        )
        self.samples = 0

    def __enter__(self) -> Sampler:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            if self._error is not None:
                raise self._error
            self._sample()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The distinct rows of all keys in all samples."""
        return [row for seen in self._rows.values() for row in seen.values()]

    @property
    def absent(self) -> frozenset[Key]:
        """Keys whose row was missing from one sample or more."""
        return frozenset(self._absent)

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            try:
                self._sample()
            except TributaryError as error:
                self._error = error
                return

    def _sample(self) -> None:
        found = self._source.fetch_by_key(self._table, self._schema, self._keys, self._columns)
        present = set()
        for row in found:
            key = tuple(row[name] for name in self._schema.key)
            present.add(key)
            self._rows[key].setdefault(repr(row), row)
        self._absent.update(key for key in self._keys if key not in present)
        self.samples += 1
