"""What a copy leaves behind when Spark fails: in earnest, or because the command ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from bootstrap.handoff import bootstrap_table
from cdc import jvm_guard
from cdc.attempt import Attempt
from cdc.config import parse
from cdc.errors import LakeError
from cdc.progress import NullProgress
from cdc.run import RunContext
from cdc.state import State
from operate.context import Services
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

TABLE = TableId("shop", "public", "orders")


@pytest.mark.parametrize(
    ("killed", "state", "failures"), [(False, State.FAILED, 1), (True, State.BOOTSTRAPPING, 0)]
)
def test_a_copy_whose_spark_is_killed_as_the_command_ends_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool, state: State, failures: int
) -> None:
    """A failure would make it wait, longer with each."""

    def fails(*_args: object, **_kwargs: object) -> None:
        if killed:
            jvm_guard._killed.set()
        raise LakeError("Spark is gone", remedy="Start it.")

    monkeypatch.setattr(jvm_guard, "_killed", type(jvm_guard._killed)())
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    nothing = cast("Any", None)
    try:
        register(services, TABLE)
        known = services.store.get(TABLE)
        assert known is not None
        attempt = Attempt(UUID(int=1), datetime.now(timezone.utc), "/lake/a")
        record = services.store.put(replace(known, state=State.BOOTSTRAPPING, attempt=attempt))
        context = RunContext(
            config=services.config,
            session=nothing,
            store=services.store,
            kafka=nothing,
            registry=nothing,
            sources={"shop": cast("Any", SimpleNamespace(fingerprint=fails))},
            leases=services.leases,
            progress=NullProgress(),
            run_id="r",
        )
        with pytest.raises(LakeError, match="Spark is gone"):
            bootstrap_table(context, nothing, record)
        left = services.store.get(TABLE)
        assert left is not None
        assert (left.state, left.failures) == (state, failures)
    finally:
        services.close()
