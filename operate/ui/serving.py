"""Serves the page over HTTP until the process is stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.ui import CACHE_S, PORT
from operate.ui.access import Guarded, token_of
from operate.ui.looks import Looks
from operate.ui.rendering import lacking

if TYPE_CHECKING:
    from cdc.config import Config

_ENDS_S = 10.0
"""Longest time to wait until the page's server has ended, in seconds."""


@dataclass(frozen=True)
class Place:
    """Where the page is served, and to whom.

    Args:
        host: The address to listen at.
        port: The port; 0 chooses a free one.
        names: Names of this server that a Host header may have, besides ``localhost`` and
            IP addresses.
        token: The reference to the token; None for a page that only this machine can reach.
    """

    host: str
    port: int = PORT
    names: Collection[str] = ()
    token: str | None = None


@contextmanager
def serving(config: Config, place: Place, *, cache_s: float = CACHE_S) -> Iterator[int]:
    """Serve the page in the background for a ``with`` block. No Spark session is started.

    Args:
        config: The configuration.
        place: Where the page is served, and to whom.
        cache_s: How long the page shows the facts of one read, in seconds.

    Yields:
        The port.

    Raises:
        ConfigError: A Python package is missing, the address or port cannot be used, or the page
            would be served to other machines without a token.
    """
    try:
        import uvicorn

        from operate.ui.app import Ui
    except ImportError as error:
        raise lacking(error.name or "starlette") from None
    token = token_of(place.host, place.token)
    taken = _listening_socket(place)
    services = Services(config, NullProgress())
    try:
        looks = Looks(services, cache_s=cache_s)
        looks.begin()
        app = Guarded(Ui(services, looks).app(), names=place.names, token=token)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
            )
        )
        # In a thread, uvicorn leaves the handling of signals to the process.
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [taken]}, name="ui", daemon=True
        )
        thread.start()
        try:
            yield int(taken.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(_ENDS_S)
    finally:
        taken.close()
        services.close()


def _listening_socket(place: Place) -> socket.socket:
    """Return a socket that accepts the page's viewers even before the server is ready.

    Raises:
        ConfigError: The address or port cannot be used.
    """
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        raise ConfigError(
            f"the page cannot be served at {place.host}:{place.port}: {error.strerror or error}",
            remedy="Choose another port with --port, or end the process that uses it.",
            field="port",
        ) from None
