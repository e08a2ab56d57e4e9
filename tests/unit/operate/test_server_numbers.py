"""The server ids by which MySQL and MariaDB distinguish the readers of a binlog."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cdc.config import Config, parse
from cdc.debezium import CaptureNames
from cdc.errors import CaptureError
from cdc.runtime.progress import NullProgress
from operate import tier_capture
from operate.capture_names import refuse_equal_numbers
from operate.context import Services
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ONE = CaptureNames("shop", "default", None, None, "c1", "shop_default", "mysql")
OTHER = CaptureNames("shop", "slow", None, None, "c2", "shop_slow", "mysql")


def numbered(number: str | None) -> Config:
    document = minimal()
    if number is not None:
        document["connect"]["connector"] = {"database.server.id": number}
    return parse(yaml.safe_dump(document))


def test_tiers_that_would_end_each_others_connector_are_refused() -> None:
    """If two readers have the same number, the primary ends the session of the first one."""
    binlogs = [ONE, OTHER]
    refuse_equal_numbers(numbered(None), binlogs)
    logs = [replace(one, kind="postgres", slot=one.connector) for one in binlogs]
    refuse_equal_numbers(numbered("77"), logs)
    refuse_equal_numbers(numbered("77"), binlogs[:1])
    refuse_equal_numbers(numbered("77"), [binlogs[0], replace(binlogs[1], source="other")])
    with pytest.raises(CaptureError, match="shop/default and shop/slow would share") as refused:
        refuse_equal_numbers(numbered("77"), binlogs)
    assert "Remove database.server.id from connect.connector" in refused.value.remedy


class Worker:
    """A fake Kafka Connect with or without the connector of a binlog.

    Args:
        settings: The connector's settings; None without one.
    """

    def __init__(self, settings: dict[str, str] | None) -> None:
        self.settings = settings

    def connector(self, _: str) -> dict[str, str] | None:
        return self.settings


def number(
    monkeypatch: pytest.MonkeyPatch, folder: Path, cluster: str, running: dict[str, str] | None
) -> str:
    """The number that a MySQL connector of an installation gets on a Kafka cluster."""
    document = minimal()
    document["sources"]["shop"] = {
        "kind": "mysql",
        "primary": {"host": "db.example.com"},
        "credentials": {"admin": {"user": "admin"}},
    }
    with closing(Services(parse(yaml.safe_dump(document), base=folder), NullProgress())) as made:
        monkeypatch.setattr(Services, "connect", Worker(running))
        monkeypatch.setattr(Services, "kafka", SimpleNamespace(ping=lambda: (cluster, 1)))
        wanted = tier_capture.wanted_connector(made, made.capture(TableId("shop", "shop", "a")))
    return wanted["database.server.id"]


def test_installations_with_the_same_names_have_numbers_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With equal numbers on one primary, the second connector ended the first one."""
    numbers = {number(monkeypatch, tmp_path, cluster, None) for cluster in ("one", "other")}
    assert len(numbers) == 2
    again = number(monkeypatch, tmp_path, "one", {})
    assert again in numbers
    known = {"database.server.id": "4144219184"}
    assert number(monkeypatch, tmp_path, "one", known) == "4144219184"
