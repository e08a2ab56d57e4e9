"""What a client leaves behind in Connect if a request fails."""

from __future__ import annotations

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
