"""Decides who may see the page, by method, Host header and token; sets the answers' headers."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from cdc.config.secrets import SecretRef
from cdc.errors import ConfigError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What a browser may load and do: only files of this server, no inline script, no other site."""
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every answer."""
SHORTEST_TOKEN = 16
"""Minimum length of a token, in characters."""


def is_loopback(host: str) -> bool:
    """Whether the address of the page can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(host: str, reference: str | None) -> str | None:
    """Return the token that viewers of the page need; None if they need no token.

    Args:
        host: The address to listen at.
        reference: The reference to the token, in the form of references to passwords; None if no
            token is configured.

    Raises:
        ConfigError: The address can be reached from other machines and there is no token, or the
            token cannot be read or is too short.
    """
    if reference is None:
        if is_loopback(host):
            return None
        raise ConfigError(
            f"{host} can be reached from other machines, and no token protects the page",
            remedy="Name a token with --token '${NAME}' or --token '${file:/path}', or listen at"
            " 127.0.0.1.",
            field="token",
        )
    token = SecretRef.parse(reference).resolve()
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"the token of {reference} has fewer than {SHORTEST_TOKEN} characters",
            remedy="Make a longer one, for example with `openssl rand -hex 32`.",
            field="token",
        )
    return token


def knows_host(header: str, names: Collection[str]) -> bool:
    """Whether a viewer's Host header is ``localhost``, an IP address, or a name of the page's host.

    Another site can let its own name point to this machine (DNS rebinding). A browser with a page
    of that site then sends the site's name in this header. The site cannot make the browser send an
    IP address or ``localhost`` instead.

    Args:
        header: The value of the header.
        names: Further names of this server.
    """
    host = header.rsplit("]", 1)[0].lstrip("[") if header.startswith("[") else header.split(":")[0]
    host = host.lower().rstrip(".")
    if host == "localhost" or host in {name.lower() for name in names}:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_allowed(header: str, token: str) -> bool:
    """Whether a viewer's Authorization header has the page's token, as Bearer or as Basic."""
    kind, _, value = header.partition(" ")
    given = value.strip()
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode(), token.encode())


class Guarded:
    """Lets only allowed requests reach the application of the page.

    Args:
        app: The application, which answers the allowed requests.
        names: Names of this server that a Host header may have, besides ``localhost`` and IP
            addresses.
        token: The token that each request must have; None if requests need no token.
    """

    def __init__(self, app: App, *, names: Collection[str] = (), token: str | None = None) -> None:
        self._app = app
        self._names = names
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *ours]}
            await send(message)

        if (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, with_headers)
            return
        status, text, more = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8"), *more]
        await with_headers({"type": "http.response.start", "status": status, "headers": headers})
        await with_headers({"type": "http.response.body", "body": text.encode()})

    def _refusal(self, scope: Scope) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        sent = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not knows_host(sent.get(b"host", ""), self._names):
            return 421, "This server does not have this name; `tributary ui --name` adds it.\n", []
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "This page is read-only.\n", [(b"allow", b"GET, HEAD")]
        if self._token is not None and not is_allowed(sent.get(b"authorization", ""), self._token):
            ask = (b"www-authenticate", b'Basic realm="tributary", charset="UTF-8"')
            return 401, "This page needs its token, as the password.\n", [ask]
        return None
