"""No request changes a connector of another installation until the connector is taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import stamina

from cdc.config.kafka import ConnectConfig
from cdc.connect import INSTALLATION, ConnectClient, ConnectorOwner
from cdc.errors import ConnectError, OtherConnectorError

OWNER = ConnectorOwner(lambda: "here")


def config(made_by: str | None) -> dict[str, str]:
    return {"name": "c"} | ({} if made_by is None else {INSTALLATION: made_by})


def test_a_connector_names_the_installation_that_made_it() -> None:
    assert OWNER.other({"name": "c", **OWNER.mark}) is None
    told = OWNER.other(config("elsewhere"))
    assert told is not None
    assert "connector c is of installation elsewhere" in told.message
    assert "by its state store, is here" in told.message


def test_a_connector_that_names_no_installation_is_of_no_other_one() -> None:
    assert OWNER.other(config(None)) is None
    assert ConnectorOwner().other(config("elsewhere")) is None, "who has no name owns them all"


@pytest.fixture
def client() -> Iterator[ConnectClient]:
    """A client without a server: each request raises a ConnectError, so a test notices it."""
    made = ConnectClient(ConnectConfig(url="http://localhost:1"), owner=OWNER)
    with stamina.set_testing(True, attempts=1):
        yield made
    made.close()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda it: it.put_connector("c", {"connector.class": "C"}), id="put"),
        pytest.param(lambda it: it.restart("c"), id="restart"),
        pytest.param(lambda it: it.pause("c"), id="pause"),
        pytest.param(lambda it: it.resume("c"), id="resume"),
        pytest.param(lambda it: it.stop("c"), id="stop"),
        pytest.param(lambda it: it.wake("c"), id="wake"),
        pytest.param(lambda it: it.delete("c"), id="delete"),
        pytest.param(lambda it: it.change_offset("c", dict), id="offset"),
    ],
)
def test_no_change_is_asked_of_the_connector_of_another_installation(
    client: ConnectClient, monkeypatch: pytest.MonkeyPatch, change: Callable[[ConnectClient], None]
) -> None:
    class Stopped:
        state = "STOPPED"

    monkeypatch.setattr(client, "status", lambda _: Stopped)
    made_by = "elsewhere"
    monkeypatch.setattr(client, "connector", lambda _: config(made_by))
    with pytest.raises(OtherConnectorError):
        change(client)
    made_by = "here"
    with pytest.raises(ConnectError, match="localhost:1"):
        change(client)
