"""An equal comparison settles only the doubts that it covers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.store.task_looks import Doubt, KeptLooks, NextLook, TaskLook
from operate.context import Services
from operate.onboard import register
from operate.verify import table as verify_module
from schemas.table import TableId
from tests.records import NOW
from tests.unit.cdc.configuration import minimal

ORDERS = TableId("shop", "public", "orders")


@pytest.mark.parametrize(
    ("covered", "equal", "left"),
    [({0: 14}, True, {}), ({0: 13}, True, {"offset 13"}), ({0: 14}, False, {"offset 13"})],
)
def test_a_doubt_beyond_the_comparison_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    covered: Mapping[int, int],
    equal: bool,
    left: set[str] | dict[str, str],
) -> None:
    """The newest commit, of the end of the comparison, can have events that it does not cover."""
    found = SimpleNamespace(equal=equal, covered=covered, offsets={0: 99})
    verifier = SimpleNamespace(run=lambda: found)
    monkeypatch.setattr(verify_module, "_TableVerifier", lambda *_: verifier)
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    try:
        register(services, ORDERS)
        connector = services.capture(ORDERS).connector
        look = TaskLook("task", NOW, {}, {str(ORDERS): Doubt(13, "offset 13")})
        KeptLooks(services.store).move(connector, None, NextLook(look))
        verify_module.verify_table(services, cast("Any", None), ORDERS)
        kept = KeptLooks(services.store).of(connector)
    finally:
        services.close()
    assert kept is not None
    assert {one.what for one in kept.look.doubts.values()} == set(left)
