"""An HTTP receiver of OpenLineage events, like the receivers of Marquez and DataHub."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


@dataclass
class Received:
    """The events that a receiver has accepted.

    Args:
        url: The URL at which the receiver listens.
        refuses: Whether the receiver answers each event with HTTP 401, as after a wrong login.
        events: The accepted events, in the order of their arrival.
        text: The bodies of the accepted requests, one after another.
    """

    url: str = ""
    refuses: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""

    def of(self, job: str) -> list[dict[str, Any]]:
        """The events of one job."""
        return [event for event in self.events if event["job"]["name"] == job]


@contextmanager
def receiving() -> Iterator[Received]:
    """A receiver at a free port of this machine for a ``with`` block."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        """Takes events at the path of OpenLineage's API."""

        protocol_version: ClassVar[str] = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            taken = self.path == "/api/v1/lineage" and not received.refuses
            if taken:
                received.events.append(json.loads(body))
                received.text += body
            self.send_response(201 if taken else 401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
