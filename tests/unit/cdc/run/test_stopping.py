"""The state of a table after an error has stopped its run."""

from __future__ import annotations

from uuid import UUID

import pytest

from cdc.capture.remembered_losses import RememberedLossError
from cdc.errors import LostHistoryError, LostLogError, SchemaChangeError
from cdc.run.stopping import stopped
from cdc.store.attempt import Attempt
from cdc.store.table_state import State
from schemas.errors import TributaryError
from tests.records import NOW, ORDERS, table_record

ATTEMPT = Attempt(UUID(int=1), NOW, "path", start_offsets={0: 1}, handoff_offsets={0: 2})


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize(
    ("state", "error", "again"),
    [
        (State.CATCHING_UP, LostLogError, True),
        (State.CATCHING_UP, RememberedLossError, True),
        (State.CATCHING_UP, LostHistoryError, False),
        (State.CATCHING_UP, SchemaChangeError, False),
        (State.INCREMENTAL, LostLogError, False),
    ],
)
def test_an_onboarding_makes_a_copy_again_whose_slot_was_lost_while_it_caught_up(
    state: State, error: type[TributaryError], generation: int, *, again: bool
) -> None:
    """A table that runs followed waits for `bootstrap`, since an operator must know of the loss.

    A copy of a table with readers is made again, too: they keep their generation until a whole new
    one is published.
    """
    record = table_record(ORDERS, state=state, attempt=ATTEMPT, generation=generation)
    after = stopped(record, error("lost", remedy="Copy it."), at=NOW)
    assert (after.state, after.copy_discarded) == (State.NEEDS_BOOTSTRAP, again)
