"""A command with one table, in which something fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from cdc.config import parse
from cdc.errors import LakeError
from cdc.run import RunContext
from cdc.runtime import jvm_guard
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.table_state import State, TableRecord
from operate.context import Services
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

TABLE = TableId("shop", "public", "orders")


class Command:
    """A command with one table, in which something fails.

    Args:
        folder: Holds the state store.
        how: The cause. ``failed`` is a real error. ``killed`` means that the ending command has
            killed Spark, ``interrupted`` that the ending command has cancelled the Spark jobs.
    """

    def __init__(self, folder: Path, how: str) -> None:
        self.services = Services(parse(yaml.safe_dump(minimal()), base=folder), NullProgress())
        self.how = how
        register(self.services, TABLE)

    def fails(self, *_args: object, **_kwargs: object) -> None:
        if self.how == "killed":
            jvm_guard._killed.set()
        if self.how == "interrupted":
            self.services.interruptible.interrupt()
        raise LakeError("Spark is gone", remedy="Start it.")

    def put(self, state: State, **facts: Any) -> TableRecord:
        known = self.services.store.get(TABLE)
        assert known is not None
        attempt = Attempt(UUID(int=1), datetime.now(timezone.utc), "/lake/a", **facts)
        return self.services.store.put(replace(known, state=state, attempt=attempt))

    def context(self, **changes: Any) -> RunContext:
        """The run context of the command, without servers and with these changes."""
        self.services.__dict__.update(kafka=None, schemas=None, connect=None)
        return replace(self.services.run_context, **changes)

    def left(self) -> tuple[State, int]:
        """The table's state and its number of failures."""
        record = self.services.store.get(TABLE)
        assert record is not None
        return record.state, record.failures
