"""The lines of `check` if the state store cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import KafkaError
from cdc.runtime.progress import NullProgress
from operate import check_kafka
from operate.check import check
from operate.context import Services
from tests.unit.cdc.configuration import minimal


def no_kafka(_services: Services) -> None:
    raise KafkaError("Kafka does not answer", remedy="None")


def test_the_servers_are_checked_without_a_state_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who sets up a project must see all faults at once."""
    document = minimal() | {
        "state": {"url": f"sqlite:///{tmp_path / 'missing' / 's' / 'state.db'}"}
    }
    document["lake"] = {"url": tmp_path.as_uri()}
    (tmp_path / "missing").write_text("a file where the folder must be")
    monkeypatch.setenv("ADMIN_PW", "secret")
    monkeypatch.setattr(check_kafka, "cluster", no_kafka)
    services = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    try:
        found = {line.name: line.status for line in check(services)}
    finally:
        services.close()
    servers = ("state store", "login admin", "Kafka", "Connect", "schema registry")
    assert {name: found[name] for name in servers} == dict.fromkeys(servers, "error")
    assert found["lake"] == "ok"
