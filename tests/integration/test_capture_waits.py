"""Waits for changes that a connector sends: their errors, and how they survive failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bootstrap.capture_proof import Capture
from bootstrap.errors import HandoffTimeoutError
from cdc.capture.recovery import Recovery
from cdc.connect import ConnectClient
from cdc.connect.worker_status import Plugin
from cdc.errors import ConnectError
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.tier_capture import Group, prepare
from stack.roles import CAPTURE
from tests.integration.rigs.bootstrapping import Bootstrapping, Watch, fill
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, cast("Any", None), tmp_path)) as opened:
        yield opened


def test_a_stopped_connector_ends_the_wait_with_evidence(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 1)
    shop.add("orders")
    capture = _capture(shop)
    shop.connect.stop(shop.capture.connector)
    upto = shop.source.write_marker().position
    with pytest.raises(HandoffTimeoutError) as stopped:
        capture.wait_until_captured(upto, timeout_s=1.0)
    for evidence in (str(upto), "STOPPED", "confirmed", "high watermark", shop.capture.connector):
        assert evidence in stopped.value.message
    shop.connect.resume(shop.capture.connector)
    capture.wait_until_captured(upto, timeout_s=60.0)


def test_a_wait_restarts_a_connector_that_fails_meanwhile(shop: Bootstrapping) -> None:
    """During a wait, no run restarts a failed connector, so the wait does it itself.

    Else a short error would use up the whole time of the wait.
    """
    fill(shop.database, "orders", 1)
    shop.add("orders")
    with _failing(shop):
        pass
    _capture(shop).wait_until_captured(shop.source.write_marker().position, timeout_s=60.0)


def test_onboarding_restarts_a_failed_connector_once(
    shop: Bootstrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run restarts it while the capture has no table that is followed."""
    fill(shop.database, "orders", 1)
    shop.add("orders")
    name, restarts, genuine = shop.capture.connector, list[str](), ConnectClient.restart

    def noted(client: ConnectClient, connector: str, *, only_failed: bool = True) -> None:
        restarts.append(connector)
        genuine(client, connector, only_failed=only_failed)

    group = Group(shop.capture, (shop.table("orders"),))
    with closing(Services(shop.config, NullProgress())) as services:
        prepare(services, group)  # from here on, the connector has the wanted settings
        with _failing(shop):
            monkeypatch.setattr(ConnectClient, "restart", noted)
            with pytest.raises(ConnectError, match=name):
                prepare(services, group)
            assert restarts == [name], "it fails again"
        prepare(services, group)
        assert restarts == [name, name]
    shop.connect.require_sound(name)


def test_onboarding_refuses_a_connector_that_loses_rows(
    shop: Bootstrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the version that the worker reports is another one."""
    genuine = ConnectClient.plugins

    def older(client: ConnectClient) -> list[Plugin]:
        return [replace(one, version="3.6.1.Final") for one in genuine(client)]

    group = Group(shop.capture, (shop.table("orders"),))
    monkeypatch.setattr(ConnectClient, "plugins", older)
    with (
        closing(Services(shop.config, NullProgress())) as services,
        pytest.raises(ConnectError, match="leaves out the rest of a COPY's rows"),
    ):
        prepare(services, group)


@contextmanager
def _failing(shop: Bootstrapping) -> Iterator[None]:
    """Let the connector fail, by a password that is wrong within the ``with`` block."""
    name, password = shop.capture.connector, shop.database.stack.passwords.get(CAPTURE)
    shop.database.stack.psql(f"ALTER ROLE {CAPTURE} PASSWORD 'another-one'")
    try:
        shop.connect.restart(name, only_failed=False)
        wait_until(lambda: bool((status := shop.connect.status(name)) and status.failure), "", 60)
        yield
    finally:
        shop.database.stack.psql(f"ALTER ROLE {CAPTURE} PASSWORD '{password}'")


def _capture(shop: Bootstrapping) -> Capture:
    context = shop.context()
    return Capture(
        table=shop.table("orders"),
        topic=shop.record("orders").topic,
        names=shop.capture,
        source=shop.source,
        connect=shop.connect,
        kafka=shop.kafka,
        definitions=context.definitions,
        sent=context.sent,
        recovery=Recovery(
            shop.connect,
            context.leases,
            context.store,
            context.kafka,
            context.config,
            context.sent,
        ),
        progress=Watch(),
    )
