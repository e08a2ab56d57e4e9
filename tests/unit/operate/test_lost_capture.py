"""Which tables a capture that is made anew takes along, and which it must not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import CaptureError, StateError
from cdc.lease import Leases
from cdc.progress import NullProgress
from cdc.state import Attempt, State, TableRecord, transition
from operate.context import Services
from operate.lost_capture import cut_off
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
BUILT = StateError("killed", remedy="none")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def table(name: str) -> TableId:
    return TableId("shop", "public", name)


def put(services: Services, name: str, *path: State, beside: bool = False) -> TableRecord:
    """A table that went through these states."""
    names = services.capture(table(name))
    record = TableRecord(
        table=table(name),
        state=State.REGISTERED,
        base_path=f"/lake/{name}",
        tier=names.tier,
        topic=names.topic(table(name)),
        publication=names.publication,
        updated_at=NOW,
        beside=beside,
    )
    at = {0: 5}
    attempt = Attempt(uuid.uuid4(), NOW, "/a", start_offsets=at, handoff_offsets=at)
    for state in path:
        new = attempt if state is State.BOOTSTRAPPING else None
        record = transition(record, state, at=NOW, attempt=new, reason="why", error=BUILT)
    return services.store.put(record)


def cut(services: Services) -> None:
    with cut_off(services, services.capture(table("any")), "slot s is gone"):
        pass


B, C, I, F, P = (  # noqa: E741 - short for the paths below
    State.BOOTSTRAPPING,
    State.CATCHING_UP,
    State.INCREMENTAL,
    State.FAILED,
    State.PAUSED,
)


@pytest.mark.parametrize("path", [(B,), (B, C), (B, F), (B, C, F), (B, C, P)], ids=str)
def test_what_was_copied_is_discarded(services: Services, path: tuple[State, ...]) -> None:
    before = put(services, "orders", *path)
    cut(services)
    after = services.store.newest(before)
    assert (after.state, after.resume_to) == (State.NEEDS_BOOTSTRAP, None)
    assert "slot s is gone" in (after.reason or "")
    assert before.attempt is not None
    with pytest.raises(StateError, match="a new attempt is needed"):
        transition(after, State.BOOTSTRAPPING, at=NOW, attempt=before.attempt)


def test_a_generation_beside_goes(services: Services) -> None:
    put(services, "orders", B, C, State.NEEDS_BOOTSTRAP)
    put(services, "orders", B, beside=True)
    cut(services)
    assert services.store.builds() == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ((B, C, I), "Run `tributary run`, which marks them, then"),
        ((B, C, I, F), "(one that has failed when its next try has come)"),
        ((B, C, I, P), "Run `tributary resume shop:public.orders`, then `tributary run`"),
    ],
    ids=str,
)
def test_a_followed_table_has_to_be_told(
    services: Services, path: tuple[State, ...], said: str
) -> None:
    followed, copied = put(services, "orders", *path), put(services, "lines", B)
    with pytest.raises(CaptureError, match=r"not noticed yet: shop:public\.orders$") as caught:
        cut(services)
    assert said in caught.value.remedy
    assert services.store.newest(followed) == followed
    assert services.store.newest(copied) == copied


def test_a_copy_under_way_is_named_and_no_other_one_is_discarded(services: Services) -> None:
    copied = put(services, "lines", B)
    put(services, "orders", B)
    with (
        Leases(services.store, owner="another").hold(table("orders")),
        pytest.raises(CaptureError, match=r"table shop:public\.orders is held by another"),
    ):
        cut(services)
    assert services.store.newest(copied) == copied
    cut(services)


def test_tables_of_other_tiers_and_those_that_wait_stay_as_they_are(services: Services) -> None:
    record = put(services, "orders")
    cut(services)
    assert services.store.newest(record) == record
