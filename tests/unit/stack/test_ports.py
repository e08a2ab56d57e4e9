"""The ports of servers: each is free when it is chosen, and stays the same afterwards."""

from __future__ import annotations

import socket

import pytest

from stack import ports
from stack.errors import StackError

NAMES = ("primary", "kafka", "connect")


def test_every_name_gets_a_free_port_of_its_own() -> None:
    chosen = ports.choose(NAMES)
    assert tuple(chosen) == NAMES
    assert len(set(chosen.values())) == len(NAMES)
    assert all(ports.is_free(port) for port in chosen.values())


def test_kept_ports_stay_while_they_are_free() -> None:
    kept = ports.choose(NAMES)
    assert ports.choose(NAMES, kept) == kept


def test_a_taken_port_moves_and_the_others_stay() -> None:
    kept = ports.choose(NAMES)
    with socket.create_server((ports.HOST, kept["kafka"])):
        assert not ports.is_free(kept["kafka"])
        chosen = ports.choose(NAMES, kept)
    assert chosen["kafka"] not in kept.values()
    assert {**chosen, "kafka": 0} == {**kept, "kafka": 0}


def test_a_port_that_our_own_server_holds_is_kept() -> None:
    kept = ports.choose(NAMES)
    with socket.create_server((ports.HOST, kept["kafka"])):
        assert ports.choose(NAMES, kept, held={kept["kafka"]}) == kept


def test_a_port_is_free_again_right_after_its_server_ended() -> None:
    port = ports.choose(["kafka"])["kafka"]
    with socket.create_server((ports.HOST, port)) as server:
        client = socket.create_connection((ports.HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # the server's side closes first: it is the one left in TIME_WAIT
        client.close()
    assert ports.is_free(port)


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
        with pytest.raises(StackError, match="no free port"):
            ports.choose(["kafka"])
