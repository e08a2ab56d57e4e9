"""A proxy in front of a database server; the proxy can stop forwarding data."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from sqlalchemy.engine import make_url

_CHUNK = 65_536
_POLL_S = 0.05


class Proxy:
    """A TCP proxy that accepts connections even while it forwards nothing, like a hung server.

    Args:
        url: SQLAlchemy URL of the server.
    """

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows, self._closed = threading.Event(), threading.Event()
        self._flows.set()
        port = self._listener.getsockname()[1]
        own = make_url(url).set(host="127.0.0.1", port=port)
        self.url = own.render_as_string(hide_password=False)

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_raised: Any) -> None:
        self._closed.set()
        self._flows.set()
        self._listener.close()

    def lead_to(self, url: str) -> None:
        """Forward new connections to another server; the earlier ones stay."""
        parsed = make_url(url)
        assert parsed.host is not None
        assert parsed.port is not None
        self._server = (parsed.host, parsed.port)

    def stall(self) -> None:
        """Stop forwarding data, in both directions."""
        self._flows.clear()

    def go_on(self) -> None:
        """Forward the data that was held back, and all later data."""
        self._flows.set()

    def passed(self, data: bytes) -> bytes:
        """The bytes to forward, given the bytes that client or server sent."""
        return data

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError), one, other:  # either side went
            one.settimeout(_POLL_S)
            while not self._closed.is_set():
                try:
                    data = one.recv(_CHUNK)
                except TimeoutError:
                    continue
                self._flows.wait()
                if not data:
                    break
                other.sendall(self.passed(data))


class Pooler(Proxy):
    """A proxy that gives clients of PostgreSQL a false backend process id, as poolers do."""

    def passed(self, data: bytes) -> bytes:
        """Replace the process id in the message that the server sends at a login."""
        before, is_login, after = data.partition(b"K\0\0\0\x0c")
        return before + is_login + (b"\x7f\0\0\x01" + after[4:] if is_login else after)
