"""Chooses the stack's ports, which stay the same at restarts if they are still free."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable, Mapping

from stack.errors import StackError

HOST = "127.0.0.1"
# Below the range from which systems take ports for outgoing connections, since a server that is
# down for a moment must find its port free again.
_RANGE = range(15000, 30000)
_ATTEMPTS = 500
_PROBE_S = 3.0


def is_free(port: int) -> bool:
    """Whether a server of the stack could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this too. Connections of an earlier server in TIME_WAIT then do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def refused(port: int) -> str | None:
    """Return why a port of the stack takes no connection; None if a connection succeeds."""
    try:
        with socket.create_connection((HOST, port), timeout=_PROBE_S):
            return None
    except OSError as error:
        return f"no answer ({type(error).__name__})"


def choose(
    names: Iterable[str],
    kept: Mapping[str, int] | None = None,
    held: Collection[int] = (),
) -> dict[str, int]:
    """Return a port of the stack for each name: the kept port if usable, otherwise a free port.

    Args:
        names: The names that need a port.
        kept: The ports of the stack's earlier start, by name.
        held: The kept ports on which running servers of the stack listen.

    Raises:
        StackError: No free port was found.
    """
    kept = kept or {}
    chosen: dict[str, int] = {}
    for name in names:
        port = kept.get(name)
        if port is None or not (port in held or is_free(port)):
            port = _free_port({*chosen.values(), *kept.values()})
        chosen[name] = port
    return chosen


def _free_port(taken: set[int]) -> int:
    """Return a free port for a server of the stack, other than the ports in ``taken``."""
    # Random, so that two stacks that start at the same moment do not probe the same ports.
    for _ in range(_ATTEMPTS):
        port = random.choice(_RANGE)  # noqa: S311 - not a secret
        if port not in taken and is_free(port):
            return port
    raise StackError(
        f"no free port between {_RANGE.start} and {_RANGE.stop} on {HOST}",
        remedy="Stop what occupies them (`ss -ltnp` lists it), then run again.",
    )
