"""Sends requests to Kafka Connect's REST API, with a time limit, retries and remedies."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx
import stamina

from cdc.connect import failures
from cdc.errors import ConnectError

if TYPE_CHECKING:
    from cdc.config import ConnectConfig

_RETRY = stamina.RetryingCaller(attempts=8, timeout=60.0, wait_max=4.0)
# A worker answers 409 while its group rebalances; see also `rebalancing`.
_RETRIED_STATUS = frozenset({409, 429, 502, 503, 504})


def rebalancing(status: int, text: str) -> bool:
    """Return whether Connect refused a request only because its workers rebalance.

    A request that was refused for this reason has had no effect. The HTTP status is 409, or 500 for
    a request that validates a configuration.
    """
    return status == httpx.codes.CONFLICT or (
        status == httpx.codes.INTERNAL_SERVER_ERROR and "rebalance is expected" in text
    )


class RestClient:
    """One Connect worker's REST API. Safe to share among threads.

    Args:
        config: The worker's address, and the login.
        request_timeout_s: Limit for one request, in seconds.
    """

    def __init__(self, config: ConnectConfig, *, request_timeout_s: float) -> None:
        self._url = config.url
        auth = None
        if config.username is not None:
            password = config.password.resolve() if config.password is not None else ""
            auth = httpx.BasicAuth(config.username, password)
        verify: ssl.SSLContext | bool = True
        if config.ca_file is not None:
            verify = ssl.create_default_context(cafile=str(config.ca_file))
        self._http = httpx.Client(
            base_url=config.url.rstrip("/") + "/",
            auth=auth,
            verify=verify,
            timeout=request_timeout_s,
            headers={"Accept": "application/json"},
        )

    def close(self) -> None:
        """Close the connections to a Connect worker."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        missing_ok: bool = False,
    ) -> httpx.Response:
        """Send Connect a request that must succeed, and return the answer.

        Args:
            method: The HTTP method.
            path: Path and query under the worker's URL.
            body: The JSON body.
            missing_ok: Whether to return an answer with status 404. If False, such an answer raises
                an error.

        Raises:
            ConnectError: The worker is unreachable, or refuses the request.
        """
        answer = self.send(method, path, body)
        if missing_ok and answer.status_code == httpx.codes.NOT_FOUND:
            return answer
        kind = answer.headers.get("content-type", "application/json")
        if not answer.is_success or not kind.startswith("application/json"):
            raise self.refused(answer, method, path)
        return answer

    def send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        """Send Connect a request and return its answer, including a refusal.

        Raises:
            ConnectError: The worker is unreachable.
        """

        def once() -> httpx.Response:
            answer = self._http.request(method, path, json=body)
            status = answer.status_code
            if status in _RETRIED_STATUS or rebalancing(status, answer.text):
                raise _TransientAnswerError(answer)
            return answer

        try:
            return _RETRY((httpx.TransportError, _TransientAnswerError), once)
        except _TransientAnswerError as error:
            return error.answer
        except httpx.TransportError as error:
            raise ConnectError(
                f"Kafka Connect at {self._url} is unreachable: {error or type(error).__name__}",
                remedy="Check connect.url and that the worker runs.",
            ) from error

    def refused(self, answer: httpx.Response, method: str, path: str) -> ConnectError:
        """Return the error to raise for an answer of Connect that is a refusal or is not JSON."""
        status = answer.status_code
        try:
            text = str(answer.json().get("message", ""))
        except (ValueError, AttributeError):
            text = answer.text
        remedy = failures.remedy(text, "Look into the log of the Connect worker.")
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            remedy = "Check connect.username and connect.password."
        elif status == httpx.codes.NOT_FOUND or answer.is_success:
            remedy = "Check that connect.url is a Connect worker, and the connector's name."
        elif rebalancing(status, text):
            remedy = "The worker group is rebalancing. Run the command again in a moment."
        return ConnectError(
            f"Kafka Connect at {self._url} answered HTTP {status} to {method}"
            f" {path.partition('?')[0] or '/'}: {failures.explain(text)}",
            remedy=remedy,
            status=status,
        )


class _TransientAnswerError(Exception):
    """A Connect worker refused a request that can succeed if it is sent again."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer
