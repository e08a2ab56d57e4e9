"""An equal comparison clears only the doubts that it covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.kept_task_looks import Doubt, KeptLooks, NextLook, TaskLook
from cdc.store.verifications import Verifications, VerifyRecord
from operate.context import Services
from operate.onboard import register
from operate.verify import table as verify_module
from operate.verify.result import Difference, Verification
from schemas.table import TableId
from tests.records import NOW
from tests.unit.cdc.configuration import minimal

ORDERS = TableId("shop", "public", "orders")
ATTEMPT = Attempt(UUID(int=1), NOW, "path")


def result(covered: Mapping[int, int], equal: bool) -> Verification:
    differences = () if equal else (Difference("missing", {"id": 1}),)
    count = len(differences)
    return Verification(
        *(ORDERS, 9, 9, 9, differences, count, (), 0, 0, 0, "0/1", covered, {0: 99}, "i", 1.0)
    )


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
    """The newest commit, made at the comparison's end, can have events that were not compared."""
    verifier = SimpleNamespace(run=lambda: result(covered, equal), _attempt=ATTEMPT)
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


def test_a_result_is_kept_and_remembers_when_the_same_copy_was_last_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())

    def verified(attempt: Attempt, *, equal: bool) -> VerifyRecord:
        verifier = SimpleNamespace(run=lambda: result({0: 1}, equal), _attempt=attempt)
        monkeypatch.setattr(verify_module, "_TableVerifier", lambda *_: verifier)
        verify_module.verify_table(services, cast("Any", None), ORDERS)
        return Verifications(services.store).all()[ORDERS]

    try:
        register(services, ORDERS)
        first = verified(ATTEMPT, equal=True)
        assert first.equal_at == first.at
        then = verified(ATTEMPT, equal=False)
        assert (then.equal_at, dict(then.differences)) == (first.at, {"missing": 1})
        other = verified(replace(ATTEMPT, id=UUID(int=2)), equal=False)
        assert other.equal_at is None
    finally:
        services.close()
