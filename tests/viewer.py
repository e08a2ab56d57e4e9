"""A client of a web application, without a server and without a browser."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


class Viewer:
    """Sends requests to an ASGI application.

    Args:
        app: The application.
        base_url: The address under which the application seems to run.
    """

    def __init__(self, app: Any, base_url: str = "http://127.0.0.1:9466") -> None:
        self._app = app
        self._base_url = base_url

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Read a page."""
        return self.request("GET", path, **more)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request, and return the answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base_url) as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())
