"""A proxy in front of an S3-compatible server, which can refuse requests and can speak TLS."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stack.ports import HOST

_HOP = {"connection", "expect", "host", "keep-alive", "transfer-encoding"}
_LIMIT_S = 60.0


@dataclass(frozen=True)
class Request:
    """A request as the gate saw it.

    Args:
        method: ``GET``, ``PUT`` and so on.
        path: The path with the query.
        headers: The headers by their names in small letters.
    """

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def writes_rows(self) -> bool:
        """Whether the request uploads a Parquet file, or a part of one."""
        return self.method == "PUT" and ".parquet" in self.path


@dataclass(frozen=True)
class Refusal:
    """An answer that the gate gives in the server's place.

    Args:
        status: Status of HTTP; None closes the connection without an answer.
        code: The code of S3's error.
    """

    status: int | None
    code: str = ""

    @property
    def body(self) -> bytes:
        """The XML document of the error, as S3 sends it."""
        return f"<Error><Code>{self.code}</Code><Message>{self.code}</Message></Error>".encode()


BUSY = Refusal(503, "SlowDown")
FORBIDDEN = Refusal(403, "AccessDenied")
AWAY = Refusal(None)


@dataclass
class Gate:
    """A running gate.

    Args:
        endpoint: The URL of the gate.
        judge: Returns the refusal of a request, or None to pass the request on.
        requests: All requests so far.
        refused: The number of requests that the gate refused.
    """

    endpoint: str
    judge: Callable[[Request], Refusal | None] = lambda _request: None
    requests: list[Request] = field(default_factory=list)
    refused: int = 0

    @contextlib.contextmanager
    def refusing(self, judge: Callable[[Request], Refusal | None]) -> Iterator[None]:
        """Refuse the requests for which ``judge`` returns a refusal, while a block runs."""
        self.judge = judge
        try:
            yield
        finally:
            self.judge = lambda _request: None

    @contextlib.contextmanager
    def from_first_rows_on(self, refusal: Refusal) -> Iterator[None]:
        """Refuse the first upload of a Parquet file and all requests after it, so amid a commit."""
        begun = threading.Event()

        def judge(request: Request) -> Refusal | None:
            if request.writes_rows:
                begun.set()
            return refusal if begun.is_set() else None

        with self.refusing(judge):
            yield
        assert begun.is_set(), "nothing was written meanwhile"


@contextlib.contextmanager
def gate(port: int, certificates: Path | None = None) -> Iterator[Gate]:
    """A gate in front of a server; the gate is stopped at the end of the block.

    Args:
        port: Port of the server.
        certificates: Folder of ``make_certificates``, for a gate that speaks TLS.
    """
    server = _Server((HOST, 0), http.server.BaseHTTPRequestHandler)
    opened = Gate(f"{'https' if certificates else 'http'}://{HOST}:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(opened, port)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.plain")
        # The handshake is the connection's thread's, so that one that fails stops no other.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield opened
    finally:
        server.shutdown()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: in some tests, clients hang up because they distrust the certificate."""


def _handler(opened: Gate, port: int) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            request = Request(self.command, self.path, headers)
            opened.requests.append(request)
            if (refusal := opened.judge(request)) is not None:
                opened.refused += 1
                if refusal.status is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._answer(refusal.status, {"content-type": "application/xml"}, refusal.body)
                return
            server = http.client.HTTPConnection(HOST, port, timeout=_LIMIT_S)
            sent = {name: value for name, value in headers.items() if name not in _HOP}
            server.request(self.command, self.path, body, sent | {"host": headers["host"]})
            answer = server.getresponse()
            content = answer.read()
            self._answer(answer.status, dict(answer.getheaders()), content)
            server.close()

        def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in {*_HOP, "content-length"}:
                    self.send_header(name, value)
            # A HEAD reports the length of the object, and its answer has no body.
            length = {name.lower(): value for name, value in headers.items()}.get("content-length")
            shown = length if self.command == "HEAD" and length else str(len(content))
            self.send_header("Content-Length", shown)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    return Handler
