"""A listener that answers each request with a text that is made for this request."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from operate.metrics.text import CONTENT_TYPE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_FAST = 1
"""The fastest level of gzip. The slowest level would make the result a fifth smaller, but would
take more than ten times as long."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own, which ends with the process."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Does not log requests."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def listening(host: str, port: int, text: Callable[[], bytes]) -> Iterator[int]:
    """Answer requests for metrics in the background until the ``with`` block ends.

    The answer is plain text, compressed with gzip if the client accepts gzip.

    Args:
        host: The address to listen at.
        port: The port; 0 chooses a free one.
        text: Makes the answer to one request.

    Yields:
        The port.

    Raises:
        OSError: The address or port cannot be used.
    """

    def answer(asked: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if asked["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b""]
        body, headers = text(), [("Content-Type", CONTENT_TYPE)]
        if "gzip" in asked.get("HTTP_ACCEPT_ENCODING", ""):
            body = gzip.compress(body, _FAST)
            headers.append(("Content-Encoding", "gzip"))
        start("200 OK", headers)
        return [body]

    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    kind = _Server6 if family == socket.AF_INET6 else _Server
    with make_server(host, port, answer, kind, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        try:
            yield int(server.server_port)
        finally:
            server.shutdown()
            thread.join()
