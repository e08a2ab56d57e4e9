"""A lake folder in which another installation has published is not used, unless taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.errors import OtherInstallationError
from cdc.lake.ownership import Ownership
from cdc.lake.pointer import Pointer, Published
from cdc.store.attempt import Attempt
from cdc.store.installation import Installation
from cdc.store.table_state import State, TableRecord
from tests.records import NOW, ORDERS, table_record

HERE, THERE = Installation.new(), Installation.new()
MINE, FORMER, THEIRS = HERE.new_attempt(), HERE.new_attempt(), THERE.new_attempt()
FOLDER = "/lake/orders"


def pointer(attempt: object) -> Pointer:
    return Pointer.of(Published(f"{FOLDER}/attempt={attempt}", 3, str(attempt), NOW))


def record(state: State = State.INCREMENTAL, **facts: Any) -> TableRecord:
    attempt = Attempt(MINE, NOW, f"{FOLDER}/attempt={MINE}")
    return table_record(state=state, **({"attempt": attempt, "generation": 2} | facts))


@pytest.mark.parametrize(
    ("shown", "known"),
    [
        pytest.param(None, record(), id="nothing is published"),
        pytest.param(pointer(MINE), record(), id="a run"),
        pytest.param(pointer(FORMER), record(State.BOOTSTRAPPING), id="a copy after a loss"),
        pytest.param(pointer(FORMER), record(), id="a store restored from a backup"),
        pytest.param(pointer(FORMER), None, id="a killed command left it before the record"),
        pytest.param(
            pointer(FORMER), record(State.RETIRED, attempt=None), id="offboarded, onboarded again"
        ),
        pytest.param(
            pointer(FORMER), record(State.CATCHING_UP, beside=True), id="an interrupted resync"
        ),
        pytest.param(pointer("0" * 8 + "-0000-4000-8000-" + "0" * 12), record(), id="not marked"),
        pytest.param(
            pointer(HERE.shared_table(FOLDER)), record(attempt=None), id="shards of one table"
        ),
        pytest.param(
            pointer(THEIRS), record(taken_over=(str(THEIRS),)), id="taken over from a lost store"
        ),
    ],
)
def test_what_this_installation_has_published_is_its_own(
    shown: Pointer | None, known: TableRecord | None
) -> None:
    Ownership(HERE, ORDERS, known).require(shown, FOLDER)


@pytest.mark.parametrize(
    ("known", "mine", "remedy"),
    [
        (None, "has no generation of this one yet", "Set another lake.url for this installation."),
        (
            record(State.RETIRED, attempt=None),
            "has no generation of this one yet",
            f"run `tributary onboard --take-over {ORDERS}`.",
        ),
        (
            record(State.NEEDS_BOOTSTRAP),
            f"knows generation 2, attempt {MINE}, of table {ORDERS}",
            f"--take-over --no-bootstrap {ORDERS}`, then `tributary bootstrap {ORDERS}`.",
        ),
        (
            replace(record(State.FAILED), resume_to=State.INCREMENTAL),
            f"knows generation 2, attempt {MINE}, of table {ORDERS}",
            f"--take-over --no-bootstrap {ORDERS}`, then `tributary resync {ORDERS}`.",
        ),
    ],
    ids=["unknown", "offboarded", "needs a bootstrap", "failed"],
)
def test_what_another_one_has_published_is_refused(
    known: TableRecord | None, mine: str, remedy: str
) -> None:
    with pytest.raises(OtherInstallationError) as told:
        Ownership(HERE, ORDERS, known).require(pointer(THEIRS), FOLDER)
    assert f"the pointer in {FOLDER} names generation 3, attempt {THEIRS}" in told.value.message
    assert mine in told.value.message
    assert remedy in told.value.remedy


def test_only_the_attempts_that_were_taken_over_are_owned() -> None:
    owner = Ownership.of(record(taken_over=(str(THEIRS),)), HERE)
    assert not owner.is_other(str(THEIRS))
    assert owner.is_other(str(THERE.new_attempt())), "the other installation goes on"
