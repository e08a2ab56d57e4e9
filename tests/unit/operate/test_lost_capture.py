"""Which tables stay in a capture that is created again, and which tables must not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import pytest
import yaml

from cdc.config import parse
from cdc.errors import CaptureError, StateError
from cdc.log.binlog_position import BinlogPosition, read_position
from cdc.log.position import LogPosition
from cdc.runtime.progress import NullProgress
from cdc.sources.base import Source
from cdc.sources.mysql.binlog import BinlogHealth
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt, CopiedServer
from cdc.store.lease import Leases
from cdc.store.table_state import Cause, State, TableRecord, transition, with_attempt
from operate.context import Services
from operate.lost_capture import after_gtid_change, cut_off, of_another_server
from schemas.table import TableId
from tests.handoffs import VIEW
from tests.records import table_record
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


def put(
    services: Services, name: str, *path: State, beside: bool = False, upto: str | None = None
) -> TableRecord:
    """Store the record of a table that went through these states."""
    names = services.capture(table(name))
    record = table_record(
        table=table(name),
        state=State.REGISTERED,
        base_path=f"/lake/{name}",
        tier=names.tier,
        topic=names.topic(table(name)),
        updated_at=NOW,
        beside=beside,
    )
    at = {0: 5}
    attempt = Attempt(
        uuid.uuid4(), NOW, "/a", start_offsets=at, handoff_offsets=at, reads_upto=upto
    )
    for state in path:
        new = attempt if state is State.BOOTSTRAPPING else None
        record = transition(record, state, at=NOW, attempt=new, cause=Cause("why", BUILT))
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
    assert after.copy_discarded is (before.state is not State.PAUSED)
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
        ((B, C, I, F), "(a failed one at its next try)"),
        ((B, C, I, P), "Run `tributary resume shop:public.orders`, then `tributary run`"),
    ],
    ids=str,
)
def test_a_followed_table_has_to_be_told(
    services: Services, path: tuple[State, ...], said: str
) -> None:
    followed, copied = put(services, "orders", *path), put(services, "lines", B)
    with pytest.raises(
        CaptureError, match=r"no run has marked these tables yet: shop:public\.orders$"
    ) as caught:
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


class Positions:
    """The part of a source that these tests need: it parses positions."""

    def position(self, text: str) -> LogPosition:
        return read_position(text)


PLACE, GTIDS = "binlog.000003:155", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"


@pytest.mark.parametrize(
    ("rest_on", "anew"),
    [
        ([], False),
        ([None], False),
        ([PLACE], False),
        ([GTIDS], True),
        ([GTIDS, GTIDS, None], True),
        # The first table has been copied under the new capture, which must not be recreated.
        ([PLACE, GTIDS], False),
    ],
)
def test_a_capture_that_began_under_another_mode_is_made_anew_once(
    services: Services, rest_on: list[str | None], anew: bool
) -> None:
    for number, upto in enumerate(rest_on):
        put(services, f"t{number}", State.BOOTSTRAPPING, State.NEEDS_BOOTSTRAP, upto=upto)
    place = BinlogPosition.parse("binlog.000001:0")
    log = BinlogHealth("shop", place, lambda: place, None)
    capture = services.capture(table("any"))
    found = after_gtid_change(services, capture, cast("Source", Positions()), log)
    assert bool(found) is anew
    assert found is None or "positions of two kinds" in found


@dataclass(frozen=True)
class Server:
    name: str

    def identity(self) -> ServerIdentity:
        return ServerIdentity(self.name, None, in_recovery=False)


@pytest.mark.parametrize(
    ("copied_on", "now", "anew"),
    [
        (("a",), "a", False),
        (("a", "a"), "b", True),
        # One table was copied from the new server since: its capture is that one's.
        (("a", "b"), "b", False),
        ((), "b", False),
    ],
)
@pytest.mark.parametrize("started", [False, True])
def test_a_capture_of_another_server_is_made_anew_once(
    services: Services, copied_on: tuple[str, ...], now: str, anew: bool, started: bool
) -> None:
    """With ``started``, each copy has only recorded O; else each copy has a view already."""
    for number, server in enumerate(copied_on):
        record = put(services, f"t{number}", State.BOOTSTRAPPING)
        assert record.attempt is not None
        attempt = (
            replace(record.attempt, view=None, server=CopiedServer(server, None))
            if started
            else replace(record.attempt, view=replace(VIEW, system_identifier=server))
        )
        services.store.put(with_attempt(record, attempt, at=NOW))
    found = of_another_server(services, services.capture(table("t0")), cast("Source", Server(now)))
    assert bool(found) is anew
    assert found is None or "is of server b, but its tables were captured on a" in found
