"""The state in Connect after a client's request has failed, and the offsets that a client uses."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cdc.config.kafka import ConnectConfig
from cdc.connect import ConnectClient
from cdc.errors import ConnectError


def test_a_connector_is_resumed_if_its_stop_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ConnectClient(ConnectConfig(url="http://localhost:1"))
    resumed: list[str] = []

    def too_long(*_: object) -> None:
        raise ConnectError("connector c did not stop in time", remedy="Look into the log.")

    monkeypatch.setattr(client, "stop", too_long)
    monkeypatch.setattr(client, "resume", resumed.append)
    with pytest.raises(ConnectError, match="did not stop"):
        client.change_offset("c", dict)
    assert resumed == ["c"]
    client.close()


FORMER = {"partition": {"server": "former"}, "offset": {"lsn": 900}}
OURS = {"partition": {"server": "shop_default"}, "offset": {"lsn": 7}}


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ([FORMER, OURS], {"lsn": 7}),
        ([OURS, FORMER], {"lsn": 7}),
        ([FORMER], None),
        ([{**OURS, "offset": None}], {}),
        ([], None),
    ],
)
def test_an_offset_that_a_former_connector_of_the_name_has_left_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, stored: list[Any], found: Any
) -> None:
    """Connect keeps the offsets of deleted connectors, by connector name and topic prefix."""
    client = ConnectClient(ConnectConfig(url="http://localhost:1"))
    written: list[Any] = []

    def answer(method: str, path: str, **asked: Any) -> httpx.Response:
        if method == "PATCH":
            written.append(asked["body"])
        body = {"topic.prefix": "shop_default"} if path.endswith("config") else {"offsets": stored}
        return httpx.Response(200, json=body)

    monkeypatch.setattr(client._rest, "ask", answer)
    assert client.offset("c") == found
    monkeypatch.setattr(client, "stop", lambda _: None)
    monkeypatch.setattr(client, "resume", lambda _: None)
    client.change_offset("c", lambda offset: {**offset, "lsn": 8})
    changed = [{**OURS, "offset": {"lsn": 8}}] if found is not None else []
    assert written == ([{"offsets": changed}] if changed else [])
    client.close()
